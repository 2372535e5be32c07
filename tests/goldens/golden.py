"""Writes golden files: values of other libraries in the safetensors format
(https://huggingface.co/docs/safetensors), which tests/support/golden.h reads.

    out = golden.File(f"tests/goldens/rnn.py with PyTorch {torch.__version__}")
    out.record("lstm", inputs=[x, h, c], output=y, seed=seed, gradients={0: x.grad})
    out.write("tests/goldens/rnn.safetensors")

To look into a file:  python3 tests/goldens/golden.py FILE
"""

import json
import math
import struct
import sys

# The name of a dtype in PyTorch and NumPy: its name in a file, and its letter in the module struct.
DTYPES = {
    "float64": ("F64", "d"), "float32": ("F32", "f"), "int64": ("I64", "q"), "int8": ("I8", "b"),
    "uint8": ("U8", "B"), "bool": ("BOOL", "?"),
}  # fmt: skip
LETTERS = dict(DTYPES.values())


class File:
    """The tensors of one file. Their names are "TITLE/ITEM", or "ITEM" if the title is empty."""

    def __init__(self, made_by):
        self.made_by = made_by
        self.tensors = {}  # by name: (dtype in the file, shape, bytes)

    def add(self, title, item, values, dtype=None):
        """Adds a tensor of PyTorch, an array of NumPy, or a list of numbers, for which `dtype` is f64 if not given."""
        name = f"{title}/{item}" if title else item
        if name in self.tensors:
            raise ValueError(f"two tensors are called {name!r}")
        if isinstance(values, list):
            dtype, shape = dtype or "float64", [len(values)]
        else:
            dtype, shape = str(values.dtype).removeprefix("torch."), list(values.shape)
            values = values.flatten().tolist()
        code, letter = DTYPES[dtype]
        self.tensors[name] = (code, shape, struct.pack(f"<{len(values)}{letter}", *values))

    def record(self, name, inputs, output, seed=None, gradients={}):
        """Adds operands and result of a call; with `seed`, the gradient of the output, those of operands by index."""
        for i, x in enumerate(inputs):
            self.add(name, f"input {i}", x)
        self.add(name, "output", output)
        if seed is not None:
            self.add(name, "seed", seed)
        for i, g in gradients.items():
            self.add(name, f"gradient {i}", g)

    def write(self, path):
        header, data = {"__metadata__": {"made_by": self.made_by}}, b""
        # Wide dtypes come first, so that each tensor is aligned.
        width = lambda tensor: struct.calcsize(LETTERS[tensor[0]])
        for name, (code, shape, values) in sorted(self.tensors.items(), key=lambda item: -width(item[1])):
            header[name] = {"dtype": code, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
            data += values
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    """The metadata of a file, and its tensors by name: (dtype in the file, shape, flat list of numbers)."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        count, (begin, end) = math.prod(entry["shape"]), entry["data_offsets"]
        values = list(struct.unpack(f"<{count}{LETTERS[entry['dtype']]}", data[begin:end]))
        tensors[name] = (entry["dtype"], entry["shape"], values)
    return metadata, tensors


def main():
    metadata, tensors = read(sys.argv[1])
    print(f"made by {metadata['made_by']}")
    for name, (dtype, shape, values) in tensors.items():
        print(f"{name}: {dtype} {shape}", *values)


if __name__ == "__main__":
    main()
