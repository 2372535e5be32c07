#!/usr/bin/env python3
"""Writes tests/goldens/ops/*.safetensors: inputs, outputs and gradients of every op, computed by PyTorch.

Run: python3 tests/goldens/ops.py  (needs PyTorch >= 1.13; Debian: apt-get install python3-torch)
The format is described in tests/support/golden.h; a record's name is that of a row in tests/ops.
"""

import pathlib
import zlib

import golden
import torch
import torch.nn.functional as F

OUT = pathlib.Path(__file__).parent / "ops"
MADE_BY = f"tests/goldens/ops.py with PyTorch {torch.__version__}"
file = golden.File(MADE_BY)


def uniform(*shape, low=-2.0, high=2.0, avoid=()):
    x = torch.rand(shape, dtype=torch.float64) * (high - low) + low
    for kink in avoid:
        x = torch.where((x - kink).abs() < 0.05, x.sign() * 0.06 + kink, x)
    return x


def whole(*shape, low=-2, high=3):
    return torch.randint(low, high, shape).to(torch.float64)


def ints(n, *shape):
    return torch.randint(0, n, shape)


def record(name, fn, *make_inputs, constant=()):
    """Adds a record: fn on inputs made by the given functions, under a seed of its own."""
    torch.manual_seed(zlib.crc32(name.encode()))
    inputs = [make() for make in make_inputs]
    takes_gradient = [x.dtype == torch.float64 and i not in constant for i, x in enumerate(inputs)]
    for x, takes in zip(inputs, takes_gradient):
        x.requires_grad_(takes)
    y = fn(*inputs)
    seed, gradients = None, {}
    if y.requires_grad:
        seed = uniform(*y.shape, low=-1, high=1)
        y.backward(seed)
        gradients = {i: x.grad for i, x in enumerate(inputs) if takes_gradient[i]}
    file.record(name, inputs, y.to(torch.float64), seed, gradients)


def write(family):
    """Writes the records since the last call to a file."""
    global file
    OUT.mkdir(exist_ok=True)
    file.write(OUT / f"{family}.safetensors")
    file = golden.File(MADE_BY)


# ---- One operand ---------------------------------------------------------------------------------
X = lambda: uniform(3, 7)
UNARY = {
    "neg": torch.neg, "abs": torch.abs, "exp": torch.exp, "square": torch.square, "relu": torch.relu,
    "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "sigmoid": torch.sigmoid,
    "silu": F.silu, "tanh": torch.tanh, "softplus": F.softplus, "sin": torch.sin, "cos": torch.cos,
    "leaky_relu": F.leaky_relu, "leaky_relu slope 0.2": lambda x: F.leaky_relu(x, 0.2),
    "elu": F.elu, "elu alpha 0.7": lambda x: F.elu(x, 0.7),
    "clamp -0.5 to 0.75": lambda x: torch.clamp(x, -0.5, 0.75),
    "add number": lambda x: x + 2, "sub number": lambda x: x - 3, "mul number": lambda x: x * 3,
    "div number": lambda x: x / 3, "number sub": lambda x: 2 - x,
}
for name, fn in UNARY.items():
    record(name, fn, lambda: uniform(3, 7, low=-5, high=5))
POSITIVE = {
    "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
    "pow number 2.5": lambda x: x**2.5,
}
for name, fn in POSITIVE.items():
    record(name, fn, lambda: uniform(3, 7, low=0.1, high=5))
AWAY = {"reciprocal": torch.reciprocal, "number div": lambda x: 2 / x, "pow number 3": lambda x: x**3}
for name, fn in AWAY.items():
    record(name, fn, lambda: uniform(3, 7, low=0.2, high=3) * (ints(2, 3, 7) * 2 - 1))
KINKS = {
    "relu at zero": torch.relu, "abs at zero": torch.abs, "leaky_relu at zero": F.leaky_relu,
    "elu at zero": F.elu,
}
for name, fn in KINKS.items():
    record(name, fn, lambda: whole(3, 7))
write("unary")

# ---- Two operands --------------------------------------------------------------------------------
A, B = lambda: uniform(2, 3, 4), lambda: uniform(3, 1)
for name, fn in {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "minimum": torch.minimum,
                 "maximum": torch.maximum}.items():
    record(name, fn, A, B)
record("div", torch.div, A, lambda: uniform(3, 1, low=0.3, high=2))
record("pow", torch.pow, lambda: uniform(2, 3, 4, low=0.2, high=3), B)
record("minimum with ties", torch.minimum, lambda: whole(2, 3, 4), lambda: whole(3, 1))
record("maximum with ties", torch.maximum, lambda: whole(2, 3, 4), lambda: whole(3, 1))
for name in ["eq", "ne", "lt", "le", "gt", "ge"]:
    record(name, getattr(torch, name), lambda: whole(2, 3, 4), lambda: whole(3, 1), constant=(0, 1))
record("where", torch.where, lambda: ints(2, 3, 1).bool(), lambda: uniform(4), lambda: uniform(2, 3, 4))
write("binary")

