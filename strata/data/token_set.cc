// SPDX-License-Identifier: Apache-2.0
#include "strata/data/token_set.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "strata/base/error.h"

namespace strata {

TokenSet::TokenSet(std::vector<TokenFile> files)
    : files_(std::make_shared<const std::vector<TokenFile>>(std::move(files))) {
  for (size_t i = 0; i < files_->size(); ++i) {
    const TokenFile& file = (*files_)[i];
    add({.file = static_cast<int64_t>(i), .end_token = file.num_tokens(), .end_document = file.num_documents()});
  }
}

void TokenSet::add(Part part) {
  if (part.num_tokens() == 0) return;
  part.begin = num_tokens();
  part.begin_document = num_documents();
  parts_.push_back(part);
}

const TokenSet::Part& TokenSet::part_of_token(int64_t place) const {
  STRATA_CHECK(place >= 0 && place < num_tokens(), "token {} of {}", place, num_tokens());
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), place,
                                      [](int64_t value, const Part& part) { return value < part.begin; });
  return *(after - 1);
}

const TokenSet::Part& TokenSet::part_of_document(int64_t index) const {
  STRATA_CHECK(index >= 0 && index < num_documents(), "document {} of {}", index, num_documents());
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), index,
                                      [](int64_t value, const Part& part) { return value < part.begin_document; });
  return *(after - 1);
}

DocumentRange TokenSet::document(int64_t index) const {
  const Part& part = part_of_document(index);
  const std::span<const int64_t> offsets = (*files_)[static_cast<size_t>(part.file)].offsets();
  const auto in_file = static_cast<size_t>(part.first_document + index - part.begin_document);
  const int64_t first = std::max(offsets[in_file], part.first_token);
  const int64_t end = std::min(offsets[in_file + 1], part.end_token);
  return {part.begin + first - part.first_token, end - first};
}

void TokenSet::read(int64_t begin, std::span<int32_t> out) const {
  if (out.empty()) return;
  const Part* part = &part_of_token(begin);
  while (true) {
    const int64_t from = begin - part->begin;
    const int64_t count = std::min(static_cast<int64_t>(out.size()), part->num_tokens() - from);
    (*files_)[static_cast<size_t>(part->file)].read(part->first_token + from, out.first(static_cast<size_t>(count)));
    out = out.subspan(static_cast<size_t>(count));
    begin += count;
    if (out.empty()) return;
    ++part;
    STRATA_CHECK(part != parts_.data() + parts_.size(), "token {} of {}", begin, num_tokens());
  }
}

TokenSet TokenSet::slice_tokens(int64_t begin, int64_t end) const {
  STRATA_CHECK(begin >= 0 && begin <= end && end <= num_tokens(), "tokens [{}, {}) of {}", begin, end, num_tokens());
  TokenSet slice;
  slice.files_ = files_;
  for (const Part& part : parts_) {
    Part kept = part;
    kept.first_token += std::max<int64_t>(0, begin - part.begin);
    kept.end_token -= std::max<int64_t>(0, part.begin + part.num_tokens() - end);
    if (kept.first_token >= kept.end_token) continue;
    const std::span<const int64_t> offsets = (*files_)[static_cast<size_t>(part.file)].offsets();
    kept.first_document = std::upper_bound(offsets.begin(), offsets.end(), kept.first_token) - offsets.begin() - 1;
    kept.end_document = std::lower_bound(offsets.begin(), offsets.end(), kept.end_token) - offsets.begin();
    slice.add(kept);
  }
  return slice;
}

TokenSet TokenSet::slice_documents(int64_t begin, int64_t end) const {
  const auto place = [this](int64_t index) { return index == num_documents() ? num_tokens() : document(index).begin; };
  return slice_tokens(place(begin), place(end));
}

void TokenSet::append(const TokenSet& other) {
  STRATA_CHECK(files_ == other.files_, "slices of different files");
  for (const Part& part : other.parts_) add(part);
}

uint64_t TokenSet::fingerprint() const {
  Checksum checksum;
  std::vector<uint64_t> of_files;
  for (const TokenFile& file : *files_) of_files.push_back(file.fingerprint());
  for (const Part& part : parts_) {
    const std::array<int64_t, 3> place = {static_cast<int64_t>(of_files[static_cast<size_t>(part.file)]),
                                          part.first_token, part.end_token};
    checksum.update(std::as_bytes(std::span(place)));
  }
  return checksum.digest();
}

namespace {

// Validation takes document floor((2i + 1) * documents / (2 * held_out)) for each i: the middle of each of held_out
// equal runs.
SplitTokens split_documents(const TokenSet& all, int64_t held_out) {
  const int64_t documents = all.num_documents();
  SplitTokens split = {all.slice_tokens(0, 0), all.slice_tokens(0, 0)};
  int64_t next = 0;
  for (int64_t i = 0; i < held_out; ++i) {
    const int64_t chosen = (2 * i + 1) * documents / (2 * held_out);
    split.train.append(all.slice_documents(next, chosen));
    split.validation.append(all.slice_documents(chosen, chosen + 1));
    next = chosen + 1;
  }
  split.train.append(all.slice_documents(next, documents));
  return split;
}

}  // namespace

SplitTokens split_validation(const TokenSet& all, double fraction) {
  STRATA_CHECK(fraction > 0 && fraction < 1, "validation fraction {}", fraction);
  const auto held_out = static_cast<int64_t>(std::llround(fraction * static_cast<double>(all.num_documents())));
  SplitTokens split = [&] {
    if (held_out >= 1) return split_documents(all, held_out);
    const auto tail = static_cast<int64_t>(std::llround(fraction * static_cast<double>(all.num_tokens())));
    const int64_t border = all.num_tokens() - tail;
    return SplitTokens{all.slice_tokens(0, border), all.slice_tokens(border, all.num_tokens())};
  }();
  if (split.train.num_tokens() < 2 || split.validation.num_tokens() < 2)
    throw_bad_input(
        "data.validation_fraction = {} splits {} tokens in {} documents into {} for training and {} for validation; "
        "each needs 2: give data.validation, more text or another fraction",
        fraction, all.num_tokens(), all.num_documents(), split.train.num_tokens(), split.validation.num_tokens());
  return split;
}

}  // namespace strata
