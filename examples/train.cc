// SPDX-License-Identifier: Apache-2.0
// Trains a model from a config and prints the loss: the whole of Strata as a library. Usage: train config.toml
#include <strata/train/trainer.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    strata::Trainer trainer(strata::read_train_config(argv[1], {}));
    const strata::TrainResult result = trainer.train();
    std::printf("loss %.4f after %ld steps, model in %s\n", result.loss, static_cast<long>(result.step),
                result.model_folder.c_str());
    return result.stopped ? 3 : 0;
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
