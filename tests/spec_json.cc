// SPDX-License-Identifier: Apache-2.0
// Prints the config.json that Strata writes for a given one. Usage: spec_json CONFIG_JSON
#include <cstdio>
#include <nlohmann/json.hpp>

#include "strata/base/error.h"
#include "strata/spec/model_spec.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s CONFIG_JSON\n", argv[0]), 2;
  try {
    std::puts(strata::to_config_json(strata::read_model_spec(argv[1])).dump(2).c_str());
  } catch (const strata::Error& failure) {
    return std::fprintf(stderr, "%s\n", failure.what()), 2;
  }
  return 0;
}
