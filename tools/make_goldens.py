# SPDX-License-Identifier: Apache-2.0
"""Writes the reference values under tests/golden (see its README.md): losses, gradients and loss curves of tiny models
computed by transformers and PyTorch in float64.

    make_goldens.py [folder]            rewrite everything
    make_goldens.py --check [folder]    recompute into a temporary folder and compare; exit 1 on a difference,
                                        77 when PyTorch or transformers is missing
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

try:
    import numpy as np
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}; scripts/bench_environment.sh makes an environment with transformers")
    sys.exit(77)

from golden_models import CONFIGS, SEQ, VOCAB, logits_of, make_model, mean_loss, to_float64, token_losses

SAMPLES = 4
STEPS = 20
DOCUMENT_LENGTHS = [5, 17, 32]
PROMPT_TOKENS = 8
GREEDY_TOKENS = 20
OPTIMIZERS = {
    "adamw": dict(kind="adamw", lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=1.0),
    "sgd": dict(kind="sgd", lr=0.05, momentum=0.0, weight_decay=0.0, clip_norm=0.0),
    "sgd_clip": dict(kind="sgd", lr=0.05, momentum=0.9, weight_decay=0.0, clip_norm=1.0),
}
SAVED_WEIGHTS = ["adamw", "sgd"]
ONE_MACHINES_KEYS = {"torch", "transformers", "float32", "bfloat16", "loss_float32", "loss_float64_of_float32_logits"}


def pseudo_text(rng, count):
    """Ids of a noisy walk, the next mostly 3 times the last plus a small skewed step: there is something to learn."""
    ids = np.empty(count, dtype=np.int32)
    last = int(rng.integers(VOCAB))
    for index in range(count):
        ids[index] = last
        last = (3 * last + int(rng.geometric(0.5))) % VOCAB if rng.random() < 0.9 else int(rng.integers(VOCAB))
    return ids


def write_ids(path, ids):
    path.write_bytes(np.ascontiguousarray(ids, dtype="<i4").tobytes())


def write_tensors(path, tensors):
    save_file({name: tensor.detach().float().contiguous() for name, tensor in sorted(tensors.items())}, path)


def gradients_of(model, loss):
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {name: parameter.grad.detach().clone() for name, parameter in model.named_parameters()}


def global_norm(gradients):
    return torch.sqrt(sum(gradient.double().pow(2).sum() for gradient in gradients))


# ---- one batch ------------------------------------------------------------------------------------------------------


def batch_golden(folder, model, batch):
    exact = to_float64(model)
    loss = mean_loss(exact, batch)
    gradients = gradients_of(exact, loss)
    write_tensors(folder / "grads.safetensors", gradients)
    first = logits_of(exact, batch[:1, :-1]).detach()[0]
    (folder / "logits.bin").write_bytes(first.float().numpy().astype("<f4").tobytes())
    float_logits = logits_of(model, batch[:, :-1]).detach()
    summary = {
        "loss": loss.item(),
        "loss_float32": mean_loss(model, batch).item(),
        "loss_float64_of_float32_logits": token_losses(float_logits, batch[:, 1:]).mean().item(),
        "token_losses_first_sample": token_losses(first[None], batch[:1, 1:])[0].tolist(),
        "grad_norm": global_norm(gradients.values()).item(),
    }
    return summary, loss.item(), gradients


def relative_errors(gradients, exact):
    """Per tensor |g - exact| / |exact| in the 2-norm, and the same over all elements together."""
    errors = {name: ((gradients[name].double() - exact[name]).norm() / exact[name].norm()).item() for name in exact}
    total = global_norm([gradients[name].double() - exact[name] for name in exact]) / global_norm(exact.values())
    return {"gradient": total.item(), "gradient_per_tensor": errors}


def precision_golden(model, batch, exact_loss, exact_gradients):
    loss = mean_loss(model, batch)
    result = {"loss": loss.item(), "loss_relative_error": abs(loss.item() - exact_loss) / exact_loss}
    result.update(relative_errors(gradients_of(model, loss), exact_gradients))
    return result


# ---- curves ---------------------------------------------------------------------------------------------------------


def make_optimizer(model, options):
    if options["kind"] == "sgd":
        return torch.optim.SGD(model.parameters(), lr=options["lr"], momentum=options["momentum"])
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    groups = [dict(params=matrices, weight_decay=options["weight_decay"]), dict(params=vectors, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=options["lr"], betas=(options["beta1"], options["beta2"]), eps=options["eps"])


def train_curve(model, batches, options):
    """Losses and gradient norms (before clipping) of one step per batch; changes `model`."""
    optimizer = make_optimizer(model, options)
    losses, norms = [], []
    for batch in batches:
        loss = mean_loss(model, batch)
        gradients_of(model, loss)
        norm = global_norm([parameter.grad for parameter in model.parameters()]).item()
        if options["clip_norm"] > 0:
            for parameter in model.parameters():
                parameter.grad.mul_(min(1.0, options["clip_norm"] / norm))
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    return losses, norms


def largest_relative(values, exact):
    return max(abs(value - reference) / abs(reference) for value, reference in zip(values, exact))


def weight_differences(model, exact):
    """Per tensor: |w - exact| / |exact| in the 2-norm, and the largest single difference."""
    reference = dict(exact.named_parameters())
    result = {}
    for name, weight in model.named_parameters():
        difference = weight.detach().double() - reference[name].detach()
        result[name] = {"relative": (difference.norm() / reference[name].norm()).item(),
                        "largest": difference.abs().max().item()}
    return result


def curve_golden(folder, family, batches, name):
    options = OPTIMIZERS[name]
    exact, single = to_float64(make_model(family)), make_model(family)
    losses, norms = train_curve(exact, batches, options)
    single_losses, single_norms = train_curve(single, batches, options)
    if name in SAVED_WEIGHTS:
        write_tensors(folder / f"{name}_weights.safetensors", dict(exact.named_parameters()))
    return {
        "optimizer": options, "losses": losses, "grad_norms": norms,
        "float32": {"losses": single_losses, "grad_norms": single_norms,
                    "loss_relative_error": largest_relative(single_losses, losses),
                    "grad_norm_relative_error": largest_relative(single_norms, norms),
                    "weights": weight_differences(single, exact)},
    }


# ---- documents and generation ---------------------------------------------------------------------------------------


def documents_golden(folder, model, rng):
    """Documents run one at a time: what a packed row must give. The last token of a document has no target."""
    exact = to_float64(model)
    documents = [pseudo_text(rng, length) for length in DOCUMENT_LENGTHS]
    write_ids(folder / "documents.bin", np.concatenate(documents))
    losses = [token_losses(logits_of(exact, ids[None, :-1]), ids[None, 1:])[0] for ids in documents]
    counted = sum(len(row) for row in losses)
    mean = sum(row.sum() for row in losses) / counted
    gradients = gradients_of(exact, mean)
    write_tensors(folder / "document_grads.safetensors", gradients)
    return {"lengths": DOCUMENT_LENGTHS, "counted": counted, "token_losses": [row.tolist() for row in losses],
            "loss": mean.item(), "grad_norm": global_norm(gradients.values()).item()}


def greedy_golden(model, prompt):
    """`smallest_margin`: the least distance between the two highest logits, far above any float32 rounding."""
    exact = to_float64(model)
    ids, margins = prompt.tolist(), []
    with torch.no_grad():
        for _ in range(GREEDY_TOKENS):
            top = logits_of(exact, [ids])[0, -1].topk(2)
            margins.append((top.values[0] - top.values[1]).item())
            ids.append(top.indices[0].item())
    return {"prompt": ids[:len(prompt)], "tokens": ids[len(prompt):], "smallest_margin": min(margins)}


# ---- everything -----------------------------------------------------------------------------------------------------


def write_family(folder, family):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.Generator(np.random.PCG64(7))
    batch = pseudo_text(rng, SAMPLES * (SEQ + 1)).reshape(SAMPLES, SEQ + 1)
    batches = pseudo_text(rng, STEPS * SAMPLES * (SEQ + 1)).reshape(STEPS, SAMPLES, SEQ + 1)
    write_ids(folder / "batch.bin", batch)
    write_ids(folder / "curve_batches.bin", batches)
    model = make_model(family)
    model.save_pretrained(folder / "model")
    golden = {"family": family, "torch": torch.__version__, "transformers": transformers.__version__}
    golden["batch"], loss, gradients = batch_golden(folder, model, batch)
    golden["float32"] = precision_golden(model, batch, loss, gradients)
    golden["bfloat16"] = precision_golden(make_model(family).bfloat16(), batch, loss, gradients)
    golden["documents"] = documents_golden(folder, model, rng)
    golden["greedy"] = greedy_golden(model, batch[0, :PROMPT_TOKENS])
    golden["curves"] = {name: curve_golden(folder, family, batches, name) for name in OPTIMIZERS}
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


def compare_values(path, stored, fresh, differences):
    """float64 results agree to 1e-9 on any machine; float32 and bfloat16 ones are one machine's roundings."""
    if isinstance(stored, dict):
        for key in (stored.keys() | fresh.keys()) - ONE_MACHINES_KEYS:
            compare_values(f"{path}/{key}", stored.get(key), fresh.get(key), differences)
    elif isinstance(stored, list) and isinstance(fresh, list) and len(stored) == len(fresh):
        for index, pair in enumerate(zip(stored, fresh)):
            compare_values(f"{path}[{index}]", *pair, differences)
    elif isinstance(stored, float) and isinstance(fresh, float):
        if abs(stored - fresh) > 1e-9 * abs(stored):
            differences.append(f"{path}: {stored} stored, {fresh} computed")
    elif stored != fresh:
        differences.append(f"{path}: {stored} stored, {fresh} computed")


