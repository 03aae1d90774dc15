// SPDX-License-Identifier: Apache-2.0
#include "strata/program/builder.h"

#include <algorithm>
#include <numeric>

#include "strata/base/error.h"

namespace strata {
namespace {

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool has_weight_gradients(Direction direction) {
  return direction == Direction::kBackwardWeight || direction == Direction::kBackward;
}

}  // namespace

ProgramBuilder::ProgramBuilder(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                               const std::vector<Booking>& persistent, std::string name,
                               std::vector<int64_t> capacity_tokens)
    : input_(input),
      layers_(layers),
      set_(set),
      place_(place_of_rank(input.plan, input.rank)),
      gradient_(set.chunks.size(), -1) {
  program_.name = std::move(name);
  program_.rank = input.rank;
  program_.capacity_tokens = std::move(capacity_tokens);
  program_.bookings = persistent;
  const int64_t head_tokens = program_.capacity_tokens.back();
  const int64_t tile = head_tile_tokens(input.plan, input.model, head_tokens);
  num_tiles_ = static_cast<int>(std::max<int64_t>((head_tokens + tile - 1) / tile, 1));
}

bool ProgramBuilder::takes_part(int layer, const SegmentDecl& segment, Direction direction) const {
  const bool tiled = at(layer).tp > 1 && direction != Direction::kDecode;
  return segment.form == SegmentForm::kOnly || segment.form == (tiled ? SegmentForm::kTiled : SegmentForm::kFused);
}

int ProgramBuilder::producer_of(int layer, int tensor) const {
  for (size_t segment = 0; segment < layers_[layer].segments.size(); ++segment) {
    const SegmentDecl& decl = layers_[layer].segments[segment];
    if (takes_part(layer, decl, Direction::kForward) && contains(decl.forward.writes, tensor))
      return static_cast<int>(segment);
  }
  return -1;
}

int ProgramBuilder::book(std::string name, int64_t bytes, BookingKind kind, Tier tier) {
  program_.bookings.push_back({std::move(name), bytes, kind, tier, false, -1});
  return static_cast<int>(program_.bookings.size()) - 1;
}

int ProgramBuilder::group(const std::string& name, std::vector<int> ranks) {
  for (size_t index = 0; index < groups_.size(); ++index)
    if (groups_[index].ranks == ranks) return static_cast<int>(index);
  groups_.push_back({name, std::move(ranks)});
  return static_cast<int>(groups_.size()) - 1;
}

int ProgramBuilder::tensor_group(int layer) {
  const LayerPlace& place = at(layer);
  std::vector<int> ranks;
  for (int64_t tensor = 0; tensor < place.tp; ++tensor) ranks.push_back(place.rank(place.data, place.context, tensor));
  return group("tensor", std::move(ranks));
}

int ProgramBuilder::chunk_group(const Chunk& chunk) {
  const LayerPlace& place = at(chunk.layer);
  std::vector<int> ranks;
  for (int64_t data = 0; data < place.dp; ++data)
    for (int64_t context = 0; context < place.cp; ++context)
      for (int64_t tensor = 0; tensor < place.tp; ++tensor)
        if (chunk.over_tp || tensor == place.tensor) ranks.push_back(place.rank(data, context, tensor));
  return group(chunk.over_tp ? "replica" : "data", std::move(ranks));
}

int ProgramBuilder::world_group() {
  std::vector<int> ranks(static_cast<size_t>(input_.plan.num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group("world", std::move(ranks));
}

Instruction& ProgramBuilder::emit(Op op, Queue queue) {
  Instruction& instruction = program_.instructions.emplace_back();
  instruction.op = op;
  instruction.queue = queue;
  return instruction;
}

int64_t ProgramBuilder::tensor_elements(int layer, int tensor) const {
  const TensorDecl& decl = layers_[layer].tensors[tensor];
  const LayerPlace& place = at(layer);
  const int64_t width = decl.by_heads                     ? decl.width / (place.tp * place.cp)
                        : decl.layout == Layout::kSharded ? share_of(decl.width, place.tp, place.tensor).count
                        : decl.layout == Layout::kStacked ? decl.width * place.tp
                                                          : decl.width;
  const int64_t tokens = tensor_tokens(input_, program_, layer, decl),
                tile_tokens = (tokens + num_tiles_ - 1) / num_tiles_;
  return width * (decl.single_row ? 1 : decl.by_tile ? tile_tokens : tokens);
}

int64_t ProgramBuilder::element_bytes(int layer, int tensor) const {
  return layers_[layer].tensors[tensor].f32 || input_.precision == Precision::kF32 ? 4 : 2;
}

int ProgramBuilder::book_tensor(int layer, int tensor, int micro_batch) {
  const TensorDecl& decl = layers_[layer].tensors[tensor];
  const int booking = book(fmt::format("{}.{}.mb{}", layers_[layer].name, decl.name, micro_batch),
                           tensor_elements(layer, tensor) * element_bytes(layer, tensor), BookingKind::kActivation);
  const bool incomplete = decl.layout == Layout::kPartial || decl.layout == Layout::kStacked;
  if (incomplete && at(layer).tp > 1) partial_.insert(booking);
  bind(layer, tensor, micro_batch, booking);
  return booking;
}

int ProgramBuilder::instance(int layer, int tensor, int micro_batch) {
  const Key key{layer, tensor, micro_batch};
  if (!instances_.contains(key)) recompute(layer, tensor, micro_batch);
  return instances_.at(key);
}

int ProgramBuilder::complete(int layer, int tensor, int micro_batch) {
  const int booking = instance(layer, tensor, micro_batch);
  if (parts_.contains(booking)) return gather(layer, tensor, micro_batch, booking);
  if (partial_.erase(booking) == 0) return booking;
  const bool stacked = layers_[layer].tensors[tensor].layout == Layout::kStacked;
  Instruction& reduce = emit_between_parts(Op::kCollective, Queue::kTensorGroup, layer, tensor, micro_batch);
  reduce.collective = stacked ? CollectiveKind::kAllGather : CollectiveKind::kAllReduce;
  reduce.uses.push_back({booking, Access::kReadWrite, Role::kMessage, -1});
  return booking;
}

Instruction& ProgramBuilder::emit_between_parts(Op op, Queue queue, int layer, int tensor, int micro_batch) {
  const int over = tensor_group(layer);
  const TensorDecl& decl = layers_[layer].tensors[tensor];
  Instruction& instruction = emit(op, queue);
  instruction.group = over;
  instruction.layer = layer;
  instruction.micro_batch = decl.single_row ? -1 : micro_batch;
  instruction.tile = decl.by_tile ? tile_ : 0;
  instruction.num_tiles = decl.by_tile ? num_tiles_ : 1;
  instruction.elements = tensor_elements(layer, tensor);
  return instruction;
}

int ProgramBuilder::gather(int layer, int tensor, int micro_batch, int part) {
  const auto found = gathered_.find(part);
  if (found != gathered_.end()) return found->second;
  const int whole =
      book(fmt::format("{}.{}.mb{}.gathered", layers_[layer].name, layers_[layer].tensors[tensor].name, micro_batch),
           tensor_elements(layer, tensor) * element_bytes(layer, tensor), BookingKind::kActivation);
  Instruction& gather = emit_between_parts(Op::kCollective, Queue::kTensorGroup, layer, tensor, micro_batch);
  gather.collective = CollectiveKind::kAllGather;
  gather.uses = {{part, Access::kRead, Role::kMessage, -1}, {whole, Access::kWrite, Role::kMessage, -1}};
  gathered_[part] = whole;
  return whole;
}

int ProgramBuilder::book_part(int layer, int tensor, int micro_batch) {
  const int64_t tp = at(layer).tp;
  const int part =
      book(fmt::format("{}.{}.mb{}.part", layers_[layer].name, layers_[layer].tensors[tensor].name, micro_batch),
           (tensor_elements(layer, tensor) + tp - 1) / tp * element_bytes(layer, tensor), BookingKind::kActivation);
  parts_.insert(part);
  return part;
}

int ProgramBuilder::keep_part(int layer, int tensor, int micro_batch) {
  const int whole = instance(layer, tensor, micro_batch);
  if (parts_.contains(whole)) return whole;
  const int part = book_part(layer, tensor, micro_batch);
  const bool partial = partial_.erase(whole) > 0;
  Instruction& keep = emit_between_parts(partial ? Op::kCollective : Op::kCopy,
                                         partial ? Queue::kTensorGroup : Queue::kCompute, layer, tensor, micro_batch);
  keep.collective = CollectiveKind::kReduceScatter;
  keep.uses = {{whole, partial ? Access::kReadWrite : Access::kRead, Role::kMessage, -1},
               {part, Access::kWrite, Role::kMessage, -1}};
  bind(layer, tensor, micro_batch, part);
  return part;
}

int ProgramBuilder::passed(int layer, int tensor, int micro_batch) {
  return sequence_parallel(layer) ? keep_part(layer, tensor, micro_batch) : complete(layer, tensor, micro_batch);
}

int ProgramBuilder::book_passed(int layer, int tensor, int micro_batch) {
  if (!sequence_parallel(layer)) {
    const int whole = book_tensor(layer, tensor, micro_batch);
    partial_.erase(whole);
    return whole;
  }
  const int part = book_part(layer, tensor, micro_batch);
  bind(layer, tensor, micro_batch, part);
  return part;
}

// A tensor that was dropped after forward: elementwise from what was kept, or its segment's forward again.
void ProgramBuilder::recompute(int layer, int tensor, int micro_batch) {
  const TensorDecl& decl = layers_[layer].tensors[tensor];
  const int segment = producer_of(layer, tensor);
  STRATA_CHECK(segment >= 0, "{}.{} of micro-batch {} is read and was never written", layers_[layer].name, decl.name,
               micro_batch);
  const bool cheap = decl.saving == Saving::kCheap &&
                     std::all_of(decl.recomputed_from.begin(), decl.recomputed_from.end(), [&](int from) {
                       return instances_.contains({layer, from, micro_batch});
                     });
  if (!cheap) return run(layer, segment, Direction::kForward, micro_batch);
  Instruction instruction{};
  use_tensors(instruction, {decl.recomputed_from, {tensor}}, layer, micro_batch);
  use_parameters(instruction, layer);
  instruction.direction = Direction::kRecompute;
  instruction.layer = layer;
  instruction.segment = segment;
  instruction.recomputed = tensor;
  instruction.micro_batch = micro_batch;
  program_.instructions.push_back(std::move(instruction));
}

void ProgramBuilder::use_tensors(Instruction& instruction, const DirectionDecl& direction, int layer, int micro_batch) {
  for (int tensor : direction.reads) {
    const bool partial_welcome = layers_[layer].tensors[tensor].layout == Layout::kPartial;
    const int booking = partial_welcome ? instance(layer, tensor, micro_batch) : complete(layer, tensor, micro_batch);
    const Access access = contains(direction.writes, tensor) ? Access::kReadWrite : Access::kRead;
    instruction.uses.push_back({booking, access, Role::kTensor, tensor});
  }
  for (int tensor : direction.writes) {
    if (contains(direction.reads, tensor)) continue;
    const bool begun = instruction.tile > 0 && !layers_[layer].tensors[tensor].by_tile;
    instruction.uses.push_back({begun ? instance(layer, tensor, micro_batch) : book_tensor(layer, tensor, micro_batch),
                                begun ? Access::kReadWrite : Access::kWrite, Role::kTensor, tensor});
  }
}

// Every parameter of the layer is offered; a run uses those of its segment.
void ProgramBuilder::use_parameters(Instruction& instruction, int layer) {
  for (int parameter = 0; parameter < static_cast<int>(layers_[layer].parameters.size()); ++parameter) {
    const int chunk = find_parameter(layer, parameter).first;
    instruction.uses.push_back({set_.parameter_booking[chunk], Access::kRead, Role::kParameter, parameter});
  }
}

std::pair<int, int> ProgramBuilder::find_parameter(int layer, int parameter) const {
  const bool borrowed = parameter == layers_[layer].tied_parameter && place_.holds(0);
  const int owner_layer = borrowed ? 0 : layer;
  const int owner_parameter = borrowed ? 0 : parameter;
  for (size_t chunk = 0; chunk < set_.chunks.size(); ++chunk)
    for (size_t tensor = 0; tensor < set_.chunks[chunk].tensors.size(); ++tensor) {
      const ChunkTensor& entry = set_.chunks[chunk].tensors[tensor];
      if (entry.layer == owner_layer && entry.parameter == owner_parameter)
        return {static_cast<int>(chunk), static_cast<int>(tensor)};
    }
  STRATA_CHECK(false, "layer {} parameter {} is in no chunk of rank {}", layer, parameter, program_.rank);
  return {-1, -1};
}

int ProgramBuilder::gradient_booking(int chunk) {
  if (gradient_[chunk] < 0)
    gradient_[chunk] = book(fmt::format("{}.gradient", set_.chunks[chunk].name), 4 * set_.chunks[chunk].elements,
                            BookingKind::kGradient);
  return gradient_[chunk];
}

void ProgramBuilder::start_new_gradient(int chunk) {
  gradient_[chunk] = -1;
  for (size_t tensor = 0; tensor < set_.chunks[chunk].tensors.size(); ++tensor)
    gradient_written_.erase({chunk, static_cast<int>(tensor)});
}

void ProgramBuilder::run(int layer, int segment, Direction direction, int micro_batch) {
  if (!is_split_core(layer, segment)) {
    append_run(layer, segment, direction, direction_of(layers_[layer].segments[segment], direction), micro_batch);
    return;
  }
  const bool forward = direction == Direction::kForward, by_heads = shares_heads(input_.plan.layers[layer]);
  STRATA_CHECK(forward || direction == Direction::kBackwardInput, "{} of a core over {} context ranks",
               direction_name(direction), at(layer).cp);
  if (forward)
    by_heads ? heads_core_forward(layer, micro_batch) : split_core_forward(layer, micro_batch);
  else
    by_heads ? heads_core_backward(layer, micro_batch) : split_core_backward(layer, micro_batch);
}

Instruction& ProgramBuilder::append_run(int layer, int segment, Direction direction, const DirectionDecl& tensors,
                                        int micro_batch) {
  const SegmentDecl& decl = layers_[layer].segments[segment];
  Instruction instruction{};
  instruction.direction = direction == Direction::kDecode && decl.decode.empty() ? Direction::kForward : direction;
  instruction.layer = layer;
  instruction.segment = segment;
  instruction.micro_batch = micro_batch;
  instruction.tile = decl.by_tile ? tile_ : 0;
  instruction.num_tiles = decl.by_tile ? num_tiles_ : 1;
  use_tensors(instruction, tensors, layer, micro_batch);
  for (int parameter : decl.parameters) {
    const auto [chunk, tensor] = find_parameter(layer, parameter);
    if (direction != Direction::kBackwardWeight)  // weight gradients need no weights
      instruction.uses.push_back({set_.parameter_booking[chunk], Access::kRead, Role::kParameter, parameter});
    if (!has_weight_gradients(direction) || layers_[layer].parameters[parameter].frozen) continue;
    const bool first = gradient_written_.insert({chunk, tensor}).second;
    instruction.uses.push_back(
        {gradient_booking(chunk), first ? Access::kWrite : Access::kReadWrite, Role::kGradient, parameter});
  }
  instruction.uses.push_back({set_.batch_booking, Access::kRead, Role::kBatch, micro_batch});
  const bool loss = layers_[layer].kind == LayerKind::kHead && direction != Direction::kDecode;
  instruction.uses.push_back({set_.scalars_booking, loss ? Access::kReadWrite : Access::kRead, Role::kScalars, -1});
  const int64_t workspace =
      input_.workspace_bytes
          ? input_.workspace_bytes(layers_[layer], segment, instruction.direction, capacity_tokens(layer))
          : 0;
  if (workspace > 0)
    instruction.uses.push_back(
        {book(fmt::format("{}.{}.workspace", layers_[layer].name, decl.name), workspace, BookingKind::kWorkspace),
         Access::kWrite, Role::kWorkspace, -1});
  return program_.instructions.emplace_back(std::move(instruction));
}

void ProgramBuilder::forward_layer(int layer, Direction direction, int micro_batch) {
  const std::vector<SegmentDecl>& segments = layers_[layer].segments;
  const int count = static_cast<int>(segments.size());
  for (int begin = 0, end; begin < count; begin = end) {
    for (end = begin + 1; segments[begin].by_tile && end < count && segments[end].by_tile;) ++end;
    if (segments[begin].on_demand || !takes_part(layer, segments[begin], direction)) continue;
    for (int tile = 0; tile < (segments[begin].by_tile ? num_tiles_ : 1); ++tile) {
      start_tile(layer, micro_batch, tile);
      for (int segment = begin; segment < end; ++segment) run(layer, segment, direction, micro_batch);
    }
  }
  drop_activations(layer, micro_batch);
  gathered_.clear();
}

// What was of the tile before is computed anew.
void ProgramBuilder::start_tile(int layer, int micro_batch, int tile) {
  tile_ = tile;
  for (int tensor = 0; tensor < static_cast<int>(layers_[layer].tensors.size()); ++tensor)
    if (layers_[layer].tensors[tensor].by_tile) instances_.erase({layer, tensor, micro_batch});
}

void ProgramBuilder::backward_layer(int layer, int micro_batch, Work part) {
  const bool input_part = part != Work::kBackwardWeight, weight_part = part != Work::kBackwardInput;
  for (int segment = static_cast<int>(layers_[layer].segments.size()) - 1; segment >= 0; --segment) {
    const SegmentDecl& decl = layers_[layer].segments[segment];
    if (decl.on_demand || !takes_part(layer, decl, Direction::kBackward)) continue;
    for (int tile = 0; input_part && !decl.backward.empty() && tile < (decl.by_tile ? num_tiles_ : 1); ++tile) {
      start_tile(layer, micro_batch, tile);
      run(layer, segment, Direction::kBackward, micro_batch);
    }
    if (input_part && !decl.backward_input.empty()) run(layer, segment, Direction::kBackwardInput, micro_batch);
    if (weight_part && !decl.backward_weight.empty()) run(layer, segment, Direction::kBackwardWeight, micro_batch);
  }
  gathered_.clear();
}

// Under sequence parallelism what is cheap and whole on every rank would be most of what is kept.
bool ProgramBuilder::is_dropped(int layer, int tensor) const {
  const TensorDecl& decl = layers_[layer].tensors[tensor];
  const ActivationPolicy policy = input_.plan.layers[layer].activations;
  if (policy == ActivationPolicy::kFull || policy == ActivationPolicy::kPartitioned)
    return decl.saving != Saving::kNone;
  if (decl.saving != Saving::kCheap) return false;
  return policy == ActivationPolicy::kSelective || (sequence_parallel(layer) && decl.layout == Layout::kComplete);
}

void ProgramBuilder::drop_activations(int layer, int micro_batch) {
  const int input = layers_[layer].input;
  for (int tensor = 0; tensor < static_cast<int>(layers_[layer].tensors.size()); ++tensor)
    if (tensor != input && is_dropped(layer, tensor)) instances_.erase({layer, tensor, micro_batch});
  const bool goes_backward = layers_[layer].output_gradient >= 0;
  if (input >= 0 && goes_backward && at(layer).tp > 1 &&
      input_.plan.layers[layer].activations == ActivationPolicy::kPartitioned)
    keep_part(layer, input, micro_batch);
}

void ProgramBuilder::hand_over_output(int layer, int micro_batch) {
  hand_over(layer, layers_[layer].output, layer + 1, layers_[layer + 1].input, micro_batch);
}

void ProgramBuilder::hand_over_gradient(int layer, int micro_batch) {
  const int gradient = layers_[layer].input_gradient;
  if (gradient < 0) return;
  hand_over(layer, gradient, layer - 1, layers_[layer - 1].output_gradient, micro_batch);
}

void ProgramBuilder::hand_over(int from_layer, int from, int to_layer, int to, int micro_batch) {
  if (at(from_layer) != at(to_layer)) return reshard(from_layer, from, to_layer, to, micro_batch);
  bind(to_layer, to, micro_batch,
       sequence_parallel(from_layer) ? keep_part(from_layer, from, micro_batch)
                                     : instance(from_layer, from, micro_batch));
}

}  // namespace strata
