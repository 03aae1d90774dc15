// SPDX-License-Identifier: Apache-2.0
#include "strata/hf/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "strata/base/random.h"
#include "strata/base/testing.h"
#include "strata/hf/safetensors.h"
#include "strata/spec/json_reader.h"
#include "strata/spec/testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ModelSpec tiny_gpt2(bool tied) {
  ModelSpec model;
  model.family = "gpt2";
  model.vocab = 29;
  model.hidden = 12;
  model.num_blocks = 2;
  model.heads = model.kv_heads = 3;
  model.head_dim = 4;
  model.ffn = 48;
  model.max_positions = 16;
  model.tied_head = tied;
  return model;
}

ModelSpec tiny_llama(bool tied) {
  ModelSpec model = llama_shaped(tiny_gpt2(tied), 1, 20);
  model.tied_head = tied;
  return model;
}

// All parameters of a model, f32.
class Weights {
 public:
  explicit Weights(const ModelSpec& spec) : model(spec), layers(declare_layers(spec)) {}

  void fill(DType precision) {
    for (size_t layer = 0; layer < layers.size(); ++layer)
      for (size_t index = 0; index < layers[layer].parameters.size(); ++index) {
        std::vector<float>& values = tensors[{layer, index}];
        values.resize(static_cast<size_t>(layers[layer].parameters[index].num_elements()));
        for (size_t element = 0; element < values.size(); ++element) {
          const float value = uniform_from(philox(mix_key(layer, index), element, 0)[0]) - 0.5f;
          values[element] = precision == DType::kF32 ? value : to_float(to_bf16(value));
        }
      }
    if (model.tied_head) tensors.erase({layers.size() - 1, static_cast<size_t>(layers.back().tied_parameter)});
  }

  ModelFolder folder(DType dtype) {
    return {model, layers, [this](int layer, int parameter) { return view(layer, parameter); }, dtype, {}};
  }
  TensorView view(int layer, int parameter) {
    const ParameterDecl& decl = layers[layer].parameters[parameter];
    return {tensors.at({layer, parameter}).data(), DType::kF32, decl.rows, decl.cols};
  }
  void read(const fs::path& path) {
    read_model_weights(path, model, layers, [this](int layer, int parameter, const TensorView& values) {
      ASSERT_TRUE(tensors
                      .emplace(std::pair(layer, parameter),
                               std::vector<float>(values.row<float>(0), values.row<float>(0) + values.num_elements()))
                      .second);
    });
  }

  ModelSpec model;
  std::vector<LayerDecl> layers;
  std::map<std::pair<size_t, size_t>, std::vector<float>> tensors;
};

float element(const SafetensorsTensor& tensor, int64_t index) {
  float value = 0;
  std::memcpy(&value, tensor.bytes.data() + 4 * index, 4);
  return value;
}

TEST(ModelFolder, RoundTripIsBitEqual) {
  for (const ModelSpec& model : {tiny_gpt2(true), tiny_gpt2(false), tiny_llama(true), tiny_llama(false)})
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      TemporaryFolder folder;
      Weights written(model);
      written.fill(dtype);
      write_model_folder(folder / "model", written.folder(dtype), ExistingTarget::kRefuse);
      Weights read(read_model_spec(folder / "model"));
      EXPECT_EQ(read.model, model);
      read.read(folder / "model");
      EXPECT_EQ(read.tensors, written.tensors);
    }
}

// What is not wanted is not read: here every tensor of one layer.
TEST(ModelFolder, ReadsWhatIsWanted) {
  TemporaryFolder folder;
  Weights written(tiny_llama(true));
  written.fill(DType::kF32);
  write_model_folder(folder / "model", written.folder(DType::kF32), ExistingTarget::kRefuse);
  std::map<std::pair<size_t, size_t>, std::vector<float>> read;
  read_model_weights(
      folder / "model", written.model, written.layers,
      [&](int layer, int parameter, const TensorView& values) {
        const auto* first = values.row<float>(0);
        read[{static_cast<size_t>(layer), static_cast<size_t>(parameter)}].assign(first, first + values.num_elements());
      },
      [](int layer, int) { return layer == 1; });
  std::erase_if(written.tensors, [](const auto& entry) { return entry.first.first != 1; });
  EXPECT_EQ(read, written.tensors);
}

