// SPDX-License-Identifier: Apache-2.0
#include "strata/base/differences.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Differences, NoneIsEmpty) {
  EXPECT_TRUE(Differences().none());
  EXPECT_EQ(Differences().text(), "");
}

TEST(Differences, KindsAreToldApartAndCutShort) {
  Differences differences;
  differences.unexpected = {"c"};
  EXPECT_FALSE(differences.none());
  EXPECT_EQ(differences.text(), "not expected: c");
  differences.missing = {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"};
  differences.different = {"d (1, not 2)"};
  EXPECT_EQ(differences.text(), "missing: a1, a2, a3, a4, a5, a6 and 2 more; not expected: c; different: d (1, not 2)");
}

}  // namespace
}  // namespace strata
