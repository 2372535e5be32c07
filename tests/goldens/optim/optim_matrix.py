#!/usr/bin/env python3
"""Writes tests/goldens/optim/optim_matrix.safetensors: weights after each step of Muon and of Adafactor, by NumPy
in f64, from the published algorithms:

  Muon: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon/), with the two scales of the
  learning rate and the decay of torch.optim.Muon; AdamW (Loshchilov & Hutter 2019) for the rest.
  Adafactor: Shazeer & Stern 2018, with the learning rate and eps1 as torch.optim.Adafactor has them.

The problem: parameters a [4, 6], b [7, 3], c [5], d [3, 2, 2, 2], and loss = sum(0.5 * curve *
(w - goal)^2) over all, 12 steps. Every run takes the same start. The tensors:
  initial, goal, curve             74 values, a before b before c before d
  NAME f64 KEY=VALUE .../weights   those 74 after each of the steps, by an optimizer with options as firn names them
`b_from=K`: b takes part in the loss from step K on, and has no gradient before. `match=1`: the scale
match_rms_adamw. Muon updates a, b and d, and with `one=1` a alone.
Run: python3 tests/goldens/optim/optim_matrix.py
"""

import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import golden

STEPS = 12
SHAPES = [(4, 6), (7, 3), (5,), (3, 2, 2, 2)]
COUNT = sum(int(np.prod(s)) for s in SHAPES)
RNG = np.random.default_rng(7)
INITIAL, GOAL = (RNG.standard_normal(COUNT).astype(np.float32).astype(np.float64) for _ in range(2))
CURVE = RNG.uniform(0.1, 2.1, COUNT).astype(np.float32).astype(np.float64)

RUNS = [
    ("Muon", dict(lr=0.05)),
    ("Muon", dict(lr=0.05, weight_decay=0, nesterov=0)),
    ("Muon", dict(lr=0.02, match=1, momentum=0.8, adamw_lr_scale=0.5, b_from=5)),
    ("Muon", dict(lr=0.02, newton_schulz_steps=3, adamw_lr_scale=2, one=1)),
    ("Muon", dict(lr=0.05, clip_norm=0.5)),
    ("Adafactor", dict(lr=0.03)),
    ("Adafactor", dict(lr=0.5, beta2_decay=-0.5, weight_decay=0.1, b_from=5)),
    ("Adafactor", dict(lr=0.1, eps1=0.05, eps2=2, clip=1.5)),
    ("Adafactor", dict(lr=0.1, clip_norm=0.5)),
]


def split(values):
    out, at = [], 0
    for shape in SHAPES:
        n = int(np.prod(shape))
        out.append(np.array(values[at : at + n]).reshape(shape))
        at += n
    return out


def orthogonal(u, steps):
    """Singular values brought near 1 by the quintic of Newton and Schulz."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = u / max(np.linalg.norm(u), 1e-7)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x


class AdamW:
    def __init__(self, lr, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.01):
        self.lr, self.beta1, self.beta2, self.eps, self.decay = lr, beta1, beta2, eps, decay
        self.m = self.v = 0.0
        self.t = 0

    def step(self, w, g):
        self.t += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * g * g
        m, v = self.m / (1 - self.beta1**self.t), self.v / (1 - self.beta2**self.t)
        return w - self.lr * self.decay * w - self.lr * m / (np.sqrt(v) + self.eps)


class Muon:
    def __init__(self, lr, momentum=0.95, nesterov=1, weight_decay=0.1, match=0, newton_schulz_steps=5):
        self.lr, self.mu, self.nesterov, self.decay = lr, momentum, nesterov, weight_decay
        self.match, self.steps = match, newton_schulz_steps
        self.m = 0.0

    def step(self, w, g):
        self.m = self.mu * self.m + (1 - self.mu) * g
        u = (1 - self.mu) * g + self.mu * self.m if self.nesterov else self.m
        u = u.reshape(len(u), -1)
        rows, cols = u.shape
        scale = 0.2 * np.sqrt(max(rows, cols)) if self.match else np.sqrt(max(1, rows / cols))
        # A tall matrix's transposed has the same singular values.
        o = orthogonal(u, self.steps) if rows <= cols else orthogonal(u.T, self.steps).T
        return w - self.lr * self.decay * w - self.lr * scale * o.reshape(w.shape)


class Adafactor:
    def __init__(self, lr, beta2_decay=-0.8, eps1=2.0**-52, eps2=1e-3, clip=1.0, weight_decay=0.0):
        self.lr, self.beta2_decay, self.eps1, self.eps2 = lr, beta2_decay, eps1, eps2
        self.clip, self.decay = clip, weight_decay
        self.rows = self.cols = self.v = 0.0
        self.t = 0

    def step(self, w, g):
        self.t += 1
        intake = self.t**self.beta2_decay  # 1 - beta2
        rms = lambda x: np.sqrt(np.mean(x * x))
        alpha = max(self.eps2, rms(w)) * min(self.lr, 1 / np.sqrt(self.t))
        if g.ndim > 1:
            self.rows = (1 - intake) * self.rows + intake * np.mean(g * g, axis=-1, keepdims=True)
            self.cols = (1 - intake) * self.cols + intake * np.mean(g * g, axis=-2, keepdims=True)
            mean = np.maximum(np.mean(self.rows, axis=-2, keepdims=True), self.eps1)
            v = self.rows * self.cols / mean
        else:
            self.v = (1 - intake) * self.v + intake * g * g
            v = self.v
        u = g / np.maximum(np.sqrt(v), self.eps1)
        u = u / max(1.0, rms(u) / self.clip)
        return w - self.lr * self.decay * w - alpha * u


def make_rules(name, options):
    o = {k: v for k, v in options.items() if k not in ("clip_norm", "b_from", "one", "adamw_lr_scale")}
    if name == "Adafactor":
        return [Adafactor(**o) for _ in SHAPES]
    adamw_lr = options["lr"] * options.get("adamw_lr_scale", 1)
    hidden = (0,) if options.get("one") else (0, 1, 3)
    return [Muon(**o) if i in hidden else AdamW(adamw_lr) for i in range(len(SHAPES))]


def run(name, options):
    """Weights after each step: [STEPS, 74]."""
    rows = []
    weights, goal, curve = split(INITIAL), split(GOAL), split(CURVE)
    rules = make_rules(name, options)
    for step in range(1, STEPS + 1):
        grads = [c * (w - g) for c, w, g in zip(curve, weights, goal)]
        taking_part = [i for i in range(len(SHAPES)) if i != 1 or step >= options.get("b_from", 0)]
        if "clip_norm" in options:
            norm = np.sqrt(sum(np.sum(grads[i] ** 2) for i in taking_part))
            grads = [g * min(1.0, options["clip_norm"] / (norm + 1e-6)) for g in grads]
        for i in taking_part:
            weights[i] = rules[i].step(weights[i], grads[i])
        rows.append(np.concatenate([w.ravel() for w in weights]))
    return np.stack(rows)


file = golden.File(f"tests/goldens/optim/optim_matrix.py with NumPy {np.__version__}")
for item, values in (("initial", INITIAL), ("goal", GOAL), ("curve", CURVE)):
    file.add("", item, values)
for name, options in RUNS:
    title = " ".join([name, "f64", *(f"{k}={v}" for k, v in options.items())])
    file.add(title, "weights", run(name, options))
file.write(pathlib.Path(__file__).with_suffix(".safetensors"))
