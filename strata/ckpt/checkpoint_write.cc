// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <map>
#include <span>

#include "strata/base/checksum.h"
#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/ckpt/checkpoint.h"
#include "strata/tensor/f32_values.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

std::string rank_name(int64_t rank, std::string_view ending) { return fmt::format("rank-{:05}.{}", rank, ending); }

// The same on every rank, which need not ask.
fs::path temporary_path(const std::string& run_folder, int64_t step) {
  return checkpoint_path(run_folder, step) + ".tmp-writing";
}

// What the save program writes of a tensor: the parameter, and the optimizer states unless it is frozen.
std::vector<std::string_view> saved_states(const CompileInput& input, bool trainable) {
  if (!trainable) return {kParametersState};
  std::vector<std::string_view> names = optimizer_states(input.optimizer, input.precision);
  const int master = state_index(names, "master");
  if (master >= 0) names.erase(names.begin() + master);
  names.insert(names.begin(), kParametersState);
  return names;
}

std::string_view state_of_copy(const Instruction& copy, const std::vector<std::string_view>& states) {
  const Use& from = copy.uses[0];
  const bool parameters = from.role == Role::kParameter || states[from.index] == "master";
  return parameters ? kParametersState : states[from.index];
}

// As they are in the file.
std::string checksum_of_values(const std::byte* values, DType dtype, int64_t count) {
  Checksum checksum;
  read_as_f32(values, dtype, count,
              [&](int64_t, std::span<const float> piece) { checksum.update(std::as_bytes(piece)); });
  return checksum_hex(checksum.digest());
}

// What the rank's save program writes into `file`.
std::vector<SavedPart> list_parts(const StatesInMemory& states, const Program& save, const std::string& file) {
  const std::vector<std::string_view> names = optimizer_states(states.input.optimizer, states.input.precision);
  const RankPlace place = place_of_rank(states.input.plan, states.set.rank);
  std::vector<SavedPart> parts;
  for (const Instruction& instruction : save.instructions) {
    if (instruction.op != Op::kCopy) continue;
    const Chunk& chunk = states.set.chunks[instruction.chunk];
    const CopySource from = copy_source(save, states.set, instruction);
    const int64_t offset = save.bookings[instruction.uses[1].booking].offset;
    for (const ChunkPart& part : owned_parts(states.layers, chunk, place)) {
      const ParameterDecl& parameter = states.layers[part.layer].parameters[part.parameter];
      const int64_t begin = part.place - chunk.owned_begin();
      parts.push_back({parameter.name, std::string(state_of_copy(instruction, names)), parameter.rows, parameter.cols,
                       part.part, file, offset + 4 * begin,
                       checksum_of_values(states.arena + from.offset + dtype_bytes(from.dtype) * begin, from.dtype,
                                          part.part.count)});
    }
  }
  return parts;
}

// Of all ranks, with room for their lists and the manifest.
int64_t count_checkpoint_bytes(const StatesInMemory& states) {
  constexpr int64_t kTextBytes = 512;  // of an entry, of which there are one in a list and one in the manifest
  int64_t bytes = 0;
  for (int rank = 0; rank < states.input.plan.num_ranks; ++rank)
    for (const Chunk& chunk : make_chunks(states.layers, states.input.plan, rank))
      if (chunk.saved_here())
        bytes += static_cast<int64_t>(saved_states(states.input, chunk.trainable).size()) *
                 (4 * chunk.owned_elements() + 2 * kTextBytes * static_cast<int64_t>(chunk.tensors.size()));
  return bytes;
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

// Before there is anything to clean up.
fs::path prepare_target(const std::string& run_folder, int64_t step, const StatesInMemory& states) {
  create_parent(run_folder);
  const fs::path target = checkpoint_path(run_folder, step);
  check_free_space(target.parent_path(), count_checkpoint_bytes(states));
  return target;
}

int64_t write_file(const fs::path& path, const RunSave& run_save) {
  DiskFile file = DiskFile::create(path);
  run_save(file);
  file.sync();
  return file.size_bytes();
}

void add_list(PartList& all, const fs::path& folder, int64_t rank, int64_t num_ranks) {
  const fs::path path = folder / rank_name(rank, "json");
  if (!fs::exists(path))
    throw_failed_run("rank {} of {} has written nothing into {}: it failed, or does not see the same file system", rank,
                     num_ranks, folder.string());
  const PartList list = parse_part_list(read_text_file(path), path.string());
  all.files.insert(all.files.end(), list.files.begin(), list.files.end());
  all.parts.insert(all.parts.end(), list.parts.begin(), list.parts.end());
}

}  // namespace

