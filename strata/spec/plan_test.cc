// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "strata/base/error.h"

namespace strata {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

ModelSpec small_model() {
  ModelSpec model;
  model.vocab = 50;
  model.max_positions = 16;
  model.num_blocks = 2;
  model.heads = 6;
  model.kv_heads = 2;
  model.ffn = 96;
  return model;
}

// Two stages, tp 2 x dp 3, twelve ranks.
Plan valid_plan() {
  Plan plan = single_rank_plan(small_model(), ActivationPolicy::kSelective, 4, 2, 8);
  for (LayerPlan& layer : plan.layers) layer = {2, 3, 1, ActivationPolicy::kKeep};
  plan.stage_layers = {4, 2};
  plan.num_ranks = 12;
  return plan;
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

std::string refusal_after(const std::function<void(Plan&)>& change) {
  Plan plan = valid_plan();
  change(plan);
  return refusal([&] { validate_plan(plan, small_model()); });
}

TEST(Plan, SingleRankPlanIsValid) {
  const Plan plan = single_rank_plan(small_model(), ActivationPolicy::kFull, 4, 2, 8);
  validate_plan(plan, small_model());
  EXPECT_EQ(plan.layers.size(), 6u);
  EXPECT_EQ(plan.layers[3].activations, ActivationPolicy::kFull);
  EXPECT_EQ(plan.stage_layers, std::vector<int64_t>{6});
  validate_plan(valid_plan(), small_model());
}

TEST(Plan, RefusesHeadsAndChannelsThatDoNotSplit) {
  const auto with_tp = [](Plan& plan, int64_t tp) {
    for (LayerPlan& layer : plan.layers) layer.tp = tp;
    plan.num_ranks = 2 * tp * 3;
  };
  EXPECT_THAT(
      refusal_after([&](Plan& plan) { with_tp(plan, 4); }),
      AllOf(HasSubstr("layer 1 (attention of block 0)"), HasSubstr("6 heads over tp 4"), HasSubstr("tp may be 1, 2")));
  EXPECT_THAT(refusal_after([&](Plan& plan) { with_tp(plan, 3); }), HasSubstr("2 kv_heads over tp 3"));
  ModelSpec odd = small_model();
  odd.ffn = 95;
  EXPECT_THAT(
      refusal([&] { validate_plan(valid_plan(), odd); }),
      AllOf(HasSubstr("layer 2 (MLP of block 0)"), HasSubstr("95 MLP channels over tp 2"), HasSubstr("1, 5, 19, 95")));
}

TEST(Plan, EmbeddingAndHeadMaySplitAnyVocabulary) {
  Plan plan = valid_plan();
  plan.layers.front() = {6, 1};
  plan.layers.back() = {6, 1};
  plan.micro_batch = 6;  // layers between have dp 3
  validate_plan(plan, small_model());
}

TEST(Plan, RefusesSamplesThatDoNotDivideOverALayer) {
  Plan plan = valid_plan();
  plan.layers[2] = {.tp = 1, .dp = 2, .cp = 3};
  plan.micro_batch = 5;
  EXPECT_THAT(refusal([&] { validate_plan(plan, small_model()); }),
              AllOf(HasSubstr("layer 2 (MLP of block 0): micro_batch 5 x dp 3 of layer 0 = 15 samples over dp 2"),
                    HasSubstr("use a micro_batch of a multiple of 2")));
  plan.micro_batch = 6;
  validate_plan(plan, small_model());
}

TEST(Plan, RefusesATiedTableInDifferentParts) {
  ModelSpec model = small_model();
  model.tied_head = true;
  Plan plan = valid_plan();
  plan.layers.back() = {6, 1};
  EXPECT_THAT(refusal([&] { validate_plan(plan, model); }),
              HasSubstr("the embedding has tp 2 and the head tp 6, and they share one table; use the same tp"));
  model.tied_head = false;
  validate_plan(plan, model);
}

TEST(Plan, RefusesTablesWithFewerRowsThanRanks) {
  ModelSpec model = small_model();
  model.vocab = 1;
  EXPECT_THAT(refusal([&] { validate_plan(valid_plan(), model); }),
              HasSubstr("layer 0 (embedding): 1 tokens of vocabulary over tp 2; tp may be at most 1"));
  model.vocab = 5;
  Plan plan = valid_plan();
  plan.layers.back() = {6, 1};
  EXPECT_THAT(refusal([&] { validate_plan(plan, model); }),
              HasSubstr("layer 5 (head): 5 tokens of vocabulary over tp 6; tp may be at most 5"));
  model.vocab = 50;
  model.max_positions = 1;
  EXPECT_THAT(refusal([&] { validate_plan(valid_plan(), model); }),
              HasSubstr("layer 0 (embedding): 1 learned positions over tp 2"));
  model.positions = PositionKind::kRope;
  validate_plan(valid_plan(), model);
}

// 16 Mi logits: of 1024 words 16384 tokens, in equal tiles; over tp ranks more.
TEST(Plan, HeadTilesAreEqualAndBounded) {
  ModelSpec model = small_model();
  model.vocab = 1024;
  Plan plan = valid_plan();
  plan.layers.back().tp = 1;
  EXPECT_EQ(head_tile_tokens(plan, model, 100), 100);
  EXPECT_EQ(head_tile_tokens(plan, model, 16385), 8193);
  plan.layers.back().tp = 2;
  EXPECT_EQ(head_tile_tokens(plan, model, 16385), 16385);
  plan.head_tile = 5;
  EXPECT_EQ(head_tile_tokens(plan, model, 16), 4);
  EXPECT_EQ(head_tile_tokens(plan, model, 0), 1);
}

TEST(Plan, RefusesStagesThatDoNotHoldTheLayers) {
  EXPECT_THAT(refusal_after([](Plan& plan) {
                plan.stage_layers = {2, 2};
              }),
              AllOf(HasSubstr("[2, 2] hold 4 layers"), HasSubstr("has 6")));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.stage_layers = {6, 0}; }), HasSubstr("a stage of 0 layers"));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.stage_layers = {}; }), HasSubstr("hold 0 layers"));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.layers.pop_back(); }),
              AllOf(HasSubstr("5 layers are planned"), HasSubstr("has 6"), HasSubstr("2 blocks")));
}

