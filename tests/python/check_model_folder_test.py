# SPDX-License-Identifier: Apache-2.0
"""check_model_folder.py accepts the reference models and sees every kind of damage. Exits 77 without transformers."""

import contextlib
import io
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

try:
    import numpy as np
    import torch
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
except ImportError as error:
    print(f"skipped: {error}; scripts/bench_environment.sh makes an environment with transformers")
    sys.exit(77)

import check_model_folder

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"


def check(folder, *arguments):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = check_model_folder.main([str(folder), *map(str, arguments)])
    return code, output.getvalue()


class CheckModelFolder(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def reference(self, family):
        """A copy of the family's model folder, and the arguments that go with it."""
        folder = self.scratch / family
        shutil.copytree(GOLDEN / family / "model", folder)
        ids = np.fromfile(GOLDEN / family / "batch.bin", dtype="<i4")[:32]
        ids.tofile(self.scratch / "ids.bin")
        greedy = json.loads((GOLDEN / family / "golden.json").read_text())["greedy"]
        return folder, ["--ids", self.scratch / "ids.bin", "--logits", GOLDEN / family / "logits.bin", "--prompt",
                        ",".join(map(str, greedy["prompt"])), "--greedy", ",".join(map(str, greedy["tokens"]))]

    def change_tensors(self, folder, change):
        path = folder / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})

    def test_reference_models_are_accepted(self):
        for family in ("gpt2", "llama"):
            folder, arguments = self.reference(family)
            self.assertEqual(check(folder, "--no-tokenizer", *arguments)[0], 0)

    def test_damaged_tensors_are_seen(self):
        folder, arguments = self.reference("llama")
        changes = {
            "missing_keys": lambda tensors: tensors.pop("model.norm.weight"),
            "unexpected_keys": lambda tensors: tensors.update({"model.norm.bias": torch.zeros(48)}),
            "logits differ": lambda tensors: tensors["model.norm.weight"].mul_(1.001),
        }
        for message, change in changes.items():
            shutil.copy(GOLDEN / "llama" / "model" / "model.safetensors", folder)
            self.change_tensors(folder, change)
            code, output = check(folder, "--no-tokenizer", *arguments)
            self.assertEqual(code, 1, output)
            self.assertIn(message, output)

    def test_wrong_shape_does_not_load(self):
        folder, arguments = self.reference("llama")
        self.change_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(47)}))
        self.assertEqual(check(folder, "--no-tokenizer", *arguments)[0], 1)

    def test_other_greedy_tokens_and_short_logits_are_seen(self):
        folder, arguments = self.reference("gpt2")
        code, output = check(folder, "--no-tokenizer", "--prompt", "1,2", "--greedy", "0,0,0")
        self.assertEqual(code, 1)
        self.assertIn("greedy tokens are", output)
        (self.scratch / "short.bin").write_bytes(bytes(8))
        code, output = check(folder, "--no-tokenizer", *arguments[:3], self.scratch / "short.bin")
        self.assertEqual(code, 1)
        self.assertIn("has 2 values, 32 ids and vocab 97 make 3104", output)

    def test_tokenizer_is_loaded_and_compared_with_the_vocabulary(self):
        folder, _ = self.reference("gpt2")
        self.assertEqual(check(folder)[0], 1)  # transformers makes an empty tokenizer where there is none
        (folder / "tokenizer.json").write_text("{}")
        self.assertIn("the tokenizer does not load", check(folder)[1])
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        self.assertIn("the tokenizer has 256 ids, the model 97", check(folder)[1])

    def test_a_missing_folder_and_half_given_arguments_are_refused(self):
        self.assertEqual(check(self.scratch / "none")[0], 1)
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            check(GOLDEN / "gpt2" / "model", "--ids", "x.bin")


if __name__ == "__main__":
    unittest.main()
