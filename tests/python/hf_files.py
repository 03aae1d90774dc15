# SPDX-License-Identifier: Apache-2.0
"""Checks that the packages people use read what Strata writes: `safetensors` the weights, `tokenizers` and transformers the
bytes tokenizer, with the same ids and text. Usage: hf_files.py PATH_OF_write_hf_files. Exits 77 when a package is missing."""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import safetensors.torch
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def make_texts():
    """Every character below U+0800, others of all planes, and random strings; no NUL, which separates them."""
    generator = random.Random(1)
    planes = [(0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
    texts = ["".join(map(chr, range(1, 0x800))), "  a  ,  b . don't  \r\n\r\n\tx ", "e\u0301 \ufeff \u200d \ufffd"]
    texts += ["".join(chr(generator.randint(*plane)) for _ in range(2000)) for plane in planes]
    for _ in range(200):
        pool = [(1, 127), (1, 127), (0x80, 0x7FF)] + planes
        texts.append("".join(chr(generator.randint(*generator.choice(pool))) for _ in range(generator.randint(1, 80))))
    return texts


def check_tokenizer(name, encode, decode, texts, ids):
    for text, expected in zip(texts, ids):
        assert encode(text) == expected, f"{name}: ids of {text[:40]!r} differ"
        assert decode(expected) == text, f"{name}: text of {text[:40]!r} differs"
    print(f"{name}: {len(texts)} texts equal")


def main(program, folder):
    texts = make_texts()
    (folder / "text.bin").write_bytes(b"".join(text.encode() + b"\0" for text in texts))
    subprocess.run([program, folder], check=True)
    ids = [list(map(int, line.split())) for line in (folder / "ids.txt").read_text().splitlines()]
    assert len(ids) == len(texts) and ids == [list(text.encode()) for text in texts]

    raw = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert raw.get_vocab_size() == 257 and raw.token_to_id("<|endoftext|>") == 256
    check_tokenizer("tokenizers", lambda text: raw.encode(text).ids,
                    lambda ids: raw.decode(ids, skip_special_tokens=False), texts, ids)
    assert raw.encode("a<|endoftext|>").ids == [97, 256]
    raw.encode_special_tokens = True
    assert raw.encode("a<|endoftext|>").ids == list(b"a<|endoftext|>")

    for model_type in [None, "gpt2", "llama"]:  # transformers may choose a class by the model beside the tokenizer
        config = folder / "config.json"
        if model_type:
            config.write_text(json.dumps({"model_type": model_type, "vocab_size": 257}))
        kinds = [transformers.PreTrainedTokenizerFast, transformers.AutoTokenizer]
        for kind in kinds:
            loaded = kind.from_pretrained(folder)
            name = f"{kind.__name__} ({type(loaded).__name__}) beside {model_type}"
            assert len(loaded) == 257 and loaded.eos_token_id == 256 and loaded.model_max_length == 128, name
            check_tokenizer(name, lambda text: loaded(text)["input_ids"], loaded.decode, texts, ids)
            again = folder / f"again_{kind.__name__}_{model_type}"
            loaded.save_pretrained(again)
            subprocess.run([program, folder, again], check=True)

    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    assert sorted(tensors) == ["matrix", "narrow"]
    assert torch.equal(tensors["matrix"], torch.tensor([[1.0, 2, 3], [4, 5, 6]]))
    assert torch.equal(tensors["narrow"], torch.tensor([1.0, -2, 0], dtype=torch.bfloat16))
    with safetensors.safe_open(folder / "model.safetensors", "pt") as opened:
        assert opened.metadata() == {"format": "pt"}
    print("safetensors: equal")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(sys.argv[1], pathlib.Path(temporary))