// Larger than the pieces in which it is written, which no border of them divides.
TEST(ModelFolder, WritesInPieces) {
  ModelSpec model = tiny_gpt2(true);
  model.ffn = 23'000;  // 12 x 23,000 elements
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    TemporaryFolder folder;
    Weights written(model), read(model);
    written.fill(dtype);
    int64_t asked = 0;
    ModelFolder contents = written.folder(dtype);
    contents.source = [&](int layer, int parameter) {
      ++asked;
      return written.view(layer, parameter);
    };
    write_model_folder(folder / "model", contents, ExistingTarget::kRefuse);
    EXPECT_EQ(asked, static_cast<int64_t>(written.tensors.size()));
    read.read(folder / "model");
    EXPECT_EQ(read.tensors, written.tensors);
  }
}

TEST(ModelFolder, Gpt2StoresInputsFirst) {
  TemporaryFolder folder;
  Weights weights(tiny_gpt2(true));
  weights.fill(DType::kF32);
  write_model_folder(folder / "model", weights.folder(DType::kF32), ExistingTarget::kRefuse);
  const SafetensorsFile file(folder / "model" / "model.safetensors");
  const int parameter = attention_parameters(weights.model).qkv_weight;
  const SafetensorsTensor& stored = file.at("transformer.h.1.attn.c_attn.weight");
  EXPECT_EQ(stored.shape, (std::vector<int64_t>{12, 36}));
  EXPECT_EQ(element(stored, 5 * 36 + 30), weights.view(3, parameter).row<float>(30)[5]);
  EXPECT_EQ(file.at("transformer.wte.weight").shape, (std::vector<int64_t>{29, 12}));
  EXPECT_FALSE(file.contains("lm_head.weight"));
}

TEST(ModelFolder, LlamaStoresFusedParametersApart) {
  TemporaryFolder folder;
  Weights weights(tiny_llama(false));
  weights.fill(DType::kF32);
  write_model_folder(folder / "model", weights.folder(DType::kF32), ExistingTarget::kRefuse);
  const SafetensorsFile file(folder / "model" / "model.safetensors");
  const TensorView qkv = weights.view(1, attention_parameters(weights.model).qkv_weight);
  EXPECT_EQ(file.at("model.layers.0.self_attn.q_proj.weight").shape, (std::vector<int64_t>{12, 12}));
  EXPECT_EQ(file.at("model.layers.0.self_attn.v_proj.weight").shape, (std::vector<int64_t>{4, 12}));
  EXPECT_EQ(element(file.at("model.layers.0.self_attn.v_proj.weight"), 2 * 12 + 7), qkv.row<float>(12 + 4 + 2)[7]);
  const TensorView up = weights.view(2, mlp_parameters(weights.model).up_weight);
  EXPECT_EQ(element(file.at("model.layers.0.mlp.up_proj.weight"), 3 * 12 + 1), up.row<float>(20 + 3)[1]);
  EXPECT_EQ(file.at("lm_head.weight").shape, (std::vector<int64_t>{29, 12}));
}

TEST(ModelFolder, ConfigurationNamesTheTypeAndTheTokens) {
  TemporaryFolder folder;
  Weights weights(tiny_llama(false));
  weights.model.bos_token = 1;
  weights.model.eos_token = 2;
  weights.fill(DType::kF32);
  ModelFolder contents = weights.folder(DType::kBF16);
  contents.add_files = [](const fs::path& inside) { std::ofstream(inside / "tokenizer.json") << "{}"; };
  write_model_folder(folder / "model", contents, ExistingTarget::kRefuse);
  EXPECT_EQ(read_json_file(folder / "model" / "config.json").at("dtype"), "bfloat16");
  EXPECT_EQ(read_json_file(folder / "model" / "generation_config.json").at("eos_token_id"), 2);
  EXPECT_TRUE(fs::exists(folder / "model" / "tokenizer.json"));
}

TEST(ModelFolder, AFailureLeavesNothingBehind) {
  TemporaryFolder folder;
  Weights weights(tiny_gpt2(true));
  weights.fill(DType::kF32);
  ModelFolder contents = weights.folder(DType::kF32);
  contents.add_files = [](const fs::path&) { throw_failed_run("no tokenizer"); };
  EXPECT_EQ(error_message(ErrorKind::kFailedRun,
                          [&] { write_model_folder(folder / "model", contents, ExistingTarget::kRefuse); }),
            "no tokenizer");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ModelFolder, AnExistingFolderIsKeptOrReplaced) {
  TemporaryFolder folder;
  Weights weights(tiny_gpt2(true));
  weights.fill(DType::kF32);
  fs::create_directories(folder / "model" / "old");
  EXPECT_THAT(error_message(
                  ErrorKind::kBadInput,
                  [&] { write_model_folder(folder / "model", weights.folder(DType::kF32), ExistingTarget::kRefuse); }),
              HasSubstr("already exists"));
  EXPECT_TRUE(fs::exists(folder / "model" / "old"));
  write_model_folder(folder / "model", weights.folder(DType::kF32), ExistingTarget::kReplace);
  EXPECT_FALSE(fs::exists(folder / "model" / "old"));
}

