"""One step of AdamW over 124 million parameters in one tensor, in GPT-2's 148, and over the MLP's six:
the multi-tensor (`foreach`), fused and compiled optimizers on FP32 parameters with a gradient clip,
and what mixed precision adds: unscaling with the finite check before, the casts to 16 bits after."""
import torch

from common import COMPILE, DEVICE, GPU, attempt, captured, device_us, kernels, random, report, sized


def gpt2(vocabulary, context, width, layers):
    shapes = [(vocabulary, width), (context, width)]
    for _ in range(layers):
        shapes += [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,),
                   (width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return shapes + [(width,), (width,)]


MODEL = sized(gpt2(50304, 1024, 768, 12), gpt2(64, 8, 16, 1))
COUNT = sum(torch.Size(s).numel() for s in MODEL)
WIDTH = sized(512, 16)
SETS = {
    "adamw_124m_1": [(COUNT,)],
    "adamw_124m_148": MODEL,
    "adamw_mlp_6": [(WIDTH, 784), (WIDTH,), (WIDTH, WIDTH), (WIDTH,), (10, WIDTH), (10,)],
}


def parameters(shapes):
    result = [random(s, torch.float32).requires_grad_() for s in shapes]
    for p in result:
        p.grad = random(p.shape, torch.float32)
    return result


def adamw(params, in_graph, **how):
    """Capturable only where it must be: that costs a little elsewhere."""
    return torch.optim.AdamW(params, lr=1e-4, weight_decay=0.1, capturable=in_graph and GPU, **how)


def measure(work, mode, dtype, make, count, each):
    """Eager, and as a graph: a step of few tensors is a matter of launches. make(in_graph) -> call. `each`
    is what a parameter must move at least, as on firn's side."""
    call = make(False)
    report(work, mode, dtype, device_us(call), nodes=kernels(call), bytes=each * count)
    if GPU:
        report(work, mode + "_graph", dtype, device_us(captured(make(True))), bytes=each * count)


def run(work, shapes):
    count = sum(torch.Size(s).numel() for s in shapes)

    def plain(mode, **how):
        def make(in_graph):
            params = parameters(shapes)
            optimizer = adamw(params, in_graph or mode == "compiled", **how)
            step = torch.compile(lambda: optimizer.step()) if mode == "compiled" else optimizer.step

            def call():
                torch.nn.utils.clip_grad_norm_(params, 1.0)
                step()
            return call
        measure(work, mode, "f32", make, count, 32)

    def mixed():
        def make(in_graph):
            params = parameters(shapes)
            optimizer = adamw(params, in_graph, fused=True)
            grads = [p.grad for p in params]
            weights = [p.detach().half() for p in params]
            found = torch.zeros((), device=DEVICE)
            inverse = torch.ones((), device=DEVICE)

            def call():
                found.zero_()
                torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
                torch.nn.utils.clip_grad_norm_(params, 1.0)
                optimizer.found_inf = found
                optimizer.step()
                torch._foreach_copy_(weights, [p.detach() for p in params])
            return call
        measure(work, "amp", "f16", make, count, 34)

    attempt(work + " foreach", lambda: plain("foreach", foreach=True))
    if GPU:
        attempt(work + " fused", lambda: plain("fused", fused=True))
        attempt(work + " amp", mixed)
    if COMPILE and work != "adamw_124m_1":
        attempt(work + " compiled", lambda: plain("compiled", foreach=True))
        torch._dynamo.reset()


for set_name, set_shapes in SETS.items():
    run(set_name, set_shapes)
