#!/usr/bin/env python3
"""Writes tests/goldens/scaler.safetensors: how other systems' dynamic loss scalers answer to overflows.

Each trace is a row of cycles, some of which have found a gradient that is not finite, and the scale
after each. The tensors of a trace:
  SYSTEM KEY=VALUE .../found   true for each cycle with an overflow
  SYSTEM KEY=VALUE .../scale   log2 of the scale after each cycle
The options are those that differ from the system's defaults, as firn names them.

The rules, restated from what the systems publish, since their scalers want a GPU:

PyTorch, torch.cuda.amp.GradScaler (documentation of its arguments and of update(), and the kernel
torch._amp_update_scale_ that update() calls, version 1.13). An overflow multiplies the scale by
backoff_factor and sets the count of clean steps to 0. A clean step adds 1 to the count; where that
reaches growth_interval, the scale is multiplied by growth_factor, unless the product is no finite
f32, and the count is 0 again. No limits. Defaults: 65536, 2, 0.5, 2000. Where PyTorch
has that kernel (2.3 or later, or CUDA), it is driven along, and has to agree at every cycle.

DeepSpeed, runtime.fp16.loss_scaler.DynamicLossScaler with the defaults of the fp16 section of its
configuration (initial_scale_power 16, loss_scale_window 1000, hysteresis 2, min_loss_scale 1,
consecutive_hysteresis false). While more than one overflow of the hysteresis is left, an overflow
costs one; else it halves the scale, not below the minimum. In a clean cycle whose distance from the
last overflow (cycle -1 at first) is a multiple of the window, the scale doubles and the hysteresis
is full again. With consecutive_hysteresis every clean cycle fills it.

Megatron-LM, megatron.core.optimizer.grad_scaler.DynamicGradScaler with the defaults of its
arguments (initial_loss_scale 2^32, min_loss_scale 1, loss_scale_window 1000, hysteresis 2). An
overflow clears the count of clean steps and takes one from the hysteresis; where none is left, the
scale is multiplied by the backoff factor, not below the minimum, and stays so for every overflow to
come. When growth_interval clean steps have passed, count and hysteresis begin anew and the scale is
multiplied by the growth factor.

Run: python3 tests/goldens/scaler.py
"""

import math
import pathlib
import random

import golden


OUT = pathlib.Path(__file__).parent / "scaler.safetensors"


class PyTorch:
    defaults = dict(init=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000)
    driven = None

    def __init__(self, init, growth_factor, backoff_factor, growth_interval):
        grow, back, interval = growth_factor, backoff_factor, growth_interval
        self.scale, self.grow, self.back, self.interval = init, grow, back, interval
        self.clean = 0
        self.kernel = None
        try:
            import torch
            device = "cuda" if torch.cuda.is_available() else "cpu"
            self.tensors = (torch.tensor([init], device=device),
                            torch.zeros(1, dtype=torch.int32, device=device))
            probe = [t.clone() for t in self.tensors]
            torch._amp_update_scale_(*probe, torch.zeros(1, device=device), grow, back, interval)
            self.kernel = torch._amp_update_scale_
            PyTorch.driven = f"PyTorch {torch.__version__} on {device}"
        except (ImportError, NotImplementedError):  # before PyTorch 2.3 the CPU has no such kernel
            pass

    def update(self, found):
        if found:
            self.scale *= self.back
            self.clean = 0
        else:
            self.clean += 1
            if self.clean == self.interval:
                if self.scale * self.grow < 2.0**128:
                    self.scale *= self.grow
                self.clean = 0
        if self.kernel:
            flag = self.tensors[0].new_tensor([float(found)])
            self.kernel(*self.tensors, flag, self.grow, self.back, self.interval)
            assert self.tensors[0].item() == self.scale


class DeepSpeed:
    defaults = dict(init=2.0**16, growth_interval=1000, hysteresis=2, min=1.0, refill="on_growth")

    def __init__(self, init, growth_interval, hysteresis, min, refill):
        self.scale, self.window, self.full, self.min = init, growth_interval, hysteresis, min
        self.every_clean = refill == "on_clean_step"
        self.left, self.cycle, self.last = hysteresis, 0, -1

    def update(self, found):
        if found:
            if self.left > 1:
                self.left -= 1
            else:
                self.scale = max(self.scale / 2, self.min)
            self.last = self.cycle
        else:
            grows = (self.cycle - self.last) % self.window == 0
            if grows or self.every_clean:
                self.left = self.full
            if grows:
                self.scale *= 2
        self.cycle += 1


