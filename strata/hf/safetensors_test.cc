// SPDX-License-Identifier: Apache-2.0
#include "strata/hf/safetensors.h"

#include <gmock/gmock.h>

#include <cstring>

#include "strata/base/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class SafetensorsTest : public ::testing::Test {
 protected:
  void write(const std::string& header, int64_t data_bytes) {
    const uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), 8);
    write_test_file(path_, bytes + header + std::string(static_cast<size_t>(data_bytes), '\1'));
  }
  std::string error_of(const std::string& header, int64_t data_bytes) {
    write(header, data_bytes);
    return open_error();
  }
  std::string open_error() {
    const std::string message = error_message(ErrorKind::kBadInput, [&] { SafetensorsFile file(path_); });
    EXPECT_TRUE(message == "no error" || message.find(path_.string()) != std::string::npos) << message;
    return message;
  }
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "model.safetensors";
};

TEST_F(SafetensorsTest, RoundTrips) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> narrow = {7, 8, 9};
  const float scalar = 10;
  SafetensorsWriter writer(
      path_,
      {{"b", DType::kF32, {2, 3}}, {"n", DType::kBF16, {3}}, {"a", DType::kF32, {}}, {"empty", DType::kF32, {0, 4}}});
  writer.write("n", std::as_bytes(std::span(narrow)));
  writer.write("a", std::as_bytes(std::span(&scalar, 1)));
  writer.write("empty", {});
  writer.write("b", std::as_bytes(std::span(values)));
  EXPECT_FALSE(std::filesystem::exists(path_));
  writer.commit();
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(path_)), writer.file_bytes());

  const SafetensorsFile file(path_);
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt")));
  EXPECT_EQ(file.tensors().size(), 4u);
  const SafetensorsTensor& b = file.at("b");
  EXPECT_EQ(b.dtype, DType::kF32);
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(std::memcmp(b.bytes.data(), values.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.at("n").bytes.data(), narrow.data(), 6), 0);
  EXPECT_TRUE(file.at("a").shape.empty());
  EXPECT_EQ(file.at("empty").bytes.size(), 0u);
}

TEST_F(SafetensorsTest, TensorsAreAlignedToTheirElements) {
  SafetensorsWriter writer(path_, {{"a", DType::kBF16, {3}}, {"b", DType::kF32, {1}}});
  const float value = 1;
  const uint16_t narrow[3] = {};
  writer.write("a", std::as_bytes(std::span(narrow)));
  writer.write("b", std::as_bytes(std::span(&value, 1)));
  writer.commit();
  const SafetensorsFile file(path_);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.at("b").bytes.data()) % 4, 0u);
}

TEST_F(SafetensorsTest, RefusesAWrongLength) {
  write_test_file(path_, "1234567");
  EXPECT_THAT(open_error(), HasSubstr("has 7 bytes: too short"));
  write_test_file(path_, "");
  EXPECT_THAT(open_error(), HasSubstr("too short"));
  write_test_file(path_, std::string("\x03\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(open_error(), HasSubstr("header of 3 bytes does not fit the file's 10"));
  write_test_file(path_, "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(open_error(), HasSubstr("no .safetensors file"));
}

TEST_F(SafetensorsTest, RefusesWhatIsNotTheHeader) {
  EXPECT_THAT(error_of("{", 0), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("[1]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of(R"({"a":1})", 0), AllOf(HasSubstr("tensor 'a'"), HasSubstr("not a JSON object")));
  EXPECT_THAT(error_of(R"({"__metadata__":{"format":1}})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(error_of(R"({"__metadata__":"pt"})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(
      error_of(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1),
      HasSubstr("'a' is listed twice"));
}

TEST_F(SafetensorsTest, RefusesDamagedEntries) {
  EXPECT_THAT(error_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("'dtype'"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("unknown dtype 'F31'"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), HasSubstr("'shape'"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("'shape'"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4), HasSubstr("'shape'"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4),
              HasSubstr("63 bits"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[1]}})", 4), HasSubstr("'data_offsets'"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4),
              HasSubstr("[0] are not inside the 4 bytes"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4), HasSubstr("[4, 0]"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4),
              HasSubstr("[0, 8]"));  // cut off
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), HasSubstr("shape [2] of F32"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("does not take the 0 bytes"));
}

TEST_F(SafetensorsTest, RefusesOverlapsAndHoles) {
  const auto two = [](int begin, int end) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},)"
                       R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                       end - begin, begin, end);
  };
  EXPECT_THAT(error_of(two(3, 6), 6), AllOf(HasSubstr("'b' overlaps"), HasSubstr("at byte 3")));
  EXPECT_THAT(error_of(two(0, 4), 4), HasSubstr("overlaps"));
  EXPECT_THAT(error_of(two(5, 8), 8), HasSubstr("a hole of 1 bytes before tensor 'b'"));
  EXPECT_THAT(error_of(two(4, 6), 9), HasSubstr("3 bytes after the last tensor"));
  EXPECT_EQ(error_of(two(4, 6), 6), "no error");
}

TEST_F(SafetensorsTest, RefusesEveryTruncation) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  write(header, 8);
  EXPECT_EQ(open_error(), "no error");
  const std::string good = read_text_file(path_);
  for (size_t kept = 0; kept < good.size(); ++kept) {
    write_test_file(path_, good.substr(0, kept));
    EXPECT_NE(open_error(), "no error") << kept << " bytes";
  }
}

TEST_F(SafetensorsTest, AsksForTensorsByName) {
  write(R"({"h.0.weight":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", 2);
  const SafetensorsFile file(path_);
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { file.at("h.0.weigth"); }),
              AllOf(HasSubstr("no tensor 'h.0.weigth'"), HasSubstr("did you mean h.0.weight?")));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { file.at("h.0.weight"); }), HasSubstr("is F16"));
}

TEST_F(SafetensorsTest, ChecksFreeSpaceBeforeWriting) {
  EXPECT_THAT(error_message(ErrorKind::kFailedRun,
                            [&] {
                              SafetensorsWriter writer(path_, {{"a", DType::kF32, {int64_t{1} << 40, 1 << 10}}});
                            }),
              AllOf(HasSubstr("needs 45035996"), HasSubstr("free")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

using SafetensorsDeathTest = SafetensorsTest;

TEST_F(SafetensorsDeathTest, MissingOrWrongTensorsAreBugs) {
  SafetensorsWriter writer(path_, {{"a", DType::kF32, {1}}});
  EXPECT_DEATH(writer.commit(), "0 of 4 bytes of tensor a were written");
  EXPECT_DEATH(writer.write("b", {}), "tensor b is not expected");
  EXPECT_DEATH(writer.append("b", {}), "tensor b is not expected");
  EXPECT_DEATH(writer.write("a", {}), "tensor a has 4 bytes, not 0");
  EXPECT_DEATH(SafetensorsWriter(path_, {{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}), "two tensors called a");
  const std::byte piece[3] = {};
  writer.append("a", piece);
  EXPECT_DEATH(writer.append("a", piece), "3 bytes after 3 of the 4 of tensor a");
  EXPECT_DEATH(writer.write("a", piece), "tensor a is not expected");
  EXPECT_DEATH(writer.commit(), "3 of 4 bytes of tensor a");
}

}  // namespace
}  // namespace strata
