# SPDX-License-Identifier: Apache-2.0
"""The tiny models behind tests/golden: transformers' own modules with every parameter random, and their float64 copies.

float32 and bfloat16 models are transformers' code untouched. A float64 copy differs in two places where transformers
rounds to float32 inside: RMSNorm and the rotary angles.
"""

import copy

import torch
from torch import nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCAB = 97
SEQ = 32
INIT_STD = 0.12

# A config of GPT-2 has no key for the special tokens to be absent; both families name ids inside the small vocabulary.
CONFIGS = {
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCAB, n_positions=SEQ, n_embd=48, n_layer=2, n_head=4, embd_pdrop=0.0, resid_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, use_cache=False),
    "llama": lambda: LlamaConfig(
        vocab_size=VOCAB, hidden_size=48, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=SEQ, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False, bos_token_id=0,
        eos_token_id=0, use_cache=False),
}
CLASSES = {"gpt2": GPT2LMHeadModel, "llama": LlamaForCausalLM}
SEEDS = {"gpt2": 20, "llama": 21}


def make_model(family):
    """float32; weights and biases ~ N(0, INIT_STD), norm weights ~ N(1, INIT_STD)."""
    config = CONFIGS[family]()
    config._attn_implementation = "sdpa"
    model = CLASSES[family](config).eval()
    generator = torch.Generator().manual_seed(SEEDS[family])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm_weight = parameter.dim() == 1 and name.endswith("weight")
            noise = torch.randn(parameter.shape, generator=generator) * INIT_STD
            parameter.copy_(noise + (1.0 if is_norm_weight else 0.0))
    return model


class ExactRmsNorm(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.weight = norm.weight
        self.eps = norm.variance_epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class ExactRotary(nn.Module):
    def __init__(self, config):
        super().__init__()
        dim = config.hidden_size // config.num_attention_heads
        theta = config.rope_parameters["rope_theta"]
        self.frequencies = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


def to_float64(model):
    """A copy that computes everything in float64 from the same float32 weights."""
    exact = copy.deepcopy(model).double()
    if isinstance(exact, LlamaForCausalLM):
        for block in exact.model.layers:
            block.input_layernorm = ExactRmsNorm(block.input_layernorm)
            block.post_attention_layernorm = ExactRmsNorm(block.post_attention_layernorm)
        exact.model.norm = ExactRmsNorm(exact.model.norm)
        exact.model.rotary_emb = ExactRotary(exact.config)
    return exact


def logits_of(model, ids):
    return model(input_ids=torch.as_tensor(ids).long()).logits


def token_losses(logits, targets):
    """-log p(target) per token, in float64 whatever the dtype of the logits: float64 adds no rounding of its own."""
    targets = torch.as_tensor(targets).long()
    losses = functional.cross_entropy(logits.double().flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view(targets.shape)


def mean_loss(model, batch):
    """Mean over all next-token targets of a (samples, seq + 1) batch; differentiable."""
    logits = logits_of(model, batch[:, :-1])
    if logits.dtype == torch.bfloat16:
        logits = logits.float()
    return functional.cross_entropy(logits.flatten(0, 1), torch.as_tensor(batch[:, 1:]).long().flatten())
