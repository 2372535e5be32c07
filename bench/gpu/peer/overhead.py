"""What an op costs the host beside its arithmetic: tensors of 16 elements, work that is only queued."""
import torch
import torch.nn.functional as F

from common import DEVICE, GPU, attempt, host_ns, random, report, sized


def host(work, call):
    attempt(work, lambda: report(work, "eager", "f32", host_ns(call), unit="ns"))


a, b = random((16,), torch.float32), random((16,), torch.float32)
w = random((16,), torch.float32).requires_grad_()
with torch.no_grad():
    host("add16", lambda: a + b)
host("add16_recorded", lambda: w + b)


def chain():
    y = w
    for _ in range(10):
        y = y + b
    y.backward(a)


host("chain10", chain)
x = random((4, 4), torch.float32)
fc = torch.nn.Linear(4, 4).to(DEVICE)
host("linear", lambda: fc(x).backward(x))

net = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512),
                          torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(DEVICE)
optimizer = torch.optim.Adam(net.parameters(), **({"fused": True} if GPU else {}))
images = random((sized(64, 2), 784), torch.float32)
labels = torch.zeros(images.shape[0], dtype=torch.int64, device=DEVICE)


def mlp_step():
    optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(net(images), labels).backward()
    optimizer.step()


host("mlp_step", mlp_step)
