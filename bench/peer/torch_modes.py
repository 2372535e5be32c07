"""The same works with PyTorch from Python, in a mode: in f32 or under bf16 autocast, eagerly or with torch.compile.
  torch_modes.py WORK --mode "f32 eager|f32 compile|bf16 eager|bf16 compile"
                 [--threads N] [--epochs N] [--images N] [--steps N] [--quick]
Prints the lines of the C++ programs (harness.h), with the same names in every mode; bench/run asks for one mode at a
time. Compiled code is made and warmed up before the clock starts. Where torch.compile cannot work, the last line is
`skipped <tab> the reason`. Fused optimizers, attention as one operation: the fastest that plain PyTorch offers.
TORCH_CHANNELS_LAST=1 in the environment: the convolutions in that memory format.
"""
import argparse
import copy
import gzip
import os
import pathlib
import resource
import socket
import statistics
import sys
import time

import numpy
import torch
import torch.nn.functional as F
from torch import nn

ATTENTION = [(8, 12, 1024, 64), (1, 1, 4096, 64), (8, 4, 128, 64)]  # as shapes.h
MIB = 1 << 20


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("work", choices=["mlp_sgd", "mlp_adam", "mlp_accum", "cnn", "gpt", "gpt2", "recompute", "attention",
                                    "scaling"])
    p.add_argument("--mode", required=True, choices=["f32 eager", "f32 compile", "bf16 eager", "bf16 compile"])
    p.add_argument("--quick", action="store_true")
    for name, number in (("threads", 2), ("epochs", 3), ("images", 60000), ("steps", 40)):
        p.add_argument(f"--{name}", type=int, default=number)
    a = p.parse_args()
    a.bf16, a.compile = a.mode.startswith("bf16"), a.mode.endswith("compile")
    return a


def report(what, unit, values):
    print(f"{what}\t{statistics.median(values):.6g}\t{unit}\t{min(values):.6g}\t{max(values):.6g}\t{len(values)}",
          flush=True)


def report_memory(work):
    report(f"{work}.peak_rss", "MiB", [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB])


def autocast(a):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.bf16)


def ready(a, call, *batches):
    """`call`, compiled if the mode says so, after two calls on each of the batches, whose shapes may differ."""
    if a.compile:
        call = torch.compile(call, dynamic=False)
    try:
        for batch in batches:
            for _ in range(2):
                call(*batch).backward()
    except Exception as e:  # noqa: BLE001: no compiler, no Python headers, a bug of its own: all mean no such mode
        if not a.compile:
            raise
        print(f"skipped\ttorch.compile failed: {type(e).__name__}: {str(e).strip().splitlines()[0]}")
        sys.exit(0)
    return call


# ---- FashionMNIST ----
class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class Cnn(nn.Module):
    def __init__(self, memory_format):
        super().__init__()
        self.memory_format = memory_format
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)
        self.to(memory_format=memory_format)

    def forward(self, x):
        x = x.view(-1, 1, 28, 28).contiguous(memory_format=self.memory_format)
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.fc2(torch.relu(self.fc1(torch.max_pool2d(x, 2).flatten(1))))


def load_images(part, count):
    base = pathlib.Path(os.environ.get("FIRN_DATA") or "/usr/share/datasets/fashion-mnist")

    def bytes_of(kind, header, length):
        with gzip.open(base / f"{part}-{kind}-ubyte.gz") as f:
            f.seek(header)
            return numpy.frombuffer(f.read(length), numpy.uint8)

    pixels = bytes_of("images-idx3", 16, count * 784).reshape(count, 784)
    labels = bytes_of("labels-idx1", 8, count).astype(numpy.int64)
    return torch.from_numpy(pixels / numpy.float32(255)), torch.from_numpy(labels)


def train(a):
    images, labels = load_images("train", a.images)
    accumulates = a.work == "mlp_accum"
    batch, cycle = (16, 4) if accumulates else (64, 1)
    channels_last = torch.channels_last if os.environ.get("TORCH_CHANNELS_LAST") else torch.contiguous_format
    net = Cnn(channels_last) if a.work == "cnn" else Mlp()

    def forward(x, y):
        with autocast(a):
            return F.cross_entropy(net(x), y)

    begun = copy.deepcopy(net.state_dict())
    sizes = {batch, len(images) % batch or batch}  # the last one may be short
    loss = ready(a, forward, *((images[:n], labels[:n]) for n in sizes))
    net.load_state_dict(begun)
    rule = torch.optim.SGD if a.work in ("mlp_sgd", "mlp_accum") else torch.optim.Adam
    opt = rule(net.parameters(), lr=1e-3, fused=True)
    rates = []
    for _ in range(a.epochs):
        start, micro_steps = time.perf_counter(), 0
        opt.zero_grad()
        for at in range(0, len(images), batch):
            value = loss(images[at:at + batch], labels[at:at + batch])
            (value / cycle if cycle > 1 else value).backward()
            micro_steps += 1
            if micro_steps % cycle == 0 or at + batch >= len(images):
                opt.step()
                opt.zero_grad()
        rates.append(len(images) / (time.perf_counter() - start))
    report(f"{a.work}.rate", "samples/s", rates)
    report_memory(a.work)
    images, labels = load_images("t10k", 10000)
    with torch.no_grad(), autocast(a):
        right = sum((net(x).argmax(1) == y).sum().item() for x, y in zip(images.split(1000), labels.split(1000)))
    report(f"{a.work}.accuracy", "%", [right / 100])


