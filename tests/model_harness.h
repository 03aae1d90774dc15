// SPDX-License-Identifier: Apache-2.0
// A compiled model with a step program for tests: any documents in, losses, gradients and weights out. One rank, or one
// of several under any plan.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/train/model_instance.h"

namespace strata::testing {

struct HarnessOptions {
  ModelSpec model;
  Precision precision = Precision::kF32;
  OptimizerConfig optimizer;
  std::vector<std::string> frozen;  // patterns
  ActivationPolicy activations = ActivationPolicy::kKeep;
  int64_t seq = 16;
  int64_t micro_batch = 1;
  int64_t accumulation = 1;
  int threads = 2;
  uint64_t seed = 1;
};

// Token ids of one document: all but the last are inputs, all but the first are targets.
using Document = std::vector<int32_t>;

class ModelHarness {
 public:
  explicit ModelHarness(const HarnessOptions& options);
  // One rank of `plan`, which gives activations, batch sizes and threads. Called by all ranks.
  ModelHarness(const HarnessOptions& options, const Plan& plan, Comm& comm);

  // The documents of the global batch. They fill the micro-batches in order, micro_batch to each; with data
  // parallelism a micro-batch of every data-parallel rank in turn.
  void fill(const std::vector<Document>& documents);
  // One step on what was filled; returns the mean loss. The scalars' step counts up.
  double step(double learning_rate);
  // Mean loss without training.
  double evaluate();

  ModelInstance& instance() { return *instance_; }
  Executor& executor() { return instance_->executor(); }
  StepScalars& scalars() { return executor().scalars(); }
  const ProgramSet& programs() const { return programs_; }
  const std::vector<LayerDecl>& layers() const { return layers_; }
  BatchSheet& sheet() { return sheet_; }
  std::byte* arena() { return instance_->arena(); }
  Team& team() { return instance_->team(); }

  // Copies by parameter name, f32: master weights, gradients of the last step.
  std::map<std::string, std::vector<float>> weights();
  std::map<std::string, std::vector<float>> gradients();
  // Bytes of all persistent parameters and optimizer states.
  std::vector<std::byte> state_bytes();
  // Adds what this rank's optimizer owns of every tensor to whole tensors by name: master weights under the parameter's
  // name, states under "<parameter>:<state>".
  void collect_states(std::map<std::string, std::vector<float>>& whole);

 private:
  void build(Comm* comm);
  MicroBatch fill_micro_batch(const std::vector<Document>& documents, const TokenShare& share,
                              const MicroBatchStorage& storage, int index) const;
  HarnessOptions options_;
  std::vector<LayerDecl> layers_;
  CompileInput input_;
  ProgramSet programs_;
  std::unique_ptr<ModelInstance> instance_;
  BatchSheet sheet_;
};

// Runs body(rank, comm) for every rank on a thread of its own; throws the first error of any rank.
void run_ranks(int num_ranks, const std::function<void(int rank, Comm& comm)>& body);

// 2 layers, width 32, 4 heads, vocabulary 97, 16 positions: the tiny decoder of the tests. kv_heads below 4 gives a
// Llama shape.
ModelSpec tiny_gpt2(double dropout = 0);
ModelSpec tiny_llama();

// The elements of an f32 view, row by row.
std::vector<float> copy_values(const TensorView& view);

// |a - b| / |b| over all elements (2-norms).
double relative_difference(const std::vector<float>& a, const std::vector<float>& b);

// `count` documents of `length` inputs each (length + 1 tokens), deterministic.
std::vector<Document> make_documents(int count, int length, int vocab, uint64_t seed);

}  // namespace strata::testing
