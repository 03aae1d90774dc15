// SPDX-License-Identifier: Apache-2.0
// Which checkpoints a run has, which of them are complete, and which go.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <span>

#include "strata/base/checksum.h"
#include "strata/base/error.h"
#include "strata/ckpt/checkpoint.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = int64_t{4} << 20;

fs::path checkpoints_folder(const std::string& run_folder) { return fs::path(run_folder) / "checkpoints"; }

// Entries of the checkpoints folder; none without the folder.
std::vector<fs::path> list_entries(const std::string& run_folder) {
  const fs::path folder = checkpoints_folder(run_folder);
  std::vector<fs::path> entries;
  std::error_code error;
  if (!fs::exists(folder, error) && !error) return entries;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::end(entry); entry.increment(error))
    entries.push_back(entry->path());
  if (error) throw_file_error("list", folder, error.value());
  return entries;
}

struct StepFolder {
  int64_t step = 0;
  fs::path path;
};

// Newest first; "step-100" counts as well as "step-00000100".
std::vector<StepFolder> list_step_folders(const std::string& run_folder) {
  static const std::regex pattern("step-([0-9]{1,18})");
  std::vector<StepFolder> folders;
  for (const fs::path& entry : list_entries(run_folder)) {
    std::smatch match;
    const std::string name = entry.filename().string();
    if (std::regex_match(name, match, pattern)) folders.push_back({std::stoll(match[1]), entry});
  }
  std::ranges::sort(folders, [](const StepFolder& a, const StepFolder& b) {
    return std::pair(a.step, a.path) > std::pair(b.step, b.path);
  });
  return folders;
}

// The manifest, after the sizes of the files that it lists.
Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / "manifest.json";
  Manifest manifest = parse_manifest(read_text_file(path), path.string());
  for (const SavedFile& listed : manifest.saved.files) {
    const DiskFile file = DiskFile::open(folder / listed.name);
    if (file.size_bytes() != listed.bytes)
      throw_bad_input("{} has {} bytes, not {}", file.path().string(), file.size_bytes(), listed.bytes);
  }
  return manifest;
}

bool looks_complete(const fs::path& folder) {
  try {
    read_manifest(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string checksum_in(const DiskFile& file, int64_t offset, int64_t bytes, std::vector<std::byte>& piece) {
  Checksum checksum;
  for (const int64_t end = offset + bytes; offset < end;) {
    const auto size = static_cast<size_t>(std::min(kPieceBytes, end - offset));
    file.read(offset, std::span(piece).first(size));
    checksum.update(std::span(piece).first(size));
    offset += static_cast<int64_t>(size);
  }
  return checksum_hex(checksum.digest());
}

// One file is open at a time: there may be more of them than a process may open.
void verify_parts(const fs::path& folder, const PartList& saved) {
  std::set<std::string> listed;
  for (const SavedFile& file : saved.files) listed.insert(file.name);
  std::optional<DiskFile> file;
  std::vector<std::byte> piece(kPieceBytes);
  for (const SavedPart& part : saved.parts) {
    if (!listed.contains(part.file))
      throw_bad_input("{}: {} is in {}, which is not listed", folder.string(), part.tensor, part.file);
    if (!file || file->path() != folder / part.file) file.emplace(DiskFile::open(folder / part.file));
    const std::string found = checksum_in(*file, part.offset, part.bytes(), piece);
    if (found != part.checksum)
      throw_bad_input("{}: {} of {} is damaged: its checksum is {}, not {}", file->path().string(), part.state,
                      part.tensor, found, part.checksum);
  }
}

CheckpointInfo to_info(const std::string& folder, Manifest manifest) {
  return {folder, std::move(manifest.trainer), std::move(manifest.model), std::move(manifest.saved.parts)};
}

}  // namespace

std::string checkpoint_path(const std::string& run_folder, int64_t step) {
  return (checkpoints_folder(run_folder) / fmt::format("step-{:08}", step)).string();
}

CheckpointInfo open_checkpoint(const std::string& folder) {
  Manifest manifest = read_manifest(folder);
  verify_parts(folder, manifest.saved);
  return to_info(folder, std::move(manifest));
}

CheckpointInfo open_known_checkpoint(const std::string& folder) { return to_info(folder, read_manifest(folder)); }

std::optional<CheckpointInfo> find_latest_complete(const std::string& run_folder, std::vector<std::string>& warnings) {
  const std::vector<StepFolder> folders = list_step_folders(run_folder);
  if (folders.empty()) return std::nullopt;
  for (const StepFolder& folder : folders) {
    try {
      return open_checkpoint(folder.path.string());
    } catch (const Error& error) {
      warnings.push_back(fmt::format("skipped the incomplete checkpoint {}: {}", folder.path.string(), error.what()));
    }
  }
  throw_bad_input(
      "none of the {} checkpoints in {} is complete (the newest: {}): repair one, or move the folder away to start "
      "again",
      folders.size(), checkpoints_folder(run_folder).string(), warnings[warnings.size() - folders.size()]);
}

// A folder first gets a name that no longer counts, so that a kill in between leaves nothing that looks like a
// checkpoint.
void remove_old_checkpoints(const std::string& run_folder, int64_t newest_step, int64_t keep_last) {
  STRATA_CHECK(keep_last >= 1, "keep {} checkpoints", keep_last);
  int64_t kept = 0;
  for (const StepFolder& folder : list_step_folders(run_folder)) {
    if (folder.step > newest_step || !looks_complete(folder.path)) continue;
    if (++kept <= keep_last) continue;
    const fs::path going = fmt::format("{}.tmp-{}-removed", folder.path.string(), ::getpid());
    std::error_code error;
    fs::rename(folder.path, going, error);
    if (!error) fs::remove_all(going, error);
    if (error) throw_file_error("remove", folder.path, error.value());
  }
}

void remove_unfinished_checkpoints(const std::string& run_folder) {
  static const std::regex pattern("step-[0-9]+\\.tmp-(writing|[0-9]+-removed)");
  for (const fs::path& entry : list_entries(run_folder)) {
    if (!std::regex_match(entry.filename().string(), pattern)) continue;
    std::error_code error;
    fs::remove_all(entry, error);
    if (error) throw_file_error("remove", entry, error.value());
  }
}

}  // namespace strata
