#!/usr/bin/env python3
"""Writes tests/goldens/optim/optim_8bit.safetensors: the code of 8-bit optimizer states, and trainings with it.

The tensors:
  signed, unsigned             256 values of bitsandbytes' create_dynamic_map(), sorted
  initial, goal, curve         300 values; loss = sum(0.5 * curve * (w - goal)^2)
  NAME KEY=VALUE .../step K    300 weights after step K, in f32 by NumPy, by an optimizer whose states are in blocks of
                               256 of this code

The states are decoded, updated and encoded again, as bitsandbytes' kernels do; a second moment above
0 never becomes 0. A run is taken only if no number that is encoded is near the middle between two
values, so that another order of roundings gives the same codes.
Run: python3 tests/goldens/optim/optim_8bit.py  (made with bitsandbytes 0.50)
"""

import pathlib
import sys

import bitsandbytes
import numpy as np
from bitsandbytes.functional import create_dynamic_map

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import golden

F = np.float32
SIGNED, UNSIGNED = create_dynamic_map(True).numpy(), create_dynamic_map(False).numpy()
N, STEPS, SHOWN = 300, 20, (1, 5, 10, 20)

RUNS = [
    ("Adam", dict(lr=0.03, weight_decay=0.1)),
    ("AdamW", dict(lr=0.03, beta1=0.8, beta2=0.95, weight_decay=0.3)),
    ("Lion", dict(lr=0.03, beta1=0.7, beta2=0.8, weight_decay=0.3)),
]


class Close(Exception):
    pass


def stored(x, code, signed):
    """x as it is after it was encoded, block by block."""
    out = np.zeros_like(x)
    for at in range(0, len(x), 256):
        block = x[at : at + 256]
        scale = np.abs(block).max()
        if scale == 0:
            continue
        y = block / scale
        middles = (code[1:] + code[:-1]) / 2
        i = np.searchsorted(middles, y)
        if not signed:
            i = np.where((y > 0) & (i == 0), 1, i)
            middles = middles[1:]
        near = middles[np.abs(middles[:, None] - y[None, :]).argmin(0)]
        if (np.abs(near - y) <= 1e-6 * np.abs(y))[y != 0].any():
            raise Close
        out[at : at + 256] = code[i] * scale
    return out


def run(name, o, initial, goal, curve):
    w, m, v = initial.copy(), np.zeros(N, F), np.zeros(N, F)
    lr, decay = F(o["lr"]), o["weight_decay"]
    b1, b2 = o.get("beta1", 0.9), o.get("beta2", 0.999)
    after = []
    for t in range(1, STEPS + 1):
        g = curve * (w - goal)
        if name == "Lion":
            c = F(b1) * m + F(1 - b1) * g
            w = F(1 - o["lr"] * decay) * w - lr * np.sign(c)
            m = stored(F(b2) * m + F(1 - b2) * g, SIGNED, True)
        else:
            if name == "Adam":
                g = g + F(decay) * w
            m = F(b1) * m + F(1 - b1) * g
            v = F(b2) * v + F(1 - b2) * g * g
            shrink = F(1 - o["lr"] * decay) if name == "AdamW" else F(1)
            step, root = F(o["lr"] / (1 - b1**t)), F(1 / np.sqrt(1 - b2**t))
            w = shrink * w - step * m / (np.sqrt(v) * root + F(1e-8))
            m, v = stored(m, SIGNED, True), stored(v, UNSIGNED, False)
        if t in SHOWN:
            after.append((t, w))
    return after


for seed in range(10_000):
    rng = np.random.default_rng(seed)
    initial, goal = rng.standard_normal(N).astype(F), rng.standard_normal(N).astype(F)
    curve = (10 ** rng.uniform(-3, 0.3, N)).astype(F)
    try:
        results = [run(name, o, initial, goal, curve) for name, o in RUNS]
        break
    except Close:
        pass
else:
    raise SystemExit("no seed leaves every code clear")

file = golden.File(f"tests/goldens/optim/optim_8bit.py with bitsandbytes {bitsandbytes.__version__}")
for item, values in dict(signed=SIGNED, unsigned=UNSIGNED, initial=initial, goal=goal, curve=curve).items():
    file.add("", item, values.astype(np.float64))
for (name, o), after in zip(RUNS, results):
    title = " ".join([name, *(f"{k}={v}" for k, v in o.items())])
    for t, w in after:
        file.add(title, f"step {t}", w.astype(np.float64))
file.write(pathlib.Path(__file__).with_suffix(".safetensors"))