// The tensors of a written folder, to be changed and written again.
class ChangedFolder {
 public:
  explicit ChangedFolder(const ModelSpec& model) : weights_(model) {
    weights_.fill(DType::kF32);
    write_model_folder(folder_ / "model", weights_.folder(DType::kF32), ExistingTarget::kRefuse);
    const SafetensorsFile file(path() / "model.safetensors");
    for (const auto& [name, tensor] : file.tensors())
      tensors[name] = {{name, *tensor.dtype, tensor.shape}, {tensor.bytes.begin(), tensor.bytes.end()}};
  }

  fs::path path() const { return folder_ / "model"; }
  void add(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    int64_t bytes = dtype_bytes(dtype);
    for (int64_t extent : shape) bytes *= extent;
    tensors[name] = {{name, dtype, std::move(shape)}, std::vector<std::byte>(static_cast<size_t>(bytes))};
  }
  void rename(const std::string& from, const std::string& to) {
    tensors[to] = tensors.at(from);
    tensors[to].first.name = to;
    tensors.erase(from);
  }
  // The tensors whose name `wanted` accepts.
  template <typename Wanted>
  void write(const std::string& file, Wanted&& wanted) {
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, tensor] : tensors)
      if (wanted(name)) entries.push_back(tensor.first);
    SafetensorsWriter writer(path() / file, entries);
    for (const SafetensorsEntry& entry : entries) writer.write(entry.name, tensors.at(entry.name).second);
    writer.commit();
  }
  void write() {
    write("model.safetensors", [](const std::string&) { return true; });
  }
  std::string refusal() {
    return error_message(ErrorKind::kBadInput, [&] {
      read_model_weights(path(), weights_.model, weights_.layers,
                         [](int, int, const TensorView&) { FAIL() << "read a parameter"; });
    });
  }
  bool reads_equal() {
    Weights read(weights_.model);
    read.read(path());
    return read.tensors == weights_.tensors;
  }

  std::map<std::string, std::pair<SafetensorsEntry, std::vector<std::byte>>> tensors;

 private:
  TemporaryFolder folder_;
  Weights weights_;
};

TEST(ModelFolder, ListsWhatDoesNotFit) {
  ChangedFolder changed(tiny_gpt2(true));
  changed.add("transformer.h.0.attn.c_attn.weight", DType::kF32, {36, 12});
  changed.add("transformer.ln_f.bias", DType::kI64, {12});
  changed.rename("transformer.h.1.mlp.c_fc.bias", "transformer.h.2.mlp.c_fc.bias");
  changed.write();
  EXPECT_THAT(changed.refusal(),
              AllOf(HasSubstr("missing: transformer.h.1.mlp.c_fc.bias;"),
                    HasSubstr("not expected: transformer.h.2.mlp.c_fc.bias;"),
                    HasSubstr("different: transformer.h.0.attn.c_attn.weight ([36, 12], not [12, 36])"),
                    HasSubstr("transformer.ln_f.bias (I64, not F32, BF16 or F16)")));
}

TEST(ModelFolder, AnUntiedModelNeedsItsHead) {
  ChangedFolder changed(tiny_llama(false));
  changed.tensors.erase("lm_head.weight");
  changed.write();
  EXPECT_THAT(changed.refusal(), AllOf(HasSubstr("missing: lm_head.weight"), Not(HasSubstr("not expected"))));
}

TEST(ModelFolder, BuffersAndACopyOfATiedHeadArePassedOver) {
  ChangedFolder changed(tiny_gpt2(true));
  changed.add("transformer.h.0.attn.bias", DType::kU8, {1, 1, 16, 16});
  changed.add("transformer.h.0.attn.masked_bias", DType::kF32, {});
  changed.add("lm_head.weight", DType::kF32, {29, 12});
  changed.write();
  EXPECT_TRUE(changed.reads_equal());
  ChangedFolder llama(tiny_llama(false));
  llama.add("model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {2});
  llama.write();
  EXPECT_TRUE(llama.reads_equal());
}

TEST(ModelFolder, NamesMayLackThePrefix) {
  ChangedFolder changed(tiny_gpt2(true));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : changed.tensors) names.push_back(name);
  for (const std::string& name : names) changed.rename(name, name.substr(std::string("transformer.").size()));
  changed.add("h.0.attn.bias", DType::kU8, {1, 1, 16, 16});
  changed.write();
  EXPECT_TRUE(changed.reads_equal());
  changed.tensors.at("wte.weight").first.name = "transformer.wte.weight";
  changed.tensors["transformer.wte.weight"] = changed.tensors.at("wte.weight");
  changed.tensors.at("wte.weight").first.name = "wte.weight";
  changed.write();
  EXPECT_THAT(changed.refusal(), HasSubstr("not expected: wte.weight"));
}

