// SPDX-License-Identifier: Apache-2.0
#include "strata/layers/declaration.h"

#include "strata/base/error.h"
#include "strata/layers/parameters.h"

namespace strata {
namespace {

TensorDecl activation(std::string_view name, int64_t width, Layout layout = Layout::kComplete,
                      Saving saving = Saving::kNone, std::vector<int> recomputed_from = {}) {
  return {name, width, false, layout, saving, std::move(recomputed_from), false, false, false, false};
}

TensorDecl kept_f32(std::string_view name, int64_t width, Layout layout) {
  return {name, width, true, layout, Saving::kKept, {}, false, false, false, false};
}

// Sharded, and not kept between forward and backward.
TensorDecl passing(std::string_view name, int64_t width, bool f32, bool of_slice) {
  return {name, width, f32, Layout::kSharded, Saving::kNone, {}, false, of_slice, false, false};
}

// Of the core of context ranks that share heads.
TensorDecl by_heads(std::string_view name, int64_t width, bool f32, Saving saving) {
  return {name, width, f32, Layout::kSharded, saving, {}, false, false, false, true};
}

TensorDecl tile_f32(std::string_view name, int64_t width, Layout layout) {
  return {name, width, true, layout, Saving::kNone, {}, false, false, true, false};
}

constexpr int64_t kHeadStatistics = 3;  // of a token: largest logit, sum of exp, the target's logit

// The parameters of a segment that exist in this model.
std::vector<int> present(std::initializer_list<int> indices) {
  std::vector<int> result;
  for (int index : indices)
    if (index >= 0) result.push_back(index);
  return result;
}

LayerDecl declare_embedding(const ModelSpec& model) {
  using namespace embedding_tensor;
  LayerDecl layer{};
  layer.kind = LayerKind::kEmbedding;
  layer.name = "embedding";
  layer.tensors = {activation("x", model.hidden, Layout::kPartial), activation("dx", model.hidden)};
  layer.parameters = embedding_parameter_table(model);
  const EmbeddingParameters p = embedding_parameters(model);
  SegmentDecl embed{};
  embed.name = "embed";
  embed.parameters = present({p.token, p.position});
  embed.forward = {{}, {kX}};
  embed.backward_weight = {{kDx}, {kDx}};  // dropout's backward is in place
  embed.gradient_reads = {{p.token, {kDx}}, {p.position, {kDx}}};
  layer.segments = {embed};
  layer.output = kX;
  layer.output_gradient = kDx;
  return layer;
}

// The parts of a core that is split over context ranks, and the core of ranks that share heads.
std::vector<SegmentDecl> context_segments() {
  using namespace attention_tensor;
  SegmentDecl keys{}, slice{}, finish{}, heads{};
  keys.name = "keys";
  keys.forward = {{kQkv}, {kKv}};
  slice.name = "slice";
  slice.forward = {{kQkv, kKv}, {kSum, kLse}};
  slice.backward_input = {{kQkv, kKv, kAttended, kLse, kDattended}, {kDq, kDkv}};
  finish.name = "finish";
  finish.forward = {{kSum}, {kAttended}};
  finish.backward_input = {{kDq, kDkv}, {kDqkv}};
  heads.name = "heads";
  heads.forward = {{kQkvHeads}, {kAttendedHeads, kLseHeads}};
  heads.backward_input = {{kQkvHeads, kAttendedHeads, kLseHeads, kDattendedHeads}, {kDqkvHeads}};
  std::vector<SegmentDecl> segments = {keys, slice, finish, heads};
  for (SegmentDecl& segment : segments) segment.on_demand = true;
  return segments;
}

LayerDecl declare_attention(const ModelSpec& model, int64_t block) {
  using namespace attention_tensor;
  LayerDecl layer{};
  layer.kind = LayerKind::kAttention;
  layer.block = block;
  layer.name = fmt::format("attention.{}", block);
  layer.tensors = {activation("x", model.hidden, Layout::kComplete, Saving::kKept),
                   kept_f32("stats", 2, Layout::kComplete),
                   activation("normed", model.hidden, Layout::kComplete, Saving::kCheap, {kX, kStats}),
                   activation("qkv", model.qkv_width(), Layout::kSharded, Saving::kKept),
                   activation("attended", model.attended_width(), Layout::kSharded, Saving::kKept),
                   kept_f32("lse", model.heads, Layout::kSharded),
                   activation("y", model.hidden, Layout::kPartial),
                   activation("dy", model.hidden),
                   activation("dattended", model.attended_width(), Layout::kSharded),
                   activation("dqkv", model.qkv_width(), Layout::kSharded),
                   activation("dnormed", model.hidden, Layout::kPartial),
                   activation("dx", model.hidden, Layout::kPartial),
                   activation("kv_cache", 2 * model.kv_heads * model.head_dim, Layout::kSharded),
                   passing("kv", 2 * model.kv_heads * model.head_dim, false, true),
                   passing("sum", model.attended_width(), true, false),
                   passing("dq", model.attended_width(), true, false),
                   passing("dkv", 2 * model.kv_heads * model.head_dim, true, true),
                   by_heads("qkv_heads", model.qkv_width(), false, Saving::kKept),
                   by_heads("attended_heads", model.attended_width(), false, Saving::kKept),
                   by_heads("lse_heads", model.heads, true, Saving::kKept),
                   by_heads("dattended_heads", model.attended_width(), false, Saving::kNone),
                   by_heads("dqkv_heads", model.qkv_width(), false, Saving::kNone)};
  layer.parameters = attention_parameter_table(model, block);
  const AttentionParameters p = attention_parameters(model);
  SegmentDecl qkv{}, core{}, output{};
  qkv.name = "qkv";
  qkv.parameters = present({p.norm_weight, p.norm_bias, p.qkv_weight, p.qkv_bias});
  qkv.forward = {{kX}, {kStats, kNormed, kQkv}};
  qkv.backward_input = {{kX, kStats, kDy, kDqkv}, {kDnormed, kDx}};
  qkv.backward_weight = {{kX, kStats, kNormed, kDqkv, kDnormed}, {}};
  qkv.gradient_reads = {{p.norm_weight, {kX, kStats, kDnormed}},
                        {p.norm_bias, {kX, kStats, kDnormed}},
                        {p.qkv_weight, {kNormed, kDqkv}},
                        {p.qkv_bias, {kDqkv}}};
  core.name = "core";
  core.forward = {{kQkv}, {kAttended, kLse}};
  core.backward_input = {{kQkv, kAttended, kLse, kDattended}, {kDqkv}};
  core.decode = {{kQkv, kKvCache}, {kAttended, kLse, kKvCache}};
  output.name = "output";
  output.parameters = present({p.output_weight, p.output_bias});
  output.forward = {{kAttended, kX}, {kY}};
  output.backward_input = {{kDy}, {kDattended}};
  output.backward_weight = {{kAttended, kDy}, {}};
  output.gradient_reads = {{p.output_weight, {kAttended, kDy}}, {p.output_bias, {kDy}}};
  layer.segments = {qkv, core, output};
  for (SegmentDecl& segment : context_segments()) layer.segments.push_back(std::move(segment));
  layer.input = kX;
  layer.output = kY;
  layer.output_gradient = kDy;
  layer.input_gradient = kDx;
  return layer;
}

LayerDecl declare_mlp(const ModelSpec& model, int64_t block) {
  using namespace mlp_tensor;
  LayerDecl layer{};
  layer.kind = LayerKind::kMlp;
  layer.block = block;
  layer.name = fmt::format("mlp.{}", block);
  layer.tensors = {activation("x", model.hidden, Layout::kComplete, Saving::kKept),
                   kept_f32("stats", 2, Layout::kComplete),
                   activation("normed", model.hidden, Layout::kComplete, Saving::kCheap, {kX, kStats}),
                   activation("pre", model.up_width(), Layout::kSharded, Saving::kKept),
                   activation("act", model.ffn, Layout::kSharded, Saving::kCheap, {kPre}),
                   activation("y", model.hidden, Layout::kPartial),
                   activation("dy", model.hidden),
                   activation("dact", model.ffn, Layout::kSharded),
                   activation("dpre", model.up_width(), Layout::kSharded),
                   activation("dnormed", model.hidden, Layout::kPartial),
                   activation("dx", model.hidden, Layout::kPartial)};
  layer.parameters = mlp_parameter_table(model, block);
  const MlpParameters p = mlp_parameters(model);
  SegmentDecl up{}, down{};
  up.name = "up";
  up.parameters = present({p.norm_weight, p.norm_bias, p.up_weight, p.up_bias});
  up.forward = {{kX}, {kStats, kNormed, kPre, kAct}};
  up.backward_input = {{kX, kStats, kDy, kPre, kDact}, {kDpre, kDnormed, kDx}};
  up.backward_weight = {{kX, kStats, kNormed, kDpre, kDnormed}, {}};
  up.gradient_reads = {{p.norm_weight, {kX, kStats, kDnormed}},
                       {p.norm_bias, {kX, kStats, kDnormed}},
                       {p.up_weight, {kNormed, kDpre}},
                       {p.up_bias, {kDpre}}};
  down.name = "down";
  down.parameters = present({p.down_weight, p.down_bias});
  down.forward = {{kAct, kX}, {kY}};
  down.backward_input = {{kDy}, {kDact}};
  down.backward_weight = {{kAct, kDy}, {}};
  down.gradient_reads = {{p.down_weight, {kAct, kDy}}, {p.down_bias, {kDy}}};
  layer.segments = {up, down};
  layer.input = kX;
  layer.output = kY;
  layer.output_gradient = kDy;
  layer.input_gradient = kDx;
  return layer;
}

LayerDecl declare_head(const ModelSpec& model) {
  using namespace head_tensor;
  LayerDecl layer{};
  layer.kind = LayerKind::kHead;
  layer.name = "head";
  layer.tensors = {activation("x", model.hidden, Layout::kComplete, Saving::kKept),
                   kept_f32("stats", 2, Layout::kComplete),
                   activation("normed", model.hidden),
                   activation("dnormed", model.hidden, Layout::kPartial),
                   activation("dx", model.hidden, Layout::kPartial),
                   {"logits", model.vocab, true, Layout::kPartial, Saving::kNone, {}, true, false, false, false},
                   tile_f32("tile_logits", model.vocab, Layout::kSharded),
                   tile_f32("tile_statistics", kHeadStatistics, Layout::kStacked)};
  layer.parameters = head_parameter_table(model);
  const HeadParameters p = head_parameters(model);
  if (model.tied_head) layer.tied_parameter = p.weight;
  SegmentDecl loss{}, norm{}, tile_logits{}, tile_loss{};
  loss.name = "loss";
  loss.form = SegmentForm::kFused;
  loss.parameters = present({p.norm_weight, p.norm_bias, p.weight});
  loss.forward = {{kX}, {kStats, kNormed}};
  loss.backward = {{kX}, {kStats, kNormed, kDnormed, kDx}};
  loss.decode = {{kX}, {kStats, kNormed, kLogits}};
  norm.name = "norm";
  norm.parameters = present({p.norm_weight, p.norm_bias});
  norm.forward = {{kX}, {kStats, kNormed}};
  norm.backward = {{kX, kStats, kDnormed}, {kDx}};
  tile_logits.name = "tile-logits";
  tile_logits.parameters = {p.weight};
  tile_logits.forward = {{kNormed}, {kTileLogits, kTileStatistics}};
  tile_loss.name = "tile-loss";
  tile_loss.parameters = {p.weight};
  tile_loss.forward = {{kTileStatistics}, {}};
  tile_loss.backward = {{kNormed, kTileLogits, kTileStatistics}, {kTileLogits, kDnormed}};
  norm.form = tile_logits.form = tile_loss.form = SegmentForm::kTiled;
  tile_logits.by_tile = tile_loss.by_tile = true;
  layer.segments = {loss, norm, tile_logits, tile_loss};
  layer.input = kX;
  layer.input_gradient = kDx;
  return layer;
}

}  // namespace

std::vector<int64_t> column_blocks(const ModelSpec& model, const LayerDecl& layer, int tensor) {
  const int64_t keys = model.kv_heads * model.head_dim;
  const bool fused = layer.kind == LayerKind::kAttention && layer.tensors[tensor].width == model.qkv_width();
  if (fused) return {model.attended_width(), keys, keys};
  return {layer.tensors[tensor].width};
}

Share share_of(int64_t size, int64_t parts, int64_t part) {
  const int64_t begin = size * part / parts;
  return {begin, size * (part + 1) / parts - begin};
}

std::vector<LayerDecl> declare_layers(const ModelSpec& model) {
  std::vector<LayerDecl> layers;
  layers.push_back(declare_embedding(model));
  for (int64_t block = 0; block < model.num_blocks; ++block) {
    layers.push_back(declare_attention(model, block));
    layers.push_back(declare_mlp(model, block));
  }
  layers.push_back(declare_head(model));
  return layers;
}

int64_t count_parameters(const std::vector<LayerDecl>& layers) {
  int64_t total = 0;
  for (const LayerDecl& layer : layers)
    for (size_t index = 0; index < layer.parameters.size(); ++index)
      if (static_cast<int>(index) != layer.tied_parameter) total += layer.parameters[index].num_elements();
  return total;
}

const DirectionDecl& direction_of(const SegmentDecl& segment, Direction direction) {
  switch (direction) {
    case Direction::kForward: return segment.forward;
    case Direction::kBackwardInput: return segment.backward_input;
    case Direction::kBackwardWeight: return segment.backward_weight;
    case Direction::kBackward: return segment.backward;
    case Direction::kDecode: return segment.decode.empty() ? segment.forward : segment.decode;
    case Direction::kRecompute: break;
  }
  STRATA_CHECK(false, "recompute reads what the tensor is recomputed from, segment {}", segment.name);
  return segment.forward;
}

std::string_view direction_name(Direction direction) {
  switch (direction) {
    case Direction::kForward: return "forward";
    case Direction::kRecompute: return "recompute";
    case Direction::kBackwardInput: return "backward-input";
    case Direction::kBackwardWeight: return "backward-weight";
    case Direction::kBackward: return "backward";
    case Direction::kDecode: return "decode";
  }
  return "?";
}

}  // namespace strata
