// SPDX-License-Identifier: Apache-2.0
#include "strata/data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "strata/base/error.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and mapped as they are");

constexpr std::array<char, 8> kMagic = {'S', 'T', 'R', 'A', 'T', 'A', 'T', 'K'};
constexpr uint32_t kVersion = 1;
constexpr int64_t kLargestU16Vocab = 65536;
constexpr int64_t kBufferBytes = int64_t{1} << 20;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t token_bytes = 0;
  int64_t vocab = 0;
  int64_t num_tokens = 0;
  int64_t num_documents = 0;
  int64_t empty_documents = 0;
  int64_t source_bytes = 0;
  uint64_t source_fingerprint = 0;
  uint64_t fingerprint = 0;
  uint64_t index_checksum = 0;  // of the header before this field, then of the document offsets
};
static_assert(sizeof(Header) == 80);

constexpr int32_t kLlmcMagic = 20240520;
constexpr int32_t kLlmcVersion = 1;
constexpr int64_t kLlmcHeaderBytes = 1024;
struct LlmcHeader {
  int32_t magic;
  int32_t version;
  int32_t num_tokens;
};

uint64_t index_checksum(const Header& header, std::span<const int64_t> offsets) {
  Checksum checksum;
  checksum.update(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, index_checksum)));
  checksum.update(std::as_bytes(offsets));
  return checksum.digest();
}

int64_t aligned_to_index(int64_t bytes) { return (bytes + 7) / 8 * 8; }

int64_t index_begin(const Header& header) {
  return aligned_to_index(static_cast<int64_t>(sizeof(Header)) + header.num_tokens * header.token_bytes);
}

// Whether the sizes can be true of a file of `size` bytes; afterwards no product of them overflows.
bool plausible(const Header& header, int64_t size) {
  const int64_t width = header.token_bytes;
  if (width != 2 && width != 4) return false;
  if (header.vocab <= 0 || header.vocab > (width == 2 ? kLargestU16Vocab : std::numeric_limits<int32_t>::max()))
    return false;
  return header.num_tokens >= 0 && header.num_tokens <= size / width && header.num_documents >= 0 &&
         header.num_documents <= size / 8;
}

Header read_header(std::span<const std::byte> bytes, const std::string& name) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < static_cast<int64_t>(sizeof(Header)))
    throw_bad_input("{} is cut off: {} bytes, the header alone has {}", name, size, sizeof(Header));
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.version != kVersion)
    throw_bad_input("{} has token file version {}, this Strata reads {}: tokenise again", name, header.version,
                    kVersion);
  if (!plausible(header, size))
    throw_bad_input("{} has a damaged header: {} bytes per token, vocabulary {}, {} tokens, {} documents in {} bytes",
                    name, header.token_bytes, header.vocab, header.num_tokens, header.num_documents, size);
  const int64_t expected = index_begin(header) + 8 * (header.num_documents + 1);
  if (size != expected)
    throw_bad_input("{} has {} bytes, its header ({} tokens, {} documents) needs {}: it was cut off or changed", name,
                    size, header.num_tokens, header.num_documents, expected);
  return header;
}

// Widens and returns the largest id, negative ones counting as very large.
template <typename Stored>
uint32_t widen(const Stored* tokens, std::span<int32_t> out) {
  uint32_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto id = static_cast<uint32_t>(tokens[i]);
    out[i] = static_cast<int32_t>(id);
    largest = std::max(largest, id);
  }
  return largest;
}

}  // namespace

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, int64_t vocab, uint64_t source_fingerprint)
    : file_(path),
      vocab_(vocab),
      source_fingerprint_(source_fingerprint),
      dtype_(vocab <= kLargestU16Vocab ? DType::kU16 : DType::kI32) {
  STRATA_CHECK(vocab > 0 && vocab <= std::numeric_limits<int32_t>::max(), "vocabulary of {}", vocab);
  buffer_.reserve(kBufferBytes);
  const std::array<std::byte, sizeof(Header)> empty = {};
  file_.write(empty);  // commit() fills it in
}

void TokenFileWriter::append(std::span<const int32_t> ids) {
  const auto width = static_cast<size_t>(dtype_bytes(dtype_));
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_)
      throw_bad_input("token id {} at token {} of {} is outside the vocabulary of {}", id, num_tokens_,
                      file_.target().string(), vocab_);
    if (buffer_.size() + width > kBufferBytes) flush();
    buffer_.resize(buffer_.size() + width);
    std::memcpy(buffer_.data() + buffer_.size() - width, &id, width);  // little-endian: the low bytes come first
    ++num_tokens_;
  }
}

void TokenFileWriter::end_document() { offsets_.push_back(num_tokens_); }

void TokenFileWriter::flush() {
  fingerprint_.update(buffer_);
  file_.write(buffer_);
  buffer_.clear();
}

