// SPDX-License-Identifier: Apache-2.0
#include "strata/data/ingest.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "strata/base/error.h"
#include "strata/data/text_reader.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

enum class SourceKind { kText, kJsonl, kTokens };

SourceKind kind_of(const fs::path& path, const std::string& option) {
  const std::string extension = path.extension().string();
  if (extension == ".txt") return SourceKind::kText;
  if (extension == ".jsonl") return SourceKind::kJsonl;
  if (extension == ".bin" || extension == ".tokens") return SourceKind::kTokens;
  throw_bad_input("{}: {} is not a kind of file that is read: use .txt, .jsonl, .bin (llm.c) or .tokens", option,
                  path.string());
}

std::vector<fs::path> matches_of(const std::string& pattern, const std::string& option) {
  std::error_code ignored;
  if (fs::is_directory(pattern, ignored)) throw_bad_input("{}: {} is a folder: use {}/*.txt", option, pattern, pattern);
  if (fs::exists(pattern, ignored)) return {pattern};
  glob_t found = {};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<fs::path> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result != 0) throw_bad_input("{}: no file is called or matches '{}'", option, pattern);
  std::ranges::sort(paths);
  return paths;
}

struct SourceFile {
  fs::path path;
  int64_t num_bytes = 0;
  std::array<int64_t, 2> modified = {};  // seconds, nanoseconds
};

SourceFile describe(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) throw_file_error("open", path, errno);
  return {path, status.st_size, {status.st_mtim.tv_sec, status.st_mtim.tv_nsec}};
}

std::vector<SourceFile> describe_all(const std::vector<fs::path>& paths) {
  std::vector<SourceFile> sources;
  for (const fs::path& path : paths) sources.push_back(describe(path));
  return sources;
}

uint64_t source_fingerprint(const std::vector<SourceFile>& sources, const Tokenizer& tokenizer) {
  Checksum checksum;
  checksum.update(fmt::format("{} {}\n", tokenizer.name(), tokenizer.vocab_size()));
  for (const SourceFile& source : sources)
    checksum.update(fmt::format("{}\n{} {} {}\n", fs::absolute(source.path).string(), source.num_bytes,
                                source.modified[0], source.modified[1]));
  return checksum.digest();
}

// The cached file when it was made from just these sources.
std::optional<TokenFile> find_cached(const fs::path& path, uint64_t fingerprint, int64_t vocab) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  try {
    TokenFile file(path, vocab);
    if (file.source().fingerprint == fingerprint) return file;
  } catch (const Error&) {  // damaged, or of an older version: made again like an outdated one
  }
  return std::nullopt;
}

// Documents on their way into the token file.
class DocumentWriter {
 public:
  DocumentWriter(TokenFileWriter& writer, const Tokenizer& tokenizer) : writer_(writer), tokenizer_(tokenizer) {}

  void text(std::string_view piece) { writer_.append(tokenizer_.encode(piece)); }
  void end() {
    writer_.append(std::array{tokenizer_.end_of_text()});
    writer_.end_document();
  }
  void whole(std::string_view document) {
    if (document.empty()) {
      ++num_empty_;
      return;
    }
    text(document);
    end();
  }
  int64_t num_empty() const { return num_empty_; }

 private:
  TokenFileWriter& writer_;
  const Tokenizer& tokenizer_;
  int64_t num_empty_ = 0;
};

int64_t total_bytes(const std::vector<SourceFile>& sources) {
  int64_t total = 0;
  for (const SourceFile& source : sources) total += source.num_bytes;
  return total;
}

