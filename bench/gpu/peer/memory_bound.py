"""Ops whose time is that of moving their bytes, eager and through torch.compile, in the shapes of
bench/gpu/memory_bound.cpp. Backward passes are timed through autograd on a retained graph. In the
small shapes a chain of a hundred calls is replayed as a CUDA graph, so that no host time counts."""
import torch
import torch.nn.functional as F

from common import COMPILE, DEVICE, DTYPES, GPU, Rotating, attempt, captured, device_us, random, report, sized

CHAIN = 100


def grad_of(forward, inputs):
    """A call that makes the gradients of forward(*inputs) with respect to `inputs`."""
    y = forward(*inputs)
    dy = random(y.shape, y.dtype)
    return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)


def cases(rows, cols, dtype, kinds):
    """(name, bytes, make(k) -> call) of one shape; the byte counts are those of firn's side."""
    size = torch.empty(0, dtype=dtype).element_size()
    n = rows * cols
    part = n * size

    def one(f):
        def make(_):
            x = random((rows, cols), dtype)
            return lambda: f(x)
        return make

    def backward(f, *weights):
        def make(_):
            x = random((rows, cols), dtype).requires_grad_()
            extra = [random((cols,), dtype).requires_grad_() for _ in weights]
            return grad_of(f, [x, *extra])
        return make

    if "flat" in kinds:
        def add(_):
            a, b = random((rows, cols), dtype), random((rows, cols), dtype)
            return lambda: a + b
        yield "add", 3 * part, add
        for name, f in (("relu", F.relu), ("gelu", F.gelu),
                        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))):
            yield name, 2 * part, one(f)
            yield name + "_backward", 3 * part, backward(f)
        if dtype != torch.float32:
            yield "cast_to_f32", n * (size + 4), one(lambda x: x.to(torch.float32))

            def narrow(_):
                x = random((rows, cols), torch.float32)
                return lambda: x.to(dtype)
            yield "cast_from_f32", n * (size + 4), narrow
        yield "dropout", 2 * part, one(lambda x: F.dropout(x, 0.1))
    if "rows" in kinds:
        def softmax(x):
            return F.softmax(x, -1)

        def layer_norm(x, w, b):
            return F.layer_norm(x, (cols,), w, b, 1e-5)

        def rms_norm(x, w):
            return F.rms_norm(x, (cols,), w, 1e-5)

        yield "softmax", 2 * part, one(softmax)
        yield "softmax_backward", 3 * part, backward(softmax)
        w, b = random((cols,), dtype), random((cols,), dtype)
        yield "layer_norm", 2 * part + 8 * rows, one(lambda x: layer_norm(x, w, b))
        yield "layer_norm_backward", 3 * part + 8 * rows, backward(layer_norm, 0, 0)
        if hasattr(F, "rms_norm"):
            yield "rms_norm", 2 * part + 4 * rows, one(lambda x: rms_norm(x, w))
            yield "rms_norm_backward", 3 * part + 4 * rows, backward(rms_norm, 0)
    if "loss" in kinds:
        target = (torch.arange(rows, device=DEVICE) * 7919) % cols

        def loss(_):
            x = random((rows, cols), dtype).requires_grad_()

            def both(z):
                return F.cross_entropy(z, target, reduction="sum")
            return lambda run=both: torch.autograd.grad(run(x), x)
        yield "cross_entropy", 3 * part, loss
    if "table" in kinds:
        vocabulary = sized(50304, 32)
        i = torch.arange(rows, device=DEVICE)
        index = (i * 7919 + torch.div(i, 3, rounding_mode="floor")) % vocabulary

        def table(_):
            t = random((vocabulary, cols), dtype)
            return lambda: F.embedding(index, t)
        yield "embedding", 2 * part, table
        distinct = torch.unique(index).numel()

        def table_backward(_):
            t = random((vocabulary, cols), dtype).requires_grad_()
            return grad_of(lambda t: F.embedding(index, t), [t])
        yield "embedding_backward", part + 8 * distinct * cols, table_backward


