#!/usr/bin/env python3
"""Writes tests/goldens/batch_norm.safetensors: what running statistics are after some batches in training
mode, and what evaluation mode makes of one more batch, computed by PyTorch.

A record has the batches as inputs, the last of which is evaluated. The output is running_mean,
running_var and then the evaluated batch, in a row. The format is that of tests/support/golden.h.

Run: python3 tests/goldens/batch_norm.py  (needs PyTorch >= 1.13; Debian: apt-get install python3-torch)
"""

import pathlib
import zlib

import golden
import torch

OUT = pathlib.Path(__file__).parent / "batch_norm.safetensors"
CASES = {
    "2d momentum 0.1": (torch.nn.BatchNorm2d(3), [(4, 3, 5, 2)] * 4),
    "2d momentum 0.3, uneven": (torch.nn.BatchNorm2d(3, momentum=0.3), [(1, 3, 4, 4), (5, 3, 2, 3), (2, 3, 1, 1), (2, 3, 2, 2)]),
    "2d cumulative": (torch.nn.BatchNorm2d(2, momentum=None), [(3, 2, 2, 2)] * 4),
    "1d rank 2": (torch.nn.BatchNorm1d(4, eps=1e-3), [(6, 4), (3, 4), (2, 4)]),
    "1d rank 3, no affine": (torch.nn.BatchNorm1d(2, affine=False), [(3, 2, 4)] * 3),
}


def main():
    file = golden.File(f"tests/goldens/batch_norm.py with PyTorch {torch.__version__}")
    for name, (layer, shapes) in CASES.items():
        torch.manual_seed(zlib.crc32(name.encode()))
        layer = layer.double().train()
        batches = [torch.randn(s, dtype=torch.float64) * 2 + 0.5 for s in shapes]
        for x in batches[:-1]:
            layer(x)
        evaluated = layer.eval()(batches[-1])
        out = torch.cat([layer.running_mean, layer.running_var, evaluated.detach().flatten()])
        file.record(name, batches, out)
    file.write(OUT)


if __name__ == "__main__":
    main()
