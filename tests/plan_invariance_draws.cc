// SPDX-License-Identifier: Apache-2.0
// plan_invariance_draws FIRST LAST: the claims of plan invariance for the draws of a range of seeds. Prints a line for
// every claim that does not hold, then how many of how many draws hold; exits with 1 where one does not.
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "tests/plan_checks.h"

namespace strata::testing {
namespace {

struct Claim {
  const char* name;
  std::string (*check)(uint64_t seed);
};
constexpr Claim kClaims[] = {{"SGD", check_sgd}, {"AdamW", check_adamw}, {"sharding", check_sharding}};

bool holds(uint64_t seed) {
  bool all = true;
  for (const auto& [name, check] : kClaims)
    if (const std::string difference = check(seed); !difference.empty()) {
      fmt::print("{}: {}\n", name, difference);
      all = false;
    }
  return all;
}

}  // namespace
}  // namespace strata::testing

int main(int argc, char** argv) {
  const uint64_t first = argc == 3 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const uint64_t last = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (first == 0 || last < first) {
    fmt::print(stderr, "usage: plan_invariance_draws FIRST LAST\n");
    return 2;
  }
  uint64_t held = 0;
  for (uint64_t seed = first; seed <= last; ++seed) held += strata::testing::holds(seed) ? 1 : 0;
  fmt::print("seeds {} to {}: {} of {} hold\n", first, last, held, last - first + 1);
  return held == last - first + 1 ? 0 : 1;
}
