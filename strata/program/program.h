// SPDX-License-Identifier: Apache-2.0
// The plan compiled for one rank: flat lists of instructions over planned memory. Plain data, made by
// strata/program/compile.h, run by strata/exec, timed by strata/program/replay.h. Queues start and end their
// instructions in order; an instruction starts when the ones it waits for are done. Sends are rendezvous. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/layers/declaration.h"
#include "strata/spec/plan.h"

namespace strata {

enum class Op : uint8_t { kRun, kCollective, kSend, kRecv, kCopy, kUpdate, kScalar };

// One compute queue, one per kind of communication, one per copy direction that is in use.
enum class Queue : uint8_t {
  kCompute,
  kTensorGroup,
  kContextGroup,
  kDataGroup,
  kForwardPipe,
  kBackwardPipe,
  kToDisk,
  kCount
};
constexpr int kNumQueues = static_cast<int>(Queue::kCount);

enum class Tier : uint8_t { kDevice, kDisk, kCount };
constexpr int kNumTiers = static_cast<int>(Tier::kCount);

enum class BookingKind : uint8_t {
  kParameter,
  kGradient,
  kOptimizer,
  kActivation,
  kWorkspace,
  kGathered,
  kBatch,
  kScalars,
  kCache,
  kCheckpoint,
  kCount
};
constexpr int kNumBookingKinds = static_cast<int>(BookingKind::kCount);

// A named buffer. Persistent bookings keep one address in all programs of a set; transient ones are packed per program.
struct Booking {
  std::string name;
  int64_t bytes = 0;
  BookingKind kind = BookingKind::kActivation;
  Tier tier = Tier::kDevice;
  bool persistent = false;  // its content lives from one execution to the next
  int64_t offset = -1;      // in the tier's arena; set by pack
};

enum class Access : uint8_t { kRead, kWrite, kReadWrite };
// What a use means to the function of the instruction; `index` is the tensor, parameter, state or chunk it stands for.
enum class Role : uint8_t { kTensor, kParameter, kGradient, kState, kWorkspace, kBatch, kScalars, kMessage };

// A gradient that is kWrite is set, kReadWrite is added to.
struct Use {
  int booking = -1;
  Access access = Access::kRead;
  Role role = Role::kTensor;
  int index = -1;
};

// kRotate: every member passes its first use on to the next member and gets its second use from the one before.
// kReshard: the members share the rows of the first use as its layer does, and get the second as `reader` does.
enum class CollectiveKind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kRotate, kReshard };
// What the small table of numbers does: cleared before a step, squared norm of a gradient chunk, then clip factor and
// finite flag.
enum class ScalarOp : uint8_t { kReset, kChunkNorm, kFinishNorm };

// Wait until queue `queue` has finished its first `count` instructions.
struct Wait {
  Queue queue = Queue::kCompute;
  int count = 0;
};

struct Instruction {
  Op op = Op::kRun;
  Queue queue = Queue::kCompute;
  Direction direction = Direction::kForward;  // run
  CollectiveKind collective = CollectiveKind::kAllReduce;
  ScalarOp scalar = ScalarOp::kReset;
  bool if_finite = false;  // skipped when the step's gradient is not finite
  int layer = -1;          // run: global layer index; communication of an activation: the layer whose tensor it is
  int reader = -1;         // reshard: the layer that reads it
  int segment = -1;        // run
  int recomputed = -1;     // run in Direction::kRecompute: the tensor
  int micro_batch = -1;    // run, send, recv
  int slice = -1;          // context parallelism: whose keys and values a run attends or a rotation passes on
  int tile = 0;            // run by tiles of tokens, and its communication
  int num_tiles = 1;
  int chunk = -1;        // update, chunk norm, gathers, reductions, and messages of a tied chunk
  int group = -1;        // collective: index in Program::groups; copy, send, recv: whose members share out `elements`
  int peer = -1;         // send, recv: global rank
  int64_t elements = 0;  // collective: of the whole buffer; send, recv: of the message
  std::vector<Use> uses;
  std::vector<Wait> waits;
};

