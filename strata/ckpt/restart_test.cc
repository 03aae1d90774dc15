// SPDX-License-Identifier: Apache-2.0
// What any number of ranks saves under any plan, any other number loads under any other: every element of every state.
// Also: writing in three steps, and that a rank reads no more than it needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <thread>

#include "strata/base/testing.h"
#include "strata/ckpt/testing_world.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Four heads, so tp up to 4; 4,000 parameters, none of whose sizes divides by 3.
ModelSpec small_gpt2(bool tied) {
  ModelSpec model = tiny_gpt2();
  model.vocab = 23;
  model.hidden = 16;
  model.head_dim = 4;
  model.ffn = 20;
  model.max_positions = 8;
  model.tied_head = tied;
  return model;
}

ModelSpec small_llama(int64_t kv_heads) { return llama_shaped(small_gpt2(false), kv_heads, 20); }

const std::vector<WorldLayout>& layouts() {
  static const std::vector<WorldLayout> all = {
      {1, 1, 1, 0}, {1, 1, 1, 3}, {1, 1, 2, 0}, {1, 1, 3, 1}, {1, 1, 2, 2},        {1, 1, 3, 3},
      {2, 1, 1, 0}, {2, 1, 2, 1}, {2, 1, 3, 3}, {1, 2, 1, 0}, {1, 3, 2, 1},        {2, 2, 2, 2},
      {4, 1, 1, 3}, {1, 4, 2, 3}, {1, 1, 4, 2}, {1, 1, 8, 1}, {1, 1, 1, 0, {}, 2}, {2, 1, 2, 3, {}, 2}};
  return all;
}

class Restart : public ::testing::TestWithParam<Precision> {};

// Every layout to every layout.
void expect_matrix(const ModelSpec& model, const std::vector<WorldLayout>& wanted, Precision precision) {
  std::vector<World> worlds;
  for (const WorldLayout& layout : wanted) worlds.emplace_back(model, layout, precision);
  for (size_t saved = 0; saved < wanted.size(); ++saved) {
    TemporaryFolder folder;
    worlds[saved].forget();
    worlds[saved].fill();
    worlds[saved].write(folder.path(), 3);
    const CheckpointInfo checkpoint = open_checkpoint(checkpoint_path(folder.path(), 3));
    for (size_t loaded = 0; loaded < wanted.size(); ++loaded) {
      worlds[loaded].forget();
      worlds[loaded].read(checkpoint);
      ASSERT_EQ(worlds[loaded].count_wrong(), 0) << wanted[saved].text() << " to " << wanted[loaded].text();
    }
  }
}

TEST_P(Restart, TiedGpt2) { expect_matrix(small_gpt2(true), layouts(), GetParam()); }
TEST_P(Restart, Llama) { expect_matrix(small_llama(4), layouts(), GetParam()); }

