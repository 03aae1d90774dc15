// SPDX-License-Identifier: Apache-2.0
#include "strata/layers/freeze.h"

#include <algorithm>
#include <set>

#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/layers/parameter_patterns.h"

namespace strata {
namespace {

constexpr const char* kOption = "model.frozen";

bool matches_name(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return glob_match(pattern, name); });
}

// A fused tensor is frozen whole: all of its Hugging Face names, or none.
bool is_frozen(const ParameterDecl& parameter, const std::vector<std::string>& patterns) {
  if (matches_name(parameter.name, patterns)) return true;
  std::vector<std::string> matched, rest;
  for (const HubPart& part : parameter.hub) (matches_name(part.name, patterns) ? matched : rest).push_back(part.name);
  if (!matched.empty() && !rest.empty())
    throw_bad_input("{}: {} and {} are one tensor, {}: freeze all of them or none", kOption, fmt::join(matched, ", "),
                    fmt::join(rest, ", "), parameter.name);
  return !matched.empty();
}

bool trains(const LayerDecl& layer) {
  return std::any_of(layer.parameters.begin(), layer.parameters.end(),
                     [](const ParameterDecl& parameter) { return !parameter.frozen; });
}

bool any_in(const std::vector<int>& tensors, const std::set<int>& wanted) {
  return std::any_of(tensors.begin(), tensors.end(), [&](int tensor) { return wanted.contains(tensor); });
}

// Keeps what the gradients of the segment's trained parameters read.
void prune_weight_part(SegmentDecl& segment, const std::vector<ParameterDecl>& parameters) {
  std::set<int> read;
  for (int index : segment.parameters)
    if (!parameters[index].frozen && segment.gradient_reads.contains(index))
      read.insert(segment.gradient_reads.at(index).begin(), segment.gradient_reads.at(index).end());
  std::erase_if(segment.backward_weight.reads, [&](int tensor) { return !read.contains(tensor); });
  if (read.empty()) segment.backward_weight = {};
}

// Backward goes through the segments from the last to the first, so what is wanted of one is what those before it and
// the layer below (`below`: something there is trained) want.
void prune_backward(LayerDecl& layer, bool below) {
  if (!below) layer.input_gradient = -1;
  std::set<int> wanted;
  if (layer.input_gradient >= 0) wanted.insert(layer.input_gradient);
  for (SegmentDecl& segment : layer.segments) {
    if (segment.on_demand) continue;        // parts of another one
    if (!segment.backward.empty()) return;  // the head's loss is where backward begins
    prune_weight_part(segment, layer.parameters);
    wanted.insert(segment.backward_weight.reads.begin(), segment.backward_weight.reads.end());
    if (any_in(segment.backward_input.writes, wanted))
      wanted.insert(segment.backward_input.reads.begin(), segment.backward_input.reads.end());
    else
      segment.backward_input = {};
  }
  if (!wanted.contains(layer.output_gradient)) layer.output_gradient = -1;
}

}  // namespace

std::vector<LayerDecl> declare_layers(const ModelSpec& model, const std::vector<std::string>& frozen) {
  std::vector<LayerDecl> layers = declare_layers(model);
  if (frozen.empty()) return layers;
  refuse_idle_patterns(layers, frozen, kOption);
  for (LayerDecl& layer : layers)
    for (ParameterDecl& parameter : layer.parameters) parameter.frozen = is_frozen(parameter, frozen);
  LayerDecl& head = layers.back();
  if (head.tied_parameter >= 0) head.parameters[head.tied_parameter].frozen = layers.front().parameters[0].frozen;
  if (std::none_of(layers.begin(), layers.end(), trains))
    throw_bad_input("{}: nothing to train: [{}] freezes all {} parameters of the model; leave a tensor out of it",
                    kOption, fmt::join(frozen, ", "), count_parameters(layers));
  bool below = false;
  for (LayerDecl& layer : layers) {
    prune_backward(layer, below);
    below = below || trains(layer);
  }
  return layers;
}

std::vector<std::string> frozen_parameters(const std::vector<LayerDecl>& layers) {
  std::vector<std::string> names;
  for (const LayerDecl& layer : layers)
    for (size_t index = 0; index < layer.parameters.size(); ++index)
      if (static_cast<int>(index) != layer.tied_parameter && layer.parameters[index].frozen)
        names.push_back(layer.parameters[index].name);
  return names;
}

int64_t count_frozen_parameters(const std::vector<LayerDecl>& layers) {
  int64_t total = 0;
  for (const LayerDecl& layer : layers)
    for (size_t index = 0; index < layer.parameters.size(); ++index)
      if (static_cast<int>(index) != layer.tied_parameter && layer.parameters[index].frozen)
        total += layer.parameters[index].num_elements();
  return total;
}

}  // namespace strata
