// SPDX-License-Identifier: Apache-2.0
#include "tests/random_plan.h"

#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>

#include "strata/base/error.h"
#include "strata/base/random.h"

namespace strata::testing {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  // One of 0 .. count - 1.
  int64_t roll(int64_t count) {
    return static_cast<int64_t>(philox(seed_, next_++, 0)[0] % static_cast<uint32_t>(count));
  }
  bool coin() { return roll(2) == 1; }
  template <typename T>
  T pick(const std::vector<T>& values) {
    return values[static_cast<size_t>(roll(static_cast<int64_t>(values.size())))];
  }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

ModelSpec draw_model(Dice& dice) {
  ModelSpec model = dice.coin() ? tiny_llama() : tiny_gpt2();
  model.num_blocks = 1 + dice.roll(3);
  model.heads = dice.pick<int64_t>({2, 4, 6});
  model.kv_heads = model.heads / dice.pick<int64_t>({1, 1, 2});
  if (model.family == "gpt2") model.kv_heads = model.heads;
  model.head_dim = dice.pick<int64_t>({4, 8});
  model.hidden = model.heads * model.head_dim;
  model.ffn = dice.pick<int64_t>({24, 48, 72});
  model.vocab = dice.pick<int64_t>({31, 64, 97});
  model.tied_head = dice.coin();
  const float dropout = dice.pick<float>({0.0f, 0.0f, 0.2f});
  model.attention_dropout = model.residual_dropout = model.embedding_dropout = dropout;
  return model;
}

std::vector<int64_t> common_divisors(int64_t a, int64_t b, int64_t c) {
  std::vector<int64_t> result;
  for (int64_t divisor : {1, 2, 3, 4, 6})
    if (a % divisor == 0 && b % divisor == 0 && c % divisor == 0) result.push_back(divisor);
  return result;
}

bool is_legal(const Plan& plan, const ModelSpec& model) {
  try {
    validate_plan(plan, model);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<int64_t> draw_stages(Dice& dice, int64_t stages, int64_t layers) {
  std::vector<int64_t> sizes(static_cast<size_t>(stages), 1);
  for (int64_t rest = layers - stages; rest > 0; --rest) ++sizes[static_cast<size_t>(dice.roll(stages))];
  return sizes;
}

// Half of the draws share all layers alike, the others each block or each layer as it comes.
void draw_degrees(Dice& dice, const ModelSpec& model, int64_t stage_ranks, Plan& plan) {
  const int64_t alike = dice.pick<int64_t>({0, 0, 2, 1});  // layers; 0: all
  const std::vector<int64_t> tensor_ranks = common_divisors(model.heads, model.kv_heads, model.ffn);
  LayerPlan degrees;
  for (size_t layer = 0; layer < plan.layers.size(); ++layer) {
    if (layer == 0 || (alike > 0 && static_cast<int64_t>(layer) % alike == 0)) {
      do degrees.tp = dice.pick(tensor_ranks);
      while (stage_ranks % degrees.tp != 0);
      do degrees.cp = 1 + dice.roll(stage_ranks / degrees.tp);
      while (stage_ranks / degrees.tp % degrees.cp != 0);
      degrees.dp = stage_ranks / (degrees.tp * degrees.cp);
    }
    plan.layers[layer].tp = degrees.tp;
    plan.layers[layer].cp = degrees.cp;
    plan.layers[layer].dp = degrees.dp;
    const int64_t parts = degrees.tp * degrees.cp;
    if (model.heads % parts == 0 && model.kv_heads % parts == 0)
      plan.layers[layer].context = dice.pick<ContextExchange>({ContextExchange::kRing, ContextExchange::kHeads});
  }
}

Plan draw_any_plan(Dice& dice, const ModelSpec& model) {
  Plan plan;
  const int64_t layers = num_layers(model);
  const int64_t stage_ranks = dice.pick<int64_t>({1, 2, 2, 3, 4, 4, 6, 8});
  const int64_t stages = std::min<int64_t>(1 + dice.roll(std::min<int64_t>(8 / stage_ranks, 4)), layers);
  plan.num_ranks = stage_ranks * stages;
  plan.virtual_stages = std::min<int64_t>(1 + dice.roll(3), layers / stages);
  plan.order = static_cast<PipelineOrder>(dice.roll(6));
  plan.stage_layers = draw_stages(dice, stages * plan.virtual_stages, layers);
  for (int64_t layer = 0; layer < layers; ++layer)
    plan.layers.push_back({1, 1, static_cast<int>(dice.roll(4)), static_cast<ActivationPolicy>(dice.roll(4)), 1});
  draw_degrees(dice, model, stage_ranks, plan);
  plan.micro_batch = 1 + dice.roll(4);
  plan.accumulation = 1 + dice.roll(4);
  plan.reduce = dice.coin() ? GradientReduce::kEach : GradientReduce::kLast;
  plan.head_tile = dice.pick<int64_t>({0, 0, 3, 7});
  plan.threads = 1;
  plan.overlap = dice.coin();
  plan.sequence_parallel = dice.coin();
  return plan;
}

Plan draw_legal_plan(Dice& dice, const ModelSpec& model) {
  for (;;) {
    Plan plan = draw_any_plan(dice, model);
    if (is_legal(plan, model)) return plan;
  }
}

// Nothing in half of the draws; otherwise tensors one by one, whole layers, or all but one tensor.
std::vector<std::string> draw_frozen(Dice& dice, const ModelSpec& model) {
  if (dice.coin()) return {};
  std::vector<std::string> names;
  const std::vector<LayerDecl> layers = declare_layers(model);
  for (const LayerDecl& layer : layers)
    for (size_t index = 0; index < layer.parameters.size(); ++index)
      if (static_cast<int>(index) != layer.tied_parameter) names.push_back(layer.parameters[index].name);
  const std::string trained = dice.pick(names);
  const int64_t kind = dice.roll(3);
  const int64_t border = dice.roll(static_cast<int64_t>(layers.size()));
  std::vector<std::string> frozen;
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (size_t index = 0; index < layers[layer].parameters.size(); ++index) {
      const std::string& name = layers[layer].parameters[index].name;
      if (name == trained || static_cast<int>(index) == layers[layer].tied_parameter) continue;
      if (kind == 0 ? dice.coin() : kind == 1 ? static_cast<int64_t>(layer) <= border : true) frozen.push_back(name);
    }
  return frozen;
}

PlanCourse start(ModelHarness& harness) {
  PlanCourse course;
  harness.collect_states(course.before);
  return course;
}

}  // namespace

PlanDraw draw_plan(uint64_t seed, OptimizerKind optimizer) {
  Dice dice(seed);
  PlanDraw draw;
  draw.options.model = draw_model(dice);
  draw.options.optimizer.kind = optimizer;
  draw.options.optimizer.weight_decay = dice.coin() ? 0.1 : 0.0;
  draw.options.optimizer.clip_norm = dice.coin() ? 0.5 : 0.0;
  draw.options.optimizer.momentum = 0.9;
  draw.options.threads = 1;
  draw.plan = draw_legal_plan(dice, draw.options.model);
  const int64_t samples = draw.plan.micro_batch * draw.plan.accumulation * draw.plan.layers[0].dp;
  draw.options.micro_batch = samples;
  const int64_t documents = std::max<int64_t>(samples - dice.roll(2), 1);  // the last batch of a run may be short
  for (int64_t index = 0; index < documents; ++index)
    draw.documents.push_back(make_documents(1, static_cast<int>(1 + dice.roll(16)),
                                            static_cast<int>(draw.options.model.vocab),
                                            seed * 1000 + static_cast<uint64_t>(index))[0]);
  draw.options.frozen = draw_frozen(dice, draw.options.model);
  draw.text = fmt::format(
      "seed {}: {} blocks {} heads {}/{} hidden {} ffn {} vocab {} tied {} dropout {} frozen [{}]; {}", seed,
      draw.options.model.family, draw.options.model.num_blocks, draw.options.model.heads, draw.options.model.kv_heads,
      draw.options.model.hidden, draw.options.model.ffn, draw.options.model.vocab, draw.options.model.tied_head,
      draw.options.model.residual_dropout, fmt::join(draw.options.frozen, " "), to_json(draw.plan).dump());
  return draw;
}

PlanCourse run_one_rank(const PlanDraw& draw, int steps, double learning_rate) {
  ModelHarness harness(draw.options);
  harness.fill(draw.documents);
  PlanCourse course = start(harness);
  for (int step = 0; step < steps; ++step) {
    course.losses.push_back(harness.step(learning_rate));
    course.norms.push_back(std::sqrt(harness.scalars().norm_squared));
  }
  harness.collect_states(course.after);
  return course;
}

PlanCourse run_plan(const PlanDraw& draw, int steps, double learning_rate) {
  PlanCourse course;
  std::mutex mutex;
  run_ranks(static_cast<int>(draw.plan.num_ranks), [&](int rank, Comm& comm) {
    ModelHarness harness(draw.options, draw.plan, comm);
    harness.fill(draw.documents);
    {
      const std::lock_guard lock(mutex);
      harness.collect_states(course.before);
    }
    for (int step = 0; step < steps; ++step) {
      const double loss = harness.step(learning_rate);
      if (rank != 0) continue;
      course.losses.push_back(loss);
      course.norms.push_back(std::sqrt(harness.scalars().norm_squared));
    }
    const std::lock_guard lock(mutex);
    harness.collect_states(course.after);
  });
  return course;
}

namespace {

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t index = 0; index < a.size(); ++index)
    sum += (static_cast<double>(a[index]) - b[index]) * (static_cast<double>(a[index]) - b[index]);
  return std::sqrt(sum);
}

void note(Deviation& largest, double value, const std::string& where) {
  if (value <= largest.value) return;
  largest = {value, where};
}

}  // namespace

Deviation largest_deviation(const PlanCourse& course, const PlanCourse& reference, double floor) {
  Deviation largest;
  for (size_t step = 0; step < reference.losses.size(); ++step) {
    note(largest, std::abs(course.losses[step] / reference.losses[step] - 1), fmt::format("loss of step {}", step + 1));
    note(largest, std::abs(course.norms[step] / reference.norms[step] - 1), fmt::format("norm of step {}", step + 1));
  }
  if (course.after.size() != reference.after.size()) return {INFINITY, "number of tensors"};
  for (const auto& [name, values] : reference.after) {
    const auto before = reference.before.find(name);
    const std::vector<float> zeros(values.size());
    const double moved = distance(values, before == reference.before.end() ? zeros : before->second);
    const double scale = std::max(moved, floor * std::sqrt(static_cast<double>(values.size())));
    const double rounding = static_cast<double>(reference.losses.size()) * 0x1p-24 * distance(values, zeros);
    note(largest, (distance(course.after.at(name), values) - rounding) / scale, name);
  }
  return largest;
}

}  // namespace strata::testing
