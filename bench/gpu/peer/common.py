"""What the PyTorch peers share: arguments, clocks, graphs, and the line they print (bench/gpu/bench.h).

Each script runs alone as well: `python3 mlp.py [--smoke] [--windows N] [--window-ms N]`. With --smoke
everything runs once in tiny sizes, on the CPU where there is no GPU; graphs and compiled modes are then
left out.
"""
import argparse
import json
import math
import statistics
import sys
import time
import traceback

import torch

_parser = argparse.ArgumentParser()
_parser.add_argument("--smoke", action="store_true", help="tiny sizes, one call each")
_parser.add_argument("--windows", type=int, default=7)
_parser.add_argument("--window-ms", type=float, default=20)
_parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
args = _parser.parse_args()

GPU = torch.cuda.is_available()
if not GPU and not args.smoke:
    sys.exit("no CUDA device; --smoke runs on the CPU")
DEVICE = "cuda" if GPU else "cpu"
COMPILE = GPU and not args.no_compile and hasattr(torch, "compile")

torch.manual_seed(1)
if GPU:
    # One stream of our own for all: a backward pass runs on its forward pass's stream, and a graph is
    # recorded on one that is not the default.
    torch.cuda.set_stream(torch.cuda.Stream())
torch.set_float32_matmul_precision("highest")  # no TF32 unless named

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


def sized(full, tiny):
    """`full`, or `tiny` in a smoke run."""
    return tiny if args.smoke else full


def report(work, mode, dtype, values, unit="us", nodes=0, bytes=0, flop=0):
    line = {"who": "torch", "work": work, "mode": mode, "dtype": dtype,
            "median": statistics.median(values), "min": min(values), "max": max(values),
            "unit": unit, "nodes": nodes, "bytes": bytes, "flop": flop}
    print(json.dumps(line), flush=True)


def synchronize():
    if GPU:
        torch.cuda.synchronize()


def attempt(work, call):
    """Runs call(); what fails is said, and the rest goes on."""
    try:
        call()
    except Exception:  # noqa: BLE001: a peer that lacks a feature must not end the run
        print(f"{work}: failed", file=sys.stderr)
        traceback.print_exc()
    if GPU:
        torch.cuda.empty_cache()


def _timed(call, calls):
    """Microseconds of `calls` calls."""
    if not GPU:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) * 1e6
    start = torch.cuda.Event(enable_timing=True)
    stop = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) * 1e3


def device_us(call):
    """Microseconds a call, one value a window: as bench::device_us."""
    for _ in range(sized(3, 1)):
        call()
    synchronize()
    if args.smoke:
        return [_timed(call, 1)]
    calls, took = 1, _timed(call, 1)
    while took < 1e3 * args.window_ms and calls < 1 << 20:
        missing = 1.1e3 * args.window_ms / max(took, 1)
        calls = math.ceil(calls * min(max(missing, 1.1), 100))
        took = _timed(call, calls)
    return [_timed(call, calls) / calls for _ in range(args.windows)]


def host_ns(call):
    """Nanoseconds that the host spends in a call that only queues work: as bench::host_ns."""
    calls = sized(20, 1)
    for _ in range(calls):
        call()
    values = []
    for _ in range(sized(20 * args.windows, 1)):
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        values.append((time.perf_counter() - start) / calls * 1e9)
    synchronize()
    return values


def captured(call, warm_up=3):
    """`call` recorded as one CUDA graph, after a warm-up; returns its replay."""
    for _ in range(warm_up):
        call()
    synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        call()
    return graph.replay


def kernels(call):
    """Kernels, copies and fills on the device in one call, as the profiler counts them; 0 without GPU."""
    if not GPU:
        return 0
    from torch.profiler import ProfilerActivity, profile
    call()
    synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        call()
        synchronize()
    on_device = torch.autograd.DeviceType.CUDA
    return sum(1 for e in p.events() if e.device_type == on_device)


def random(shape, dtype, low=-1, high=1):
    """Uniform in [low, high). Zeros would be faster than real data."""
    x = torch.empty(shape, device=DEVICE, dtype=torch.float32).uniform_(low, high)
    return x.to(dtype)


class Rotating:
    """Calls make(k)'s results in turn: enough sets of buffers to be more than the cache holds."""

    def __init__(self, make, bytes):
        sets = 1 if args.smoke else min(max(math.ceil(256 * 2**20 / max(bytes, 1)), 1), 64)
        self.calls = [make(k) for k in range(sets)]
        self.next = 0

    def __call__(self):
        result = self.calls[self.next]()
        self.next = (self.next + 1) % len(self.calls)
        return result