NewCheckpoint::NewCheckpoint(const std::string& run_folder, TrainerState trainer, const StatesInMemory& states)
    : states_(states),
      manifest_{std::move(trainer), states.input.model, {}},
      folder_(prepare_target(run_folder, manifest_.trainer.step, states),
              temporary_path(run_folder, manifest_.trainer.step), ExistingTarget::kReplace) {}

void NewCheckpoint::commit() {
  const int64_t num_ranks = states_.input.plan.num_ranks;
  for (int64_t rank = 0; rank < num_ranks; ++rank) add_list(manifest_.saved, folder_.folder(), rank, num_ranks);
  check_coverage();
  for (int64_t rank = 0; rank < num_ranks; ++rank) fs::remove(folder_.folder() / rank_name(rank, "json"));
  write_file_atomically(folder_.folder() / "manifest.json", manifest_text(manifest_));
  folder_.commit();
}

// A checkpoint without an element of a shard would be found when it is needed.
void NewCheckpoint::check_coverage() const {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<const SavedPart*>> saved;
  for (const SavedPart& part : manifest_.saved.parts) saved[{part.tensor, part.state}].push_back(&part);
  size_t expected = 0;
  for (const LayerDecl& layer : states_.layers)
    for (size_t index = 0; index < layer.parameters.size(); ++index) {
      if (static_cast<int>(index) == layer.tied_parameter) continue;
      for (std::string_view state : saved_states(states_.input, !layer.parameters[index].frozen)) {
        const auto found = saved.find({layer.parameters[index].name, state});
        STRATA_CHECK(found != saved.end(), "no rank has saved {} of {}", state, layer.parameters[index].name);
        const std::string fault = coverage_fault(found->second);
        STRATA_CHECK(fault.empty(), "the ranks have not saved {} of {} once: {}", state, layer.parameters[index].name,
                     fault);
        ++expected;
      }
    }
  STRATA_CHECK(saved.size() == expected, "the ranks have saved {} states of tensors, not {}", saved.size(), expected);
}

void write_rank_part(const std::string& run_folder, int64_t step, const StatesInMemory& states,
                     const RunSave& run_save) {
  const Program* save = states.set.find("save");
  STRATA_CHECK(save != nullptr, "the set has no save program");
  const fs::path folder = temporary_path(run_folder, step);
  const std::string name = rank_name(states.set.rank, "bin");
  PartList list{{}, list_parts(states, *save, name)};
  if (!list.parts.empty()) list.files.push_back({name, write_file(folder / name, run_save)});
  for (const SavedPart& part : list.parts)
    STRATA_CHECK(part.offset + part.bytes() <= list.files[0].bytes, "{} of {} was not written", part.state,
                 part.tensor);
  const std::string text = part_list_text(list);
  DiskFile::create(folder / rank_name(states.set.rank, "json")).write(0, std::as_bytes(std::span(text)));
}

void write_checkpoint(const std::string& run_folder, const TrainerState& trainer, const StatesInMemory& states,
                      const RunSave& run_save) {
  STRATA_CHECK(states.input.plan.num_ranks == 1, "one of {} ranks", states.input.plan.num_ranks);
  NewCheckpoint checkpoint(run_folder, trainer, states);
  write_rank_part(run_folder, trainer.step, states, run_save);
  checkpoint.commit();
}

}  // namespace strata
