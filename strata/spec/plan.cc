// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/plan.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "strata/base/error.h"
#include "strata/spec/json_reader.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();
constexpr int64_t kHeadTileElements = 16 << 20;  // f32 logits of one tile: 64 MiB

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

const std::vector<std::string>& activation_names() {
  static const std::vector<std::string> names = {"keep", "selective", "full", "partitioned"};
  return names;
}

const std::vector<std::string>& reduce_names() {
  static const std::vector<std::string> names = {"last", "each"};
  return names;
}

const std::vector<std::string>& context_names() {
  static const std::vector<std::string> names = {"ring", "heads"};
  return names;
}

const std::vector<std::string>& order_names() {
  static const std::vector<std::string> names = {
      "gpipe", "one_forward_one_backward", "interleaved", "breadth_first", "layered", "zero_bubble"};
  return names;
}

LayerPlan parse_layer(JsonReader& reader) {
  const LayerPlan defaults;
  LayerPlan layer;
  layer.tp = reader.integer("tp", defaults.tp, 1, kMaxCount);
  layer.cp = reader.integer("cp", defaults.cp, 1, kMaxCount);
  layer.context = static_cast<ContextExchange>(reader.choice("context", 0, context_names()));
  layer.dp = reader.integer("dp", defaults.dp, 1, kMaxCount);
  layer.zero = static_cast<int>(reader.integer("zero", defaults.zero, 0, 3));
  layer.activations = static_cast<ActivationPolicy>(reader.choice("activations", 0, activation_names()));
  return layer;
}

std::vector<LayerPlan> parse_layers(const json& list, const std::string& where) {
  if (!list.is_array()) throw_bad_input("{}: layers must be a list of objects, found {}", where, list.type_name());
  std::vector<LayerPlan> layers;
  for (size_t i = 0; i < list.size(); ++i) {
    JsonReader reader(list[i], fmt::format("{} layers[{}]", where, i));
    const int64_t count = reader.integer("count", 1, 1, 1'000'000);
    layers.insert(layers.end(), static_cast<size_t>(count), parse_layer(reader));
    reader.refuse_unknown(
        {{"tensor_parallel", "tp"}, {"context_parallel", "cp"}, {"data_parallel", "dp"}, {"recompute", "activations"}});
  }
  return layers;
}

std::vector<int64_t> parse_stages(const json& list, const std::string& where) {
  std::vector<int64_t> stages;
  const bool is_list = list.is_array();
  for (const json& layers : list) {
    if (!is_list || !layers.is_number_integer() || layers < 1 || layers > kMaxCount) break;
    stages.push_back(layers.get<int64_t>());
  }
  if (!is_list || stages.empty() || stages.size() != list.size()) {
    throw_bad_input("{}: stage_layers must be a list of layer counts of at least 1 such as [5, 5], found {}", where,
                    list.dump());
  }
  return stages;
}

std::string layer_name(size_t index, size_t num_layers) {
  if (index == 0) return "layer 0 (embedding)";
  if (index + 1 == num_layers) return fmt::format("layer {} (head)", index);
  return fmt::format("layer {} ({} of block {})", index, index % 2 == 1 ? "attention" : "MLP", (index - 1) / 2);
}

