// SPDX-License-Identifier: Apache-2.0
#include "tests/model_harness.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "strata/base/random.h"
#include "strata/layers/freeze.h"
#include "strata/model/segment.h"
#include "strata/program/parts.h"
#include "strata/spec/context_pieces.h"
#include "strata/spec/testing.h"
#include "strata/train/initialize.h"

namespace strata::testing {
namespace {

constexpr double kSecondsToWait = 60;

}  // namespace

std::vector<float> copy_values(const TensorView& view) {
  std::vector<float> values;
  for (int64_t row = 0; row < view.rows; ++row) {
    const auto* data = view.row<float>(row);
    values.insert(values.end(), data, data + view.cols);
  }
  return values;
}

ModelHarness::ModelHarness(const HarnessOptions& options)
    : options_(options), layers_(declare_layers(options.model, options.frozen)) {
  input_.plan =
      single_rank_plan(options.model, options.activations, options.micro_batch, options.accumulation, options.threads);
  build(nullptr);
}

ModelHarness::ModelHarness(const HarnessOptions& options, const Plan& plan, Comm& comm)
    : options_(options), layers_(declare_layers(options.model, options.frozen)) {
  input_.plan = plan;
  input_.rank = comm.rank();
  options_.threads = static_cast<int>(plan.threads);
  build(&comm);
}

void ModelHarness::build(Comm* comm) {
  const HarnessOptions& options = options_;
  input_.model = options.model;
  input_.precision = options.precision;
  input_.optimizer = options.optimizer;
  input_.frozen = options.frozen;
  input_.seq = options.seq;
  const DType dtype = options.precision == Precision::kF32 ? DType::kF32 : DType::kBF16;
  input_.workspace_bytes = [options, plan = input_.plan, dtype](const LayerDecl& layer, int segment,
                                                                Direction direction, int64_t tokens) {
    return segment_workspace_bytes(options.model, plan, layer, segment, direction, {dtype, tokens, options.seq});
  };
  programs_ = compile(input_, {ProgramKind::kStep, ProgramKind::kEvaluation, ProgramKind::kSave});
  instance_ = std::make_unique<ModelInstance>(input_, layers_, programs_, comm);
  initialize_parameters(instance_->states(), options.seed, instance_->team());
  scalars().seed = options.seed;
}

void ModelHarness::fill(const std::vector<Document>& documents) {
  sheet_ = {};
  sheet_.stage_samples = stage_samples(input_.plan);
  for (const Document& document : documents)
    sheet_.sequence_lengths.push_back(static_cast<int64_t>(document.size()) - 1);
  for (const int64_t length : sheet_.sequence_lengths) sheet_.num_tokens += length;
  sheet_.counted = sheet_.num_tokens;
  const int64_t stage_ranks = input_.plan.num_ranks / num_stages(input_.plan);
  const std::vector<TokenSplit> splits = token_splits(input_.plan);
  sheet_.num_splits = static_cast<int64_t>(splits.size());
  for (int split = 0; split < static_cast<int>(splits.size()); ++split)
    for (int index = 0; index < static_cast<int>(input_.plan.accumulation); ++index)
      sheet_.micro_batches.push_back(
          fill_micro_batch(documents, token_share(splits[split], stage_ranks, input_.rank % stage_ranks),
                           executor().batch_storage(split, index), index));
}

MicroBatch ModelHarness::fill_micro_batch(const std::vector<Document>& documents, const TokenShare& share,
                                          const MicroBatchStorage& storage, int index) const {
  const auto samples = static_cast<size_t>(rank_samples(input_.plan, share.split));
  const size_t first = static_cast<size_t>(index * share.split.dp + share.data) * samples;
  const size_t next = std::min(documents.size(), first), end = std::min(documents.size(), next + samples);
  const int64_t cp = share.split.cp;
  int64_t tokens = 0;
  for (size_t document = next; document < end; ++document)
    tokens += context_part(sheet_.sequence_lengths[document], cp, share.context);
  MicroBatch batch = storage.resize(tokens, static_cast<int64_t>(end - next));
  int64_t place = 0;
  for (size_t document = next; document < end; ++document) {
    batch.offsets[document - next] = static_cast<int32_t>(place);
    const Document& ids = documents[document];
    const int64_t length = sheet_.sequence_lengths[document];
    if (cp > 1) set_pieces(batch, static_cast<int64_t>(document - next), length);
    for (const TokenRange& piece : context_pieces(length, cp, share.context))
      for (int64_t position = piece.begin; position < piece.begin + piece.count; ++position, ++place) {
        batch.ids[place] = ids[position];
        batch.targets[place] = ids[position + 1];
        batch.positions[place] = static_cast<int32_t>(position);
        batch.token_indices[place] = static_cast<int64_t>(document) * options_.seq + position;
        batch.counted += batch.targets[place] >= 0 ? 1 : 0;
      }
  }
  batch.offsets[end - next] = static_cast<int32_t>(place);
  return batch;
}

double ModelHarness::step(double learning_rate) {
  StepScalars& table = scalars();
  table.step += 1;
  table.update_step = table.step;
  table.learning_rate = learning_rate;
  table.counted = static_cast<double>(sheet_.counted);
  table.clip_norm = options_.optimizer.clip_norm;
  table.training = true;
  executor().run(*programs_.find("step"), sheet_);
  return table.loss_sum / table.counted;
}

double ModelHarness::evaluate() {
  StepScalars& table = scalars();
  table.training = false;
  table.loss_sum = 0;
  for (int index = 0; index < static_cast<int>(sheet_.num_micro_batches()); ++index) {
    BatchSheet one;
    for (int split = 0; split < static_cast<int>(sheet_.num_splits); ++split)
      one.micro_batches.push_back(sheet_.micro_batch(split, index));
    one.num_splits = sheet_.num_splits;
    one.stage_samples = sheet_.stage_samples;
    const std::span<const int64_t> lengths = sheet_.lengths_of(index);
    one.sequence_lengths.assign(lengths.begin(), lengths.end());
    executor().run(*programs_.find("evaluation"), one);
  }
  return table.loss_sum / static_cast<double>(sheet_.counted);
}

std::map<std::string, std::vector<float>> ModelHarness::weights() {
  std::map<std::string, std::vector<float>> result;
  for (size_t layer = 0; layer < layers_.size(); ++layer)
    for (size_t index = 0; index < layers_[layer].parameters.size(); ++index)
      result[layers_[layer].parameters[index].name] =
          copy_values(executor().master(static_cast<int>(layer), static_cast<int>(index)));
  return result;
}

std::map<std::string, std::vector<float>> ModelHarness::gradients() {
  std::map<std::string, std::vector<float>> result;
  for (size_t layer = 0; layer < layers_.size(); ++layer)
    for (size_t index = 0; index < layers_[layer].parameters.size(); ++index)
      result[layers_[layer].parameters[index].name] =
          copy_values(executor().gradient(*programs_.find("step"), static_cast<int>(layer), static_cast<int>(index)));
  return result;
}

std::vector<std::byte> ModelHarness::state_bytes() {
  std::vector<std::byte> bytes;
  const Program& step = *programs_.find("step");
  const auto append = [&](int booking) {
    const std::byte* data = executor().booking_data(step, booking);
    bytes.insert(bytes.end(), data, data + step.bookings[booking].bytes);
  };
  for (int booking : programs_.parameter_booking) append(booking);
  for (const std::vector<int>& states : programs_.state_booking)
    for (int booking : states) append(booking);
  return bytes;
}

void ModelHarness::collect_states(std::map<std::string, std::vector<float>>& whole) {
  const Program& step = *programs_.find("step");
  const std::vector<std::string_view> states = optimizer_states(input_.optimizer, input_.precision);
  const RankPlace place = place_of_rank(input_.plan, input_.rank);
  const auto add = [&](const Chunk& chunk, const std::string& suffix, const float* owned) {
    for (const ChunkPart& part : owned_parts(layers_, chunk, place)) {
      const ParameterDecl& parameter = layers_[part.layer].parameters[part.parameter];
      std::vector<float>& values = whole[parameter.name + suffix];
      values.resize(static_cast<size_t>(parameter.num_elements()));
      for (const CommonRun& run : common_runs(whole_tensor(parameter.rows, parameter.cols), part.part))
        std::copy_n(owned + part.place - chunk.owned_begin() + run.second, run.count, values.begin() + run.first);
    }
  };
  for (size_t index = 0; index < programs_.chunks.size(); ++index) {
    const Chunk& chunk = programs_.chunks[index];
    if (!chunk.saved_here()) continue;
    const auto data = [&](int booking) { return reinterpret_cast<float*>(executor().booking_data(step, booking)); };
    const std::vector<int>& bookings = programs_.state_booking[index];
    if (input_.precision == Precision::kF32)
      add(chunk, "", data(programs_.parameter_booking[index]) + chunk.owned_begin() - chunk.held_begin());
    for (size_t state = 0; state < bookings.size(); ++state)
      add(chunk, states[state] == "master" ? "" : fmt::format(":{}", states[state]), data(bookings[state]));
  }
}

void run_ranks(int num_ranks, const std::function<void(int rank, Comm& comm)>& body) {
  std::vector<std::unique_ptr<Comm>> comms = make_local_comms(num_ranks, kSecondsToWait);
  std::vector<std::thread> threads;
  std::exception_ptr first;
  std::mutex mutex;
  for (int rank = 0; rank < num_ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank, *comms[static_cast<size_t>(rank)]);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        comms[static_cast<size_t>(rank)]->abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

ModelSpec tiny_gpt2(double dropout) {
  ModelSpec model = strata::tiny_gpt2();
  model.attention_dropout = model.residual_dropout = model.embedding_dropout = static_cast<float>(dropout);
  return model;
}

ModelSpec tiny_llama() { return llama_shaped(strata::tiny_gpt2(), 2, 72); }

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t index = 0; index < b.size(); ++index) {
    difference += (static_cast<double>(a[index]) - b[index]) * (static_cast<double>(a[index]) - b[index]);
    norm += static_cast<double>(b[index]) * b[index];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

std::vector<Document> make_documents(int count, int length, int vocab, uint64_t seed) {
  std::vector<Document> documents;
  for (int document = 0; document < count; ++document) {
    Document ids;
    for (int position = 0; position <= length; ++position)
      ids.push_back(static_cast<int32_t>(philox(seed, static_cast<uint64_t>(document * 1000 + position), 0)[0] %
                                         static_cast<uint32_t>(vocab)));
    documents.push_back(ids);
  }
  return documents;
}

}  // namespace strata::testing
