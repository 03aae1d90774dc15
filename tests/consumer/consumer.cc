// SPDX-License-Identifier: Apache-2.0
// Uses an installed Strata: a header, a compiled function and an Error across the library's border.
#include <array>
#include <cstdio>

#include "strata/device/cpu/team.h"
#include "strata/tensor/tensor.h"

int main() {
  std::array<int64_t, 2> sums = {0, 0};
  strata::Team team(2);
  team.run([&sums](int member, int) { sums[static_cast<size_t>(member)] = member + 1; });
  if (sums[0] + sums[1] != 3) return 1;
  try {
    strata::parse_dtype("f7");
  } catch (const strata::Error& error) {
    std::printf("consumer: %s\n", error.what());
    return 0;
  }
  return 1;
}
