"""The three products of a dense layer in the shapes of bench/gpu/gemm.cpp: `mm`, `addmm` (bias),
`_addmm_activation` (bias and ReLU in the epilogue); weight gradients in the operands' dtype, and with
FP32 results where this PyTorch has them; the same with the separate kernels of a plain backward pass."""
import torch

from common import DTYPES, GPU, attempt, captured, device_us, random, report, sized

LAYERS = sized(
    [(64, 512, 784), (64, 512, 512), (64, 10, 512), (4096, 512, 784), (4096, 512, 512),
     (65536, 768, 768), (65536, 2304, 768), (65536, 3072, 768), (65536, 768, 3072), (65536, 50304, 768)],
    [(8, 16, 24), (8, 10, 16)])


def layer(m, n, k, name, dtype):
    def timed(call):
        """Products of few rows as a graph of twenty: they take no longer than their launch."""
        if m > 4096 or not GPU:
            return device_us(call)

        def chain():
            for _ in range(20):
                call()
        return [v / 20 for v in device_us(captured(chain))]

    def figure(product, mode, call):
        work = f"{product}_{m}x{n}x{k}"
        attempt(f"{work} {mode}", lambda: report(work, mode, name, timed(call), flop=2.0 * m * n * k))

    x, w, bias = random((m, k), dtype), random((n, k), dtype), random((n,), dtype)
    y, dy = torch.empty((m, n), dtype=dtype, device=x.device), random((m, n), dtype)
    dx = torch.empty_like(x)
    dw = torch.empty_like(w)
    below = random((m, k), dtype)

    figure("fwd", "plain", lambda: torch.mm(x, w.t(), out=y))
    figure("fwd", "bias", lambda: torch.addmm(bias, x, w.t(), out=y))
    if GPU:
        figure("fwd", "fused", lambda: torch._addmm_activation(bias, x, w.t(), use_gelu=False))
    figure("fwd", "separate", lambda: torch.relu(torch.addmm(bias, x, w.t())))
    figure("dgrad", "plain", lambda: torch.mm(dy, w, out=dx))
    figure("dgrad", "separate",
           lambda: torch.ops.aten.threshold_backward(torch.mm(dy, w), below, 0))
    figure("wgrad", "plain", lambda: torch.mm(dy.t(), x, out=dw))
    figure("wgrad", "separate", lambda: (torch.mm(dy.t(), x, out=dw), dy.sum(0)))
    if GPU and dtype != torch.float32:
        try:
            torch.mm(dy.t(), x, out_dtype=torch.float32)
        except (TypeError, RuntimeError):
            return
        figure("wgrad", "f32_out", lambda: torch.mm(dy.t(), x, out_dtype=torch.float32))


def main():
    for name, dtype in DTYPES.items():
        if not GPU and dtype != torch.float32:
            continue
        for n in sized((1024, 4096, 8192), (32,)):
            if name == "f32" and n > 4096:
                continue
            a, b = random((n, n), dtype), random((n, n), dtype)
            c = torch.empty_like(a)
            attempt("gemm", lambda: report(f"gemm_{n}x{n}x{n}", "plain", name,
                                           device_us(lambda: torch.mm(a, b, out=c)), flop=2.0 * n**3))
        for m, n, k in LAYERS:
            if name == "f32" and m > 4096:
                continue
            attempt(f"layer {m}x{n}x{k}", lambda: layer(m, n, k, name, dtype))


main()
