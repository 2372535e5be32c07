"""Times every operation that firn and PyTorch both have, in one process of each, in turn: bench/run --only every_op
runs it with the Python that has PyTorch, and prints the table of the file that it writes.

  measure.py --runner firn_interop --json FILE [--threads N[,N]] [--dtype D[,D]] [--filter REGEX] [--pairs N] [--quick]

The table of scripts/interop torch names the operations and says how firn is called; calls.py makes the arguments. Both
sides get the same tensors with the same strides. A call is timed in batches that take some milliseconds. A batch of
firn's and one of PyTorch's are a pair; every second pair begins with PyTorch. Forward calls record no graph on either
side. With backward, a call records, and computes the gradients of all operands that have one from a given gradient of
each result, without accumulating them.
"""
import argparse
import gc
import itertools
import json
import pathlib
import re
import statistics
import struct
import sys
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True  # no files beside the sources
sys.path[:0] = [str(HERE.parents[1] / "tests/interop"), str(HERE.parent)]

import torch  # noqa: E402
import wire  # noqa: E402
from against_torch import bind, flat, tensors_in  # noqa: E402
from calls import calls_of, left_out  # noqa: E402
from compositions import COMPOSITIONS, Sample  # noqa: E402
from noise import VOID, others, processor_time  # noqa: E402
from operands import SHAPES  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "i32": torch.int32}
PASSES = ("forward", "backward")
BATCH = 0.004     # seconds of a batch
SLOW = 0.25       # seconds of a call from which on three pairs are enough
WARM_UP = 12      # calls, within ten batches: glibc's malloc cuts new memory for about the first nine of a size
REST = 0.002      # seconds before a batch on several threads: until the other side's threads no longer spin


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runner", required=True)
    p.add_argument("--json", required=True, type=pathlib.Path)
    p.add_argument("--threads", default="1,2", type=lambda text: [int(n) for n in text.split(",")])
    p.add_argument("--dtype", default="f32,bf16", type=lambda text: text.split(","))
    p.add_argument("--filter", default="", type=re.compile)
    p.add_argument("--pairs", type=int, default=7)
    p.add_argument("--quick", action="store_true")
    return p.parse_args()


class Firn(wire.Runner):
    """The running firn_interop --time: tests/interop/opinfo/timing.h has the protocol."""

    arguments = ("--time",)

    def ask(self, message):
        try:
            self.process.stdin.write(message)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # then reading says how the runner ended, and starts another
        if not self.number("B"):
            raise wire.Refused(self.text().splitlines()[0])
        return self.number("d")

    def load(self, op, arguments, seeds):
        self.ask(b"L" + wire.request(op, arguments, seeds, []))

    def batch(self, threads, with_backward, calls):
        return self.ask(b"T" + struct.pack("<iBq", threads, with_backward, calls))


class Torch:
    """PyTorch's side: one call with its arguments, which runs many times."""

    def __init__(self, op, sample):
        self.op, self.operands, self.named = op, (sample.input, *sample.args), sample.kwargs
        self.leaves = [t for t in tensors_in([*self.operands, *self.named.values()]) if t.requires_grad]
        results = flat(self.op(*self.operands, **self.named))
        if not all(isinstance(r, torch.Tensor) for r in results):
            raise TypeError("a result is no tensor")
        generator = torch.Generator().manual_seed(2)
        # empty_like keeps the memory format, so that no gradient is copied first.
        self.seeds = [torch.empty_like(r).uniform_(0.5, 1.5, generator=generator).detach() if r.requires_grad else None
                      for r in results]
        self.places = [i for i, s in enumerate(self.seeds) if s is not None]
        self.given = [self.seeds[i] for i in self.places]
        self.size = sum(t.numel() for t in tensors_in(self.operands))
        self.is_view = any(r.numel() > 1 and r.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
                           for r in results for t in tensors_in(self.operands))

    def backward(self):
        results = flat(self.op(*self.operands, **self.named))
        torch.autograd.grad([results[i] for i in self.places], self.leaves, self.given, allow_unused=True)

    def batch(self, threads, with_backward, calls):
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        op, operands, named = self.op, self.operands, self.named
        if with_backward:
            start = time.perf_counter()
            for _ in itertools.repeat(None, calls):
                self.backward()
            return time.perf_counter() - start
        with torch.no_grad():
            start = time.perf_counter()
            for _ in itertools.repeat(None, calls):
                op(*operands, **named)
            return time.perf_counter() - start


def callable_of(name, info):
    """PyTorch's function. OpInfo sets the seed around some, which takes longer than they do: then the plain one."""
    code = getattr(info.op, "__code__", None)
    if code is None or "wrapper_set_seed" not in code.co_names:
        return info.op
    found = torch
    for part in name.partition("/")[0].split("."):
        found = getattr(found, part)
    return found


def batch_size(batch, seconds):
    """Calls that fill a batch, after a warm-up; and the seconds of one."""
    once = batch(1)
    if once > SLOW:
        return 1, once
    calls = max(1, min(WARM_UP, int(10 * seconds / max(once, 1e-9))))
    took = batch(calls)
    while took < seconds and calls < 1 << 20:
        calls = max(calls + 1, int(calls * min(8.0, 1.2 * seconds / max(took, 1e-7))))
        took = batch(calls)
    return max(1, round(calls * seconds / took)), took / calls


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def measure(sides, threads, with_backward, pairs, seconds):
    """{"firn", "peer": the median of seconds a call, "ratio": the spread of the pairs' ratios}."""
    ready = {}
    for name, side in sides.items():
        def batch(calls, side=side):
            return side.batch(threads, with_backward, calls)
        ready[name] = batch, *batch_size(batch, seconds)
    if max(once for _, _, once in ready.values()) > SLOW:
        pairs = min(pairs, 3)
    found = {name: [] for name in sides}
    gc.disable()
    for pair in range(pairs):
        for name in list(sides)[::-1 if pair % 2 else 1]:
            batch, calls, _ = ready[name]
            if threads > 1:
                time.sleep(REST)
            found[name].append(batch(calls) / calls)
    gc.enable()
    ratios = [theirs / ours for ours, theirs in zip(found["firn"], found["peer"])]
    return {**{name: statistics.median(values) for name, values in found.items()}, "ratio": spread(ratios)}