# ---- Elementwise operations of ops/elementwise.h ------------------------------------------------------
# PyTorch rounds 1/6 and 1/alpha to f32 in these gradients, so they are spelled out.
hardsigmoid = lambda x: F.hardtanh(x + 3, 0, 6) / 6
celu = lambda x: torch.where(x > 0, x, 0.7 * torch.expm1(x / 0.7))
FUNCTIONS = {
    "log1p": (torch.log1p, -0.8, 4), "expm1": (torch.expm1, -2, 2), "log2": (torch.log2, 0.1, 5),
    "tan": (torch.tan, -1.2, 1.2), "asin": (torch.asin, -0.9, 0.9), "acos": (torch.acos, -0.9, 0.9),
    "atan": (torch.atan, -4, 4), "sinh": (torch.sinh, -3, 3), "cosh": (torch.cosh, -3, 3),
    "asinh": (torch.asinh, -4, 4), "acosh": (torch.acosh, 1.2, 6), "atanh": (torch.atanh, -0.9, 0.9),
    "log10": (torch.log10, 0.2, 6),
    "exp2": (torch.exp2, -3, 3), "erf": (torch.erf, -3, 3), "erfc": (torch.erfc, -3, 3),
    "floor": (torch.floor, -4, 4), "ceil": (torch.ceil, -4, 4), "round": (torch.round, -4, 4),
    "trunc": (torch.trunc, -4, 4), "sign": (torch.sign, -4, 4), "nan_to_num": (torch.nan_to_num, -4, 4),
    "hardtanh": (F.hardtanh, -3, 3), "hardtanh -0.5 to 2": (lambda x: F.hardtanh(x, -0.5, 2), -3, 3),
    "hardswish": (F.hardswish, -5, 5), "hardsigmoid": (hardsigmoid, -5, 5),
    "softsign": (F.softsign, -5, 5), "mish": (F.mish, -5, 5), "celu": (F.celu, -4, 4),
    "celu alpha 0.7": (celu, -4, 4), "selu": (F.selu, -4, 4),
    "logsigmoid": (F.logsigmoid, -6, 6), "threshold": (lambda x: F.threshold(x, 0.5, -2), -3, 3),
    "remainder number": (lambda x: torch.remainder(x, -1.5), -6, 6),
    "fmod number": (lambda x: torch.fmod(x, -1.5), -6, 6),
    "lerp number": (lambda x: torch.lerp(x, x * x, 0.3), -2, 2),
}
for name, (fn, low, high) in FUNCTIONS.items():
    record(name, fn, lambda: uniform(3, 7, low=low, high=high))
for name, fn in {
    "hardtanh at its bounds": lambda x: F.hardtanh(x, -1, 1), "round of halves": lambda x: torch.round(x / 2),
    "hardswish at its bounds": lambda x: F.hardswish(3 * x), "hardsigmoid at its bounds": lambda x: hardsigmoid(3 * x),
    "threshold at it": lambda x: F.threshold(x, 1, 5), "selu at zero": F.selu, "celu at zero": F.celu,
    "softsign at zero": F.softsign, "sign at zero": torch.sign,
}.items():
    record(name, fn, lambda: whole(3, 7))
for name in ["isnan", "isinf", "isfinite", "logical_not"]:
    record(name, getattr(torch, name), lambda: whole(3, 7), constant=(0,))
record("atan2", torch.atan2, A, B)
record("hypot", torch.hypot, A, B)
record("logaddexp", torch.logaddexp, A, B)
record("fmod", torch.fmod, A, lambda: uniform(3, 1, low=0.3, high=2))
record("remainder", torch.remainder, A, lambda: uniform(3, 1, low=-2, high=-0.3))
record("prelu", F.prelu, A, lambda: uniform(3))
record("prelu with one slope", F.prelu, A, lambda: uniform(1))
for name in ["logical_and", "logical_or", "logical_xor"]:
    record(name, getattr(torch, name), lambda: whole(2, 3, 4), lambda: whole(3, 1), constant=(0, 1))
C, D = lambda: uniform(4), lambda: uniform(2, 1, 4)
record("lerp", torch.lerp, A, B, C)
record("addcmul", lambda x, a, b: torch.addcmul(x, a, b, value=0.7), A, B, C)
record("clamp by tensors", lambda x, a, b: torch.clamp(x, a, b), A, B, C)
record("clamp by a lower bound", lambda x, a: torch.clamp(x, a, None), A, B)
record("clamp by an upper bound", lambda x, a: torch.clamp(x, None, a), A, B)
record("masked_fill", lambda x, m: x.masked_fill(m, 1.5), A, lambda: ints(2, 3, 1).bool())
write("elementwise")

# ---- Reductions ----------------------------------------------------------------------------------
FORMS = [("all", (0, 1, 2), False), ("axis 0", (0,), False), ("last axis", (-1,), False),
         ("axes 0 and 2", (0, 2), False), ("middle axis keepdims", (1,), True)]
for suffix, axes, keep in FORMS:
    record(f"sum {suffix}", lambda x: torch.sum(x, axes, keep), A)
    record(f"mean {suffix}", lambda x: torch.mean(x, axes, keep), A)
    record(f"max {suffix}", lambda x: torch.amax(x, axes, keep), A)
    record(f"min {suffix}", lambda x: torch.amin(x, axes, keep), A)
    record(f"norm {suffix}", lambda x: torch.linalg.vector_norm(x, 2, axes, keep), A)
    for c in (0, 1):
        record(f"var correction {c} {suffix}",
               lambda x: torch.var(x, dim=axes, correction=c, keepdim=keep), A)
record("max with ties", lambda x: torch.amax(x, 1), lambda: whole(6, 4))
record("min with ties", lambda x: torch.amin(x, 1), lambda: whole(6, 4))
record("norm of zeros", lambda x: torch.linalg.vector_norm(x, 2, 1), lambda: uniform(3, 4) * 0)
for axis in (0, 1, -1):
    record(f"argmax axis {axis}", lambda x: torch.argmax(x, axis), A, constant=(0,))
record("argmax keepdims", lambda x: torch.argmax(x, 1, keepdim=True), A, constant=(0,))
write("reduce")

# ---- Matrix products -----------------------------------------------------------------------------
def product(name, a, b, fn=torch.matmul):
    record(name, fn, lambda: uniform(*a), lambda: uniform(*b))

