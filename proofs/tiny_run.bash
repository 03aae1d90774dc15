# SPDX-License-Identifier: Apache-2.0
# What the proofs that kill have in common: sourced by them.

# write_tiny_run FOLDER POSITIONS HIDDEN BLOCKS: config.json of a tiny model with dropout and tied ends, and train.txt,
# 19200 bytes, the same everywhere.
write_tiny_run() {
  cat > "$1/config.json" <<JSON
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_positions": $2, "n_embd": $3,
 "n_layer": $4, "n_head": 4, "activation_function": "gelu_new", "attn_pdrop": 0.1, "resid_pdrop": 0.1,
 "embd_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "tie_word_embeddings": true,
 "bos_token_id": 256, "eos_token_id": 256}
JSON
  awk 'BEGIN { for (i = x = 1; i <= 3200; ++i) { x = (x * 16807) % 2147483647; printf "%05d ", x % 977 } }' \
    > "$1/train.txt"
}

# What must be equal: exported weights, the last checkpoint's values, the log without times and memory.
fingerprint() {
  local last
  last=$(ls -d "$1"/checkpoints/step-* | tail -1)
  cat "$1/model/model.safetensors" "$last"/rank-*.bin | sha256sum
  cut -d, -f1-5,14-15 "$1/metrics.csv" | sha256sum
  basename "$last"
}

milliseconds() { date +%s%3N; }
