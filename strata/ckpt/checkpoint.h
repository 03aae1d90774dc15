// SPDX-License-Identifier: Apache-2.0
// Checkpoints: <run>/checkpoints/step-00000100/ with manifest.json and one rank-<n>.bin per rank, described in
// docs/formats/checkpoint.md. Tensors are saved under their global names with their whole shapes, as f32, so a
// checkpoint belongs to a model and an optimizer and to no plan, world size or precision. A folder appears complete and
// durable or not at all; what disks do to it later is found by checksums. Called between steps, on one thread of a
// rank; nothing communicates. Complete when it returns.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strata/base/atomic_file.h"
#include "strata/ckpt/manifest.h"
#include "strata/ckpt/states_in_memory.h"
#include "strata/store/disk_file.h"

namespace strata {

// A checkpoint on disk whose manifest, files and checksums are right.
struct CheckpointInfo {
  std::string folder;
  TrainerState trainer;
  ModelSpec model;
  std::vector<SavedPart> parts;
};

std::string checkpoint_path(const std::string& run_folder, int64_t step);

// Writing takes three steps, with a barrier of all ranks after each but the last: one rank makes a NewCheckpoint, every
// rank (that one too) calls write_rank_part, and the one rank commits. Until then the checkpoint is not there.
class NewCheckpoint {
 public:
  // A temporary folder. Throws Error before anything is written when the disk has not enough room for all ranks.
  // What `states` refers to must outlive this.
  NewCheckpoint(const std::string& run_folder, TrainerState trainer, const StatesInMemory& states);

  // Writes the manifest from what the ranks have written and gives the folder its name; a checkpoint of the same step
  // is replaced. Without it the destructor removes everything. Call once.
  void commit();

 private:
  void check_coverage() const;

  StatesInMemory states_;
  Manifest manifest_;
  AtomicFolder folder_;
};

// `run_save` runs the set's "save" program into the file; not called on a rank that owns nothing.
using RunSave = std::function<void(DiskFile&)>;
void write_rank_part(const std::string& run_folder, int64_t step, const StatesInMemory& states,
                     const RunSave& run_save);

// The three steps of a run with one rank.
void write_checkpoint(const std::string& run_folder, const TrainerState& trainer, const StatesInMemory& states,
                      const RunSave& run_save);

// Removes older complete checkpoints, so that `keep_last` up to and including `newest_step` are left.
void remove_old_checkpoints(const std::string& run_folder, int64_t newest_step, int64_t keep_last);
// Removes what killed writers left behind. Only while no other process writes checkpoints of this run.
void remove_unfinished_checkpoints(const std::string& run_folder);

// Reads the whole checkpoint once; throws Error that says what is damaged.
CheckpointInfo open_checkpoint(const std::string& folder);
// One that another rank has read or that the run has just written: the manifest and the sizes of the files alone.
CheckpointInfo open_known_checkpoint(const std::string& folder);
// The newest complete checkpoint, with a warning for each newer one that is not. Nothing when there are no checkpoints;
// throws Error when there are some and none is complete.
std::optional<CheckpointInfo> find_latest_complete(const std::string& run_folder, std::vector<std::string>& warnings);

// Fills the parameters that the rank holds and the optimizer states that it owns, and reads only those; ranks may read
// at the same time. Throws Error, before anything is touched and alike on every rank, for a checkpoint of another model
// or optimizer, listing what is missing, unexpected and different. Parameters stored in bf16 are rounded from the f32
// values.
TrainerState read_checkpoint(const CheckpointInfo& checkpoint, const StatesInMemory& states);

}  // namespace strata