void tokenise(const std::vector<SourceFile>& sources, const Tokenizer& tokenizer, const IngestOptions& options,
              const fs::path& target, uint64_t fingerprint) {
  std::error_code error;
  fs::create_directories(options.cache, error);
  if (error) throw_file_error("create", options.cache, error.value());
  TokenFileWriter writer(target, tokenizer.vocab_size(), fingerprint);
  DocumentWriter documents(writer, tokenizer);
  const int64_t total = total_bytes(sources);
  int64_t before = 0;
  const BytesSink progress = [&](int64_t bytes_read) {
    if (options.progress) options.progress(before + bytes_read, total);
  };
  for (const SourceFile& source : sources) {
    if (kind_of(source.path, options.option) == SourceKind::kText) {
      read_text_pieces(
          source.path, [&](std::string_view piece) { documents.text(piece); }, progress);
      documents.end();
    } else {
      read_jsonl_documents(
          source.path, [&](std::string_view document) { documents.whole(document); }, progress);
    }
    before += source.num_bytes;
  }
  if (writer.num_documents() == 0)
    throw_bad_input("{}: {} records in {} files are all empty", options.option, documents.num_empty(), sources.size());
  writer.commit(total, documents.num_empty());
}

TokenFile open_text(const std::vector<fs::path>& paths, const Tokenizer& tokenizer, const IngestOptions& options,
                    bool& reused) {
  if (tokenizer.vocab_size() > options.vocab)
    throw_bad_input("{}: the tokenizer '{}' has a vocabulary of {}, the model has {}", options.option, tokenizer.name(),
                    tokenizer.vocab_size(), options.vocab);
  const std::vector<SourceFile> sources = describe_all(paths);
  const uint64_t fingerprint = source_fingerprint(sources, tokenizer);
  const fs::path target = options.cache / (options.name + ".tokens");
  std::optional<TokenFile> cached = find_cached(target, fingerprint, options.vocab);
  reused = cached.has_value();
  if (reused) return std::move(*cached);
  tokenise(sources, tokenizer, options, target, fingerprint);
  if (source_fingerprint(describe_all(paths), tokenizer) != fingerprint) {
    std::error_code ignored;
    fs::remove(target, ignored);
    throw_failed_run("{}: a file changed while it was read: start again when it is complete", options.option);
  }
  return TokenFile(target, options.vocab);
}

}  // namespace

std::vector<fs::path> expand_patterns(const std::vector<std::string>& patterns, const std::string& option) {
  std::vector<fs::path> paths;
  std::set<fs::path> seen;
  for (const std::string& pattern : patterns)
    for (const fs::path& path : matches_of(pattern, option)) {
      std::error_code ignored;
      if (!seen.insert(fs::weakly_canonical(path, ignored)).second)
        throw_bad_input("{} names {} twice", option, path.string());
      paths.push_back(path);
    }
  if (paths.empty()) throw_bad_input("{} names no file", option);
  return paths;
}

IngestResult ingest(const std::vector<std::string>& patterns, const Tokenizer& tokenizer,
                    const IngestOptions& options) {
  const std::vector<fs::path> paths = expand_patterns(patterns, options.option);
  const auto is_tokens = [&](const fs::path& path) { return kind_of(path, options.option) == SourceKind::kTokens; };
  const auto num_token_files = static_cast<size_t>(std::ranges::count_if(paths, is_tokens));
  IngestReport report = {.files = static_cast<int64_t>(paths.size())};
  std::vector<TokenFile> files;
  if (num_token_files == 0) {
    files.push_back(open_text(paths, tokenizer, options, report.reused));
  } else if (num_token_files == paths.size()) {
    for (const fs::path& path : paths) files.emplace_back(path, options.vocab);
  } else {
    throw_bad_input("{} mixes {} token files with {} text files: their ids would come from different tokenizers",
                    options.option, num_token_files, paths.size() - num_token_files);
  }
  for (const TokenFile& file : files) {
    if (file.num_tokens() == 0) throw_bad_input("{} holds no tokens", file.path().string());
    report.bytes += num_token_files == 0 ? file.source().num_bytes : static_cast<int64_t>(fs::file_size(file.path()));
    report.documents += file.num_documents();
    report.empty_documents += file.source().empty_documents;
    report.tokens += file.num_tokens();
  }
  return {TokenSet(std::move(files)), report};
}

}  // namespace strata
