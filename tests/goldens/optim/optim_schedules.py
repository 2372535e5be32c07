#!/usr/bin/env python3
"""Writes tests/goldens/optim/optim_schedules.txt: learning rates of PyTorch's schedulers.

Lines: `schedule NAME KEY=VALUE ...`, the numbers as firn takes them, then `values : V V ...`, one per
step from 0 on. `plateau KEY=VALUE ...` has `observed : ...` and the rate after each in `values : ...`.
Made with PyTorch 2.15: python3 tests/goldens/optim/optim_schedules.py > tests/goldens/optim/optim_schedules.txt
"""

import random
import warnings

import torch
from torch.optim import lr_scheduler as S

warnings.simplefilter("ignore")


def optimizer(lr):
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)


def line(values):
    return " ".join(f"{float(v):.17g}" for v in values)


def emit(name, initial, make, count, **options):
    opt = optimizer(initial)
    scheduler = make(opt)
    values = []
    for step in range(count):
        if step > 0:
            opt.step()
            scheduler.step()
        values.append(opt.param_groups[0]["lr"])
    print("schedule", name, *(f"{k}={v}" for k, v in options.items()))
    print("values :", line(values))


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
    print("plateau", *(f"{k}={v}" for k, v in dict(
        larger=int(mode == "max"), lr=lr, factor=factor, patience=patience, threshold=threshold,
        min_lr=min_lr).items()))
    print("observed :", line(observed))
    print("values :", line(values))


random.seed(3)
falling = [2 / (1 + 0.3 * i) + random.uniform(0, 0.2) for i in range(60)]
plateau("min", 0.1, 0.5, 2, 1e-2, 0.002, falling)
plateau("min", 0.1, 0.1, 0, 1e-4, 0, falling)
plateau("max", 0.1, 0.3, 3, 1e-3, 0, [1 - 0.4 * v for v in falling])
plateau("min", 0.1, 0.5, 1, 1e-4, 0, [1.0, float("nan"), float("nan"), 0.5, float("inf"), 0.4, 0.6, 0.7])