struct RankGroup {
  std::string name;  // "tensor", "context", "data", "replica", "world"
  std::vector<int> ranks;
};

struct Program {
  std::string name;  // "step", "evaluation", "save", "decode"
  int rank = 0;
  std::vector<int64_t> capacity_tokens;  // of a micro-batch in every layer
  std::vector<Booking> bookings;         // the set's persistent ones first, same indices in every program of the set
  std::vector<Instruction> instructions;
  std::vector<RankGroup> groups;
  std::array<int64_t, kNumTiers> arena_bytes{};  // persistent + transient, set by pack
};

// One parameter tensor inside a chunk; rows and cols are this rank's part of it.
struct ChunkTensor {
  int layer = -1;      // global layer index
  int parameter = -1;  // index in LayerDecl::parameters
  int64_t offset = 0;  // elements from the chunk's begin, 64-byte aligned
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t num_elements() const { return rows * cols; }
};

// Whole tensors of one layer and one class, padded so that it divides into shards: the unit of sharding and gathering.
struct Chunk {
  std::string name;
  int layer = -1;
  std::vector<ChunkTensor> tensors;
  int64_t elements = 0;    // padded
  int64_t num_shards = 1;  // ranks that hold the same bytes; states are split over them from ZeRO 1 on
  int64_t shard = 0;       // this rank's
  int zero = 0;
  bool over_tp = false;      // the replicas are dp x cp x tp ranks, otherwise dp x cp
  bool trainable = true;     // otherwise its tensors are frozen: no gradient, no optimizer state, no update
  int tied_peer_stage = -1;  // the tied token table: the other stage that holds it; -1 otherwise
  bool tied_alias = false;   // this stage only borrows it
  int64_t shard_elements() const { return elements / num_shards; }
  int64_t shard_begin() const { return shard * shard_elements(); }
  // What this rank's optimizer updates: everything at ZeRO 0, its shard above.
  int64_t owned_begin() const { return zero == 0 ? 0 : shard_begin(); }
  int64_t owned_elements() const { return zero == 0 ? elements : shard_elements(); }
  // What its parameter booking holds: everything below ZeRO 3, its shard there.
  int64_t held_begin() const { return zero == 3 ? shard_begin() : 0; }
  int64_t held_elements() const { return zero == 3 ? shard_elements() : elements; }
  // Over all ranks that hold a parameter, one saves what it owns of each element.
  bool saved_here() const { return !tied_alias && (zero > 0 || shard == 0); }
};

// The programs of one rank over one memory map. Chunk c's parameter booking is parameter_booking[c]; its optimizer
// states are state_booking[c][s] in the order of optimizer_states(); a frozen chunk has none.
struct ProgramSet {
  int rank = 0;
  std::vector<Chunk> chunks;  // of this rank's stage
  std::vector<int> parameter_booking;
  std::vector<std::vector<int>> state_booking;
  int batch_booking = -1;          // the batch sheet of a step
  int scalars_booking = -1;        // a StepScalars
  int norms_booking = -1;          // (doubles) squared norm of every chunk tensor, in chunk order
  std::vector<int> cache_booking;  // by layer: KV cache; -1 without
  std::vector<Program> programs;
  std::array<int64_t, kNumTiers> arena_bytes{};  // the largest of the programs

  const Program* find(std::string_view name) const;
};

std::string_view queue_name(Queue queue);
std::string_view op_name(Op op);
std::string_view booking_kind_name(BookingKind kind);
// What an instruction does, without its queue and bookings: "run attention.3.qkv forward mb0".
std::string instruction_name(const Instruction& instruction, const std::vector<LayerDecl>& layers);
// One line, as `strata program` prints it: place, queue, what, bookings, waits.
std::string describe(const Instruction& instruction, const Program& program, const std::vector<LayerDecl>& layers);

}  // namespace strata
