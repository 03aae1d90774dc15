# SPDX-License-Identifier: Apache-2.0
"""What tests of the `strata` command share: a folder with a model, text and a config, and ways to run the command on
it. Needs the standard library only."""
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

DONE, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 3
MODEL = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_positions": 16, "n_embd": 32,
    "n_layer": 2, "n_head": 4, "activation_function": "gelu_new", "attn_pdrop": 0.0, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "tie_word_embeddings": True,
    "bos_token_id": 256, "eos_token_id": 256,
}
CONFIG = """
[run]
directory = "{folder}/run"
threads = 1
[model]
config = "{folder}/config.json"
[data]
train = ["{folder}/train.txt"]
validation_fraction = 0.1
[batch]
micro = 2
[train]
max_steps = 6
save_every = 2
"""


def write_tokens(path, ids):
    """llm.c's format."""
    header = struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253)
    path.write_bytes(header + struct.pack(f"<{len(ids)}H", *ids))


class CommandTest(unittest.TestCase):
    binary = None  # the strata command, set by main()

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="strata_command_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.run_folder = self.folder / "run"
        self.config = self.folder / "train.toml"
        self.config.write_text(CONFIG.format(folder=self.folder))
        self.write_model(MODEL)
        (self.folder / "train.txt").write_text("The quick brown fox jumps over the lazy dog. " * 20)

    def write_model(self, model):
        (self.folder / "config.json").write_text(json.dumps(model))

    def strata(self, *arguments, **options):
        command = [self.binary, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)

    def train(self, *overrides, **options):
        return self.strata("train", self.config, *overrides, **options)

    def assert_done(self, result):
        self.assertEqual(result.returncode, DONE, result.stderr)

    def assert_refused(self, result, code, *parts):
        """The exit code, one last line on stderr that says it all, and nothing that looks like a crash."""
        self.assertEqual(result.returncode, code, result.stderr)
        lines = result.stderr.splitlines()
        errors = [line for line in lines if line.startswith("strata: ")]
        self.assertEqual(errors, lines[-1:], result.stderr)
        for part in parts:
            self.assertIn(part, errors[0])
        self.assertNotIn("bug", errors[0])
        self.assertNotIn("Traceback", result.stderr)

    def checkpoints(self):
        return sorted(path.name for path in self.run_folder.glob("checkpoints/*"))

    def leftovers(self):
        return [str(path) for path in self.folder.rglob("*.tmp-*")]

    def trained(self):
        self.assert_done(self.train())
        self.assertEqual(self.checkpoints(), ["step-00000004", "step-00000006"])
        return self.run_folder / "model"


def main(usage):
    """Runs the tests of the calling script, whose first argument is the strata command."""
    if len(sys.argv) < 2:
        sys.exit(usage)
    CommandTest.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