# ---- The transformers of gpt.h ----
class Sizes:
    def __init__(self, layers, width, heads, length, batch, vocabulary, tied, rate, parameters):
        self.layers, self.width, self.heads, self.length, self.batch = layers, width, heads, length, batch
        self.vocabulary, self.tied, self.rate, self.parameters = vocabulary, tied, rate, parameters


SIZES = {"gpt": Sizes(4, 256, 4, 128, 8, 1024, False, 1e-3, 3_716_608),
         "gpt2": Sizes(12, 768, 12, 64, 4, 50304, True, 3e-4, 123_738_624),
         "recompute": Sizes(12, 256, 4, 128, 8, 1024, False, 1e-3, 10_034_688)}
TIED_DEVIATION = 0.02


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.norm1, self.norm2 = nn.LayerNorm(s.width), nn.LayerNorm(s.width)
        self.qkv, self.out = nn.Linear(s.width, 3 * s.width), nn.Linear(s.width, s.width)
        self.up, self.down = nn.Linear(s.width, 4 * s.width), nn.Linear(4 * s.width, s.width)

    def forward(self, x):
        s = self.s
        q, k, v = self.qkv(self.norm1(x)).view(s.batch, s.length, 3, s.heads, s.width // s.heads).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = x + self.out(heads.transpose(1, 2).reshape(s.batch, s.length, s.width))
        return h + self.down(F.gelu(self.up(self.norm2(h))))


class Gpt(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.token = nn.Embedding(s.vocabulary, s.width)
        self.position = nn.Parameter(torch.randn(s.length, s.width))
        self.blocks = nn.Sequential(*(Block(s) for _ in range(s.layers)))
        self.norm = nn.LayerNorm(s.width)
        self.head = nn.Linear(s.width, s.vocabulary, bias=False)
        if s.tied:
            nn.init.normal_(self.token.weight, std=TIED_DEVIATION)
            self.head.weight = self.token.weight

    def forward(self, x, policy="all"):
        h = self.token(x) + self.position
        for i, block in enumerate(self.blocks):
            h = call_block(block, h, "all" if policy == "every_2nd" and i % 2 else policy)
        return self.head(self.norm(h))


def call_block(block, x, policy):
    """The block keeps all, its input alone, or (selective checkpoint) its input and the results of its products."""
    if policy == "all":
        return block(x)
    from torch.utils import checkpoint as c
    if policy != "products":
        return c.checkpoint(block, x, use_reentrant=False)
    ops = torch.ops.aten
    products = [ops.mm.default, ops.addmm.default, ops.bmm.default,
                ops._scaled_dot_product_flash_attention_for_cpu.default]
    return c.checkpoint(block, x, use_reentrant=False,
                        context_fn=lambda: c.create_selective_checkpoint_contexts(products))


def tokens(s, steps):
    """Tokens of gpt.h: (inputs, targets) of all steps, [steps, batch, length] each."""
    state = 1

    def random(below):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % below

    sequences = []
    for _ in range(steps * s.batch):
        last, before = random(31), random(31)
        shown = []
        for _ in range(s.length + 1):
            last, before = (3 * last + 5 * before + 7) % 31, last
            shown.append(random(s.vocabulary) if random(8) == 0 else 33 * last + 1)
        sequences.append(shown)
    both = torch.tensor(sequences).view(steps, s.batch, s.length + 1)
    return both[:, :, :-1].contiguous(), both[:, :, 1:].contiguous()


def gpt(a):
    s = SIZES[a.work]
    inputs, targets = tokens(s, a.epochs * a.steps)
    net = Gpt(s)
    if sum(p.numel() for p in net.parameters()) != s.parameters:
        sys.exit(f"{a.work}: not {s.parameters} parameters")

    def forward(x, y):
        with autocast(a):
            return F.cross_entropy(net(x).view(-1, s.vocabulary), y.view(-1))

    loss = ready(a, forward, (inputs[0], targets[0]))
    net.zero_grad()
    opt = torch.optim.AdamW(net.parameters(), lr=s.rate, weight_decay=1e-2, fused=True)
    rates, losses = [], []
    for e in range(a.epochs):
        start = time.perf_counter()
        for i in range(e * a.steps, (e + 1) * a.steps):
            value = loss(inputs[i], targets[i])
            opt.zero_grad()
            value.backward()
            opt.step()
            losses.append(value.item())
        rates.append(a.steps * s.batch * s.length / (time.perf_counter() - start))
    report(f"{a.work}.rate", "tokens/s", rates)
    report_memory(a.work)
    report(f"{a.work}.loss", "nats", [statistics.mean(losses[-10:])])


def recompute(a):
    """What torch.utils.checkpoint costs: the time of a step with each policy over that of one that keeps all."""
    if a.compile:
        sys.exit("compiled code decides by itself what it computes again")
    s = SIZES[a.work]
    inputs, targets = tokens(s, 1)
    net = Gpt(s)
    if sum(p.numel() for p in net.parameters()) != s.parameters:
        sys.exit(f"{a.work}: not {s.parameters} parameters")
    opt = torch.optim.AdamW(net.parameters(), lr=s.rate, weight_decay=1e-2, fused=True)
    took = {policy: [] for policy in ("all", "products", "inputs", "every_2nd")}
    for turn in range(a.epochs * 4 + 1):
        for policy, times in took.items():
            start = time.perf_counter()
            with autocast(a):
                value = F.cross_entropy(net(inputs[0], policy).view(-1, s.vocabulary), targets[0].view(-1))
            opt.zero_grad()
            value.backward()
            opt.step()
            if turn > 0:
                times.append(time.perf_counter() - start)
    for policy in ("products", "inputs", "every_2nd"):
        report(f"recompute.{policy}.time", "of all", [t / full for t, full in zip(took[policy], took["all"])])


SCALING = {"mlp": 512, "gpt": 8}  # samples of all ranks in a step


def train_on_rank(rank, ranks, name, steps, port, rates):
    """Samples a second, with two threads in all."""
    torch.set_num_threads(2 // ranks)
    torch.manual_seed(1)
    samples = SCALING[name] // ranks
    if name == "mlp":
        net, x, y = Mlp(), torch.rand(samples, 784), torch.zeros(samples, dtype=torch.int64)
        opt = torch.optim.SGD(net.parameters(), lr=0.01, fused=True)
    else:
        s = copy.copy(SIZES["gpt"])
        s.batch = samples
        inputs, targets = tokens(s, 1)
        net, x, y = Gpt(s), inputs[0], targets[0].flatten()
        opt = torch.optim.AdamW(net.parameters(), lr=s.rate, weight_decay=1e-2, fused=True)
    if ranks > 1:
        torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
        net = nn.parallel.DistributedDataParallel(net)

    def step():
        opt.zero_grad()
        F.cross_entropy(net(x).flatten(0, -2), y).backward()
        opt.step()

    for _ in range(3):
        step()
    if ranks > 1:
        torch.distributed.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if ranks > 1:
        torch.distributed.barrier()
    if rank == 0:
        rates.put(steps * SCALING[name] / (time.perf_counter() - start))
    if ranks > 1:
        torch.distributed.destroy_process_group()


def scaling(a):
    """Two ranks with a thread each, by DistributedDataParallel over gloo, beside one with two threads."""
    if a.compile:
        sys.exit("ranks train eagerly")
    processes = torch.multiprocessing.get_context("spawn")
    for name, rounds, steps in (("mlp", 2, 40), ("gpt", 1, 8)):
        one, two = [], []
        for turn in range(1 if a.quick else rounds * a.epochs):
            for ranks, found in ((1, one), (2, two)):
                rates = processes.Queue()
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    port = free.getsockname()[1]
                torch.multiprocessing.spawn(train_on_rank, (ranks, name, 2 if a.quick else steps, port, rates), ranks)
                found.append(rates.get())
        report(f"scaling.{name}.one_rank", "samples/s", one)
        report(f"scaling.{name}.ranks", "samples/s", two)
        report(f"scaling.{name}.share", "of one rank", [t / o for t, o in zip(two, one)])


def attention(a):
    if a.compile:
        sys.exit("attention is one operation: there is nothing to compile")
    dtype = torch.bfloat16 if a.bf16 else torch.float32
    for shape in ATTENTION:
        q, k, v = (torch.randn(shape, dtype=dtype).requires_grad_() for _ in range(3))
        dy = torch.randn(shape, dtype=dtype)

        took = []
        for i in range(5 if a.quick else 23):
            q.grad = k.grad = v.grad = None
            start = time.perf_counter()
            F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(dy)
            took.append((time.perf_counter() - start) * 1e3)
        batch, heads, length, width = shape
        report(f"attention.b{batch}_h{heads}_s{length}_d{width}", "ms", took[2:])


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    {"gpt": gpt, "gpt2": gpt, "recompute": recompute, "attention": attention,
     "scaling": scaling}.get(a.work, train)(a)


if __name__ == "__main__":
    main()
