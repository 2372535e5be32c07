#!/usr/bin/env python3
"""Writes tests/goldens/optim/optim_schedule_free.safetensors: trainings with schedule-free AdamW, in f64 by NumPy.

The tensors:
  initial, goal, curve   12 values; loss = sum(0.5 * curve * (w - goal)^2)
  KEY=VALUE .../y K      the 12 weights of training after step K; the title has options of optim::ScheduleFreeAdamW, and
                         with halved=K lr is halved after K steps
  KEY=VALUE .../x K      the averaged weights

The steps are those of PyPI's schedulefree 1.4.1 (AdamWScheduleFree.step), which keeps y and z; x is what its eval() makes of
them.   python3 tests/goldens/optim/optim_schedule_free.py
"""

import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import golden

N, STEPS, SHOWN = 12, 30, (1, 2, 5, 12, 30)

RUNS = [
    {"lr": 0.02},
    {"lr": 0.03, "beta1": 0.95, "beta2": 0.99, "weight_decay": 0.2, "warmup_steps": 7},
    {"lr": 0.05, "beta1": 0.5, "warmup_steps": 4, "r": 1.5, "weight_lr_power": 1, "weight_decay": 0.01},
    {"lr": 0.04, "weight_lr_power": 0, "warmup_steps": 10, "eps": 0.001},
    {"lr": 0.04, "halved": 6},
]


class ScheduleFree:
    def __init__(self, y, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, warmup_steps=0, r=0.0,
                 weight_lr_power=2.0):
        self.y, self.z, self.v = y.copy(), y.copy(), np.zeros_like(y)
        self.lr, self.beta1, self.beta2, self.eps, self.decay = lr, beta1, beta2, eps, weight_decay
        self.warmup, self.r, self.power = warmup_steps, r, weight_lr_power
        self.k, self.weight_sum, self.lr_max = 0, 0.0, -1.0

    def step(self, grad):
        sched = (self.k + 1) / self.warmup if self.k < self.warmup else 1.0
        lr = self.lr * sched
        self.lr_max = max(lr, self.lr_max)
        weight = (self.k + 1) ** self.r * self.lr_max**self.power
        self.weight_sum += weight
        c = weight / self.weight_sum
        self.v = self.beta2 * self.v + (1 - self.beta2) * grad * grad
        u = grad / (np.sqrt(self.v / (1 - self.beta2 ** (self.k + 1))) + self.eps) + self.decay * self.y
        self.y = self.y + c * (self.z - self.y) + lr * (self.beta1 * (1 - c) - 1) * u
        self.z = self.z - lr * u
        self.k += 1

    def x(self):
        return self.y + (1 - 1 / self.beta1) * (self.z - self.y)


def main():
    file = golden.File(f"tests/goldens/optim/optim_schedule_free.py with NumPy {np.__version__}")
    rng = np.random.default_rng(11)
    initial, goal, curve = rng.uniform(-1, 1, N), rng.uniform(-1, 1, N), rng.uniform(0.2, 3, N)
    for name, values in (("initial", initial), ("goal", goal), ("curve", curve)):
        file.add("", name, values)
    for options in RUNS:
        title = " ".join(f"{k}={v}" for k, v in options.items())
        opt = ScheduleFree(initial, **{k: v for k, v in options.items() if k != "halved"})
        for step in range(1, STEPS + 1):
            opt.step(curve * (opt.y - goal))
            if step == options.get("halved"):
                opt.lr /= 2
            if step in SHOWN:
                file.add(title, f"y {step}", opt.y)
                file.add(title, f"x {step}", opt.x())
    file.write(pathlib.Path(__file__).with_suffix(".safetensors"))


if __name__ == "__main__":
    main()
