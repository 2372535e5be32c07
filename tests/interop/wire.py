"""How scripts/interop talks to its runner, firn_interop: tests/interop/wire.h has the other end."""
import struct
import subprocess

import torch

DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool,
          torch.float16, torch.bfloat16]
NONE = -(2**63)  # stands for None in a list of integers


class Refused(Exception):
    """firn has no such call, or cannot take these arguments."""


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def integers(values):
    return struct.pack(f"<I{len(values)}q", len(values), *values)


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()  # numpy has no bfloat16


def tensor(t):
    """The elements with PyTorch's shape and strides, so that firn computes with the same layout."""
    if t.dtype not in DTYPES:
        raise Refused(f"dtype {t.dtype}")
    plain = t.detach()
    count = 0 if plain.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(plain.shape, plain.stride()))
    storage = plain.as_strided((count,), (1,)) if count else plain.reshape(-1)
    return (struct.pack("<BB", DTYPES.index(t.dtype), t.requires_grad) + integers(plain.shape)
            + integers(plain.stride()) + struct.pack("<q", count) + raw(storage))


def value(v):
    if v is None:
        return b"n"
    if isinstance(v, bool):
        return b"b" + struct.pack("<B", v)
    if isinstance(v, int):
        return b"i" + struct.pack("<q", v)
    if isinstance(v, float):
        return b"d" + struct.pack("<d", v)
    if isinstance(v, str):
        return b"s" + text(v)
    if isinstance(v, torch.Tensor):
        return b"t" + tensor(v)
    if isinstance(v, (list, tuple)):
        if all(e is None or isinstance(e, int) and not isinstance(e, bool) for e in v):
            return b"l" + integers([NONE if e is None else e for e in v])
        if all(isinstance(e, torch.Tensor) for e in v):
            return b"T" + struct.pack("<I", len(v)) + b"".join(tensor(e) for e in v)
    raise Refused(f"an argument of type {type(v).__name__}")


def list_of(seeds):
    return struct.pack("<I", len(seeds)) + b"".join(b"\0" if s is None else b"\1" + tensor(s) for s in seeds)


def request(op, arguments, seeds, second_seeds):
    return (text(op) + struct.pack("<I", len(arguments))
            + b"".join(text(name) + value(v) for name, v in arguments.items()) + list_of(seeds) + list_of(second_seeds))


class Runner:
    """The running firn_interop. `table` has its operations: {name: (parameters, whether it sums)}."""

    arguments = ()

    def __init__(self, path):
        self.path = path
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.path, *self.arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.table = {}
        for _ in range(self.number("I")):
            name, parameters, kind = self.text().split("|")
            self.table[name] = (parameters.split(), kind == "sums")

    def read(self, count):
        data = self.process.stdout.read(count)
        if len(data) != count:
            status = self.process.wait()
            self.start()
            raise EOFError(f"the runner ended with {status}")
        return data

    def number(self, kind):
        return struct.unpack("<" + kind, self.read(struct.calcsize("<" + kind)))[0]

    def text(self):
        return self.read(self.number("I")).decode()

    def tensor(self):
        if not self.number("B"):
            return None
        dtype = DTYPES[self.number("B")]
        shape = [self.number("q") for _ in range(self.number("I"))]
        count = 1
        for n in shape:
            count *= n
        size = torch.empty((), dtype=dtype).element_size()
        data = bytearray(self.read(count * size))
        flat = torch.frombuffer(data, dtype=dtype) if count else torch.empty(0, dtype=dtype)
        return flat.reshape(shape)

    def call(self, op, arguments, seeds, second_seeds=()):
        """(results, gradients of the arguments that collect one); raises Refused with firn's reason. With second
        seeds ([], second derivatives): see wire.h."""
        message = request(op, arguments, seeds, second_seeds)
        self.process.stdin.write(message)
        self.process.stdin.flush()
        if not self.number("B"):
            raise Refused(self.text())
        results = [self.tensor() for _ in range(self.number("I"))]
        return results, [self.tensor() for _ in range(self.number("I"))]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
