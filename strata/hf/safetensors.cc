// SPDX-License-Identifier: Apache-2.0
#include "strata/hf/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "strata/base/error.h"
#include "strata/base/units.h"

namespace strata {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian and mapped as they are");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kLargestHeader = 100'000'000;  // the limit of the format
constexpr std::string_view kMetadata = "__metadata__";

struct StoredDType {
  std::string_view name;
  int64_t num_bytes;
  std::optional<DType> dtype;
};
constexpr std::array<StoredDType, 15> kStoredDTypes = {{
    {"F32", 4, DType::kF32},
    {"BF16", 2, DType::kBF16},
    {"I32", 4, DType::kI32},
    {"I64", 8, DType::kI64},
    {"U16", 2, DType::kU16},
    {"U8", 1, DType::kU8},
    {"F64", 8, {}},
    {"F16", 2, {}},
    {"I16", 2, {}},
    {"I8", 1, {}},
    {"U32", 4, {}},
    {"U64", 8, {}},
    {"BOOL", 1, {}},
    {"F8_E4M3", 1, {}},
    {"F8_E5M2", 1, {}},
}};

const StoredDType& stored_dtype(DType dtype) {
  const auto found = std::ranges::find(kStoredDTypes, std::optional(dtype), &StoredDType::dtype);
  STRATA_CHECK(found != kStoredDTypes.end(), "tensors of {} are not stored", dtype_name(dtype));
  return *found;
}

// A key that comes twice would silently win over the first.
Json parse_header(std::string_view text, const std::string& file) {
  std::set<std::string> names;
  const auto refuse_twice = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second)
      throw_bad_input("{}: the tensor '{}' is listed twice", file, parsed.get<std::string>());
    return true;
  };
  try {
    Json header = Json::parse(text, refuse_twice);
    if (!header.is_object()) throw_bad_input("{}: the header is not a JSON object", file);
    return header;
  } catch (const Json::exception& error) {
    throw_bad_input("{}: the header is not JSON: {}", file, error.what());
  }
}

// Without overflow; -1 when there are more elements than `limit`.
int64_t count_elements(const std::vector<int64_t>& shape, int64_t limit) {
  int64_t elements = 1;
  if (std::ranges::count(shape, 0) > 0) return 0;
  for (const int64_t extent : shape) {
    if (extent > limit / elements) return -1;
    elements *= extent;
  }
  return elements;
}

std::vector<int64_t> read_extents(const Json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  const bool sound = found != entry.end() && found->is_array() &&
                     std::ranges::all_of(*found, [](const Json& one) { return one.is_number_unsigned(); });
  if (!sound) throw_bad_input("{}: '{}' is not a list of sizes", where, key);
  std::vector<int64_t> extents;
  for (const Json& one : *found) {
    extents.push_back(one.get<int64_t>());
    if (extents.back() < 0)
      throw_bad_input("{}: '{}' holds {}, which is beyond 63 bits", where, key, one.get<uint64_t>());
  }
  return extents;
}

SafetensorsTensor read_entry(const Json& entry, std::span<const std::byte> data, const std::string& where) {
  if (!entry.is_object()) throw_bad_input("{}: its entry is not a JSON object", where);
  SafetensorsTensor tensor;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) throw_bad_input("{}: 'dtype' is not a string", where);
  tensor.stored_dtype = dtype->get<std::string>();
  const auto stored = std::ranges::find(kStoredDTypes, tensor.stored_dtype, &StoredDType::name);
  if (stored == kStoredDTypes.end()) throw_bad_input("{}: unknown dtype '{}'", where, tensor.stored_dtype);
  tensor.dtype = stored->dtype;
  tensor.shape = read_extents(entry, "shape", where);
  const std::vector<int64_t> offsets = read_extents(entry, "data_offsets", where);
  const auto size = static_cast<int64_t>(data.size());
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > size)
    throw_bad_input("{}: data_offsets [{}] are not inside the {} bytes of data", where, fmt::join(offsets, ", "), size);
  const int64_t elements = count_elements(tensor.shape, size / stored->num_bytes);
  if (elements < 0 || elements * stored->num_bytes != offsets[1] - offsets[0])
    throw_bad_input("{}: shape [{}] of {} does not take the {} bytes of its data_offsets", where,
                    fmt::join(tensor.shape, ", "), tensor.stored_dtype, offsets[1] - offsets[0]);
  tensor.bytes = data.subspan(static_cast<size_t>(offsets[0]), static_cast<size_t>(offsets[1] - offsets[0]));
  return tensor;
}

std::map<std::string, std::string> read_metadata(const Json& entry, const std::string& file) {
  const bool sound =
      entry.is_object() && std::ranges::all_of(entry, [](const Json& value) { return value.is_string(); });
  if (!sound) throw_bad_input("{}: __metadata__ is not an object of strings", file);
  return entry.get<std::map<std::string, std::string>>();
}