product("matmul", (3, 4), (4, 5))
product("matmul batched", (2, 3, 4), (2, 4, 5))
product("matmul broadcast batch", (2, 1, 3, 4), (3, 4, 2))
product("matmul vector matrix", (4,), (2, 4, 3))
product("matmul matrix vector", (2, 3, 4), (4,))
product("matmul vector vector", (5,), (5,))
product("matmul transposed left", (2, 4, 3), (2, 4, 5), lambda a, b: a.transpose(-2, -1) @ b)
product("matmul transposed right", (2, 3, 4), (2, 5, 4), lambda a, b: a @ b.transpose(-2, -1))
product("matmul transposed both", (4, 3), (5, 4), lambda a, b: a.t() @ b.t())
record("linear", F.linear, lambda: uniform(2, 3, 4), lambda: uniform(5, 4), lambda: uniform(5))
record("linear without bias", F.linear, lambda: uniform(2, 3, 4), lambda: uniform(5, 4))
write("linear")

# ---- Convolutions ----------------------------------------------------------------------------------
def conv(name, fn, x, w, bias=True, **options):
    def call(*operands):
        activation = options.get("activation", lambda y: y)
        rest = {k: v for k, v in options.items() if k != "activation"}
        return activation(fn(*operands, **rest))

    channels = w[1] * options.get("groups", 1) if "transpose" in fn.__name__ else w[0]
    make = [lambda: uniform(*x), lambda: uniform(*w)] + ([lambda: uniform(channels)] if bias else [])
    record(name, call, *make)


conv("conv2d", F.conv2d, (2, 3, 5, 6), (4, 3, 3, 2))
conv("conv2d unbatched", F.conv2d, (3, 5, 6), (4, 3, 3, 2))
conv("conv2d without bias", F.conv2d, (2, 3, 5, 6), (4, 3, 2, 3), bias=False)
conv("conv2d stride 2 padding 1", F.conv2d, (2, 3, 6, 7), (4, 3, 3, 3), stride=2, padding=1)
conv("conv2d stride 1 by 3 padding 2 by 0", F.conv2d, (2, 2, 4, 8), (3, 2, 3, 2), stride=(1, 3),
     padding=(2, 0))
conv("conv2d same", F.conv2d, (2, 2, 5, 4), (3, 2, 4, 3), padding="same")
conv("conv2d same dilation 2 by 3", F.conv2d, (1, 2, 5, 7), (3, 2, 2, 3), padding="same",
     dilation=(2, 3))
conv("conv2d dilation 2 by 1 stride 2", F.conv2d, (2, 2, 7, 6), (3, 2, 3, 2), dilation=(2, 1), stride=2)
conv("conv2d groups 2", F.conv2d, (2, 4, 5, 4), (6, 2, 3, 3), groups=2, padding=1)
conv("conv2d depthwise", F.conv2d, (2, 4, 5, 6), (4, 1, 3, 3), groups=4, padding=1, stride=2)
conv("conv2d depthwise by 2", F.conv2d, (2, 3, 5, 4), (6, 1, 3, 2), groups=3, padding=1)
conv("conv2d pointwise", F.conv2d, (2, 3, 4, 5), (4, 3, 1, 1))
conv("conv2d relu", F.conv2d, (2, 3, 5, 6), (4, 3, 3, 2), activation=F.relu)
conv("conv2d gelu_tanh", F.conv2d, (2, 2, 4, 4), (3, 2, 2, 2),
     activation=lambda y: F.gelu(y, approximate="tanh"))
conv("conv1d", F.conv1d, (2, 3, 9), (4, 3, 4))
conv("conv1d unbatched", F.conv1d, (3, 9), (4, 3, 4))
conv("conv1d strided", F.conv1d, (2, 4, 11), (6, 2, 3), stride=2, padding=3, dilation=2, groups=2)
conv("conv1d same", F.conv1d, (2, 2, 6), (3, 2, 4), padding="same")
conv("conv_transpose2d", F.conv_transpose2d, (2, 3, 3, 4), (3, 2, 3, 2))
conv("conv_transpose2d unbatched", F.conv_transpose2d, (3, 3, 4), (3, 2, 3, 2))
conv("conv_transpose2d without bias", F.conv_transpose2d, (2, 3, 3, 4), (3, 2, 2, 2), bias=False, stride=2)
conv("conv_transpose2d stride 2 padding 1", F.conv_transpose2d, (2, 3, 3, 4), (3, 2, 4, 3), stride=2,
     padding=1)
conv("conv_transpose2d output padding 1 by 2", F.conv_transpose2d, (2, 3, 3, 2), (3, 2, 3, 3),
     stride=(2, 3), padding=(1, 0), output_padding=(1, 2))
conv("conv_transpose2d output padding within dilation", F.conv_transpose2d, (1, 2, 3, 3), (2, 2, 2, 3),
     padding=(1, 0), output_padding=(2, 1), dilation=(3, 2))
conv("conv_transpose2d groups 2", F.conv_transpose2d, (2, 4, 3, 3), (4, 3, 2, 3), stride=2, groups=2)
write("conv")

# ---- Rows ----------------------------------------------------------------------------------------
for name, fn in {"softmax": torch.softmax, "log_softmax": torch.log_softmax}.items():
    record(name, lambda x: fn(x, -1), A)
    record(f"{name} axis 0", lambda x: fn(x, 0), A)
    record(f"{name} axis 1", lambda x: fn(x, 1), A)