def measure(work, mode, dtype, bytes, make):
    if bytes < 4e6 and GPU:
        call = make(0)

        def chain():
            for _ in range(CHAIN):
                call()
        values = [v / CHAIN for v in device_us(captured(chain))]
        report(work, mode, dtype, values, bytes=bytes)
    else:
        report(work, mode, dtype, device_us(Rotating(make, bytes)), bytes=bytes)


def compiled_cases(rows, cols, dtype, kinds):
    """The same work through torch.compile: forward passes, norm and softmax backward, cross-entropy."""
    size = torch.empty(0, dtype=dtype).element_size()
    part = rows * cols * size

    def norm_weights(count):
        return [random((cols,), dtype).requires_grad_() for _ in range(count)]

    table = []
    if "flat" in kinds:
        table += [("add", 3, lambda a, b: a + b, 2, 0, False),
                  ("gelu", 2, F.gelu, 1, 0, False), ("gelu_backward", 3, F.gelu, 1, 0, True),
                  ("dropout", 2, lambda x: F.dropout(x, 0.1), 1, 0, False)]
    if "rows" in kinds:
        table += [("softmax", 2, lambda x: F.softmax(x, -1), 1, 0, False),
                  ("softmax_backward", 3, lambda x: F.softmax(x, -1), 1, 0, True),
                  ("layer_norm", 2, lambda x, w, b: F.layer_norm(x, (cols,), w, b, 1e-5), 1, 2, False),
                  ("layer_norm_backward", 3, lambda x, w, b: F.layer_norm(x, (cols,), w, b, 1e-5), 1, 2, True),
                  ("rms_norm", 2, lambda x, w: F.rms_norm(x, (cols,), w, 1e-5), 1, 1, False),
                  ("rms_norm_backward", 3, lambda x, w: F.rms_norm(x, (cols,), w, 1e-5), 1, 1, True)]
    for name, factor, f, inputs, weights, is_backward in table:
        compiled = torch.compile(f)

        def make(_, compiled=compiled, inputs=inputs, weights=weights, is_backward=is_backward):
            xs = [random((rows, cols), dtype).requires_grad_(is_backward) for _ in range(inputs)]
            xs += [w.requires_grad_(is_backward) for w in norm_weights(weights)]
            return grad_of(compiled, xs) if is_backward else lambda: compiled(*xs)
        yield name, factor * part, make
    if "loss" in kinds:
        target = (torch.arange(rows, device=DEVICE) * 7919) % cols
        compiled = torch.compile(lambda x: F.cross_entropy(x, target, reduction="sum"))

        def make(_):
            x = random((rows, cols), dtype).requires_grad_()
            return lambda: torch.autograd.grad(compiled(x), x)
        yield "cross_entropy", 3 * part, make


def main():
    shapes = sized(
        [(32768, 4096, "flat rows"), (32768, 256, "rows"), (32768, 1024, "rows loss"), (8192, 768, "rows"),
         (8192, 50304, "rows loss"), (64, 10, "rows loss"), (64, 512, "flat rows table"),
         (32768, 768, "table")],
        [(8, 64, "flat rows loss table")])
    for name, dtype in DTYPES.items():
        if not GPU and dtype != torch.float32:
            continue  # not every op on the CPU
        for rows, cols, kinds in shapes:
            for op, bytes, make in cases(rows, cols, dtype, kinds):
                work = f"{op}_{rows}x{cols}"
                attempt(work, lambda: measure(work, "eager", name, bytes, make))
    # Compiling takes seconds a case: one dtype, and the shapes that goals name.
    if COMPILE:
        for rows, cols, kinds in ((32768, 4096, "flat rows"), (8192, 50304, "loss"), (64, 512, "rows")):
            for op, bytes, make in compiled_cases(rows, cols, torch.bfloat16, kinds):
                work = f"{op}_{rows}x{cols}"
                attempt(work, lambda: measure(work, "compile", "bf16", bytes, make))
                torch._dynamo.reset()


main()