// Two stages of three virtual stages of one layer each.
Plan virtual_plan(PipelineOrder order, int64_t accumulation) {
  Plan plan = valid_plan();
  plan.stage_layers = {1, 1, 1, 1, 1, 1};
  plan.virtual_stages = 3;
  plan.order = order;
  plan.accumulation = accumulation;
  return plan;
}

TEST(Plan, VirtualStagesAreDealtOut) {
  const Plan plan = virtual_plan(PipelineOrder::kInterleaved, 4);
  EXPECT_EQ(num_stages(plan), 2);
  validate_plan(plan, small_model());
  validate_plan(virtual_plan(PipelineOrder::kBreadthFirst, 1), small_model());
  validate_plan(virtual_plan(PipelineOrder::kLayered, 3), small_model());
}

TEST(Plan, RefusesOrdersThatDoNotFit) {
  const auto refused = [](PipelineOrder order, int64_t accumulation, int64_t virtual_stages) {
    Plan plan = virtual_plan(order, accumulation);
    plan.virtual_stages = virtual_stages;
    if (virtual_stages == 1) plan.num_ranks = 6 * 6;
    return refusal([&] { validate_plan(plan, small_model()); });
  };
  for (PipelineOrder order : {PipelineOrder::kGpipe, PipelineOrder::kOneForwardOneBackward, PipelineOrder::kZeroBubble})
    EXPECT_THAT(refused(order, 4, 3), AllOf(HasSubstr("order " + order_name(order) + " with virtual_stages 3 needs 1"),
                                            HasSubstr("breadth_first and layered take more")));
  EXPECT_THAT(refused(PipelineOrder::kInterleaved, 5, 3),
              HasSubstr("order interleaved of accumulation 5 over 2 stages needs a multiple of 2, such as 6"));
  EXPECT_THAT(refused(PipelineOrder::kInterleaved, 6, 1), HasSubstr("virtual_stages 1 needs at least 2"));
  EXPECT_THAT(refused(PipelineOrder::kBreadthFirst, 4, 4),
              AllOf(HasSubstr("6 entries, not a multiple of virtual_stages 4"), HasSubstr("may be 1, 2, 3, 6")));
  EXPECT_THAT(refused(PipelineOrder::kBreadthFirst, 4, 0), HasSubstr("virtual_stages is 0"));
}

