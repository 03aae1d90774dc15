# SPDX-License-Identifier: Apache-2.0
"""The workloads of the training benchmark: sizes, goals, and the files both systems read (config.json, token files).

Needs only the standard library.
"""

import array
import dataclasses
import json
import math
import random

TOKEN_MAGIC = 20240520
TOKEN_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    config: dict  # config.json
    seq: int
    batch: int
    steps: int  # measured; the warm-up comes on top
    goals: dict

    @property
    def tokens_per_step(self):
        return self.seq * self.batch


def gpt2_config(layers, hidden, heads, vocab, positions):
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": layers, "n_embd": hidden,
        "n_head": heads, "vocab_size": vocab, "n_positions": positions, "n_inner": None,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "attn_pdrop": 0.0,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "initializer_range": 0.02, "tie_word_embeddings": True,
        "bos_token_id": 0, "eos_token_id": 0,
    }


def llama_config(layers, hidden, heads, kv_heads, ffn, vocab, positions):
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers,
        "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": ffn,
        "vocab_size": vocab, "max_position_embeddings": positions, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0,
    }


WORKLOADS = {
    workload.name: workload for workload in (
        Workload("gpt14m", gpt2_config(6, 384, 6, 8192, 256), seq=256, batch=8, steps=12,
                 goals={"eager": 1.25, "compile": 1.1, "fma_share": 0.68, "gemm_share": 0.92, "memory": 0.5}),
        Workload("gpt124m", gpt2_config(12, 768, 12, 50257, 1024), seq=512, batch=2, steps=5,
                 goals={"eager": 1.3, "compile": 1.1, "fma_share": 0.70, "gemm_share": 0.93, "memory": 0.75}),
        Workload("llama55m", llama_config(8, 512, 8, 2, 1408, 32000, 1024), seq=1024, batch=2, steps=6,
                 goals={"eager": 1.3, "compile": 1.1, "fma_share": 0.65, "gemm_share": 0.90, "memory": 0.6}),
    )
}


def weights_in_products(config):
    """Elements of the matrices every token is multiplied with: linear layers and head, no embedding lookup."""
    if config["model_type"] == "gpt2":
        hidden = config["n_embd"]
        return config["n_layer"] * 12 * hidden * hidden + config["vocab_size"] * hidden
    hidden = config["hidden_size"]
    kv_width = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    block = hidden * (2 * hidden + 2 * kv_width + 3 * config["intermediate_size"])
    return config["num_hidden_layers"] * block + config["vocab_size"] * hidden


def step_flops(workload):
    """Linear and head products (2 forward, 4 backward per weight and token) and the causal attention products on and
    below the diagonal (QK' and PV forward, twice that backward). Nothing recomputed, nothing else counted."""
    config = workload.config
    is_gpt2 = config["model_type"] == "gpt2"
    hidden = config["n_embd" if is_gpt2 else "hidden_size"]
    layers = config["n_layer" if is_gpt2 else "num_hidden_layers"]
    pairs = workload.batch * workload.seq * (workload.seq + 1) // 2
    return 6 * weights_in_products(config) * workload.tokens_per_step + 3 * 4 * layers * hidden * pairs


def pseudo_text(vocab, count, seed):
    """Ids 1..vocab-1, a small id far more often than a large one (Zipf). Id 0, the end of a document, never occurs:
    a system that separates documents then attends over whole windows, like one that does not."""
    rng = random.Random(seed)
    scale = math.log(vocab)
    return array.array("H", (min(int(math.exp(rng.random() * scale)), vocab - 1) for _ in range(count)))


def write_token_file(path, ids):
    """llm.c's format: 256 int32 (magic, version, count, zeros), then uint16 ids; little-endian."""
    header = array.array("i", [TOKEN_MAGIC, TOKEN_VERSION, len(ids)] + [0] * 253)
    path.write_bytes(header.tobytes() + ids.tobytes())


def write_inputs(workload, folder):
    """config.json, train.bin and validation.bin in `folder`."""
    (folder / "config.json").write_text(json.dumps(workload.config, indent=2) + "\n")
    vocab = workload.config["vocab_size"]
    write_token_file(folder / "train.bin", pseudo_text(vocab, 200_000, seed=1))
    write_token_file(folder / "validation.bin", pseudo_text(vocab, workload.tokens_per_step + 1, seed=2))