void TokenFileWriter::commit(int64_t source_bytes, int64_t empty_documents) {
  STRATA_CHECK(offsets_.back() == num_tokens_, "{} tokens after the last document", num_tokens_ - offsets_.back());
  flush();
  const std::array<std::byte, 8> padding = {};
  file_.write(std::span(padding).first(static_cast<size_t>(aligned_to_index(file_.size_bytes()) - file_.size_bytes())));
  file_.write(std::as_bytes(std::span(offsets_)));
  Header header;
  header.token_bytes = static_cast<uint32_t>(dtype_bytes(dtype_));
  header.vocab = vocab_;
  header.num_tokens = num_tokens_;
  header.num_documents = num_documents();
  header.empty_documents = empty_documents;
  header.source_bytes = source_bytes;
  header.source_fingerprint = source_fingerprint_;
  header.fingerprint = fingerprint_.digest();
  header.index_checksum = index_checksum(header, offsets_);
  file_.pwrite(std::as_bytes(std::span(&header, 1)), 0);
  file_.commit();
}

TokenFile::TokenFile(const std::filesystem::path& path, int64_t vocab) : file_(path), vocab_(vocab) {
  const std::span<const std::byte> bytes = file_.bytes();
  int32_t first = 0;
  if (bytes.size() >= sizeof(first)) std::memcpy(&first, bytes.data(), sizeof(first));
  if (bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0)
    open_indexed(vocab);
  else if (first == kLlmcMagic)
    open_llmc();
  else
    throw_bad_input("{} ({} bytes) is no token file: it starts with {:#010x}, neither 'STRATATK' nor llm.c's magic {}",
                    path.string(), bytes.size(), static_cast<uint32_t>(first), kLlmcMagic);
}

void TokenFile::open_indexed(int64_t model_vocab) {
  const std::string name = path().string();
  const Header header = read_header(file_.bytes(), name);
  const int64_t begin = index_begin(header);
  index_ = {reinterpret_cast<const int64_t*>(file_.bytes().data() + begin),
            static_cast<size_t>(header.num_documents) + 1};
  if (index_checksum(header, index_) != header.index_checksum || index_.front() != 0 ||
      index_.back() != header.num_tokens || !std::is_sorted(index_.begin(), index_.end()))
    throw_bad_input("{} has a damaged header or document index: tokenise again", name);
  if (header.vocab > model_vocab)
    throw_bad_input("{} holds ids of a vocabulary of {}, the model has {}", name, header.vocab, model_vocab);
  indexed_ = true;
  vocab_ = header.vocab;
  dtype_ = header.token_bytes == 2 ? DType::kU16 : DType::kI32;
  num_tokens_ = header.num_tokens;
  tokens_ = file_.bytes().data() + sizeof(Header);
  source_ = {header.source_fingerprint, header.source_bytes, header.empty_documents};
  recorded_fingerprint_ = header.fingerprint;
}

void TokenFile::open_llmc() {
  const std::string name = path().string();
  const auto size = static_cast<int64_t>(file_.bytes().size());
  if (size < kLlmcHeaderBytes)
    throw_bad_input("{} is cut off: {} bytes, the header alone has {}", name, size, kLlmcHeaderBytes);
  LlmcHeader header;
  std::memcpy(&header, file_.bytes().data(), sizeof(header));
  if (header.version != kLlmcVersion)
    throw_bad_input("{} has llm.c version {}: only version {} (uint16 ids) is read", name, header.version,
                    kLlmcVersion);
  const int64_t expected = kLlmcHeaderBytes + 2 * int64_t{header.num_tokens};
  if (header.num_tokens < 0 || size != expected)
    throw_bad_input("{} has {} bytes, its header ({} tokens) needs {}: it was cut off or changed", name, size,
                    header.num_tokens, expected);
  num_tokens_ = header.num_tokens;
  tokens_ = file_.bytes().data() + kLlmcHeaderBytes;
  whole_ = {0, num_tokens_};
  source_.num_bytes = size;
}

uint64_t TokenFile::fingerprint() const {
  if (indexed_) return recorded_fingerprint_;
  return checksum_of({tokens_, static_cast<size_t>(num_tokens_ * dtype_bytes(dtype_))});
}

void TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  STRATA_CHECK(begin >= 0 && begin <= num_tokens_ - count, "tokens [{}, {}) of {}", begin, begin + count, num_tokens_);
  const std::byte* first = tokens_ + begin * dtype_bytes(dtype_);
  const uint32_t largest = dtype_ == DType::kU16 ? widen(reinterpret_cast<const uint16_t*>(first), out)
                                                 : widen(reinterpret_cast<const int32_t*>(first), out);
  if (count > 0 && largest >= vocab_) refuse_ids(begin, out);
}

void TokenFile::refuse_ids(int64_t begin, std::span<const int32_t> ids) const {
  const auto wrong = std::find_if(ids.begin(), ids.end(), [this](int32_t id) { return id < 0 || id >= vocab_; });
  throw_bad_input("token id {} at token {} of {} is outside the vocabulary of {}", *wrong,
                  begin + (wrong - ids.begin()), path().string(), vocab_);
}

}  // namespace strata