def compare_tensors(path, fresh_path, differences):
    stored, fresh = load_file(path), load_file(fresh_path)
    if stored.keys() != fresh.keys():
        differences.append(f"{path}: other tensor names")
        return
    for name, tensor in stored.items():
        limit = 1e-6 * tensor.abs().max()  # a few float32 roundings of the largest element
        if tensor.shape != fresh[name].shape or (tensor - fresh[name]).abs().max() > limit:
            differences.append(f"{path}: {name} differs")


def compare_family(stored, fresh):
    differences = []
    for name in ("batch.bin", "curve_batches.bin", "documents.bin"):
        if (stored / name).read_bytes() != (fresh / name).read_bytes():
            differences.append(f"{stored / name}: other ids")
    for path in sorted(fresh.rglob("*.safetensors")):
        compare_tensors(stored / path.relative_to(fresh), path, differences)
    values = [json.loads((folder / "golden.json").read_text()) for folder in (stored, fresh)]
    compare_values(f"{stored.name}/golden.json", *values, differences)
    return differences


def check(folder):
    differences = []
    with tempfile.TemporaryDirectory() as fresh:
        for family in CONFIGS:
            write_family(pathlib.Path(fresh) / family, family)
            differences += compare_family(folder / family, pathlib.Path(fresh) / family)
    print("\n".join(differences) or "the goldens are what PyTorch computes")
    return 1 if differences else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.check:
        return check(arguments.folder)
    for family in CONFIGS:
        write_family(arguments.folder / family, family)
    return 0


if __name__ == "__main__":
    sys.exit(main())