// Untied, and two key-value heads, which no more than two ranks can split.
TEST_P(Restart, UntiedGpt2AndGroupedQueries) {
  const std::vector<WorldLayout> few = {{1, 1, 1, 0}, {2, 1, 1, 1}, {1, 1, 3, 3}, {2, 3, 1, 2}};
  expect_matrix(small_gpt2(false), few, GetParam());
  expect_matrix(small_llama(2), few, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Precisions, Restart, ::testing::Values(Precision::kF32, Precision::kBF16),
                         [](const auto& tested) { return tested.param == Precision::kF32 ? "F32" : "BF16"; });

// A frozen tensor is saved as a parameter alone, by whoever holds it, and lies in chunks of its own.
TEST_P(Restart, Frozen) {
  std::vector<WorldLayout> few = {{1, 1, 1, 0}, {2, 1, 2, 1}, {1, 2, 3, 3}, {2, 2, 1, 2}};
  for (WorldLayout& layout : few) layout.frozen = {"embedding.*", "attention.0.*bias", "mlp.1.*", "*.norm.weight"};
  expect_matrix(small_gpt2(true), few, GetParam());
}

// The states of what is frozen from now on are let lie.
TEST_P(Restart, FrozenLater) {
  TemporaryFolder folder;
  World saved(small_gpt2(false), {2, 1, 2, 1}, GetParam());
  saved.fill();
  saved.write(folder.path(), 3);
  World loaded(small_gpt2(false), {1, 2, 2, 3, {"attention.*", "head.weight"}}, GetParam());
  loaded.forget();
  loaded.read(open_checkpoint(checkpoint_path(folder.path(), 3)));
  EXPECT_EQ(loaded.count_wrong(), 0);
}

TEST_P(Restart, TrainingWhatWasFrozenIsRefused) {
  TemporaryFolder folder;
  World saved(small_gpt2(true), {1, 1, 2, 1, {"mlp.0.up.*", "embedding.token.weight"}}, GetParam());
  saved.fill();
  saved.write(folder.path(), 3);
  const CheckpointInfo checkpoint = open_checkpoint(checkpoint_path(folder.path(), 3));
  World loaded(small_gpt2(true), {1, 1, 1, 0, {"embedding.token.weight"}}, GetParam());
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { loaded.read(checkpoint); }),
              AllOf(HasSubstr("saved while mlp.0.up.weight was frozen"), HasSubstr("it and 1 more"),
                    HasSubstr("model.weights")));
}

// The masters of a bf16 run are the parameters of an f32 run of another world.
TEST(RestartInAnotherPrecision, AndAnotherLayout) {
  for (Precision precision : {Precision::kF32, Precision::kBF16}) {
    TemporaryFolder folder;
    World saved(small_gpt2(true), {2, 1, 2, 1}, precision);
    saved.fill();
    saved.write(folder.path(), 3);
    World loaded(small_gpt2(true), {1, 2, 3, 2}, precision == Precision::kF32 ? Precision::kBF16 : Precision::kF32);
    loaded.forget();
    loaded.read(open_checkpoint(checkpoint_path(folder.path(), 3)));
    EXPECT_EQ(loaded.count_wrong(), 0);
  }
}

TEST(ManyRanks, ReadTheSameFilesAtTheSameTime) {
  TemporaryFolder folder;
  World saved(small_llama(4), {2, 1, 2, 3}, Precision::kBF16);
  saved.fill();
  saved.write(folder.path(), 3);
  const CheckpointInfo checkpoint = open_checkpoint(checkpoint_path(folder.path(), 3));
  World loaded(small_llama(4), {1, 2, 3, 1}, Precision::kBF16);
  loaded.forget();
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < loaded.size(); ++rank)
    threads.emplace_back([&, rank] { read_checkpoint(checkpoint, loaded.rank(rank).states()); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loaded.count_wrong(), 0);
}

// At ZeRO 0 the first replica saves for all; every other list is empty and has no file.
TEST(ManyRanks, WithoutShardsOneReplicaWrites) {
  TemporaryFolder folder;
  World saved(small_gpt2(true), {1, 1, 3, 0}, Precision::kF32);
  saved.write(folder.path(), 3);
  const fs::path path = checkpoint_path(folder.path(), 3);
  EXPECT_TRUE(fs::exists(path / "rank-00000.bin"));
  EXPECT_FALSE(fs::exists(path / "rank-00001.bin"));
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(path)) entries += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(entries, 2u);
}

// Under the plan that saved, at ZeRO 3, a rank needs its own file alone.
TEST(ManyRanks, ARankReadsWhatItNeeds) {
  TemporaryFolder folder;
  World world(small_gpt2(false), {1, 2, 2, 3}, Precision::kF32);
  world.fill();
  world.write(folder.path(), 3);
  const fs::path path = checkpoint_path(folder.path(), 3);
  const CheckpointInfo checkpoint = open_known_checkpoint(path);
  world.forget();
  for (size_t rank = 0; rank < world.size(); ++rank) {
    const std::string own = fmt::format("rank-{:05}.bin", rank);
    fs::rename(path / own, folder.path() / own);
    fs::rename(path, folder.path() / "hidden");
    fs::create_directory(path);
    fs::rename(folder.path() / own, path / own);
    EXPECT_NO_THROW(read_checkpoint(checkpoint, world.rank(rank).states())) << rank;
    fs::rename(path / own, folder.path() / "hidden" / own);
    fs::remove(path);
    fs::rename(folder.path() / "hidden", path);
  }
  EXPECT_EQ(world.count_wrong(), 0);
}

