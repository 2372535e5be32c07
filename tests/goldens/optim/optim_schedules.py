#!/usr/bin/env python3
"""Writes tests/goldens/optim/optim_schedules.safetensors: learning rates of PyTorch's schedulers.

The tensors:
  schedule NAME KEY=VALUE .../values   rates of the steps from 0 on; the options are the numbers as firn takes them
  plateau KEY=VALUE .../observed       a metric
  plateau KEY=VALUE .../values         the rate after each of its values
Run: python3 tests/goldens/optim/optim_schedules.py  (made with PyTorch 2.15)
"""

import pathlib
import random
import sys
import warnings

import torch
from torch.optim import lr_scheduler as S

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import golden

warnings.simplefilter("ignore")
file = golden.File(f"tests/goldens/optim/optim_schedules.py with PyTorch {torch.__version__}")


def optimizer(lr):
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)


def title_of(words, options):
    return " ".join([*words, *(f"{k}={v}" for k, v in options.items())])


def emit(name, initial, make, count, **options):
    opt = optimizer(initial)
    scheduler = make(opt)
    values = []
    for step in range(count):
        if step > 0:
            opt.step()
            scheduler.step()
        values.append(opt.param_groups[0]["lr"])
    file.add(title_of(["schedule", name], options), "values", values)


emit("step_decay", 0.1, lambda o: S.StepLR(o, 7, 0.3), 40, lr=0.1, every=7, factor=0.3)
emit("multi_step", 0.1, lambda o: S.MultiStepLR(o, [3, 10, 25], 0.2), 40, lr=0.1, factor=0.2)
emit("exponential", 0.1, lambda o: S.ExponentialLR(o, 0.93), 60, lr=0.1, factor=0.93)
emit("linear", 0.4, lambda o: S.LinearLR(o, 0.25, 0.75, 30), 45, begin=0.1, end=0.3, steps=30)
# PyTorch's cosine rises again after T_max; firn's stays.
emit("cosine", 0.1, lambda o: S.CosineAnnealingLR(o, 50, 0.001), 51, lr=0.1, steps=50, end=0.001)
emit("polynomial", 0.1, lambda o: S.PolynomialLR(o, 40, 2.5), 60, lr=0.1, steps=40, power=2.5)
for steps, rise in ((100, 0.3), (64, 0.25), (10, 0.5)):
    emit("one_cycle", 0.5,
         lambda o: S.OneCycleLR(o, 0.5, total_steps=steps, pct_start=rise), steps, max=0.5, steps=steps, rise=rise, start_divisor=25, end_divisor=25e4)
for longer, end in ((1, 0), (2, 0.01), (3, 0.001)):
    emit("cosine_restarts", 0.1, lambda o: S.CosineAnnealingWarmRestarts(o, 7, longer, end), 70, lr=0.1, steps=7, longer=longer, end=end)
for mode, key, factor in (("triangular", "per_cycle", 1), ("triangular2", "per_cycle", 0.5), ("exp_range", "per_step", 0.97)):
    emit("cyclic", 0.01,
         lambda o: S.CyclicLR(o, 0.01, 0.1, step_size_up=6, mode=mode, gamma=factor, cycle_momentum=False), 50,
         base=0.01, max=0.1, half=6, **{key: factor})
emit("warmup_cosine", 0.2,
     lambda o: S.SequentialLR(o, [S.LinearLR(o, 1 / 8, 1, 7), S.CosineAnnealingLR(o, 40)], [8]), 48,
     lr=0.2, warmup=8, steps=40)


def plateau(mode, lr, factor, patience, threshold, min_lr, observed):
    opt = optimizer(lr)
    scheduler = S.ReduceLROnPlateau(opt, mode, factor, patience, threshold, "rel", 0, min_lr)
    values = []
    for v in observed:
        scheduler.step(v)
        values.append(opt.param_groups[0]["lr"])
    title = title_of(["plateau"], dict(
        larger=int(mode == "max"), lr=lr, factor=factor, patience=patience, threshold=threshold, min_lr=min_lr))
    file.add(title, "observed", observed)
    file.add(title, "values", values)


random.seed(3)
falling = [2 / (1 + 0.3 * i) + random.uniform(0, 0.2) for i in range(60)]
plateau("min", 0.1, 0.5, 2, 1e-2, 0.002, falling)
plateau("min", 0.1, 0.1, 0, 1e-4, 0, falling)
plateau("max", 0.1, 0.3, 3, 1e-3, 0, [1 - 0.4 * v for v in falling])
plateau("min", 0.1, 0.5, 1, 1e-4, 0, [1.0, float("nan"), float("nan"), 0.5, float("inf"), 0.4, 0.6, 0.7])
file.write(pathlib.Path(__file__).with_suffix(".safetensors"))
