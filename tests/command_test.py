#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The `strata` command from outside: what it refuses, with which exit code and message, and what it leaves behind.

Usage: command_test.py STRATA [unittest options]. Needs the standard library only.
"""
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

from command_case import BAD_INPUT, DONE, FAILED, MODEL, STOPPED, CommandTest, main, write_tokens


class Config(CommandTest):
    def test_unknown_key(self):
        self.assert_refused(self.train("--optimizer.lrr=3"), BAD_INPUT, "unknown key optimizer.lrr", "optimizer.lr?")
        self.config.write_text(self.config.read_text() + "learning_rte = 1\n")
        self.assert_refused(self.train(), BAD_INPUT, "train.toml", "learning_rte", "optimizer.lr")

    def test_wrong_type(self):
        self.assert_refused(self.train("--train.max_steps=ten"), BAD_INPUT, "train.max_steps", "integer", '"ten"')
        self.assert_refused(self.train("--optimizer.lr", "-1"), BAD_INPUT, "optimizer.lr", "-1", "above 0")

    def test_bad_toml(self):
        self.config.write_text("[run\n")
        self.assert_refused(self.train(), BAD_INPUT, "train.toml")

    def test_missing_files(self):
        self.assert_refused(self.strata("train", self.folder / "no.toml"), BAD_INPUT, "no.toml")
        self.assert_refused(self.train(f"--model.config={self.folder}/no.json"), BAD_INPUT, "no.json")
        self.assert_refused(self.train(f"--data.train={self.folder}/no*.txt"), BAD_INPUT, "no*.txt", "data.train")
        self.assert_refused(self.train(f"--parallel.plan={self.folder}/plan.json"), BAD_INPUT, "plan.json")
        self.assert_refused(self.train(f"--model.weights={self.folder}"), BAD_INPUT, "model.safetensors")

    def test_batch_sizes_that_contradict(self):
        result = self.train("--batch.global=8", "--batch.micro=2", "--batch.accumulation=3")
        self.assert_refused(result, BAD_INPUT, "batch.global 8", "batch.micro 2", "batch.accumulation 3")

    def test_sequence_beyond_positions(self):
        self.assert_refused(self.train("--data.seq=17"), BAD_INPUT, "data.seq is 17", "16 positions")

    def test_model_that_does_not_fit_itself(self):
        self.write_model({**MODEL, "n_head": 5})
        self.assert_refused(self.train(), BAD_INPUT, "config.json", "32", "5")

    def test_schedule(self):
        self.assert_refused(self.train("--schedule.warmup_steps=7"), BAD_INPUT, "7", "6")
        for command in ("train", "check"):
            epochs = ["--train.max_steps=0", "--train.epochs=1"]
            result = self.strata(command, self.config, *epochs, "--schedule.warmup_steps=999")
            self.assert_refused(result, BAD_INPUT, "999")

    def test_frozen(self):
        self.assert_refused(self.train("--model.frozen=mlp.9.up.weight"), BAD_INPUT, "model.frozen", "mlp.9.up.weight",
                            "did you mean")
        self.assert_refused(self.train("--model.frozen=*"), BAD_INPUT, "nothing to train", "[*]")
        self.assertFalse(self.run_folder.exists())
        result = self.strata("check", self.config, "--model.frozen=mlp.*,embedding.*")
        self.assert_done(result)
        self.assertIn("embedding.token.weight", result.stdout.split("frozen   ")[1])
        self.assertRegex(result.stdout, "parameters .*: [0-9]+ trained, [0-9]+ frozen")

    def test_memory_budget(self):
        result = self.train("--memory.device=100KiB")
        self.assert_refused(result, BAD_INPUT, "memory.device allows 100.0 KiB", "too much", "parallel.activations")
        self.assertFalse(self.run_folder.exists())

    def test_plan_for_several_ranks(self):
        layers = {"count": 6, "tp": 1, "dp": 2, "zero": 0, "activations": "keep"}
        plan = {"num_ranks": 2, "stage_layers": [6], "layers": [layers], "micro_batch": 2, "accumulation": 1,
                "reduce": "last", "threads": 1}
        (self.folder / "plan.json").write_text(json.dumps(plan))
        override = f"--parallel.plan={self.folder}/plan.json"
        self.assert_refused(self.train(override), BAD_INPUT, "2 ranks", "num_ranks 1")
        self.assert_done(self.strata("program", self.config, override))

    def test_program(self):
        self.assertIn("forward", self.strata("program", self.config).stdout)
        result = self.strata("program", self.config, "--name", "no")
        self.assert_refused(result, BAD_INPUT, "'no'", "step, evaluation or save")
        self.assert_refused(self.strata("program", self.config, "--rank", "1"), BAD_INPUT, "no rank 1", "1 ranks")

    def test_check_runs_nothing(self):
        result = self.strata("check", self.config)
        self.assert_done(result)
        self.assertIn("global 2 = micro 2 x accumulation 1", result.stdout)
        self.assertFalse((self.run_folder / "checkpoints").exists())


class Arguments(CommandTest):
    def test_commands(self):
        self.assert_refused(self.strata(), BAD_INPUT, "no command", "train")
        self.assert_refused(self.strata("fly"), BAD_INPUT, "'fly'", "generate")
        self.assert_refused(self.strata("train"), BAD_INPUT, "config is required")
        self.assert_refused(self.train("more"), BAD_INPUT, "'more'")
        self.assert_refused(self.train("--train.max_steps"), BAD_INPUT, "has no value")
        self.assert_done(self.strata("--help"))
        self.assertIn("optimizer.lr", self.strata("options").stdout)


class Data(CommandTest):
    def write(self, name, contents):
        (self.folder / name).write_bytes(contents)
        return f"--data.train={self.folder}/{name}"

    def assert_no_tokens(self):
        self.assertEqual([path.name for path in self.run_folder.rglob("*.tokens*")], [])

    def test_empty_file(self):
        self.assert_refused(self.train(self.write("empty.txt", b"")), BAD_INPUT, "empty.txt")
        self.assert_no_tokens()

    def test_invalid_utf8(self):
        result = self.train(self.write("bad.txt", b"abc\xff def" * 9))
        self.assert_refused(result, BAD_INPUT, "bad.txt", "byte 3", "0xff")
        self.assert_no_tokens()

    def test_bad_line(self):
        result = self.train(self.write("bad.jsonl", b'{"text": "a b c d"}\n{"text": "e"\n{"text": "f"}\n'))
        self.assert_refused(result, BAD_INPUT, "bad.jsonl:2")
        self.assert_refused(self.train(self.write("key.jsonl", b'{"txt": "a"}\n')), BAD_INPUT, "key.jsonl:1", '"text"')
        self.assert_no_tokens()

    # B52: byte order marks and line ends do not change the training.
    def test_encodings_of_the_same_text(self):
        records = [json.dumps({"text": f"record {index} of some length"}) for index in range(5)]
        logs = []
        marks = [b"", b"\xef\xbb\xbf"]
        for number, (mark, end) in enumerate((mark, end) for mark in marks for end in [b"\n", b"\r\n"]):
            data = self.write(f"{number}.jsonl", mark + end.join(map(str.encode, records)) + end + end)
            self.assert_done(self.train(data, f"--run.directory={self.folder}/{number}"))
            rows = (self.folder / str(number) / "metrics.csv").read_text().splitlines()
            logs.append([row.split(",")[:5] for row in rows])
        self.assertEqual(len(logs[0]), 7)
        self.assertEqual(logs, [logs[0]] * 4)

    def test_token_beyond_the_vocabulary(self):
        write_tokens(self.folder / "ids.bin", [*range(100), 300, *range(100)])
        result = self.train(f"--data.train={self.folder}/ids.bin")
        self.assert_refused(result, BAD_INPUT, "ids.bin", "300", "257")

    def test_token_files_train(self):
        write_tokens(self.folder / "ids.bin", [*range(200)] * 3)
        result = self.train(f"--data.train={self.folder}/ids.bin")
        self.assert_done(result)
        self.assertIn("the model folder gets no tokenizer", result.stderr)
        result = self.strata("generate", "--model", self.run_folder / "model", "--prompt", "a")
        self.assert_refused(result, BAD_INPUT, "no tokenizer.json")

    def test_tokenizer_larger_than_the_model(self):
        self.write_model({**MODEL, "vocab_size": 200, "bos_token_id": 0, "eos_token_id": 0})
        self.assert_refused(self.train(), BAD_INPUT, "'bytes'", "257", "200")

    def test_other_data_on_resume(self):
        self.trained()
        result = self.train(self.write("other.txt", b"Something else. " * 50))
        self.assert_refused(result, BAD_INPUT, "fingerprint")


class Checkpoints(CommandTest):
    def newest(self):
        return self.run_folder / "checkpoints" / "step-00000006"

    def damage(self, kind):
        values = self.newest() / "rank-00000.bin"
        contents = bytearray(values.read_bytes())
        if kind == "truncated":
            contents = contents[:-1]
        else:
            contents[100] ^= 1
        values.write_bytes(contents)

    # B36: the newest sound one counts; without any the run stops.
    def test_damaged(self):
        for kind in ("truncated", "flipped"):
            with self.subTest(kind):
                shutil.rmtree(self.run_folder, ignore_errors=True)
                self.trained()
                self.damage(kind)
                result = self.train("--train.max_steps=8")
                self.assert_done(result)
                self.assertIn("warning: skipped the incomplete checkpoint", result.stderr)
                self.assertIn("step-00000004 at step 4", result.stderr)

    def test_none_is_sound(self):
        self.trained()
        shutil.rmtree(self.run_folder / "checkpoints" / "step-00000004")
        self.damage("flipped")
        result = self.train()
        self.assertEqual(result.returncode, BAD_INPUT)
        self.assertIn("none of the 1 checkpoints", result.stderr.splitlines()[-1])
        self.assertIn("checksum", result.stderr.splitlines()[-1])

    def test_of_another_model(self):
        self.trained()
        self.write_model({**MODEL, "n_embd": 64})
        result = self.train()
        self.assert_refused(result, BAD_INPUT, "of another model", "64")
        self.assertEqual(self.checkpoints(), ["step-00000004", "step-00000006"])
        self.write_model(MODEL)
        self.assert_done(self.train())

    def test_of_another_optimizer(self):
        self.trained()
        self.assert_refused(self.train("--optimizer.kind=sgd"), BAD_INPUT, "another model or optimizer", "exp_avg")

    def train_with_limit(self, limit, *overrides):
        """A limit on the size of files stands in for a full disk."""
        return self.train(*overrides, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))

    # B35: the last good checkpoint stays.
    def test_full_disk(self):
        self.trained()
        limit = 64 * 1024  # below the 400 KiB of a checkpoint, above everything else
        result = self.train_with_limit(limit, "--train.max_steps=20")
        self.assert_refused(result, FAILED, "cannot write", "step-00000008")
        self.assertEqual(self.checkpoints(), ["step-00000004", "step-00000006"])
        self.assertEqual(self.leftovers(), [])
        self.assert_done(self.train("--train.max_steps=20"))
        rows = (self.run_folder / "metrics.csv").read_text().splitlines()
        self.assertEqual([int(row.split(",")[0]) for row in rows[1:]], list(range(1, 21)))

    # Wherever the space ends, nothing is left half-written, and the run can go on.
    def test_full_disk_anywhere(self):
        self.trained()
        expected = (self.run_folder / "model" / "model.safetensors").read_bytes()
        codes = []
        limits = [0, 100, 500, 1000, 2000, 4000, 8000, 16000, 64000, 140000, 400000, 1000000]
        if b"__tsan_init" in pathlib.Path(self.binary).read_bytes():
            limits.remove(0)  # the thread sanitizer makes a file of its own before main
        for limit in limits:
            with self.subTest(limit=limit):
                shutil.rmtree(self.run_folder)
                result = self.train_with_limit(limit)
                codes.append(result.returncode)
                if result.returncode != DONE:
                    self.assert_refused(result, FAILED, "cannot", str(self.run_folder))
                self.assertEqual(self.leftovers(), [])
                self.assert_done(self.train())
                self.assertEqual((self.run_folder / "model" / "model.safetensors").read_bytes(), expected)
        self.assertEqual((codes[0], codes[-1]), (FAILED, DONE))


class Folders(CommandTest):
    def test_a_file_in_its_place(self):
        self.run_folder.write_text("mine")
        self.assert_refused(self.train(), BAD_INPUT, str(self.run_folder))
        self.assertEqual(self.run_folder.read_text(), "mine")

    def test_read_only(self):
        self.trained()
        for path in [self.run_folder, *self.run_folder.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        self.folder.chmod(0o755)
        # Root may write anything, so another user tries, with a copy of the command that it can reach.
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        command = [shutil.copy(self.binary, self.folder), "train", self.config]
        options = {"capture_output": True, "text": True, "timeout": 120, "check": False, "cwd": self.folder}
        result = subprocess.run(command, **options, **user)
        self.assert_refused(result, BAD_INPUT, "run.directory", str(self.run_folder), "Permission denied")
        for path in [self.run_folder, *self.run_folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.assert_done(self.train())

    def test_two_processes(self):
        with subprocess.Popen([self.binary, "train", self.config, "--train.max_steps=1000000"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as first:
            first.stdout.readline()
            second = self.train()
            first.kill()
        self.assert_refused(second, BAD_INPUT, "another process trains in", str(self.run_folder))


class Signals(CommandTest):
    def start(self, *overrides):
        command = [self.binary, "train", self.config, *overrides]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for _ in range(3):
            process.stdout.readline()
        return process

    def test_stop_and_resume(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name):
                process = self.start("--train.max_steps=1000000", "--train.save_every=0")
                process.send_signal(number)
                output, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, STOPPED, errors)
                last = output.splitlines()[-1]
                self.assertIn("the same command resumes", last)
                step = int(last.split("step ")[1].split()[0])
                self.assertIn(f"step-{step:08}", self.checkpoints())
                result = self.train(f"--train.max_steps={step + 1}")
                self.assert_done(result)
                self.assertIn(f"resumed from {self.run_folder}/checkpoints/step-{step:08}", result.stderr)

    def test_save_now(self):
        process = self.start("--train.max_steps=1000000", "--train.save_every=0")
        process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 60
        while not self.checkpoints() or ".tmp-" in self.checkpoints()[-1]:
            if process.stdout.readline() == "":
                self.fail(f"ended with {process.wait()}: {process.stderr.read()}")
            self.assertLess(time.monotonic(), deadline)
        self.assertIsNone(process.poll())


class Models(CommandTest):
    def generate(self, *arguments, model=None):
        return self.strata("generate", "--threads", "1", "--model", model or self.run_folder / "model", *arguments)

    def test_generate(self):
        self.trained()
        result = self.generate("--prompt", "The", "--max-tokens", "5", "--temperature", "0")
        self.assert_done(result)
        self.assertTrue(result.stdout.startswith("The"))
        again = self.generate("--prompt", "The", "--max-tokens", "5", "--temperature", "0")
        self.assertEqual(result.stdout, again.stdout)

    def test_what_generate_refuses(self):
        model = self.trained()
        self.assert_refused(self.generate("--prompt", "a", model=self.folder / "no"), BAD_INPUT, "no/config.json")
        self.assert_refused(self.generate("--prompt", ""), BAD_INPUT, "prompt")
        self.assert_refused(self.generate("--prompt", "x" * 17), BAD_INPUT, "17 tokens", "16 positions")
        self.assert_refused(self.generate("--prompt", "a", "--temperature", "-1"), BAD_INPUT, "temperature is -1")
        self.assert_refused(self.generate("--prompt", "a", "--top-p", "0"), BAD_INPUT, "top-p is 0")
        self.assert_refused(self.generate("--prompt", "a", "--max-tokens", "x"), BAD_INPUT, "--max-tokens")
        self.assert_refused(self.generate(), BAD_INPUT, "--prompt is required")
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4])
        self.assert_refused(self.generate("--prompt", "a"), BAD_INPUT, "model.safetensors")

    def test_eval(self):
        model = self.trained()
        result = self.strata("eval", "--threads", "1", "--model", model, "--data", self.folder / "train.txt")
        self.assert_done(result)
        self.assertIn("tokens         900", result.stdout)
        refused = self.strata("eval", "--model", model, "--data", self.folder / "no.txt")
        self.assert_refused(refused, BAD_INPUT, "no.txt")
        refused = self.strata("eval", "--model", model, "--data", self.folder / "train.txt", "--seq", "17")
        self.assert_refused(refused, BAD_INPUT, "17", "16")


if __name__ == "__main__":
    main(__doc__)
