// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/train_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "strata/base/error.h"

namespace strata {
namespace {

TEST(TrainOptions, KeysAreUniqueAndSectionsTogether) {
  std::set<std::string> keys;
  for (const TrainOption& option : train_config_options()) {
    EXPECT_TRUE(keys.insert(option.key).second) << option.key;
    EXPECT_FALSE(option.help.empty()) << option.key;
    EXPECT_EQ(find_option(option.key), &option);
  }
  const std::vector<std::string> sections = option_sections();
  EXPECT_EQ(std::set<std::string>(sections.begin(), sections.end()).size(), sections.size());
}

TEST(TrainOptions, DefaultsFitTheirOwnRange) {
  TrainConfig config;
  for (const TrainOption& option : train_config_options()) {
    assign_option(option, option.get(config), "defaults", config);
  }
  EXPECT_EQ(config, TrainConfig{});
}

// Every option sets its own member and no other: a changed value shows up under its key only.
TEST(TrainOptions, EachOptionSetsItsOwnMember) {
  for (const TrainOption& option : train_config_options()) {
    TrainConfig config;
    const OptionValue before = option.get(config);
    OptionValue after = before;
    if (option.type == OptionType::kChoice) {
      after = option.details.choices[plain_text(before) == option.details.choices[0] ? 1 : 0];
    } else if (auto* boolean = std::get_if<bool>(&after)) {
      *boolean = !*boolean;
    } else if (auto* integer = std::get_if<int64_t>(&after)) {
      *integer += 1;
    } else if (auto* real = std::get_if<double>(&after)) {
      *real = *real / 2 + 0.25;
    } else if (auto* text = std::get_if<std::string>(&after)) {
      *text += "x";
    } else {
      std::get<std::vector<std::string>>(after).push_back("x");
    }
    assign_option(option, after, "test", config);
    for (const TrainOption& other : train_config_options()) {
      EXPECT_EQ(other.get(config) == other.get(TrainConfig{}), other.key != option.key)
          << option.key << " and " << other.key;
    }
  }
}

TEST(TrainOptions, ConditionsNameOptions) {
  for (const TrainOption& option : train_config_options()) {
    const OptionCondition& condition = option.details.only_with;
    EXPECT_TRUE(condition.key.empty() || find_option(condition.key) != nullptr) << option.key;
  }
}

TEST(TrainOptions, TextShowsKeyValuesDefaultAndHelp) {
  const std::string text = options_text();
  EXPECT_THAT(text, testing::HasSubstr("optimizer.lr (number above 0; default 0.0003)\n    peak learning rate\n"));
  EXPECT_THAT(text, testing::HasSubstr("model.config (text; default required)"));
}

TEST(TrainOptions, DocumentationIsUpToDate) {
  const std::filesystem::path path = STRATA_DOCS_FOLDER "/config.md";
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), options_markdown()) << path << " is out of date: write options_markdown() to it";
}

}  // namespace
}  // namespace strata
