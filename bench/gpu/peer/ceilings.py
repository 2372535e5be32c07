"""Copy, fill, a sum that only reads, square products, and chains of kernels that do next to nothing."""
import torch

from common import DEVICE, DTYPES, GPU, attempt, captured, device_us, host_ns, random, report, sized

COUNT = sized(2**30, 2**14)  # of f32: 4 GiB


def bandwidth():
    x = random((COUNT,), torch.float32)
    y = torch.empty_like(x)
    report("copy", "memcpy", "-", device_us(lambda: y.copy_(x)), bytes=8 * COUNT)
    report("fill", "memset", "-", device_us(y.zero_), bytes=4 * COUNT)
    report("read_sum", "eager", "f32", device_us(x.sum), bytes=4 * COUNT)


def products():
    for name in ("f16", "bf16", "f32", "tf32"):
        dtype = DTYPES.get(name, torch.float32)
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        for n in sized((1024, 4096, 8192), (32,)):
            if name == "f32" and n > 4096:
                continue
            if not GPU and dtype == torch.float16:
                continue  # not on every CPU
            a, b = random((n, n), dtype), random((n, n), dtype)
            c = torch.empty_like(a)
            report(f"gemm_{n}x{n}x{n}", "plain", name, device_us(lambda: torch.mm(a, b, out=c)),
                   flop=2.0 * n**3)
    torch.set_float32_matmul_precision("highest")


def chains():
    x = torch.zeros(1, device=DEVICE)

    def chain(length):
        for _ in range(length):
            x.add_(1)

    report("launch", "eager", "-", device_us(lambda: chain(1)), nodes=1)
    report("launch_host", "eager", "-", host_ns(lambda: chain(1)), unit="ns", nodes=1)
    if not GPU:
        return
    for length in (1, 10, 100, 1000):
        replay = captured(lambda: chain(length))
        report(f"chain_{length}", "graph", "-", device_us(replay), nodes=length)
        if length == 10:
            report("graph_launch_host", "graph", "-", host_ns(replay), unit="ns", nodes=length)


attempt("chains", chains)
attempt("products", products)
attempt("bandwidth", bandwidth)
