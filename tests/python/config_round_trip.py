#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""config.json files written by Strata load in transformers as what they came from. Usage: config_round_trip.py SPEC_JSON

Exits 77 (skipped) when the package transformers is missing.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    from transformers import AutoConfig, GPT2Config, LlamaConfig
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

# Who wrote a file, and for which class; not part of the model.
NOT_COMPARED = ["_name_or_path", "architectures", "transformers_version"]

CONFIGS = {
    "gpt2 defaults": GPT2Config(),
    "gpt2 every key": GPT2Config(
        vocab_size=97, n_positions=16, n_embd=32, n_layer=2, n_head=4, n_inner=80, activation_function="gelu",
        resid_pdrop=0.15, embd_pdrop=0.25, attn_pdrop=0.35, layer_norm_epsilon=3.3e-6, initializer_range=0.013,
        bos_token_id=None, eos_token_id=[7, 8], tie_word_embeddings=False),
    "llama defaults": LlamaConfig(),
    "llama every key": LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, initializer_range=0.013, rms_norm_eps=3.3e-6,
        bos_token_id=3, eos_token_id=[4, 5], tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
        attention_dropout=0.15, rope_parameters={"rope_type": "default", "rope_theta": 123456.7}),
}

# As transformers 4 writes them: the base of the rotary positions on its own, an old name of n_positions.
TEXTS = {
    "llama from transformers 4": {
        "model_type": "llama", "rope_theta": 500000.0, "rope_scaling": None, "torch_dtype": "bfloat16"},
    "gpt2 from transformers 4": {
        "model_type": "gpt2", "n_ctx": 1024, "n_positions": 1024, "task_specific_params": {"a": {}}},
}


def through_strata(config_json, folder):
    (folder / "in.json").write_text(config_json)
    run = subprocess.run([sys.argv[1], str(folder / "in.json")], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{sys.argv[1]} refused {config_json}: {run.stderr}")
    (folder / "config.json").write_text(run.stdout)
    return AutoConfig.from_pretrained(folder)


def compare(name, before, after, ignored=()):
    first, second = before.to_dict(), after.to_dict()
    keys = sorted((first.keys() | second.keys()) - set(NOT_COMPARED) - set(ignored))
    different = [f"{key}: {first.get(key)} became {second.get(key)}"
                 for key in keys if first.get(key) != second.get(key)]
    if type(before) is not type(after) or different:
        sys.exit(f"{name}: {type(before).__name__} became {type(after).__name__}; " + "; ".join(different))


def main():
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        for name, config in CONFIGS.items():
            for use_diff in [True, False]:  # only what differs from the defaults, and every key
                compare(name, config, through_strata(config.to_json_string(use_diff=use_diff), folder))
        for name, keys in TEXTS.items():
            before = AutoConfig.for_model(**keys)
            after = through_strata(json.dumps(keys), folder)
            compare(name, before, after, ignored=["dtype", "torch_dtype", "n_ctx", "task_specific_params"])
            written = json.loads((folder / "config.json").read_text())
            if written.get("rope_theta") != keys.get("rope_theta"):  # where transformers 4 looks
                sys.exit(f"{name}: rope_theta {keys.get('rope_theta')} became {written.get('rope_theta')}")
    print(f"transformers reads {2 * len(CONFIGS) + len(TEXTS)} configs as they were")


if __name__ == "__main__":
    main()
