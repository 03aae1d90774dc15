// SPDX-License-Identifier: Apache-2.0
#include "strata/data/text_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "strata/base/error.h"
#include "strata/data/utf8.h"

namespace strata {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// The document of one line. Parsing may use exceptions: a bad line ends the run.
std::string document_of(std::string_view line, const std::filesystem::path& path, int64_t line_number) {
  try {
    const nlohmann::json record = nlohmann::json::parse(line);
    if (!record.is_object())
      throw_bad_input("{}:{}: the line is a JSON {}, not an object", path.string(), line_number, record.type_name());
    const auto text = record.find("text");
    if (text == record.end()) throw_bad_input("{}:{}: the record has no \"text\"", path.string(), line_number);
    if (!text->is_string())
      throw_bad_input("{}:{}: \"text\" is a JSON {}, not a string", path.string(), line_number, text->type_name());
    return text->get<std::string>();
  } catch (const nlohmann::json::exception& error) {
    throw_bad_input("{}:{}: the line is not JSON: {}", path.string(), line_number, error.what());
  }
}

}  // namespace

PieceReader::PieceReader(const std::filesystem::path& path, PieceBorder border)
    : path_(path), border_(border), file_(open_for_reading(path)) {
  file_size(file_, path);  // refuses what is no regular file
}

std::string_view PieceReader::next() {
  buffer_.erase(0, given_);
  offset_ += static_cast<int64_t>(given_);
  valid_ -= given_;
  given_ = 0;
  while (given_ == 0 && !at_end_) {
    const size_t searched = buffer_.size();
    fill();
    validate();
    given_ = piece_end(searched);
  }
  return std::string_view(buffer_).substr(0, given_);
}

void PieceReader::fill() {
  size_t size = buffer_.size();
  const size_t wanted = size + kPieceBytes;
  buffer_.resize(wanted);
  while (size < wanted && !at_end_) {
    const int64_t count = read_some(file_, path_, reinterpret_cast<std::byte*>(buffer_.data()) + size,
                                    static_cast<int64_t>(wanted - size));
    at_end_ = count == 0;
    size += static_cast<size_t>(count);
  }
  buffer_.resize(size);
  if (!started_ && buffer_.starts_with(kByteOrderMark)) {
    buffer_.erase(0, kByteOrderMark.size());
    offset_ = kByteOrderMark.size();
  }
  started_ = true;
}

void PieceReader::validate() {
  const Utf8Scan scan = scan_utf8(std::string_view(buffer_).substr(valid_));
  valid_ += static_cast<size_t>(scan.valid_bytes);
  if (scan.end == Utf8End::kInvalid || (scan.end == Utf8End::kTruncated && at_end_))
    throw_bad_input("{}: invalid UTF-8 at byte {} (0x{:02x}): convert the file to UTF-8", path_.string(),
                    offset_ + static_cast<int64_t>(valid_), static_cast<uint8_t>(buffer_[valid_]));
}

// The first `searched` bytes hold no line break.
size_t PieceReader::piece_end(size_t searched) const {
  if (at_end_) return buffer_.size();
  const size_t line_break = std::string_view(buffer_).substr(searched).rfind('\n');
  if (line_break != std::string_view::npos) return searched + line_break + 1;
  if (border_ == PieceBorder::kLine) return 0;
  return buffer_[valid_ - 1] == '\r' ? valid_ - 1 : valid_;  // its "\n" may follow
}

std::string with_unix_lines(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t line_end = text.find("\r\n");
    result += text.substr(0, line_end);
    text.remove_prefix(std::min(text.size(), line_end == std::string_view::npos ? text.size() : line_end + 1));
  }
  return result;
}

void read_text_pieces(const std::filesystem::path& path, const TextSink& piece, const BytesSink& bytes_read) {
  PieceReader reader(path, PieceBorder::kCharacter);
  bool empty = true;
  for (std::string_view raw = reader.next(); !raw.empty(); raw = reader.next()) {
    if (raw.find('\r') == std::string_view::npos)
      piece(raw);
    else
      piece(with_unix_lines(raw));
    bytes_read(reader.bytes_read());
    empty = false;
  }
  if (empty) throw_bad_input("{} is empty: remove it from the data", path.string());
}

void read_jsonl_documents(const std::filesystem::path& path, const TextSink& document, const BytesSink& bytes_read) {
  PieceReader reader(path, PieceBorder::kLine);
  int64_t line_number = 0;
  int64_t num_records = 0;
  for (std::string_view piece = reader.next(); !piece.empty(); piece = reader.next()) {
    while (!piece.empty()) {
      const std::string_view line = piece.substr(0, piece.find('\n'));
      piece.remove_prefix(std::min(piece.size(), line.size() + 1));
      ++line_number;
      if (is_blank(line)) continue;
      document(document_of(line, path, line_number));
      ++num_records;
    }
    bytes_read(reader.bytes_read());
  }
  if (num_records == 0) throw_bad_input("{} holds no records: remove it from the data", path.string());
}

}  // namespace strata
