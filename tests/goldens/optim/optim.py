#!/usr/bin/env python3
"""Writes tests/goldens/optim/optim.safetensors: weights after each step of PyTorch's optimizers, and of LAMB and
Lion by NumPy, from their papers.

The problem: two parameters a [3, 4] and b [5], loss = sum(0.5 * curve * (w - goal)^2) over both, 12
steps. Every run takes the same start. The tensors:
  initial, goal, curve               17 values, a before b
  NAME DTYPE KEY=VALUE .../weights   those 17 after each of the steps, by an optimizer with options as firn names them
`b_from=K`: b takes part in the loss from step K on, and has no gradient before.
Run: python3 tests/goldens/optim/optim.py  (made with PyTorch 2.15)
"""

import pathlib
import sys

import numpy as np
import torch

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import golden

STEPS = 12
torch.manual_seed(7)
INITIAL = torch.randn(17, dtype=torch.float32).double()
GOAL = torch.randn(17, dtype=torch.float32).double()
CURVE = (torch.rand(17, dtype=torch.float32) * 2 + 0.1).double()

RUNS = [
    ("SGD", dict(lr=0.05)),
    ("SGD", dict(lr=0.05, weight_decay=0.1)),
    ("SGD", dict(lr=0.05, momentum=0.9)),
    ("SGD", dict(lr=0.05, momentum=0.9, dampening=0.25, weight_decay=0.02)),
    ("SGD", dict(lr=0.05, momentum=0.8, nesterov=1, weight_decay=0.02)),
    ("SGD", dict(lr=0.05, momentum=0.9, dampening=0.5, b_from=5)),
    ("SGD", dict(lr=0.5, momentum=0.9, clip_norm=0.75)),
    ("Adam", dict(lr=0.03)),
    ("Adam", dict(lr=0.03, beta1=0.8, beta2=0.95, eps=1e-4, weight_decay=0.1)),
    ("Adam", dict(lr=0.03, b_from=5)),
    ("AdamW", dict(lr=0.03)),
    ("AdamW", dict(lr=0.03, beta1=0.8, beta2=0.95, weight_decay=0.3)),
    ("AdamW", dict(lr=0.03, clip_norm=0.5, weight_decay=0.1, b_from=4)),
    ("Adam", dict(lr=0.03, amsgrad=1)),
    ("Adam", dict(lr=0.1, beta1=0.5, beta2=0.6, weight_decay=0.1, amsgrad=1, b_from=5)),
    ("AdamW", dict(lr=0.1, beta1=0.5, beta2=0.6, weight_decay=0.1, amsgrad=1)),
    ("NAdam", dict(lr=0.03)),
    ("NAdam", dict(lr=0.03, beta1=0.8, beta2=0.95, eps=1e-4, weight_decay=0.1, momentum_decay=0.5, b_from=5)),
    ("NAdam", dict(lr=0.03, weight_decay=0.1, decoupled_weight_decay=1, momentum_decay=0)),
    ("RAdam", dict(lr=0.03)),
    ("RAdam", dict(lr=0.03, beta1=0.8, beta2=0.95, eps=1e-4, weight_decay=0.1, b_from=5)),
    ("RAdam", dict(lr=0.03, beta1=0.9, beta2=0.5, weight_decay=0.1, decoupled_weight_decay=1)),
    ("Adadelta", dict(lr=1)),
    ("Adadelta", dict(lr=0.5, rho=0.7, eps=1e-3, weight_decay=0.1, b_from=5)),
    ("Rprop", dict(lr=0.05)),
    ("Rprop", dict(lr=0.2, eta_minus=0.3, eta_plus=1.5, step_min=0.03, step_max=0.3, b_from=5)),
    ("SGD", dict(lr=0.01, momentum=0.5, weight_decay=0.1, maximize=1)),
    ("AdamW", dict(lr=0.03, weight_decay=0.1, clip_norm=0.5, maximize=1)),
    ("RMSprop", dict(lr=0.02)),
    ("RMSprop", dict(lr=0.02, alpha=0.9, eps=1e-5, momentum=0.8, weight_decay=0.1)),
    ("RMSprop", dict(lr=0.02, alpha=0.8, eps=1e-3, centered=1, weight_decay=0.05)),
    ("RMSprop", dict(lr=0.02, alpha=0.9, eps=1e-3, momentum=0.6, centered=1, b_from=5)),
    ("Adagrad", dict(lr=0.2)),
    ("Adagrad", dict(lr=0.2, lr_decay=0.1, initial_accumulator=0.3, eps=1e-6, weight_decay=0.1)),
    ("Adagrad", dict(lr=0.2, lr_decay=0.1, b_from=5)),
    ("LAMB", dict(lr=0.05)),
    ("LAMB", dict(lr=0.05, beta1=0.8, beta2=0.95, eps=1e-4, weight_decay=0.3, b_from=5)),
    ("LAMB", dict(lr=0.05, weight_decay=0, clip_norm=0.5)),
    ("Lion", dict(lr=0.03)),
    ("Lion", dict(lr=0.03, beta1=0.7, beta2=0.8, weight_decay=0.3, b_from=5)),
]


