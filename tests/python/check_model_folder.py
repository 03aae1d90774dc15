# SPDX-License-Identifier: Apache-2.0
"""Does transformers load a Hugging Face folder, and compute from it what its writer did?

    check_model_folder.py FOLDER [--ids IDS.bin --logits LOGITS.bin] [--prompt 1,2,3 --greedy 4,5,6] [--no-tokenizer]

Loads strictly: no missing, unexpected or mismatched tensor. IDS.bin: int32, one sequence; LOGITS.bin: float32
(sequence, vocab); both little-endian without header. --greedy: the tokens that must follow the prompt.
Exit status: 0 all good, 1 a difference (each is printed), 77 transformers is not installed.
"""

import argparse
import pathlib
import sys

SKIPPED = 77

try:
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as error:
    print(f"skipped: {error}; scripts/bench_environment.sh makes an environment with transformers")
    sys.exit(SKIPPED)


def load_model(folder):
    """The model in float32 and the problems met while loading it."""
    try:
        model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    except (OSError, ValueError, RuntimeError) as error:
        return None, [f"{folder} does not load: {error}"]
    kinds = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
    return model.eval(), [f"{kind}: {sorted(map(str, info[kind]))}" for kind in kinds if info.get(kind)]


def check_tokenizer(folder, vocab):
    """A text must survive the round trip, and no id may lie outside the model's vocabulary."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        return [f"the tokenizer does not load: {error}"]
    text = "The quick brown fox jumps over 13 lazy dogs."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    problems = [] if tokenizer.decode(ids) == text else [f"the tokenizer turns {text!r} into {tokenizer.decode(ids)!r}"]
    if len(tokenizer) > vocab:
        problems.append(f"the tokenizer has {len(tokenizer)} ids, the model {vocab}")
    return problems


def check_logits(model, ids_path, logits_path, tolerance):
    ids = np.fromfile(ids_path, dtype="<i4")
    expected = np.fromfile(logits_path, dtype="<f4")
    vocab = model.config.vocab_size
    if len(ids) * vocab != len(expected):
        return [f"{logits_path} has {len(expected)} values, {len(ids)} ids and vocab {vocab} make {len(ids) * vocab}"]
    with torch.no_grad():
        computed = model(input_ids=torch.from_numpy(ids.astype(np.int64))[None]).logits[0].numpy()
    difference = np.abs(computed - expected.reshape(computed.shape))
    limit = tolerance * np.abs(computed).max()
    if not (difference <= limit).all():  # also false for a NaN
        row, column = np.unravel_index(np.argmax(difference), difference.shape)
        return [f"logits differ by {difference.max():.3g} at position {row}, id {column}; allowed {limit:.3g}"]
    return []


def check_greedy(model, prompt, expected):
    """The whole sequence is computed for every token: no cache takes part."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in expected:
            ids.append(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax().item())
    computed = ids[len(prompt):]
    return [] if computed == expected else [f"greedy tokens are {computed}, expected {expected}"]


def parse_ids(text):
    return [int(word) for word in text.split(",")]


def parse_arguments(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ids", type=pathlib.Path)
    parser.add_argument("--logits", type=pathlib.Path)
    parser.add_argument("--tolerance", type=float, default=1e-5,
                        help="largest difference of a logit over the largest logit (default 1e-5: float32 sums)")
    parser.add_argument("--prompt", type=parse_ids)
    parser.add_argument("--greedy", type=parse_ids)
    parser.add_argument("--no-tokenizer", action="store_true", help="the folder is expected to have none")
    arguments = parser.parse_args(words)
    pairs = ((arguments.ids, arguments.logits), (arguments.prompt, arguments.greedy))
    if any((first is None) != (second is None) for first, second in pairs):
        parser.error("--ids needs --logits and --prompt needs --greedy, and the other way round")
    return arguments


def main(words):
    arguments = parse_arguments(words)
    torch.set_num_threads(1)
    model, problems = load_model(arguments.folder)
    if model is not None:
        if not arguments.no_tokenizer:
            problems += check_tokenizer(arguments.folder, model.config.vocab_size)
        if arguments.logits is not None:
            problems += check_logits(model, arguments.ids, arguments.logits, arguments.tolerance)
        if arguments.greedy is not None:
            problems += check_greedy(model, arguments.prompt, arguments.greedy)
    print("\n".join(problems) or f"{arguments.folder}: transformers agrees")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