W = lambda: uniform(4, low=0.5, high=1.5)
C = lambda: uniform(4)
record("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), A, W, C)
record("layer_norm without weight and bias", lambda x: F.layer_norm(x, (4,)), A)
record("layer_norm without bias", lambda x, w: F.layer_norm(x, (4,), w), A, W)
record("layer_norm without weight", lambda x, b: F.layer_norm(x, (4,), None, b), A, C)
record("layer_norm eps 0.1", lambda x, w, b: F.layer_norm(x, (4,), w, b, 0.1), A, W, C)
# RMS norm is younger than this PyTorch: its definition.
rms = lambda x: x / torch.sqrt(torch.mean(x * x, -1, keepdim=True) + 1e-6)
record("rms_norm", lambda x, w: rms(x) * w, A, W)
record("rms_norm without weight", rms, A)
write("rows")

# ---- Indexing ------------------------------------------------------------------------------------
record("embedding", lambda t, i: F.embedding(i, t), lambda: uniform(4, 3), lambda: ints(4, 2, 5))
for suffix, axis in {"axis 0": 0, "axis 1": 1, "last axis": -1}.items():
    record(f"index_select {suffix}", lambda x, i: torch.index_select(x, axis, i),
           lambda: uniform(3, 4, 3), lambda: ints(3, 5))
record("gather axis 0", lambda x, i: torch.gather(x, 0, i), lambda: uniform(3, 4), lambda: ints(3, 5, 2))
record("gather axis 1", lambda x, i: torch.gather(x, 1, i), lambda: uniform(4, 3), lambda: ints(3, 2, 7))
record("gather last axis", lambda x, i: torch.gather(x, -1, i), A, lambda: ints(4, 2, 3, 6))
record("one_hot", lambda i: F.one_hot(i, 5), lambda: ints(5, 2, 3))
write("index")

# ---- Sorting -------------------------------------------------------------------------------------
S = lambda: torch.randperm(24).to(torch.float64).reshape(2, 4, 3) / 8 - 1.5
T = lambda: whole(2, 5, 4)
for axis in (0, 1, -1):
    record(f"sort axis {axis}", lambda x: torch.sort(x, axis).values, S)
    record(f"argsort descending axis {axis}", lambda x: torch.argsort(x, dim=axis, descending=True, stable=True), T,
           constant=(0,))
    record(f"topk axis {axis}", lambda x: torch.topk(x, 3, axis).values,
           lambda: torch.randperm(48).to(torch.float64).reshape(3, 4, 4) / 16 - 1.5)
record("sort descending", lambda x: torch.sort(x, -1, True).values, S)
record("sort, indices", lambda x: torch.sort(x, stable=True).indices, T, constant=(0,))
record("topk smallest", lambda x: torch.topk(x, 2, largest=False).values, S)
record("bincount", lambda i: torch.bincount(i, minlength=7), lambda: ints(7, 30))
record("bincount with weights", lambda w, i: torch.bincount(i, w, 7), lambda: uniform(30), lambda: ints(7, 30),
       constant=(0,))
write("sort")

# ---- More reductions, statistics and scans -------------------------------------------------------
Z = lambda: whole(2, 3, 4, low=0, high=2)
for suffix, axes, keep in [("all", None, False), ("axis 0", (0,), False), ("last axis", (-1,), False),
                           ("axes 0 and 2", (0, 2), False), ("middle axis keepdims", (1,), True)]:
    def of(f, x, axes=axes, keep=keep):
        axes = tuple(range(x.dim())) if axes is None else axes
        for axis in sorted((a % x.dim() for a in axes), reverse=True):
            x = f(x, axis, keep)
        return x
    every = (0, 1, 2) if axes is None else axes
    record(f"prod {suffix}", lambda x: of(torch.prod, x), lambda: uniform(2, 3, 4, low=0.7, high=1.4))
    record(f"logsumexp {suffix}", lambda x: torch.logsumexp(x, every, keep), lambda: uniform(2, 3, 4, low=-3, high=3))
    record(f"any {suffix}", lambda x: of(torch.any, x), Z, constant=(0,))
    record(f"all {suffix}", lambda x: of(torch.all, x), Z, constant=(0,))
    record(f"count_nonzero {suffix}", lambda x: torch.count_nonzero(x, every), Z, constant=(0,))
    record(f"std {suffix}", lambda x: torch.std(x, every, correction=1, keepdim=keep),
           lambda: uniform(2, 3, 4, low=-1, high=3))
record("prod with zeros", lambda x: torch.prod(x, 1), lambda: whole(6, 4, low=-1))
record("var_mean", lambda x: torch.stack(torch.var_mean(x, 1)), lambda: uniform(6, 4, low=-1, high=3))
WHOLE = lambda: whole(2, 5, 6)
APART = lambda: uniform(2, 5, 6)
for axis in [0, 1, -1]:
    record(f"argmin axis {axis}", lambda x: torch.argmin(x, axis), A, constant=(0,))
    record(f"cumsum axis {axis}", lambda x: torch.cumsum(x, axis), A)
    record(f"cumprod axis {axis}", lambda x: torch.cumprod(x, axis), lambda: uniform(2, 3, 4, low=0.7, high=1.4))
    record(f"logcumsumexp axis {axis}", lambda x: torch.logcumsumexp(x, axis), lambda: uniform(2, 3, 4, low=-3, high=3))
    record(f"cummax axis {axis}", lambda x: torch.cummax(x, axis).values, APART)
    record(f"cummin axis {axis}", lambda x: torch.cummin(x, axis).values, APART)
    record(f"cummax, positions axis {axis}", lambda x: torch.cummax(x, axis).indices, WHOLE, constant=(0,))
    record(f"cummin, positions axis {axis}", lambda x: torch.cummin(x, axis).indices, WHOLE, constant=(0,))
record("cumsum of a scalar", lambda x: torch.cumsum(x, 0), uniform)
record("cumprod with zeros", lambda x: torch.cumprod(x, 1), lambda: whole(6, 4, low=-1))
record("cummax of equal elements", lambda x: torch.cummax(x, 1).values, lambda: whole(6, 4))
record("median", torch.median, APART)
record("median with ties", torch.median, WHOLE)
for axis in [0, 1]:
    record(f"median axis {axis}", lambda x: torch.median(x, axis).values, APART)
    record(f"median, positions axis {axis}", lambda x: torch.median(x, axis, keepdim=True).indices, APART, constant=(0,))
Q = torch.tensor([0.0, 0.13, 0.5, 0.77, 1.0], dtype=torch.float64)
for how in ["linear", "lower", "higher", "nearest", "midpoint"]:
    record(f"quantile {how}", lambda x: torch.quantile(x, Q, 1, interpolation=how), lambda: uniform(6, 4))
record("quantile of all", lambda x: torch.quantile(x, 0.3, keepdim=True).reshape(1, 1, 1), APART)
write("scans")

# ---- Shape ---------------------------------------------------------------------------------------
SHAPE = {
    "reshape": lambda x: x.reshape(4, -1), "flatten": lambda x: x.flatten(1),
    "permute": lambda x: x.permute(2, 0, 1), "transpose": lambda x: x.transpose(0, -1),
    "unsqueeze": lambda x: x.unsqueeze(1), "unsqueeze last": lambda x: x.unsqueeze(-1),
    "slice": lambda x: x[:, 1:3], "slice step 2": lambda x: x[1:100:2],
    "slice negative": lambda x: x[..., -3:-1], "select first axis": lambda x: x[1],
    "select last axis": lambda x: x[..., -1], "clone": torch.clone,
    "contiguous": lambda x: x.transpose(0, 1).contiguous(),
}
for name, fn in SHAPE.items():
    record(name, fn, A)
record("squeeze", lambda x: x.squeeze(1), lambda: uniform(3, 1, 4))
record("expand", lambda x: x.expand(2, 3, 4), B)
record("cat axis 0", lambda a, b: torch.cat([a, b], 0), lambda: uniform(2, 3), lambda: uniform(4, 3))
record("cat last axis", lambda a, b: torch.cat([a, b], -1), lambda: uniform(2, 3), lambda: uniform(2, 1))
record("cat three", lambda a, b, c: torch.cat([a, b, c], 1), lambda: uniform(2, 3),
       lambda: uniform(2, 1), lambda: uniform(2, 2))
record("stack axis 0", lambda a, b: torch.stack([a, b], 0), lambda: uniform(2, 3), lambda: uniform(2, 3))
record("stack last axis", lambda a, b: torch.stack([a, b], -1), lambda: uniform(2, 3), lambda: uniform(2, 3))


def split_two(x):
    a, b, c = torch.split(x, 2, 0)
    return torch.cat([c, a, b], 0)


def split_sizes(x):
    a, b, c = torch.split(x, [1, 0, 3], 1)
    return torch.cat([c, b, a], 1)


record("split", split_two, lambda: uniform(5, 3))
record("split sizes", split_sizes, lambda: uniform(2, 4))
record("pad", lambda x: F.pad(x, (0, 3, 1, 2)), lambda: uniform(2, 3))
record("pad value", lambda x: F.pad(x, (2, 0, 0, 1), value=7), lambda: uniform(2, 3))
write("shape")

# ---- Pooling and resizing of images --------------------------------------------------------------
def pool(name, fn, *shape, make=uniform):
    record(name, fn, lambda: make(*shape))


POOLS = [("2", 2, {}, (2, 3, 4, 6)),
         ("3 stride 2 padding 1", 3, {"stride": 2, "padding": 1}, (2, 2, 7, 6)),
         ("3 stride 1 padding 1", 3, {"stride": 1, "padding": 1}, (3, 5, 4)),
         ("2 by 3 ceil", (2, 3), {"stride": 2, "ceil_mode": True}, (2, 2, 5, 6)),
         ("4 by 2 stride 3 by 2 padding 2 by 1 ceil", (4, 2),
          {"stride": (3, 2), "padding": (2, 1), "ceil_mode": True}, (2, 2, 6, 5)),
         ("2 stride 3", 2, {"stride": 3}, (2, 2, 6, 7)),
         ("5", 5, {"stride": 2, "padding": 2}, (1, 2, 6, 5))]
for name, window, options, shape in POOLS:
    pool(f"max_pool2d {name}", lambda x: F.max_pool2d(x, window, **options), *shape)
    pool(f"avg_pool2d {name}", lambda x: F.avg_pool2d(x, window, **options), *shape)
    if "padding" in options:
        pool(f"avg_pool2d {name} without padding",
             lambda x: F.avg_pool2d(x, window, **options, count_include_pad=False), *shape)
pool("max_pool2d 3 dilation 2 by 1",
     lambda x: F.max_pool2d(x, 3, stride=1, padding=1, dilation=(2, 1)), 2, 2, 6, 4)
pool("max_pool2d 2 dilation 3 stride 2 ceil",
     lambda x: F.max_pool2d(x, 2, stride=2, dilation=3, ceil_mode=True), 1, 2, 8, 7)
pool("max_pool2d with ties", lambda x: F.max_pool2d(x, 3, stride=2), 2, 3, 7, 7, make=whole)
for name, out, shape in [("3 by 2", (3, 2), (2, 2, 7, 5)),
                         ("5 by 4 larger than the image", (5, 4), (2, 2, 3, 3)),
                         ("1", 1, (2, 3, 5, 4))]:
    pool(f"adaptive_max_pool2d {name}", lambda x: F.adaptive_max_pool2d(x, out), *shape)
    pool(f"adaptive_avg_pool2d {name}", lambda x: F.adaptive_avg_pool2d(x, out), *shape)
pool("global_avg_pool2d", lambda x: x.mean((2, 3)), 2, 3, 5, 4)
ROWS = [("3", 3, {}), ("4 stride 3 padding 2 ceil", 4, {"stride": 3, "padding": 2, "ceil_mode": True})]
for name, window, options in ROWS:
    pool(f"max_pool1d {name}", lambda x: F.max_pool1d(x, window, **options), 2, 3, 9)
    pool(f"avg_pool1d {name}", lambda x: F.avg_pool1d(x, window, **options), 2, 3, 9)
pool("max_pool1d 2 dilation 3", lambda x: F.max_pool1d(x, 2, stride=1, dilation=3), 3, 7)
for name, out, shape in [("up to 8 by 6", (8, 6), (2, 2, 4, 3)), ("up to 7 by 10", (7, 10), (1, 2, 3, 4)),
                         ("down to 3 by 2", (3, 2), (2, 2, 6, 7))]:
    pool(f"upsample2d nearest {name}", lambda x: F.interpolate(x, out), *shape)
    pool(f"upsample2d bilinear {name}", lambda x: F.interpolate(x, out, mode="bilinear"), *shape)
write("pool")

# ---- Volumes, resizing, windows --------------------------------------------------------------------
conv("conv3d", F.conv3d, (2, 3, 4, 4, 3), (4, 3, 3, 2, 2))
conv("conv3d unbatched", F.conv3d, (2, 3, 4, 3), (3, 2, 2, 2, 3))
conv("conv3d without bias", F.conv3d, (1, 2, 3, 3, 4), (3, 2, 2, 3, 2), bias=False)
conv("conv3d padding 1", F.conv3d, (2, 2, 3, 4, 3), (3, 2, 3, 3, 3), padding=1)
conv("conv3d stride 2 by 1 by 3 padding 2 by 1 by 0", F.conv3d, (2, 2, 4, 3, 5), (3, 2, 3, 2, 2),
     stride=(2, 1, 3), padding=(2, 1, 0))
conv("conv3d same dilation 2 by 1 by 2", F.conv3d, (1, 2, 4, 3, 4), (2, 2, 2, 3, 2), padding="same",
     dilation=(2, 1, 2))
conv("conv3d dilation 3 by 1 by 1 stride 2", F.conv3d, (1, 2, 6, 3, 3), (2, 2, 2, 2, 2), stride=2,
     dilation=(3, 1, 1))
conv("conv3d groups 2", F.conv3d, (1, 4, 3, 3, 3), (6, 2, 3, 2, 3), padding=1, groups=2)
conv("conv3d depthwise", F.conv3d, (2, 3, 3, 4, 3), (3, 1, 3, 3, 3), stride=(1, 2, 2), padding=1, groups=3)
conv("conv3d of one tap along depth", F.conv3d, (2, 2, 3, 3, 3), (3, 2, 1, 3, 3), padding=(0, 1, 1))
conv("conv3d of one tap along depth stride 2", F.conv3d, (2, 2, 4, 3, 3), (3, 2, 1, 1, 1), stride=2)
conv("conv3d of one tap along depth padding 1", F.conv3d, (2, 2, 2, 3, 3), (3, 2, 1, 2, 2), padding=1)
conv("conv3d relu", F.conv3d, (1, 2, 3, 3, 3), (3, 2, 2, 3, 2), padding=1, activation=F.relu)
conv("conv_transpose3d", F.conv_transpose3d, (2, 3, 2, 3, 2), (3, 2, 3, 2, 2))
conv("conv_transpose3d unbatched", F.conv_transpose3d, (2, 2, 2, 3), (2, 3, 2, 2, 3))
conv("conv_transpose3d without bias", F.conv_transpose3d, (1, 2, 2, 3, 2), (2, 3, 2, 2, 2), bias=False, stride=2)
conv("conv_transpose3d stride 2 padding 1 output padding 1", F.conv_transpose3d, (2, 2, 2, 3, 2), (2, 2, 3, 4, 3),
     stride=2, padding=1, output_padding=(1, 0, 1))
conv("conv_transpose3d output padding within dilation", F.conv_transpose3d, (1, 2, 3, 2, 2), (2, 2, 2, 2, 3),
     padding=(1, 0, 1), output_padding=(2, 1, 0), dilation=(3, 2, 1))
conv("conv_transpose3d groups 2", F.conv_transpose3d, (1, 4, 2, 2, 2), (4, 3, 2, 2, 1), stride=(2, 1, 2), groups=2)
conv("conv_transpose3d of one tap along depth", F.conv_transpose3d, (2, 2, 2, 3, 2), (2, 3, 1, 3, 2),
     padding=(0, 1, 0))
conv("conv_transpose1d", F.conv_transpose1d, (2, 3, 5), (3, 4, 4))
conv("conv_transpose1d unbatched", F.conv_transpose1d, (3, 5), (3, 4, 3))
conv("conv_transpose1d strided", F.conv_transpose1d, (2, 4, 5), (4, 3, 3), stride=3, padding=2, output_padding=1,
     dilation=2, groups=2)
conv("conv_transpose1d without bias", F.conv_transpose1d, (2, 3, 4), (3, 2, 3), bias=False, stride=2)
HOW = {"nearest": ("nearest", None), "nearest_exact": ("nearest-exact", None), "linear": ("linear", False),
       "linear corners": ("linear", True), "bicubic": ("bicubic", False), "bicubic corners": ("bicubic", True)}


def resize(name, how, out, *shape):
    mode, corners = HOW[how]
    if mode == "linear":
        mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[len(shape)]
    pool(name, lambda x: F.interpolate(x, out, mode=mode, align_corners=corners), *shape)


for how in ["nearest_exact", "linear corners", "bicubic", "bicubic corners"]:
    for name, out, shape in [("up to 8 by 6", (8, 6), (2, 2, 4, 3)), ("up to 7 by 10", (7, 10), (1, 2, 3, 4)),
                             ("down to 3 by 2", (3, 2), (2, 2, 6, 7)), ("down to 1 by 1", (1, 1), (2, 2, 3, 4)),
                             ("of the same height", (4, 7), (1, 2, 4, 5)), ("of the same width", (5, 3), (1, 2, 4, 3))]:
        resize(f"upsample2d {how} {name}", how, out, *shape)
for how in ["nearest", "nearest_exact", "linear", "linear corners"]:
    for out in [7, 3]:
        resize(f"upsample1d {how} to {out}", how, out, 2, 3, 5)
    resize(f"upsample3d {how} to 3 by 5 by 2", how, (3, 5, 2), 1, 2, 2, 3, 4)
for name, window, options, channels in [
        ("2", 2, {}, (2, 2)), ("2 by 3 stride 2 padding 1 by 2", (2, 3), {"padding": (1, 2), "stride": 2}, (2, 2)),
        ("2 dilation 3 by 2 padding 1", 2, {"dilation": (3, 2), "padding": 1}, (1, 2)),
        ("1 by 2 stride 2 apart", (1, 2), {"stride": 2}, (2, 3)),
        ("3 padding 3 of zeros alone", 3, {"padding": 3, "stride": 3}, (1, 2))]:
    columns = F.unfold(torch.zeros(*channels, 5, 4), window, **options).shape
    pool(f"unfold {name}", lambda x: F.unfold(x, window, **options), *channels, 5, 4)
    pool(f"fold {name}", lambda x: F.fold(x, (5, 4), window, **options), *columns)
for name, (axis, size, step), shape in [
        ("3 step 1", (1, 3, 1), (2, 7, 3)), ("3 step 2 of the last axis", (-1, 3, 2), (2, 8)),
        ("2 step 5 apart", (0, 2, 5), (8, 3)), ("5 step 1 of few windows", (0, 5, 1), (6, 2)),
        ("of nothing", (0, 0, 2), (3, 2)), ("of a scalar", (0, 1, 1), ())]:
    pool(f"unfold_axis {name}", lambda x: x.unfold(axis, size, step), *shape)
write("image")

# ---- Losses: [sum, weight] -----------------------------------------------------------------------
LOGITS = lambda: uniform(2, 3, 4, low=-3, high=3)
TARGET = lambda: ints(4, 2, 3)


def some():
    t = ints(4, 2, 3)
    t[0, 1] = t[1, 2] = -100
    return t


def class_weights(n):
    return 0.5 + 0.25 * torch.arange(n, dtype=torch.float64)


def on_classes(name, loss, weighted=False, target=TARGET, logits=LOGITS, ignore=-100, **options):
    def fn(x, t):
        n = x.shape[-1]
        w = class_weights(n) if weighted else torch.ones(n, dtype=torch.float64)
        flat, rows = t.reshape(-1), x.reshape(-1, n)
        total = loss(rows, flat, weight=w, reduction="sum", ignore_index=ignore, **options)
        return torch.stack([total, w[flat[flat != ignore]].sum()])

    record(name, fn, logits, target)


on_classes("cross_entropy", F.cross_entropy)
on_classes("cross_entropy ignoring some", F.cross_entropy, target=some)
on_classes("cross_entropy ignoring class 1", F.cross_entropy, ignore=1)
on_classes("cross_entropy smoothed", F.cross_entropy, label_smoothing=0.2)
on_classes("cross_entropy weighted", F.cross_entropy, weighted=True)
on_classes("cross_entropy weighted smoothed ignoring some", F.cross_entropy, weighted=True, target=some,
           label_smoothing=0.1)
NEGATIVE = lambda: uniform(2, 3, 4, low=-4, high=-0.1)
on_classes("nll_loss", F.nll_loss, logits=NEGATIVE)
on_classes("nll_loss weighted ignoring some", F.nll_loss, weighted=True, target=some, logits=NEGATIVE)
record("cross_entropy mean", lambda x, t: F.cross_entropy(x.reshape(-1, 4), t.reshape(-1)), LOGITS, some)


def elements(name, loss, a, b, weight=lambda x: x.numel(), constant=()):
    def fn(p, t):
        return torch.stack([loss(p, t), torch.tensor(float(weight(p)), dtype=torch.float64)])

    record(name, fn, a, b, constant=constant)


elements("mse_loss", lambda p, t: F.mse_loss(p, t, reduction="sum"), A, A)
elements("l1_loss", lambda p, t: F.l1_loss(p, t, reduction="sum"), A, A)
elements("huber_loss", lambda p, t: F.huber_loss(p, t, reduction="sum"), A, A)
elements("huber_loss delta 0.5", lambda p, t: F.huber_loss(p, t, reduction="sum", delta=0.5), A, A)
elements("bce_with_logits", lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="sum"), A,
         lambda: uniform(2, 3, 4, low=0, high=1), constant=(1,))
