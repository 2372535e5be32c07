"""Accumulation over 16 x 4 with CUDA graphs of its own for the micro-step and for the boundary, the
other way to capture it. First: the four micro-steps' gradient is that of the batch of 64."""
import torch
import torch.nn.functional as F

from common import DEVICE, GPU, attempt, captured, device_us, kernels, report, sized

BATCH, STEPS, WIDTH = sized(64, 8), 4, sized(512, 16)
MICRO = BATCH // STEPS
IMAGES = sized(60000, 256)

images = torch.randint(0, 256, (IMAGES, 784), dtype=torch.uint8, device=DEVICE)
labels = torch.randint(0, 10, (IMAGES,), dtype=torch.int64, device=DEVICE)
order = torch.arange(IMAGES, device=DEVICE)  # as firn's side: a new random order costs both alike


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(784, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, 10)).to(DEVICE)


def check():
    net = network()
    x, y = images[:BATCH].float().mul_(1 / 255), labels[:BATCH]
    F.cross_entropy(net(x), y).backward()
    whole = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    for i in range(STEPS):
        part = slice(i * MICRO, (i + 1) * MICRO)
        (F.cross_entropy(net(x[part]), y[part]) / STEPS).backward()
    for a, p in zip(whole, net.parameters()):
        error = ((a - p.grad).norm() / a.norm()).item()
        assert error < 1e-4, f"accumulated gradient differs by {error}"


def graphs():
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True, capturable=True)
    scaler = torch.amp.GradScaler("cuda")
    index = order[:MICRO].clone()
    for p in net.parameters():
        p.grad = torch.zeros_like(p)

    def micro():
        x = images[index].half().mul_(1 / 255)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(net(x), labels[index]) / STEPS
        scaler.scale(loss).backward()

    def last():  # one graph for both: the scaler wants a backward pass before a step
        micro()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=False)

    replay_micro, replay_last = captured(micro), captured(last)
    position = 0

    def step():
        nonlocal position
        for i in range(STEPS):
            if position + MICRO > IMAGES:
                position = 0
            index.copy_(order[position:position + MICRO])
            position += MICRO
            replay_last() if i + 1 == STEPS else replay_micro()

    report("mlp_16x4", "two_graphs", "fp16_adam", device_us(step), nodes=kernels(step))


attempt("accumulated gradient", check)
if GPU:
    attempt("mlp_16x4 two_graphs", graphs)
