// SPDX-License-Identifier: Apache-2.0
// docs/parallelism.md, whose tables and pictures tests make anew. Included by *_test.cc only.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace strata {

inline std::string parallelism_docs() {
  std::ostringstream text;
  text << std::ifstream(std::filesystem::path(STRATA_DOCS_FOLDER) / "parallelism.md").rdbuf();
  return text.str();
}

}  // namespace strata