TEST(Plan, RefusesMoreVirtualStagesThanLayers) {
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.stage_layers.assign(8, 1); }),
              HasSubstr("stage_layers has 8 entries and the model 6 layers; at most 6 virtual stages have layers"));
}

TEST(Plan, RefusesRanksThatAreNotTheProduct) {
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.num_ranks = 5; }),
              AllOf(HasSubstr("num_ranks is 5"), HasSubstr("2 stages x tp 2 x cp 1 x dp 3 need 12")));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.layers[2].dp = 2; }),
              AllOf(HasSubstr("tp 2 x cp 1 x dp 2 = 4"), HasSubstr("tp 2 x cp 1 x dp 3 = 6")));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.layers[2].cp = 2; }),
              AllOf(HasSubstr("tp 2 x cp 2 x dp 3 = 12"), HasSubstr("tp 2 x cp 1 x dp 3 = 6")));
  EXPECT_THAT(refusal_after([](Plan& plan) {
                for (LayerPlan& layer : plan.layers) layer = {2, 2'147'483'647};
              }),
              HasSubstr("num_ranks is 12"));
}

TEST(Plan, RefusesNumbersOutOfRange) {
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.micro_batch = 0; }), HasSubstr("micro_batch is 0"));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.accumulation = -1; }), HasSubstr("accumulation is -1"));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.threads = 0; }), HasSubstr("threads is 0"));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.head_tile = -1; }), HasSubstr("head_tile is -1"));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.num_ranks = 0; }), HasSubstr("num_ranks is 0"));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.layers[1].zero = 4; }), HasSubstr("zero is 4"));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.layers[1].tp = 0; }), HasSubstr("tp 0, cp 1 and dp 3"));
  EXPECT_THAT(refusal_after([](Plan& plan) { plan.layers[1].cp = 0; }), HasSubstr("tp 2, cp 0 and dp 3"));
}

TEST(Plan, RanksAreDescribedTogetherOrLayerByLayer) {
  Plan plan = valid_plan();
  for (LayerPlan& layer : plan.layers) layer = {.tp = 2, .dp = 3, .zero = 1};
  EXPECT_EQ(describe_ranks(plan), "2 stages x dp 3 x cp 1 x tp 2, ZeRO 1");
  plan.layers[3] = {.tp = 1, .dp = 3, .zero = 1, .cp = 2};
  EXPECT_EQ(describe_ranks(plan),
            "2 stages x 6; layers 0 to 2: dp 3 x cp 1 x tp 2, ZeRO 1; layer 3: dp 3 x cp 2 x tp 1, ZeRO 1; layers 4 to "
            "5: dp 3 x cp 1 x tp 2, ZeRO 1");
}

TEST(Plan, JsonRoundTripsAndMergesEqualNeighbours) {
  Plan plan = valid_plan();
  plan.layers[2].activations = ActivationPolicy::kFull;
  plan.layers[5].zero = 3;
  plan.reduce = GradientReduce::kEach;
  plan.head_tile = 512;
  EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
  EXPECT_EQ(to_json(plan)["layers"].size(), 4u);  // 2, 1, 2 and 1 layers
  EXPECT_EQ(to_json(plan)["layers"][0]["count"], 2);
}