std::string divisors(int64_t number) {
  std::vector<int64_t> found;
  for (int64_t divisor = 1; divisor <= number && found.size() < 8; ++divisor) {
    if (number % divisor == 0) found.push_back(divisor);
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

void check_positives(const Plan& plan) {
  const std::pair<const char*, int64_t> counts[] = {{"num_ranks", plan.num_ranks},
                                                    {"virtual_stages", plan.virtual_stages},
                                                    {"micro_batch", plan.micro_batch},
                                                    {"accumulation", plan.accumulation},
                                                    {"threads", plan.threads}};
  for (const auto& [name, value] : counts) {
    if (value < 1 || value > kMaxCount) throw_bad_input("plan: {} is {}, must be from 1 to {}", name, value, kMaxCount);
  }
}

void check_stages(const Plan& plan, const ModelSpec& model) {
  const int64_t wanted = num_layers(model);
  if (static_cast<int64_t>(plan.layers.size()) != wanted) {
    throw_bad_input("plan: {} layers are planned, the model has {} (embedding, attention and MLP of {} blocks, head)",
                    plan.layers.size(), wanted, model.num_blocks);
  }
  const auto entries = static_cast<int64_t>(plan.stage_layers.size());
  if (entries > wanted) {
    throw_bad_input("plan: stage_layers has {} entries and the model {} layers; at most {} virtual stages have layers",
                    entries, wanted, wanted);
  }
  int64_t staged = 0;
  for (const int64_t layers : plan.stage_layers) {
    if (layers < 1 || layers > wanted) {
      throw_bad_input("plan: a stage of {} layers in stage_layers [{}]; each stage needs 1 to {} layers", layers,
                      fmt::join(plan.stage_layers, ", "), wanted);
    }
    staged += layers;
  }
  if (staged != wanted) {
    throw_bad_input("plan: stage_layers [{}] hold {} layers, the model has {}; the stages must add up to {}",
                    fmt::join(plan.stage_layers, ", "), staged, wanted, wanted);
  }
}

bool one_virtual_stage_only(PipelineOrder order) {
  return order == PipelineOrder::kGpipe || order == PipelineOrder::kOneForwardOneBackward ||
         order == PipelineOrder::kZeroBubble;
}

// What an order asks of virtual stages and micro-batches.
void check_order(const Plan& plan) {
  const auto entries = static_cast<int64_t>(plan.stage_layers.size());
  if (entries % plan.virtual_stages != 0) {
    throw_bad_input("plan: stage_layers has {} entries, not a multiple of virtual_stages {}; virtual_stages may be {}",
                    entries, plan.virtual_stages, divisors(entries));
  }
  const std::string& name = order_name(plan.order);
  if (one_virtual_stage_only(plan.order) && plan.virtual_stages != 1) {
    throw_bad_input("plan: order {} with virtual_stages {} needs 1; interleaved, breadth_first and layered take more",
                    name, plan.virtual_stages);
  }
  if (plan.order != PipelineOrder::kInterleaved) return;
  if (plan.virtual_stages == 1) {
    throw_bad_input("plan: order {} with virtual_stages 1 needs at least 2; with 1 use one_forward_one_backward", name);
  }
  const int64_t stages = num_stages(plan);
  if (plan.accumulation % stages != 0) {
    throw_bad_input("plan: order {} of accumulation {} over {} stages needs a multiple of {}, such as {}", name,
                    plan.accumulation, stages, stages, (plan.accumulation / stages + 1) * stages);
  }
}

// Tables split their rows unevenly where they must: every rank has some.
void check_table_split(const std::string& name, const char* rows_name, int64_t rows, int64_t tp) {
  if (rows < tp) throw_bad_input("plan: {}: {} {} over tp {}; tp may be at most {}", name, rows, rows_name, tp, rows);
}

// Splitting of the vocabulary, positions, heads and MLP channels.
void check_tensor_split(const Plan& plan, const ModelSpec& model, size_t index) {
  const int64_t tp = plan.layers[index].tp;
  const std::string name = layer_name(index, plan.layers.size());
  if (index == 0 || index + 1 == plan.layers.size()) {
    check_table_split(name, "tokens of vocabulary", model.vocab, tp);
    if (index == 0 && model.positions == PositionKind::kLearned)
      check_table_split(name, "learned positions", model.max_positions, tp);
  } else if (index % 2 == 1) {
    const int64_t common = std::gcd(model.heads, model.kv_heads);
    if (model.heads % tp != 0)
      throw_bad_input("plan: {}: {} heads over tp {}; tp may be {}", name, model.heads, tp, divisors(common));
    if (model.kv_heads % tp != 0) {
      throw_bad_input("plan: {}: {} kv_heads over tp {}; tp may be {}", name, model.kv_heads, tp, divisors(common));
    }
    const LayerPlan& layer = plan.layers[index];
    if (shares_heads(layer) && common / tp % layer.cp != 0)
      throw_bad_input(
          "plan: {}: {} heads and {} kv_heads over tp {} x cp {} with context \"heads\"; cp may be {}, or use "
          "\"ring\"",
          name, model.heads, model.kv_heads, tp, layer.cp, divisors(common / tp));
  } else if (model.ffn % tp != 0) {
    throw_bad_input("plan: {}: {} MLP channels over tp {}; tp may be {}", name, model.ffn, tp, divisors(model.ffn));
  }
}

// Of a stage; as a double, because the product may exceed 63 bits.
double ranks_of(const LayerPlan& layer) {
  return static_cast<double>(layer.tp) * static_cast<double>(layer.cp) * static_cast<double>(layer.dp);
}

void check_layer(const Plan& plan, const ModelSpec& model, size_t index) {
  const LayerPlan& layer = plan.layers[index];
  const LayerPlan& first = plan.layers[0];
  const std::string name = layer_name(index, plan.layers.size());
  if (std::min({layer.tp, layer.cp, layer.dp}) < 1 || std::max({layer.tp, layer.cp, layer.dp}) > kMaxCount) {
    throw_bad_input("plan: {}: tp {}, cp {} and dp {} must be from 1 to {}", name, layer.tp, layer.cp, layer.dp,
                    kMaxCount);
  }
  if (layer.zero < 0 || layer.zero > 3) throw_bad_input("plan: {}: zero is {}, must be 0, 1, 2 or 3", name, layer.zero);
  if (ranks_of(layer) != ranks_of(first)) {
    throw_bad_input(
        "plan: {}: tp {} x cp {} x dp {} = {} ranks, layer 0 has tp {} x cp {} x dp {} = {}; tp x cp x dp must be "
        "equal for all layers",
        name, layer.tp, layer.cp, layer.dp, ranks_of(layer), first.tp, first.cp, first.dp, ranks_of(first));
  }
  const int64_t samples = plan.micro_batch * first.dp;
  if (samples % layer.dp != 0)
    throw_bad_input(
        "plan: {}: micro_batch {} x dp {} of layer 0 = {} samples over dp {}; use a micro_batch of a multiple of {}",
        name, plan.micro_batch, first.dp, samples, layer.dp, layer.dp / std::gcd(layer.dp, first.dp));
  check_tensor_split(plan, model, index);
}

// Both ends of a tied token table hold the same rows of it.
void check_tied_table(const Plan& plan, const ModelSpec& model) {
  const int64_t first = plan.layers.front().tp, last = plan.layers.back().tp;
  if (model.tied_head && first != last)
    throw_bad_input("plan: the embedding has tp {} and the head tp {}, and they share one table; use the same tp",
                    first, last);
}

void check_ranks(const Plan& plan) {
  const int64_t stages = num_stages(plan);
  const LayerPlan& layer = plan.layers[0];
  const double needed = static_cast<double>(stages) * ranks_of(layer);
  if (static_cast<double>(plan.num_ranks) != needed) {
    throw_bad_input("plan: num_ranks is {}, but {} stages x tp {} x cp {} x dp {} need {}", plan.num_ranks, stages,
                    layer.tp, layer.cp, layer.dp, needed);
  }
}

}  // namespace

int64_t head_tile_tokens(const Plan& plan, const ModelSpec& model, int64_t tokens) {
  const int64_t words = divide_up(model.vocab, plan.layers.back().tp);
  const int64_t wanted = plan.head_tile > 0 ? plan.head_tile : std::max<int64_t>(kHeadTileElements / words, 1);
  const int64_t tiles = std::max<int64_t>(divide_up(tokens, wanted), 1);
  return std::max<int64_t>(divide_up(tokens, tiles), 1);  // equal tiles
}

const std::string& order_name(PipelineOrder order) { return order_names()[static_cast<size_t>(order)]; }

std::string describe_ranks(const Plan& plan) {
  const auto degrees = [](const LayerPlan& layer) {
    return fmt::format("dp {} x cp {} x tp {}, ZeRO {}", layer.dp, layer.cp, layer.tp, layer.zero);
  };
  std::vector<std::string> runs;  // of layers with the same degrees
  for (size_t begin = 0, end; begin < plan.layers.size(); begin = end) {
    const std::string text = degrees(plan.layers[begin]);
    for (end = begin + 1; end < plan.layers.size() && degrees(plan.layers[end]) == text;) ++end;
    if (end - begin == plan.layers.size()) return fmt::format("{} stages x {}", num_stages(plan), text);
    runs.push_back(end == begin + 1 ? fmt::format("layer {}: {}", begin, text)
                                    : fmt::format("layers {} to {}: {}", begin, end - 1, text));
  }
  return fmt::format("{} stages x {}; {}", num_stages(plan), plan.num_ranks / num_stages(plan), fmt::join(runs, "; "));
}

Plan single_rank_plan(const ModelSpec& model, ActivationPolicy activations, int64_t micro_batch, int64_t accumulation,
                      int64_t threads) {
  Plan plan;
  plan.stage_layers = {num_layers(model)};
  plan.layers.assign(static_cast<size_t>(num_layers(model)), LayerPlan{.activations = activations});
  plan.micro_batch = micro_batch;
  plan.accumulation = accumulation;
  plan.threads = threads;
  return plan;
}

void validate_plan(const Plan& plan, const ModelSpec& model) {
  check_positives(plan);
  check_stages(plan, model);
  check_order(plan);
  if (plan.head_tile < 0 || plan.head_tile > kMaxCount)
    throw_bad_input("plan: head_tile is {}, must be from 0 (about 64 MiB of logits) to {}", plan.head_tile, kMaxCount);
  for (size_t index = 0; index < plan.layers.size(); ++index) check_layer(plan, model, index);
  check_tied_table(plan, model);
  check_ranks(plan);
}

json to_json(const Plan& plan) {
  json layers = json::array();
  for (size_t begin = 0, end; begin < plan.layers.size(); begin = end) {
    const LayerPlan& layer = plan.layers[begin];
    for (end = begin + 1; end < plan.layers.size() && plan.layers[end] == layer;) ++end;
    layers.push_back({{"count", end - begin},
                      {"tp", layer.tp},
                      {"cp", layer.cp},
                      {"context", context_names()[static_cast<size_t>(layer.context)]},
                      {"dp", layer.dp},
                      {"zero", layer.zero},
                      {"activations", activation_names()[static_cast<size_t>(layer.activations)]}});
  }
  return {{"num_ranks", plan.num_ranks},
          {"stage_layers", plan.stage_layers},
          {"virtual_stages", plan.virtual_stages},
          {"order", order_name(plan.order)},
          {"layers", layers},
          {"micro_batch", plan.micro_batch},
          {"accumulation", plan.accumulation},
          {"reduce", reduce_names()[static_cast<size_t>(plan.reduce)]},
          {"head_tile", plan.head_tile},
          {"threads", plan.threads},
          {"sequence_parallel", plan.sequence_parallel},
          {"overlap", plan.overlap}};
}

Plan parse_plan(const json& object, const std::string& where) {
  JsonReader reader(object, where);
  const Plan defaults;
  Plan plan;
  plan.num_ranks = reader.integer("num_ranks", std::nullopt, 1, kMaxCount);
  plan.stage_layers = parse_stages(reader.at("stage_layers"), where);
  plan.virtual_stages = reader.integer("virtual_stages", plan.virtual_stages, 1, kMaxCount);
  plan.order = static_cast<PipelineOrder>(reader.choice("order", static_cast<size_t>(plan.order), order_names()));
  plan.layers = parse_layers(reader.at("layers"), where);
  plan.micro_batch = reader.integer("micro_batch", std::nullopt, 1, kMaxCount);
  plan.accumulation = reader.integer("accumulation", std::nullopt, 1, kMaxCount);
  plan.reduce = static_cast<GradientReduce>(reader.choice("reduce", std::nullopt, reduce_names()));
  plan.head_tile = reader.integer("head_tile", defaults.head_tile, 0, kMaxCount);
  plan.threads = reader.integer("threads", std::nullopt, 1, kMaxCount);
  plan.sequence_parallel = reader.boolean("sequence_parallel", defaults.sequence_parallel);
  plan.overlap = reader.boolean("overlap", defaults.overlap);
  reader.refuse_unknown({{"world_size", "num_ranks"},
                         {"gradient_accumulation_steps", "accumulation"},
                         {"schedule", "order"},
                         {"num_model_chunks", "virtual_stages"}});
  return plan;
}

Plan read_plan(const std::string& path) { return parse_plan(read_json_file(path), path); }

}  // namespace strata