class ThreeSteps : public ::testing::Test {
 protected:
  ThreeSteps() : world_(small_gpt2(true), {1, 1, 2, 1}, Precision::kF32) { trainer_.step = 5; }
  void write_rank(size_t rank) {
    write_rank_part(folder_.path(), 5, world_.rank(rank).states(),
                    [&](DiskFile& file) { world_.rank(rank).save(file); });
  }
  bool nothing_left() const { return fs::is_empty(folder_.path() / "checkpoints"); }

  TemporaryFolder folder_;
  World world_;
  TrainerState trainer_;
};

TEST_F(ThreeSteps, ARankThatDidNotWriteIsNamed) {
  {
    NewCheckpoint checkpoint(folder_.path(), trainer_, world_.rank(0).states());
    write_rank(0);
    EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { checkpoint.commit(); }),
                AllOf(HasSubstr("rank 1 of 2 has written nothing into"), HasSubstr("step-00000005")));
  }
  EXPECT_TRUE(nothing_left());
}

TEST_F(ThreeSteps, WritingBeforeTheFirstStepIsRefused) {
  fs::create_directories(folder_.path() / "checkpoints");
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { write_rank(0); }), HasSubstr("step-00000005.tmp-writing"));
}

TEST_F(ThreeSteps, ADamagedListIsRefused) {
  NewCheckpoint checkpoint(folder_.path(), trainer_, world_.rank(0).states());
  write_rank(0);
  write_rank(1);
  const fs::path list = folder_.path() / "checkpoints" / "step-00000005.tmp-writing" / "rank-00001.json";
  fs::resize_file(list, fs::file_size(list) / 2);
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { checkpoint.commit(); }), HasSubstr("rank-00001.json"));
}

TEST_F(ThreeSteps, AnOldStepStaysUntilTheNewOneIsThere) {
  world_.fill();
  world_.write(folder_.path(), 5);
  {
    NewCheckpoint checkpoint(folder_.path(), trainer_, world_.rank(0).states());
    write_rank(0);  // and then the run is stopped
  }
  EXPECT_NO_THROW(open_checkpoint(checkpoint_path(folder_.path(), 5)));
}

using ThreeStepsDeathTest = ThreeSteps;

// Rank 0 twice, as if ranks were numbered wrongly: half of the states is there twice and half is not.
TEST_F(ThreeStepsDeathTest, AnIncompleteCheckpointIsABug) {
  NewCheckpoint checkpoint(folder_.path(), trainer_, world_.rank(0).states());
  write_rank(0);
  const fs::path temporary = folder_.path() / "checkpoints" / "step-00000005.tmp-writing";
  fs::copy_file(temporary / "rank-00000.json", temporary / "rank-00001.json");
  EXPECT_DEATH(checkpoint.commit(), "the ranks have not saved parameters of .* once: elements that are there twice");
  write_file_atomically(temporary / "rank-00001.json", part_list_text({}));
  EXPECT_DEATH(checkpoint.commit(), "no rank has saved|have not saved parameters of .* once: .* of .* elements");
}

TEST_F(ThreeStepsDeathTest, OneRankOfManyDoesNotWriteAlone) {
  EXPECT_DEATH(write_checkpoint(folder_.path(), trainer_, world_.rank(0).states(), [](DiskFile&) {}), "one of 2 ranks");
}

}  // namespace
}  // namespace strata