TEST(Plan, LayerKeysHaveDefaults) {
  const json object = json::parse(R"({"num_ranks": 1, "stage_layers": [6], "layers": [{"count": 6}], "micro_batch": 1,
                                      "accumulation": 1, "reduce": "last", "threads": 1})");
  EXPECT_EQ(parse_plan(object, "plan.json"), single_rank_plan(small_model(), ActivationPolicy::kKeep, 1, 1, 1));
}

// Plans that were written before there were orders.
TEST(Plan, OrderAndVirtualStagesHaveDefaults) {
  json object = to_json(valid_plan());
  object.erase("order");
  object.erase("virtual_stages");
  EXPECT_EQ(parse_plan(object, "plan.json"), valid_plan());
}

TEST(Plan, EveryOrderRoundTrips) {
  for (PipelineOrder order : {PipelineOrder::kGpipe, PipelineOrder::kOneForwardOneBackward, PipelineOrder::kInterleaved,
                              PipelineOrder::kBreadthFirst, PipelineOrder::kLayered, PipelineOrder::kZeroBubble}) {
    const Plan plan = virtual_plan(order, 4);
    EXPECT_EQ(to_json(plan)["order"], order_name(order));
    EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
  }
}

TEST(Plan, ParsingRefusesWhatItDoesNotUnderstand) {
  const auto refusal_with = [](const char* key, const json& value) {
    json object = to_json(valid_plan());
    object[key] = value;
    return refusal([&] { parse_plan(object, "plan.json"); });
  };
  EXPECT_THAT(refusal_with("micro_batches", 2),
              HasSubstr("unknown key micro_batches = 2 in plan.json: did you mean micro_batch?"));
  EXPECT_THAT(refusal_with("layers", {{{"tpp", 2}}}),
              HasSubstr("unknown key tpp = 2 in plan.json layers[0]: did you mean tp?"));
  EXPECT_THAT(refusal_with("layers", {{{"activations", "some"}}}),
              AllOf(HasSubstr("\"some\""), HasSubstr("keep, selective, full")));
  EXPECT_THAT(refusal_with("layers", {{{"zero", 4}}}), HasSubstr("zero is 4, must be from 0 to 3"));
  EXPECT_THAT(refusal_with("layers", {{{"count", 0}}}), HasSubstr("count is 0"));
  EXPECT_THAT(refusal_with("layers", 3), HasSubstr("must be a list"));
  EXPECT_THAT(refusal_with("layers", {3}), HasSubstr("expected a JSON object"));
  EXPECT_THAT(refusal_with("stage_layers", 3), HasSubstr("stage_layers must be a list"));
  EXPECT_THAT(refusal_with("stage_layers", json::array()), HasSubstr("stage_layers must be a list"));
  EXPECT_THAT(refusal_with("stage_layers", {3, "x"}), HasSubstr("[3,\"x\"]"));
  EXPECT_THAT(refusal_with("order", "depth_first"), AllOf(HasSubstr("\"depth_first\""), HasSubstr("interleaved")));
  EXPECT_THAT(refusal_with("virtual_stages", 0), HasSubstr("virtual_stages is 0"));
  EXPECT_THAT(refusal_with("schedule", "gpipe"), HasSubstr("did you mean order?"));
  EXPECT_THAT(refusal_with("reduce", "never"), AllOf(HasSubstr("\"never\""), HasSubstr("last, each")));
  EXPECT_THAT(refusal_with("threads", 0), HasSubstr("threads is 0"));
  json incomplete = to_json(valid_plan());
  incomplete.erase("threads");
  EXPECT_THAT(refusal([&] { parse_plan(incomplete, "plan.json"); }), HasSubstr("key threads is missing"));
}

TEST(Plan, ReadsFiles) {
  const std::string path = testing::TempDir() + "strata_plan_test.json";
  std::ofstream(path) << to_json(valid_plan()).dump(2);
  EXPECT_EQ(read_plan(path), valid_plan());
  std::filesystem::remove(path);
  EXPECT_THROW(read_plan(path), Error);
}

}  // namespace
}  // namespace strata
