#!/usr/bin/env python3
"""Files that NumPy and the safetensors package write go through firn and come back the same.

with_numpy.py COPY    COPY is the program firn_io_copy

Ends with "skipped: ..." if NumPy is missing. Without the package safetensors it checks arrays only.
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: python3 has no numpy (python3-numpy has it)")
    sys.exit(0)
try:
    from safetensors import safe_open
    from safetensors.numpy import save_file
except ImportError:
    safe_open = save_file = None

DTYPES = ["f2", "f4", "f8", "i4", "i8", "u1", "b1"]
SHAPES = [(), (1,), (7,), (3, 4), (2, 0, 3), (2, 3, 4, 5)]


def array(dtype, shape, order, fortran, rng):
    values = rng.integers(-100, 100, size=shape)
    if dtype == "u1":
        values = values & 0xFF
    if dtype == "b1":
        values = values > 0
    a = np.asarray(values).astype(np.dtype(order + dtype))
    return np.asfortranarray(a) if fortran and a.ndim > 0 else a


def main(copy):
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        arrays, pairs = [], []
        for dtype in DTYPES:
            for shape in SHAPES:
                for order in "<>":
                    for fortran in (False, True):
                        for version in ((1, 0), (2, 0), (3, 0)):
                            a = array(dtype, shape, order, fortran, rng)
                            path = folder / f"in{len(arrays)}.npy"
                            with open(path, "wb") as file:
                                np.lib.format.write_array(file, a, version=version)
                            pairs += [path, folder / f"out{len(arrays)}.npy"]
                            arrays.append(a)
        subprocess.run([copy, *pairs], check=True)
        for i, a in enumerate(arrays):
            b = np.load(pairs[2 * i + 1], allow_pickle=False)
            assert b.dtype == a.dtype.newbyteorder("<"), (i, a.dtype, b.dtype)
            assert b.shape == a.shape, (i, a.shape, b.shape)
            assert np.array_equal(a, b), (i, a, b)
        print(f"{len(arrays)} arrays")
        if save_file is None:
            print("the package safetensors is missing: its files were left out")
            return
        tensors = {f"{d} {s}": array(d, s, "<", False, rng) for d in DTYPES for s in SHAPES}
        source, target = folder / "in.safetensors", folder / "out.safetensors"
        save_file(tensors, source, metadata={"format": "pt", "é": '"\n'})
        subprocess.run([copy, source, target], check=True)
        with safe_open(target, "np") as file:
            assert file.metadata() == {"format": "pt", "é": '"\n'}, file.metadata()
            assert set(file.keys()) == set(tensors)
            for key, a in tensors.items():
                b = file.get_tensor(key)
                assert b.dtype == a.dtype and b.shape == a.shape and np.array_equal(a, b), key
        print(f"{len(tensors)} tensors")


if __name__ == "__main__":
    main(sys.argv[1])