elements("kl_div", lambda x, y: F.kl_div(x, y, reduction="sum"), NEGATIVE,
         lambda: uniform(2, 3, 4, low=0.05, high=1), weight=lambda x: x.numel() / x.shape[-1],
         constant=(1,))


def every_second_less(most, n):
    return torch.tensor([max(0, most - i % 2) for i in range(n)])


def ctc(x, targets):
    steps, n, classes = x.shape
    loss = F.ctc_loss(F.log_softmax(x, -1), targets, every_second_less(steps, n),
                      every_second_less(targets.shape[1], n), blank=classes - 1)
    return torch.stack([loss * n, torch.tensor(float(n), dtype=torch.float64)])


record("ctc_loss", ctc, lambda: uniform(7, 3, 5), lambda: ints(4, 3, 3))
write("losses")

# ---- Normalisation by channel --------------------------------------------------------------------
IMAGES, SCALE, SHIFT = lambda: uniform(2, 4, 3, 2, low=-1, high=3), lambda: uniform(4, low=0.5, high=1.5), lambda: uniform(4)
for suffix in ["", " channels-last"]:
    record("batch_norm" + suffix, lambda x, w, b: F.batch_norm(x, None, None, w, b, True), IMAGES, SCALE, SHIFT)
record("batch_norm of vectors", lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
       lambda: uniform(5, 4, low=-1, high=3), SCALE, SHIFT)