class Session:
    """All that is measured, and what is left out with the reason."""

    def __init__(self, a):
        self.a, self.firn = a, Firn(a.runner)
        self.left_out = []

    def leave_out(self, op, where, reason):
        lines = str(reason).strip().splitlines() or ["no reason is given"]
        self.left_out.append({"op": op, "where": where, "reason": lines[0]})

    def load(self, op, label, arguments, peer):
        """Loads firn's side of the call; the passes that both sides have."""
        if peer.leaves and peer.places:
            try:
                self.firn.load(op, arguments, peer.seeds)
                return PASSES
            except wire.Refused as refused:
                self.leave_out(op, f"{label} backward", f"firn: {refused}")
        self.firn.load(op, arguments, [None] * len(peer.seeds))
        return PASSES[:1]

    def cells_of_call(self, op, label, info, parameters, sample):
        """What is measured of one call: forward and with backward, on each number of threads."""
        try:
            peer = Torch(callable_of(op, info), sample)
            passes = self.load(op, label, bind(parameters, sample), peer)
            for threads in self.a.threads:
                for what in passes:
                    found = measure({"firn": self.firn, "peer": peer}, threads, what == "backward", self.a.pairs,
                                    BATCH / 8 if self.a.quick else BATCH)
                    yield {"threads": threads, "pass": what, "view": peer.is_view, "elements": peer.size, **found}
        except (wire.Refused, EOFError) as refused:
            self.leave_out(op, label, f"firn: {refused}")
        except Exception as failed:  # noqa: BLE001: whatever PyTorch says of arguments that it cannot take
            self.leave_out(op, label, f"PyTorch: {failed}")

    def dtypes_of(self, op, info):
        """Names of the dtypes that are asked for and that the operation has on the CPU."""
        supported = info.supported_dtypes("cpu")
        if not any(d.is_floating_point for d in supported):
            return ["i32"] if "f32" in self.a.dtype else []
        for dtype in self.a.dtype:
            if DTYPES[dtype] not in supported:
                self.leave_out(op, dtype, "PyTorch has no such dtype for it")
        return [d for d in self.a.dtype if DTYPES[d] in supported]

    def cells_of(self, op, info):
        parameters = self.firn.table[op][0]
        for dtype in self.dtypes_of(op, info):
            torch_dtype = DTYPES[dtype]
            gradient = info.supports_autograd and torch_dtype in info.supported_backward_dtypes("cpu")
            for asked in SHAPES[:2] if self.a.quick else SHAPES:
                try:
                    family, shape, calls = calls_of(op, parameters, info, asked, torch_dtype, gradient)
                except Exception as failed:  # noqa: BLE001: a shape or a dtype in which the operands cannot be made
                    self.leave_out(op, f"{asked} {dtype}", f"operands: {failed}")
                    continue
                if shape != asked and asked != SHAPES[0]:
                    break  # PyTorch's own sample: one size is all there is
                for variant, sample in calls.items():
                    place = {"op": op, "variant": variant, "shape": shape, "dtype": dtype}
                    for cell in self.cells_of_call(op, f"{shape} {dtype}", info, parameters, sample):
                        is_view = cell.pop("view") and family == "shapes"
                        yield {"family": "views" if is_view else family, **place, **cell}

    def run(self, infos):
        """The cells of all operations. A tenth of the operations may be measured again because of other processes."""
        names = [n for n in self.firn.table if self.a.filter.search(n)]
        cells, again = [], len(names) // 10 + 1
        for at, op in enumerate(names):
            if left_out(op):
                self.leave_out(op, "", left_out(op))
                continue
            if op not in infos:
                self.leave_out(op, "", "this PyTorch has no such OpInfo")
                continue
            listed = len(self.left_out)
            for attempt in range(2):
                start, before = time.monotonic(), processor_time(self.firn.process.pid)
                del self.left_out[listed:]
                found = list(self.cells_of(op, infos[op]))
                wall = time.monotonic() - start
                noise = others(before, processor_time(self.firn.process.pid), wall)
                void = noise is not None and noise > VOID
                if self.a.quick or not void or attempt or not again:
                    break
                again -= 1
            print(f"{at + 1} of {len(names)}: {op:45} {len(found):3} timed, {wall:6.1f} s"
                  f"{', void' if void else ''}", file=sys.stderr, flush=True)
            cells += [{**c, "others": noise, "void": void} for c in found]
        return cells


def python_call():
    """Seconds of PyTorch's side for a call that computes nothing."""
    nothing = Torch(lambda operand: operand, Sample(torch.zeros(16)))
    return min(nothing.batch(1, False, 100_000) / 100_000 for _ in range(5))


def main():
    a = arguments()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    from torch.testing._internal.common_methods_invocations import op_db  # takes some seconds

    infos = {o.name + (f"/{o.variant_test_name}" if o.variant_test_name else ""): o for o in op_db} | COMPOSITIONS
    session = Session(a)
    overhead = python_call()
    cells = session.run(infos)
    session.firn.close()
    a.json.write_text(json.dumps({"cells": cells, "left_out": session.left_out, "python_call": overhead,
                                  "pairs": a.pairs}) + "\n")
    return 0 if cells else 1


if __name__ == "__main__":
    sys.exit(main())
