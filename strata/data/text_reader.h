// SPDX-License-Identifier: Apache-2.0
// Text files as the pieces a tokenizer takes: valid UTF-8, without byte order mark, lines ended by "\n". Streams: holds
// about 1 MiB, or the longest line of a JSONL file. Throws Error naming the file and the byte or line. One thread at a
// time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "strata/base/file.h"

namespace strata {

enum class PieceBorder {
  kCharacter,  // after a line break where 1 MiB holds one, else between two characters
  kLine,       // only after a line break
};

// The bytes of a file in order, checked to be UTF-8, a leading byte order mark left out, line ends as they are.
class PieceReader {
 public:
  PieceReader(const std::filesystem::path& path, PieceBorder border);

  // The next piece, never empty, valid until the next call; an empty view at the end.
  std::string_view next();
  int64_t bytes_read() const { return offset_ + static_cast<int64_t>(buffer_.size()); }

 private:
  void fill();
  void validate();
  size_t piece_end(size_t searched) const;

  std::filesystem::path path_;
  PieceBorder border_;
  FileDescriptor file_;
  std::string buffer_;
  int64_t offset_ = 0;  // of the buffer in the file
  size_t given_ = 0;    // bytes of the buffer that next() returned last
  size_t valid_ = 0;    // bytes of the buffer known to be whole characters
  bool started_ = false;
  bool at_end_ = false;
};

// "\r\n" becomes "\n"; a lone "\r" stays.
std::string with_unix_lines(std::string_view text);

using TextSink = std::function<void(std::string_view text)>;
using BytesSink = std::function<void(int64_t bytes_read)>;

// A .txt file, piece by piece. Refuses a file without text.
void read_text_pieces(const std::filesystem::path& path, const TextSink& piece, const BytesSink& bytes_read);

// The member "text" of each line of a .jsonl file; blank lines are passed over. Refuses a file without records and any
// line that is not a JSON object with a string "text".
void read_jsonl_documents(const std::filesystem::path& path, const TextSink& document, const BytesSink& bytes_read);

}  // namespace strata
