# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of the training benchmark: a plain GPT-2 or Llama training step, written as one would for speed.

Trains from config.json and an llm.c token file; prints one JSON line: seconds of every step (warm-up included), the
loss of the last step, ru_maxrss, and what the process held before the model was made.
"""

import argparse
import json
import resource
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class GptBlock(nn.Module):
    def __init__(self, hidden, heads, eps):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(hidden, eps=eps)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.output = nn.Linear(hidden, hidden)
        self.norm_2 = nn.LayerNorm(hidden, eps=eps)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        parts = self.qkv(self.norm_1(x)).split(hidden, dim=-1)
        q, k, v = (part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, eps = config["n_embd"], config["layer_norm_epsilon"]
        self.tokens = nn.Embedding(config["vocab_size"], hidden)
        self.positions = nn.Embedding(config["n_positions"], hidden)
        self.blocks = nn.ModuleList(GptBlock(hidden, config["n_head"], eps) for _ in range(config["n_layer"]))
        self.norm = nn.LayerNorm(hidden, eps=eps)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, ffn, eps = config["hidden_size"], config["intermediate_size"], config["rms_norm_eps"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = hidden // self.heads
        self.norm_1 = nn.RMSNorm(hidden, eps=eps)
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.norm_2 = nn.RMSNorm(hidden, eps=eps)
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, seq, hidden = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, seq, -1, self.head_dim).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        attended = functional.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.output(attended.transpose(1, 2).reshape(batch, seq, hidden))
        normed = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = config["hidden_size"]
        self.tokens = nn.Embedding(config["vocab_size"], hidden)
        self.blocks = nn.ModuleList(LlamaBlock(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(hidden, eps=config["rms_norm_eps"])
        self.head = nn.Linear(hidden, config["vocab_size"], bias=False)
        head_dim = hidden // config["num_attention_heads"]
        frequencies = config["rope_theta"] ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angles = torch.outer(torch.arange(config["max_position_embeddings"], dtype=torch.float64), frequencies)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, ids, targets):
        x = self.tokens(ids)
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def make_model(config):
    torch.manual_seed(1)
    model = {"gpt2": Gpt, "llama": Llama}[config["model_type"]](config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=config["initializer_range"])
    return model


def make_optimizer(model):
    decayed = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    groups = [dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def read_tokens(path):
    header = np.fromfile(path, dtype="<i4", count=256)
    return np.memmap(path, dtype="<u2", mode="r", offset=1024, shape=(int(header[2]),))


def random_windows(tokens, seq, batch, rng):
    starts = rng.integers(0, len(tokens) - seq, size=batch)
    windows = torch.from_numpy(np.stack([tokens[start:start + seq + 1] for start in starts]).astype(np.int64))
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def train(arguments, config):
    model = make_model(config)
    optimizer = make_optimizer(model)
    loss_of = torch.compile(model) if arguments.mode == "compile" else model
    tokens, rng = read_tokens(arguments.tokens), np.random.default_rng(1)
    seconds = []
    for _ in range(arguments.steps):
        start = time.perf_counter()
        ids, targets = random_windows(tokens, arguments.seq, arguments.batch, rng)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        last_loss = loss.item()
        seconds.append(time.perf_counter() - start)
    return seconds, last_loss


def resident_bytes():
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return sum(int(fields[key].split()[0]) * 1024 for key in ("RssAnon", "RssShmem"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="config.json")
    parser.add_argument("tokens", help="token file in llm.c's format")
    parser.add_argument("--mode", choices=["eager", "compile"], required=True)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="warm-up included")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with open(arguments.config) as file:
        config = json.load(file)
    before = resident_bytes()
    seconds, loss = train(arguments, config)
    print(json.dumps({
        "step_seconds": [round(value, 5) for value in seconds], "loss": loss, "before_model_bytes": before,
        "max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