// Sorted by place, every tensor begins where the one before it ends.
void check_tiling(const std::map<std::string, SafetensorsTensor>& tensors, std::span<const std::byte> data,
                  const std::string& file) {
  std::vector<std::pair<std::span<const std::byte>, std::string_view>> places;
  for (const auto& [name, tensor] : tensors) places.emplace_back(tensor.bytes, name);
  std::ranges::sort(places, {}, [](const auto& place) { return std::pair(place.first.data(), place.first.size()); });
  const std::byte* next = data.data();
  for (const auto& [bytes, name] : places) {
    const int64_t begin = bytes.data() - data.data();
    if (bytes.data() < next)
      throw_bad_input("{}: tensor '{}' overlaps the one before it, at byte {}", file, name, begin);
    if (bytes.data() > next)
      throw_bad_input("{}: a hole of {} bytes before tensor '{}', at byte {}", file, bytes.data() - next, name, begin);
    next = bytes.data() + bytes.size();
  }
  const int64_t rest = data.data() + data.size() - next;
  if (rest != 0) throw_bad_input("{}: {} bytes after the last tensor belong to none", file, rest);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::string file = path.string();
  const auto size = static_cast<int64_t>(file_.bytes().size());
  uint64_t length = 0;
  if (size < kLengthBytes) throw_bad_input("{} has {} bytes: too short for a .safetensors file", file, size);
  std::memcpy(&length, file_.bytes().data(), sizeof(length));
  if (length > static_cast<uint64_t>(std::min(size - kLengthBytes, kLargestHeader)))
    throw_bad_input("{}: a header of {} bytes does not fit the file's {} bytes: cut off, or no .safetensors file", file,
                    length, size);
  const auto header_bytes = file_.bytes().subspan(kLengthBytes, static_cast<size_t>(length));
  const auto data = file_.bytes().subspan(kLengthBytes + static_cast<size_t>(length));
  const Json header = parse_header({reinterpret_cast<const char*>(header_bytes.data()), header_bytes.size()}, file);
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata)
      metadata_ = read_metadata(entry, file);
    else
      tensors_.emplace(name, read_entry(entry, data, fmt::format("{}: tensor '{}'", file, name)));
  }
  check_tiling(tensors_, data, file);
}

const SafetensorsTensor& SafetensorsFile::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    std::vector<std::string> names;
    for (const auto& [other, tensor] : tensors_) names.push_back(other);
    throw_bad_input("{} has no tensor '{}' among its {}{}", path().string(), name, names.size(),
                    did_you_mean(name, names));
  }
  if (!found->second.dtype)
    throw_bad_input("{}: tensor '{}' is {}, which Strata does not read: convert it to F32 or BF16", path().string(),
                    name, found->second.stored_dtype);
  return found->second;
}

// The widest elements come first, so that every tensor is aligned to its elements; then by name.
SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries)
    : file_(path) {
  std::vector<SafetensorsEntry> sorted = entries;
  std::ranges::sort(sorted, {},
                    [](const SafetensorsEntry& one) { return std::pair(-dtype_bytes(one.dtype), one.name); });
  OrderedJson header = {{kMetadata, {{"format", "pt"}}}};
  int64_t end = 0;
  for (const SafetensorsEntry& entry : sorted) {
    int64_t num_bytes = dtype_bytes(entry.dtype);
    for (const int64_t extent : entry.shape) num_bytes *= extent;
    header[entry.name] = {
        {"dtype", stored_dtype(entry.dtype).name}, {"shape", entry.shape}, {"data_offsets", {end, end + num_bytes}}};
    const bool added = places_.emplace(entry.name, Place{.offset = end, .num_bytes = num_bytes}).second;
    STRATA_CHECK(added, "two tensors called {}", entry.name);
    end += num_bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto data_begin = kLengthBytes + static_cast<int64_t>(text.size());
  for (auto& [name, place] : places_) place.offset += data_begin;
  file_bytes_ = data_begin + end;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const int64_t free = free_disk_bytes(folder);
  if (file_bytes_ > free)
    throw_failed_run("{} needs {} bytes ({}), {} has {} free ({}): free some space or choose another folder",
                     path.string(), file_bytes_, format_bytes(file_bytes_), folder.string(), free, format_bytes(free));
  const uint64_t length = text.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(text);
}

void SafetensorsWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  const auto found = places_.find(name);
  STRATA_CHECK(found != places_.end() && found->second.written_bytes == 0, "tensor {} is not expected", name);
  STRATA_CHECK(static_cast<int64_t>(bytes.size()) == found->second.num_bytes, "tensor {} has {} bytes, not {}", name,
               found->second.num_bytes, bytes.size());
  append(name, bytes);
}

void SafetensorsWriter::append(const std::string& name, std::span<const std::byte> bytes) {
  const auto found = places_.find(name);
  STRATA_CHECK(found != places_.end(), "tensor {} is not expected", name);
  Place& place = found->second;
  const auto size = static_cast<int64_t>(bytes.size());
  STRATA_CHECK(size <= place.num_bytes - place.written_bytes, "{} bytes after {} of the {} of tensor {}", size,
               place.written_bytes, place.num_bytes, name);
  file_.pwrite(bytes, place.offset + place.written_bytes);
  place.written_bytes += size;
}

void SafetensorsWriter::commit() {
  for (const auto& [name, place] : places_)
    STRATA_CHECK(place.written_bytes == place.num_bytes, "{} of {} bytes of tensor {} were written",
                 place.written_bytes, place.num_bytes, name);
  file_.commit();
}

}  // namespace strata
