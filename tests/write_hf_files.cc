// SPDX-License-Identifier: Apache-2.0
// For tests/python/hf_files.py: writes the bytes tokenizer and a small model.safetensors into the folder argv[1], reads
// argv[1]/text.bin (documents separated by a zero byte) and writes their ids as lines of argv[1]/ids.txt. With argv[2],
// reads that tokenizer folder back instead.
#include <fstream>

#include "strata/base/file.h"
#include "strata/data/tokenizer.h"
#include "strata/hf/safetensors.h"
#include "strata/hf/tokenizer_json.h"

namespace {

void write_ids(const std::filesystem::path& folder) {
  const strata::BytesTokenizer tokenizer;
  const std::string text = strata::read_text_file(folder / "text.bin");
  std::ofstream out(folder / "ids.txt");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\0', begin);
    for (const int32_t id : tokenizer.encode(std::string_view(text).substr(begin, end - begin))) out << id << ' ';
    out << '\n';
    begin = end + 1;
  }
}

void write_tensors(const std::filesystem::path& folder) {
  const float matrix[] = {1, 2, 3, 4, 5, 6};
  const uint16_t narrow[] = {0x3f80, 0xc000, 0x0000};  // bf16 of 1, -2, 0
  strata::SafetensorsWriter writer(folder / "model.safetensors",
                                   {{"narrow", strata::DType::kBF16, {3}}, {"matrix", strata::DType::kF32, {2, 3}}});
  writer.write("matrix", std::as_bytes(std::span(matrix)));
  writer.write("narrow", std::as_bytes(std::span(narrow)));
  writer.commit();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) {
    strata::require_bytes_tokenizer(argv[2]);
    return 0;
  }
  strata::write_bytes_tokenizer(argv[1], 128);
  write_ids(argv[1]);
  write_tensors(argv[1]);
}
