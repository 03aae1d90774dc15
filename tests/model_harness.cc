// SPDX-License-Identifier: Apache-2.0
#include "tests/model_harness.h"

#include <algorithm>
#include <cmath>

#include "strata/base/random.h"
#include "strata/model/segment.h"
#include "strata/train/initialize.h"

namespace strata::testing {

std::vector<float> copy_values(const TensorView& view) {
  std::vector<float> values;
  for (int64_t row = 0; row < view.rows; ++row) {
    const auto* data = view.row<float>(row);
    values.insert(values.end(), data, data + view.cols);
  }
  return values;
}

ModelHarness::ModelHarness(const HarnessOptions& options) : options_(options), layers_(declare_layers(options.model)) {
  input_.model = options.model;
  input_.plan =
      single_rank_plan(options.model, options.activations, options.micro_batch, options.accumulation, options.threads);
  input_.precision = options.precision;
  input_.optimizer = options.optimizer;
  input_.seq = options.seq;
  const DType dtype = options.precision == Precision::kF32 ? DType::kF32 : DType::kBF16;
  input_.workspace_bytes = [options, dtype](const LayerDecl& layer, int segment, Direction direction, int64_t tokens) {
    return segment_workspace_bytes(options.model, layer, segment, direction,
                                   {dtype, tokens, options.seq, options.threads});
  };
  programs_ = compile(input_, {ProgramKind::kStep, ProgramKind::kEvaluation, ProgramKind::kSave});
  instance_ = std::make_unique<ModelInstance>(input_, layers_, programs_);
  initialize_parameters(instance_->states(), options.seed, instance_->team());
  scalars().seed = options.seed;
}

void ModelHarness::fill(const std::vector<Document>& documents) {
  sheet_ = {};
  size_t next = 0;
  for (int64_t index = 0; index < options_.accumulation; ++index) {
    const size_t end = std::min(documents.size(), next + static_cast<size_t>(options_.micro_batch));
    int64_t tokens = 0;
    for (size_t document = next; document < end; ++document)
      tokens += static_cast<int64_t>(documents[document].size()) - 1;
    MicroBatch batch =
        executor().batch_storage(static_cast<int>(index)).resize(tokens, static_cast<int64_t>(end - next));
    int64_t place = 0;
    for (size_t document = next; document < end; ++document) {
      batch.offsets[document - next] = static_cast<int32_t>(place);
      const Document& ids = documents[document];
      for (size_t position = 0; position + 1 < ids.size(); ++position, ++place) {
        batch.ids[place] = ids[position];
        batch.targets[place] = ids[position + 1];
        batch.positions[place] = static_cast<int32_t>(position);
        batch.token_indices[place] = static_cast<int64_t>(document) * options_.seq + static_cast<int64_t>(position);
        batch.counted += batch.targets[place] >= 0 ? 1 : 0;
      }
    }
    batch.offsets[end - next] = static_cast<int32_t>(place);
    sheet_.num_tokens += tokens;
    sheet_.counted += batch.counted;
    sheet_.micro_batches.push_back(batch);
    next = end;
  }
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
  for (const MicroBatch& batch : sheet_.micro_batches) {
    BatchSheet one;
    one.micro_batches.push_back(batch);
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

ModelSpec tiny_gpt2(double dropout) {
  ModelSpec model;
  model.family = "gpt2";
  model.vocab = 97;
  model.hidden = 32;
  model.num_blocks = 2;
  model.heads = model.kv_heads = 4;
  model.head_dim = 8;
  model.ffn = 128;
  model.max_positions = 16;
  model.attention_dropout = model.residual_dropout = model.embedding_dropout = static_cast<float>(dropout);
  return model;
}

ModelSpec tiny_llama() {
  ModelSpec model = tiny_gpt2();
  model.family = "llama";
  model.kv_heads = 2;
  model.ffn = 72;
  model.norm = NormKind::kRmsNorm;
  model.activation = ActivationKind::kSwiglu;
  model.positions = PositionKind::kRope;
  model.tied_head = model.attention_bias = model.mlp_bias = false;
  return model;
}

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
