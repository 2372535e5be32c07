#!/usr/bin/env python3
"""Writes tests/goldens/optim.txt: weights after each step of PyTorch's optimizers.

The problem: two parameters a [3, 4] and b [5], loss = sum(0.5 * curve * (w - goal)^2) over both, 12
steps. Every run takes the same start. Lines:
  initial|goal|curve : 17 values, a before b
  run NAME DTYPE KEY=VALUE ...       an optimizer and its options as firn names them
  step K : 17 values                 weights after step K
`b_from=K`: b takes part in the loss from step K on, and has no gradient before.
Made with PyTorch 1.13: python3 tests/goldens/optim.py > tests/goldens/optim.txt
"""

import torch

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
]


def line(values, digits=17):
    return " ".join(f"{float(v):.{digits}g}" for v in values)


def optimizer(name, parameters, options):
    o = {k: v for k, v in options.items() if k not in ("clip_norm", "b_from")}
    if "beta1" in o:
        o["betas"] = (o.pop("beta1"), o.pop("beta2"))
    if "nesterov" in o:
        o["nesterov"] = bool(o["nesterov"])
    return getattr(torch.optim, name)(parameters, **o)


def run(name, options, dtype, dtype_name):
    print("run", name, dtype_name, *(f"{k}={v}" for k, v in options.items()))
    parameters = [
        INITIAL[:12].reshape(3, 4).to(dtype).clone().requires_grad_(),
        INITIAL[12:].to(dtype).clone().requires_grad_(),
    ]
    goal = [GOAL[:12].reshape(3, 4).to(dtype), GOAL[12:].to(dtype)]
    curve = [CURVE[:12].reshape(3, 4).to(dtype), CURVE[12:].to(dtype)]
    opt = optimizer(name, parameters, options)
    for step in range(1, STEPS + 1):
        taking_part = 2 if step >= options.get("b_from", 0) else 1
        opt.zero_grad(set_to_none=True)
        loss = sum((0.5 * curve[i] * (parameters[i] - goal[i]) ** 2).sum() for i in range(taking_part))
        loss.backward()
        if "clip_norm" in options:
            torch.nn.utils.clip_grad_norm_(parameters, options["clip_norm"])
        opt.step()
        weights = torch.cat([p.detach().flatten() for p in parameters])
        print("step", step, ":", line(weights, 17 if dtype == torch.float64 else 9))


print("initial :", line(INITIAL))
print("goal :", line(GOAL))
print("curve :", line(CURVE))
for name, options in RUNS:
    run(name, options, torch.float64, "f64")
    run(name, options, torch.float32, "f32")