TEST(ModelFolder, ReadsSeveralFilesOfAnIndex) {
  ChangedFolder changed(tiny_llama(false));
  fs::remove(changed.path() / "model.safetensors");
  const auto in_first = [](const std::string& name) { return name.find("layers.0") != std::string::npos; };
  changed.write("a.safetensors", in_first);
  changed.write("b.safetensors", [&](const std::string& name) { return !in_first(name); });
  nlohmann::json map;
  for (const auto& [name, tensor] : changed.tensors) map[name] = in_first(name) ? "a.safetensors" : "b.safetensors";
  const auto write_index = [&](const nlohmann::json& index) {
    std::ofstream(changed.path() / "model.safetensors.index.json") << index.dump();
  };
  write_index({{"weight_map", map}});
  EXPECT_TRUE(changed.reads_equal());
  changed.write("b.safetensors", [&](const std::string&) { return true; });
  EXPECT_THAT(changed.refusal(), HasSubstr("which another file of the folder holds too"));
  map["lm_head.weight"] = "../b.safetensors";
  write_index({{"weight_map", map}});
  EXPECT_THAT(changed.refusal(), HasSubstr("not the name of a file beside it"));
  write_index({{"metadata", {}}});
  EXPECT_THAT(changed.refusal(), HasSubstr("has no weight_map"));
}

// The writer has no f16: a tensor of the same size is written and its type changed in the header.
TEST(ModelFolder, ReadsHalfPrecision) {
  ChangedFolder changed(tiny_llama(false));
  changed.add("model.norm.weight", DType::kU16, {12});
  const std::vector<uint16_t> halves = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x8001, 0x03ff,
                                        0x0400, 0x3555, 0x0000, 0x8000, 0x7c00, 0xfc00};
  std::memcpy(changed.tensors.at("model.norm.weight").second.data(), halves.data(), 24);
  changed.write();
  std::fstream file(changed.path() / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  std::string header(4096, ' ');
  file.read(header.data(), static_cast<int64_t>(header.size()));
  file.seekp(static_cast<int64_t>(header.find("\"U16\"")));
  file << "\"F16\"";
  file.close();
  Weights read(tiny_llama(false));
  read.read(changed.path());
  const size_t head = read.layers.size() - 1;
  // From the definition: (1 + mantissa / 1024) * 2^(exponent - 15), below exponent 1 without the 1.
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ((read.tensors.at({head, static_cast<size_t>(head_parameters(read.model).norm_weight)})),
            (std::vector<float>{1.0f, -2.0f, 65504.0f, 0x1p-24f, -0x1p-24f, 1023 * 0x1p-24f, 0x1p-14f, 0x1.554p-2f,
                                0.0f, -0.0f, infinity, -infinity}));
}

TEST(ModelFolder, AMissingFileIsNamed) {
  TemporaryFolder folder;
  Weights weights(tiny_gpt2(true));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { weights.read(folder.path()); }),
              HasSubstr("model.safetensors"));
}

// Folders that transformers wrote come back tensor by tensor.
TEST(ModelFolder, WritesWhatTransformersWrote) {
  for (const char* family : {"gpt2", "llama"}) {
    const fs::path golden = fs::path(STRATA_GOLDEN_FOLDER) / family / "model";
    TemporaryFolder folder;
    Weights weights(read_model_spec(golden));
    weights.read(golden);
    write_model_folder(folder / "model", weights.folder(DType::kF32), ExistingTarget::kRefuse);
    const SafetensorsFile expected(golden / "model.safetensors");
    const SafetensorsFile found(folder / "model" / "model.safetensors");
    EXPECT_EQ(found.tensors().size(), expected.tensors().size());
    for (const auto& [name, tensor] : expected.tensors()) {
      EXPECT_EQ(found.at(name).shape, tensor.shape) << name;
      EXPECT_TRUE(std::ranges::equal(found.at(name).bytes, tensor.bytes)) << name;
    }
  }
}

}  // namespace
}  // namespace strata
