// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <span>

#include "strata/base/atomic_file.h"
#include "strata/base/checksum.h"
#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/ckpt/checkpoint.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// One copy of the save program: from a booking in memory to one in the file.
struct Copy {
  int chunk = -1;
  std::string state;
  int64_t from = 0;  // bytes in the device arena
  int64_t to = 0;    // bytes in the file
};

Copy read_copy(const Instruction& instruction, const Program& save, const std::vector<std::string_view>& states) {
  Copy copy;
  copy.chunk = instruction.chunk;
  for (const Use& use : instruction.uses) {
    const int64_t offset = save.bookings[use.booking].offset;
    if (use.role == Role::kMessage) {
      copy.to = offset;
      continue;
    }
    const bool parameters = use.role == Role::kParameter || states[use.index] == "master";
    copy.state = parameters ? kParametersState : std::string(states[use.index]);
    copy.from = offset;
  }
  return copy;
}

std::vector<SavedPart> list_parts(const StatesInMemory& states, const Program& save, const std::string& file) {
  const std::vector<std::string_view> names = optimizer_states(states.input.optimizer, states.input.precision);
  std::vector<SavedPart> parts;
  int64_t parameters = 0;
  for (const Instruction& instruction : save.instructions) {
    if (instruction.op != Op::kCopy) continue;
    const Copy copy = read_copy(instruction, save, names);
    const Chunk& chunk = states.set.chunks[copy.chunk];
    STRATA_CHECK(chunk.owned_elements() == chunk.elements, "chunk {} is shared by {} ranks", chunk.name,
                 chunk.num_shards);
    for (const ChunkTensor& tensor : chunk.tensors) {
      const int64_t count = tensor.num_elements();
      const std::span<const std::byte> bytes(states.arena + copy.from + 4 * tensor.offset,
                                             static_cast<size_t>(4 * count));
      parts.push_back({states.layers[tensor.layer].parameters[tensor.parameter].name, copy.state, tensor.rows,
                       tensor.cols, 0, count, file, copy.to + 4 * tensor.offset, checksum_hex(checksum_of(bytes))});
      if (copy.state == kParametersState) parameters += count;
    }
  }
  STRATA_CHECK(parameters == count_parameters(states.layers), "the save program writes {} of {} parameters", parameters,
               count_parameters(states.layers));
  return parts;
}

void check_free_space(const fs::path& folder, int64_t needed) {
  const int64_t free = free_disk_bytes(folder);
  if (needed > free)
    throw_failed_run(
        "a checkpoint needs {} bytes ({}), {} has {} free ({}): free some space, keep fewer checkpoints "
        "(train.keep_last), "
        "or choose another run.directory",
        needed, format_bytes(needed), folder.string(), free, format_bytes(free));
}

void create_parent(const std::string& run_folder) {
  const fs::path parent = fs::path(run_folder) / "checkpoints";
  std::error_code error;
  if (fs::create_directories(parent, error)) sync_path(run_folder);
  if (error) throw_file_error("create", parent, error.value());
}

int64_t write_file(const fs::path& path, const std::function<void(DiskFile&)>& run_save) {
  DiskFile file = DiskFile::create(path);
  run_save(file);
  file.sync();
  return file.size_bytes();
}

}  // namespace

void write_checkpoint(const std::string& run_folder, const TrainerState& trainer, const StatesInMemory& states,
                      const std::function<void(DiskFile&)>& run_save) {
  const Program* save = states.set.find("save");
  STRATA_CHECK(save != nullptr, "the set has no save program");
  const std::string name = fmt::format("rank-{:05}.bin", states.set.rank);
  Manifest manifest{trainer, states.input.model, {}, list_parts(states, *save, name)};
  create_parent(run_folder);
  const fs::path target = checkpoint_path(run_folder, trainer.step);
  check_free_space(target.parent_path(), save->arena_bytes[static_cast<size_t>(Tier::kDisk)] +
                                             static_cast<int64_t>(manifest_text(manifest).size()));
  AtomicFolder folder(target, ExistingTarget::kReplace);
  manifest.files.push_back({name, write_file(folder.folder() / name, run_save)});
  for (const SavedPart& part : manifest.parts)
    STRATA_CHECK(part.offset + part.bytes() <= manifest.files[0].bytes, "{} of {} was not written", part.state,
                 part.tensor);
  write_file_atomically(folder.folder() / "manifest.json", manifest_text(manifest));
  folder.commit();
}

}  // namespace strata