record("batch_norm without weight and bias", lambda x: F.batch_norm(x, None, None, training=True), IMAGES)
record("batch_norm eps 0.1", lambda x, w, b: F.batch_norm(x, None, None, w, b, True, eps=0.1), IMAGES, SCALE, SHIFT)
record("batch_norm by given moments", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), IMAGES, SHIFT,
       lambda: uniform(4, low=0.5, high=2), SCALE, SHIFT, constant=(1, 2))
for groups in [1, 2]:
    record(f"group_norm {groups}", lambda x, w, b: F.group_norm(x, groups, w, b), IMAGES, SCALE, SHIFT)
record("group_norm 2 without weight and bias", lambda x: F.group_norm(x, 2), IMAGES)
record("instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), IMAGES, SCALE, SHIFT)
record("instance_norm without weight and bias", lambda x: F.instance_norm(x), IMAGES)
write("channel_norm")

# ---- What layers are made of ---------------------------------------------------------------------
record("pad reflect", lambda x: F.pad(x, (3, 3, 2, 2), mode="reflect"), lambda: uniform(2, 3, 4, 5))
record("pad reflect uneven", lambda x: F.pad(x.unsqueeze(0), (1, 0, 0, 2), mode="reflect")[0], lambda: uniform(2, 3, 3))
record("pad replicate", lambda x: F.pad(x.unsqueeze(0), (0, 2, 1, 3), mode="replicate")[0], lambda: uniform(2, 3, 4))
record("pad circular", lambda x: F.pad(x.unsqueeze(0), (0, 2, 3, 1), mode="circular")[0], lambda: uniform(2, 3, 4))
record("pad reflect of volumes", lambda x: F.pad(x, (1, 2, 1, 1, 1, 1), mode="reflect"), lambda: uniform(1, 2, 3, 3, 3))
record("pixel_shuffle 2", lambda x: F.pixel_shuffle(x, 2), lambda: uniform(1, 8, 2, 3))
record("pixel_unshuffle 3", lambda x: F.pixel_unshuffle(x, 3), lambda: uniform(2, 2, 6, 3))
record("channel_shuffle 3", lambda x: x.reshape(2, 3, 2, 2, 2).transpose(1, 2).reshape(2, 6, 2, 2), lambda: uniform(2, 6, 2, 2))
for form in ["max", "avg"]:
    adaptive1, adaptive3 = getattr(F, f"adaptive_{form}_pool1d"), getattr(F, f"adaptive_{form}_pool3d")
    pool(f"adaptive_{form}_pool1d 3", lambda x: adaptive1(x, 3), 2, 3, 7)
    pool(f"adaptive_{form}_pool3d 2 by 3 by 2", lambda x: adaptive3(x, (2, 3, 2)), 1, 2, 4, 3, 5)
VOLUMES = {"stride": (2, 1, 2), "padding": (1, 0, 1), "ceil_mode": True}
pool("max_pool3d 2", lambda x: F.max_pool3d(x, 2), 1, 2, 4, 3, 5)
pool("max_pool3d 3 by 2 by 2 ceil", lambda x: F.max_pool3d(x, (3, 2, 2), **VOLUMES), 1, 2, 4, 3, 5)
pool("max_pool3d dilation 1 by 2 by 1", lambda x: F.max_pool3d(x, 2, stride=1, dilation=(1, 2, 1)), 1, 2, 4, 3, 5)
pool("avg_pool3d 2", lambda x: F.avg_pool3d(x, 2), 1, 2, 4, 3, 5)
pool("avg_pool3d 3 by 2 by 2 ceil", lambda x: F.avg_pool3d(x, (3, 2, 2), **VOLUMES), 1, 2, 4, 3, 5)
pool("avg_pool3d 3 by 2 by 2 ceil without padding",
     lambda x: F.avg_pool3d(x, (3, 2, 2), **VOLUMES, count_include_pad=False), 1, 2, 4, 3, 5)
record("lp_pool2d p 2", lambda x: F.lp_pool2d(x, 2, (2, 3)), lambda: uniform(2, 2, 4, 6, avoid=(0,)))
record("lp_pool2d p 3 stride 1 ceil", lambda x: F.lp_pool2d(x, 3, 2, stride=(1, 2), ceil_mode=True),
       lambda: uniform(1, 2, 4, 5, low=0.2))
record("lp_pool1d p 1.5", lambda x: F.lp_pool1d(x, 1.5, 3, stride=2), lambda: uniform(2, 3, 7, low=0.2))
for size in [3, 4]:
    record(f"local_response_norm {size}", lambda x: F.local_response_norm(x, size, alpha=0.5, beta=0.75, k=1.5),
           lambda: uniform(2, 5, 3, 2))
POSITIVE, NEGATED = lambda: uniform(3, 5, low=0.25), lambda: uniform(3, 5, high=-0.25)
record("cosine_similarity", F.cosine_similarity, POSITIVE, NEGATED)
record("cosine_similarity last axis", lambda a, b: F.cosine_similarity(a, b, -1), lambda: uniform(2, 3, 4, low=0.25),
       lambda: uniform(4, high=-0.25))
record("pairwise_distance", F.pairwise_distance, POSITIVE, NEGATED)
record("pairwise_distance p 1", lambda a, b: F.pairwise_distance(a, b, p=1, keepdim=True), POSITIVE, NEGATED)
record("pairwise_distance p 3", lambda a, b: F.pairwise_distance(a, b, p=3), POSITIVE, NEGATED)
record("embedding with padding", lambda t, i: F.embedding(i, t, padding_idx=2), lambda: uniform(4, 3), lambda: ints(4, 2, 5))
OFFSETS = torch.tensor([0, 2, 2, 5])
for form in ["sum", "mean", "max"]:
    record(f"embedding_bag {form}", lambda t, i: F.embedding_bag(i, t, mode=form), lambda: uniform(5, 3), lambda: ints(5, 4, 6))
    if form == "max":
        continue  # in modules.py: its shapes follow values, so it is no row
    record(f"embedding_bag {form} offsets", lambda t, i: F.embedding_bag(i, t, OFFSETS, mode=form, padding_idx=1),
           lambda: uniform(5, 3), lambda: ints(5, 9))
record("embedding_bag weighted",
       lambda t, i, w: F.embedding_bag(i, t, torch.tensor([0, 4, 9]), mode="sum", per_sample_weights=w, include_last_offset=True),
       lambda: uniform(5, 3), lambda: ints(5, 9), lambda: uniform(9))
write("layers")