class FromPaper:
    """LAMB (You et al. 2020, algorithm 2, phi(z) = z) or Lion (Chen et al. 2023, algorithm 2)."""

    def __init__(self, name, parameters, lr, beta1=0.9, beta2=None, eps=1e-6, weight_decay=None):
        self.name, self.parameters, self.lr, self.beta1, self.eps = name, parameters, lr, beta1, eps
        lamb = name == "LAMB"
        self.beta2 = beta2 if beta2 is not None else 0.999 if lamb else 0.99
        self.decay = weight_decay if weight_decay is not None else 0.01 if lamb else 0.0
        self.states = [dict(m=0.0, v=0.0, t=0) for _ in parameters]

    def zero_grad(self, set_to_none):
        for p in self.parameters:
            p.grad = None

    def step(self):
        for p, s in zip(self.parameters, self.states):
            if p.grad is None:
                continue
            w, g = p.detach().numpy(), p.grad.numpy()
            w -= self.lamb(w, g, s) if self.name == "LAMB" else self.lion(w, g, s)

    def lamb(self, w, g, s):
        s["t"] += 1
        s["m"] = self.beta1 * s["m"] + (1 - self.beta1) * g
        s["v"] = self.beta2 * s["v"] + (1 - self.beta2) * g * g
        m = s["m"] / (1 - self.beta1 ** s["t"])
        v = s["v"] / (1 - self.beta2 ** s["t"])
        u = m / (np.sqrt(v) + self.eps) + self.decay * w
        size, norm = np.linalg.norm(w), np.linalg.norm(u)
        ratio = size / norm if size > 0 and norm > 0 else 1.0
        return self.lr * ratio * u

    def lion(self, w, g, s):
        u = np.sign(self.beta1 * s["m"] + (1 - self.beta1) * g)
        s["m"] = self.beta2 * s["m"] + (1 - self.beta2) * g
        return self.lr * (u + self.decay * w)


def optimizer(name, parameters, options):
    o = {k: v for k, v in options.items() if k not in ("clip_norm", "b_from")}
    if name in ("LAMB", "Lion"):
        return FromPaper(name, parameters, **o)
    if "beta1" in o:
        o["betas"] = (o.pop("beta1"), o.pop("beta2"))
    if "eta_minus" in o:
        o["etas"] = (o.pop("eta_minus"), o.pop("eta_plus"))
        o["step_sizes"] = (o.pop("step_min"), o.pop("step_max"))
    for flag in ("nesterov", "amsgrad", "decoupled_weight_decay", "maximize"):
        if flag in o:
            o[flag] = bool(o[flag])
    if "initial_accumulator" in o:
        o["initial_accumulator_value"] = o.pop("initial_accumulator")
    return getattr(torch.optim, name)(parameters, **o)


def run(name, options, dtype):
    """Weights after each step: [STEPS, 17]."""
    parameters = [
        INITIAL[:12].reshape(3, 4).to(dtype).clone().requires_grad_(),
        INITIAL[12:].to(dtype).clone().requires_grad_(),
    ]
    goal = [GOAL[:12].reshape(3, 4).to(dtype), GOAL[12:].to(dtype)]
    curve = [CURVE[:12].reshape(3, 4).to(dtype), CURVE[12:].to(dtype)]
    torch.set_default_dtype(torch.float64)  # of what NAdam counts
    opt = optimizer(name, parameters, options)
    rows = []
    for step in range(1, STEPS + 1):
        taking_part = 2 if step >= options.get("b_from", 0) else 1
        opt.zero_grad(set_to_none=True)
        loss = sum((0.5 * curve[i] * (parameters[i] - goal[i]) ** 2).sum() for i in range(taking_part))
        loss.backward()
        if "clip_norm" in options:
            torch.nn.utils.clip_grad_norm_(parameters, options["clip_norm"])
        opt.step()
        rows.append(torch.cat([p.detach().flatten() for p in parameters]))
    return torch.stack(rows)


file = golden.File(f"tests/goldens/optim/optim.py with PyTorch {torch.__version__}")
for item, values in (("initial", INITIAL), ("goal", GOAL), ("curve", CURVE)):
    file.add("", item, values)
for name, options in RUNS:
    for dtype, dtype_name in ((torch.float64, "f64"), (torch.float32, "f32")):
        title = " ".join([name, dtype_name, *(f"{k}={v}" for k, v in options.items())])
        file.add(title, "weights", run(name, options, dtype).double())
file.write(pathlib.Path(__file__).with_suffix(".safetensors"))
