#!/usr/bin/env python3
"""Writes tests/goldens/float8.safetensors: the numbers of the two floating-point types of 8 bits, and how f32 rounds
to them, computed by ml_dtypes.

"NAME values" has all 256 codes as input and their numbers as output. "NAME rounding" has numbers of f32 as input: each
midpoint between neighbours, the nearest f32 below and above it, and the ends. Its output are the codes. The format is
that of tests/support/golden.h.

Run: python3 tests/goldens/float8.py  (needs NumPy and ml_dtypes)
"""

import pathlib

import golden
import ml_dtypes
import numpy

OUT = pathlib.Path(__file__).parent / "float8.safetensors"


def add_type(file, name, dtype):
    codes = numpy.arange(256, dtype=numpy.uint8)
    numbers = codes.view(dtype).astype(numpy.float32)
    file.record(f"{name} values", [codes], numbers)
    positive = numpy.sort(numbers[:128][numpy.isfinite(numbers[:128])])
    # The next number, if there were one, is as far away as the one before.
    positive = numpy.append(positive, 2 * positive[-1] - positive[-2])
    middles = (positive[1:] + positive[:-1]) / 2
    inf = numpy.float32(numpy.inf)
    x = [v for m in middles for v in (numpy.nextafter(m, -inf), m, numpy.nextafter(m, inf))]
    x += [0.0, 1e-45, 1e-38, 3.0e38, inf, numpy.nan]
    x = numpy.array(x + [-v for v in x], numpy.float32)
    file.record(f"{name} rounding", [x], x.astype(dtype).view(numpy.uint8))


def main():
    names = {"f8_e4m3": ml_dtypes.float8_e4m3fn, "f8_e5m2": ml_dtypes.float8_e5m2}
    file = golden.File(f"tests/goldens/float8.py with ml_dtypes {ml_dtypes.__version__}")
    for name, dtype in names.items():
        add_type(file, name, dtype)
    file.write(OUT)


if __name__ == "__main__":
    main()