class Megatron:
    defaults = dict(init=2.0**32, growth_factor=2.0, backoff_factor=0.5, growth_interval=1000,
                    hysteresis=2, min=1.0)

    def __init__(self, init, growth_factor, backoff_factor, growth_interval, hysteresis, min):
        self.scale, self.grow, self.back, self.interval, self.full, self.min = (
            init, growth_factor, backoff_factor, growth_interval, hysteresis, min)
        self.clean, self.left = 0, hysteresis

    def update(self, found):
        if found:
            self.clean = 0
            self.left -= 1
            if self.left <= 0:
                self.scale = max(self.scale * self.back, self.min)
        else:
            self.clean += 1
            if self.clean == self.interval:
                self.clean, self.left = 0, self.full
                self.scale *= self.grow


SYSTEMS = {"pytorch": PyTorch, "deepspeed": DeepSpeed, "megatron": Megatron}

# System, options, (cycles, share of overflows) one after another.
TRACES = [
    ("pytorch", dict(), [(20, 0.3), (2100, 0.0), (30, 0.1), (2050, 0.0)]),
    ("pytorch", dict(growth_interval=5), [(60, 0.25), (20, 0.0), (200, 0.2)]),
    ("pytorch", dict(growth_interval=1), [(300, 0.5)]),
    ("pytorch", dict(init=2.0**4, growth_factor=4.0, growth_interval=3),
     [(20, 0.0), (100, 0.6), (200, 0.35)]),
    ("pytorch", dict(init=2.0**10, backoff_factor=0.125, growth_interval=2),
     [(10, 0.0), (200, 0.12), (60, 0.5), (100, 0.05)]),
    ("pytorch", dict(init=2.0**120, growth_interval=2), [(40, 0.1), (20, 0.0), (40, 0.05)]),
    ("deepspeed", dict(), [(12, 0.3), (1100, 0.0), (8, 0.5), (1050, 0.001)]),
    ("deepspeed", dict(growth_interval=6), [(300, 0.15)]),
    ("deepspeed", dict(growth_interval=1), [(300, 0.5)]),
    ("deepspeed", dict(growth_interval=4, hysteresis=4), [(50, 0.7), (250, 0.25)]),
    ("deepspeed", dict(growth_interval=9, hysteresis=1, init=2.0**8), [(200, 0.12), (100, 0.4)]),
    ("deepspeed", dict(growth_interval=10, hysteresis=3, refill="on_clean_step"),
     [(150, 0.5), (150, 0.2)]),
    ("megatron", dict(), [(30, 0.8), (1100, 0.0), (10, 0.5), (1050, 0.001)]),
    ("megatron", dict(init=2.0**16, growth_interval=5), [(300, 0.2)]),
    ("megatron", dict(init=2.0**12, growth_interval=2, hysteresis=3), [(100, 0.5), (200, 0.3)]),
    ("megatron", dict(init=2.0**10, growth_interval=8, min=2.0**6), [(100, 0.5), (200, 0.05)]),
]


def show(value):
    return str(value) if isinstance(value, str) else f"{value:.17g}"


def main():
    rng = random.Random(11)
    file = golden.File("tests/goldens/scaler.py")
    for system, options, phases in TRACES:
        scaler = SYSTEMS[system](**{**SYSTEMS[system].defaults, **options})
        found = [rng.random() < share for cycles, share in phases for _ in range(cycles)]
        exponents = []
        for f in found:
            scaler.update(f)
            exponent = math.log2(scaler.scale)
            assert exponent == int(exponent)
            exponents.append(int(exponent))
        title = " ".join([system, *(f"{k}={show(v)}" for k, v in options.items())])
        file.add(title, "found", found, "bool")
        file.add(title, "scale", exponents, "int8")
    file.write(OUT)
    print(f"agreed with by: {PyTorch.driven or 'nobody, the rule as documented'}")


main()
