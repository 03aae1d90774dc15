// SPDX-License-Identifier: Apache-2.0
// A tiny run for tests of checkpoints: compiled programs, an arena filled with recognisable values, and a save program
// that runs without an executor. Included by *_test.cc only.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "strata/base/random.h"
#include "strata/ckpt/checkpoint.h"
#include "strata/device/arena.h"
#include "strata/layers/freeze.h"
#include "strata/spec/testing.h"
#include "strata/tensor/f32_values.h"

namespace strata {

inline CompileInput compile_input(const ModelSpec& model, Precision precision,
                                  OptimizerKind optimizer = OptimizerKind::kAdamW) {
  CompileInput input;
  input.model = model;
  input.seq = 16;
  input.precision = precision;
  input.optimizer.kind = optimizer;
  input.plan = single_rank_plan(model, ActivationPolicy::kKeep, 2, 1, 1);
  return input;
}

class TinyRun {
 public:
  explicit TinyRun(CompileInput compile_input,
                   const std::vector<ProgramKind>& kinds = {ProgramKind::kStep, ProgramKind::kSave})
      : input(std::move(compile_input)),
        layers(declare_layers(input.model, input.frozen)),
        set(compile(input, kinds)),
        arena(set.arena_bytes[static_cast<size_t>(Tier::kDevice)]) {}

  StatesInMemory states() const { return {input, layers, set, arena.base()}; }

  const Booking& booking(int index) const { return set.programs.front().bookings[index]; }
  // Contents of a booking as unsigned words of its element type.
  template <typename T>
  T* contents(int index) const {
    return reinterpret_cast<T*>(arena.base() + booking(index).offset);
  }

  // Values that differ from element to element, also beyond the first 16 bits; bf16 parameters are rounded from the
  // master copy.
  void fill(uint64_t seed) {
    for (size_t chunk = 0; chunk < set.chunks.size(); ++chunk) {
      const int64_t elements = set.chunks[chunk].elements;
      for (int state : set.state_booking[chunk]) fill_floats(contents<float>(state), elements, mix_key(seed, state));
      const int parameters = set.parameter_booking[chunk];
      if (input.precision == Precision::kF32)
        fill_floats(contents<float>(parameters), elements, mix_key(seed, parameters));
      else
        for (int64_t index = 0; index < elements; ++index)
          contents<BF16>(parameters)[index] = to_bf16(contents<float>(set.state_booking[chunk][0])[index]);
    }
  }

  // What the executor does for the save program.
  void save(DiskFile& file) const {
    const Program& program = *set.find("save");
    for (const Instruction& instruction : program.instructions) {
      const CopySource from = copy_source(program, set, instruction);
      const Booking& to = program.bookings[instruction.uses[1].booking];
      read_as_f32(arena.base() + from.offset, from.dtype, from.elements,
                  [&](int64_t first, std::span<const float> values) {
                    file.write(to.offset + 4 * first, std::as_bytes(values));
                  });
    }
  }

  void write(const std::string& run_folder, int64_t step) const {
    TrainerState trainer;
    trainer.step = step;
    write_checkpoint(run_folder, trainer, states(), [this](DiskFile& file) { save(file); });
  }

  CompileInput input;
  std::vector<LayerDecl> layers;
  ProgramSet set;
  Arena arena;

 private:
  static void fill_floats(float* values, int64_t count, uint64_t key) {
    for (int64_t index = 0; index < count; ++index)
      values[index] = uniform_from(philox(key, static_cast<uint64_t>(index), 0)[0]) - 0.5f;
  }
};

// Bytes of every tensor in a booking per chunk (padding between tensors is not saved).
template <typename BookingOf>
bool equal_tensors(const TinyRun& a, const TinyRun& b, int64_t element_bytes, BookingOf&& booking_of) {
  for (size_t chunk = 0; chunk < a.set.chunks.size(); ++chunk)
    for (const ChunkTensor& tensor : a.set.chunks[chunk].tensors) {
      const std::byte* const left = a.contents<std::byte>(booking_of(a, chunk)) + element_bytes * tensor.offset;
      const std::byte* const right = b.contents<std::byte>(booking_of(b, chunk)) + element_bytes * tensor.offset;
      if (std::memcmp(left, right, static_cast<size_t>(element_bytes * tensor.num_elements())) != 0) return false;
    }
  return true;
}

}  // namespace strata
