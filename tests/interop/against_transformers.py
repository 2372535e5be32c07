"""Random models of Hugging Face's transformers in firn: logits, losses of a training, greedy tokens, and the way back.
Run by scripts/interop transformers."""
import argparse
import copy
import fnmatch
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

transformers.utils.logging.disable_progress_bar()

WORDS, ROWS, LENGTH, STEPS, NEW = 97, 3, 40, 10, 64
BOUND = 1e-4  # of the largest logit, and of a loss
SIZES = dict(vocab_size=WORDS, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.2, bos_token_id=None,
             eos_token_id=None, pad_token_id=None)
GPT2 = dict(vocab_size=WORDS, n_positions=128, n_embd=48, n_layer=3, n_head=4, initializer_range=0.2, resid_pdrop=0,
            embd_pdrop=0, attn_pdrop=0, bos_token_id=None, eos_token_id=None, pad_token_id=None)


def llama(scaling=None, **more):
    if scaling:
        more["rope_scaling"] = scaling
    return "llama", transformers.LlamaConfig(**{**SIZES, **more})


def mistral(**more):
    return "llama", transformers.MistralConfig(**{**SIZES, **more})


def qwen2(**more):
    return "llama", transformers.Qwen2Config(**{**SIZES, **more})


def gpt2(**more):
    return "gpt2", transformers.GPT2Config(**{**GPT2, **more})


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
MODELS = {
    "gpt2": gpt2(),
    "gpt2, untied": gpt2(tie_word_embeddings=False, n_inner=100),
    "gpt2, gelu, scores": gpt2(activation_function="gelu", scale_attn_by_inverse_layer_idx=True),
    "gpt2, relu, no scale": gpt2(activation_function="relu", scale_attn_weights=False),
    "llama": llama(),
    "llama, one head of keys": llama(num_key_value_heads=1),
    "llama, all heads of keys": llama(num_key_value_heads=6),
    "llama, head_dim": llama(head_dim=16),
    "llama, biases": llama(attention_bias=True, mlp_bias=True),
    "llama, tied": llama(tie_word_embeddings=True),
    "llama, theta": llama(rope_theta=500000.0),
    "llama, linear": llama(dict(rope_type="linear", factor=4.0)),
    "llama, llama3": llama(LLAMA3),
    "llama, yarn": llama(YARN),
    "llama, yarn, mscale": llama({**YARN, "mscale": 1.0, "mscale_all_dim": 0.7, "truncate": False}),
    "mistral, window": mistral(sliding_window=7),
    "mistral": mistral(sliding_window=None),
    "qwen2": qwen2(),
    "qwen2, windows": qwen2(use_sliding_window=True, sliding_window=5, max_window_layers=1, tie_word_embeddings=True),
}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")


def inputs():
    """The operands, for both sides."""
    generator = torch.Generator().manual_seed(5)

    def words(*shape):
        return torch.randint(0, WORDS, shape, generator=generator)

    mask = torch.ones(ROWS, LENGTH, dtype=torch.int64)
    for row in range(ROWS):
        mask[row, :4 * row] = 0
    return {"ids": words(ROWS, LENGTH), "padded": words(ROWS, LENGTH), "mask": mask,
            "positions": (mask.cumsum(1) - 1).clamp(min=0), "prompt": words(1, 6),
            "train": words(STEPS, ROWS, LENGTH)}


def theirs(net, given):
    """What transformers computes. The training comes last, since it changes the model."""
    out = {}
    with torch.no_grad():
        net.eval()
        out["f32"] = net(given["ids"]).logits
        out["padded"] = net(given["padded"], attention_mask=given["mask"], position_ids=given["positions"]).logits
        wide = copy.deepcopy(net).double()
        out["f64"] = wide(given["ids"]).logits
        prompt = given["prompt"]
        tokens = wide.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=NEW,
                               pad_token_id=0)
        out["tokens"] = tokens[:, prompt.shape[1]:]
    net.train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2)
    losses = []
    for ids in given["train"]:
        loss = net(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    out["losses"] = torch.tensor(losses)
    return out


def difference(ours, other):
    return ((ours.double() - other.double()).abs().max() / other.abs().max()).item()


def compare(name, family, config, program, folder, given):
    """Prints a line; returns True if all is equal."""
    torch.manual_seed(1)
    net = transformers.AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():  # norms and biases that are not 1 and 0
        for p in net.parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.1)
    net.save_pretrained(folder / "model")
    save_file(given, folder / "in")
    run(program, family, folder / "model", folder / "in", folder / "out")
    ours = load_file(folder / "out")
    again = transformers.AutoModelForCausalLM.from_pretrained(folder / "out.saved")
    state = net.state_dict()
    back = again.state_dict()
    same = state.keys() == back.keys() and all(torch.equal(v, back[k]) for k, v in state.items())
    with torch.no_grad():
        net.eval(), again.eval()
        same = same and torch.equal(net(given["ids"]).logits, again(given["ids"]).logits)
    want = theirs(net, given)
    real = given["mask"].bool()
    d = {"f32": difference(ours["f32"], want["f32"]), "f64": difference(ours["f64"], want["f64"]),
         "padded": difference(ours["padded"][real], want["padded"][real]),
         "losses": (ours["losses"] - want["losses"]).abs().max().item()}
    tokens = int((ours["tokens"] == want["tokens"]).sum())
    good = all(v <= BOUND for v in d.values()) and tokens == NEW and same
    print(f"{name:26} logits f32 {d['f32']:.1e}, f64 {d['f64']:.1e}, padded {d['padded']:.1e}; {STEPS} losses "
          f"{d['losses']:.1e}; {tokens} of {NEW} tokens; read back {'equal' if same else 'DIFFERENT'}"
          f"{'' if good else '  <--'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="firn_language_models")
    parser.add_argument("--only", default="*", help="these models")
    arguments = parser.parse_args()
    chosen = {k: v for k, v in MODELS.items() if fnmatch.fnmatch(k, arguments.only)}
    if not chosen:
        sys.exit(f"interop: no model is named {arguments.only}; there are {', '.join(MODELS)}")
    given = inputs()
    bad = 0
    for name, (family, config) in chosen.items():
        with tempfile.TemporaryDirectory() as folder:
            bad += not compare(name, family, config, arguments.program, pathlib.Path(folder), given)
    print("interop: transformers: " + (f"{len(chosen)} models agree" if bad == 0 else f"{bad} models differ"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
