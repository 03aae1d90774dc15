// SPDX-License-Identifier: Apache-2.0
#include "strata/train/flops.h"

namespace strata {
namespace {

// Multiplications of a step per token, and per pair of a query and a key that it sees.
struct Multiplications {
  double per_token = 0;
  double per_pair = 0;
};

// The head's both parts of backward are one run, which always makes the gradient of its input.
bool makes_input_gradient(const SegmentDecl& segment) {
  return !segment.backward_input.empty() || !segment.backward.empty();
}

// A tied head counts, it is a product all the same.
void add_segment(const LayerDecl& layer, const SegmentDecl& segment, Multiplications& sum) {
  for (const int index : segment.parameters) {
    const ParameterDecl& parameter = layer.parameters[static_cast<size_t>(index)];
    if (!parameter.matrix) continue;
    const int products = 1 + (makes_input_gradient(segment) ? 1 : 0) + (parameter.frozen ? 0 : 1);
    sum.per_token += products * static_cast<double>(parameter.num_elements());
  }
}

// Scores, and probabilities times values.
void add_core(const LayerDecl& layer, Multiplications& sum) {
  const bool backward = !layer.segments[attention_segment::kCore].backward_input.empty();
  sum.per_pair += 2 * (backward ? 3 : 1) * static_cast<double>(layer.tensors[attention_tensor::kAttended].width);
}

Multiplications count_multiplications(const std::vector<LayerDecl>& layers) {
  Multiplications sum;
  for (const LayerDecl& layer : layers) {
    if (layer.kind == LayerKind::kEmbedding) continue;  // no product
    if (layer.kind == LayerKind::kAttention) add_core(layer, sum);
    for (const SegmentDecl& segment : layer.segments)
      if (segment.form != SegmentForm::kTiled) add_segment(layer, segment, sum);
  }
  return sum;
}

}  // namespace

double step_flops(const std::vector<LayerDecl>& layers, std::span<const int64_t> sequence_lengths) {
  double tokens = 0, pairs = 0;  // pairs: (query, key) with key <= query
  for (const int64_t length : sequence_lengths) {
    const auto n = static_cast<double>(length);
    tokens += n;
    pairs += n * (n + 1) / 2;
  }
  const Multiplications each = count_multiplications(layers);
  return 2 * (tokens * each.per_token + pairs * each.per_pair);
}

}  // namespace strata
