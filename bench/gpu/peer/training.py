"""Training steps on bytes that live on the device: gather, scale, forward, loss, backward, optimizer; what
mlp.py and cnn.py share. FP32 with SGD and Adam, mixed precision in FP16 (GradScaler) and bf16 with Adam.
Modes, each as fast as plain PyTorch offers it:

  eager            fused optimizers
  graph            the whole step by hand as one CUDA graph
  compile          torch.compile of forward and loss
  reduce_overhead  the same with mode="reduce-overhead"
  compile_graph    the compiled step, by hand as one CUDA graph
"""
import torch
import torch.nn.functional as F

from common import COMPILE, DEVICE, GPU, attempt, captured, device_us, host_ns, kernels, report, sized

IMAGES = sized(60000, 256)

images = torch.randint(0, 256, (IMAGES, 784), dtype=torch.uint8, device=DEVICE)
labels = torch.randint(0, 10, (IMAGES,), dtype=torch.int64, device=DEVICE)
order = torch.arange(IMAGES, device=DEVICE)  # as firn's side: a new random order costs both alike


def optimizer(name, parameters, in_graph):
    """Fused, and capturable only where it must be: that costs a little elsewhere."""
    fused = {"fused": True} if GPU else {}
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-3, **fused)
    return torch.optim.Adam(parameters, lr=1e-3, capturable=in_graph and GPU, **fused)


class Training:
    """One model with its optimizer and what a step of it is."""

    def __init__(self, make_net, setting, batch, micro_steps, mode):
        precision, rule = setting.split("_")
        self.dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
        if not GPU and self.dtype == torch.float16:
            self.dtype = torch.bfloat16  # the CPU's autocast knows no other
        self.net = make_net().to(DEVICE)
        self.optimizer = optimizer(rule, self.net.parameters(), mode.endswith("graph"))
        scale = precision == "fp16" and GPU
        self.scaler = torch.amp.GradScaler("cuda") if scale else None
        self.micro_steps = micro_steps
        self.micro = batch // micro_steps
        self.index = order[:batch].clone()  # what a graph reads
        self.position = 0
        self.loss = self.forward
        if mode in ("compile", "compile_graph"):
            self.loss = torch.compile(self.forward)
        elif mode == "reduce_overhead":
            self.loss = torch.compile(self.forward, mode="reduce-overhead")

    def forward(self, x, y):
        with torch.autocast(DEVICE, dtype=self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            return F.cross_entropy(self.net(x), y)

    def next_batch(self):
        """The indices of the next batch, where the step looks for them."""
        batch = self.index.numel()
        if self.position + batch > IMAGES:
            self.position = 0
        self.index.copy_(order[self.position:self.position + batch])
        self.position += batch

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        for i in range(self.micro_steps):
            index = self.index[i * self.micro:(i + 1) * self.micro]
            x = images[index].to(self.dtype or torch.float32).mul_(1 / 255)
            loss = self.loss(x, labels[index])
            if self.micro_steps > 1:
                loss = loss / self.micro_steps
            (self.scaler.scale(loss) if self.scaler else loss).backward()
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()


def measure(work, make_net, setting, batch, micro_steps, mode, suffix=""):
    """`suffix` is put to the mode's name."""
    training = Training(make_net, setting, batch, micro_steps, mode)
    step = captured(training.step, warm_up=5) if mode.endswith("graph") else training.step

    def call():
        training.next_batch()
        if mode == "reduce_overhead":
            torch.compiler.cudagraph_mark_step_begin()
        step()

    for _ in range(sized(5, 1)):
        call()
    report(work, mode + suffix, setting, device_us(call), nodes=kernels(call))
    if mode == "graph":
        report(work + "_replay_host", mode + suffix, setting, host_ns(step), unit="ns")


def measure_all(work, make_net, setting, batch, micro_steps, compiled, suffix=""):
    """In every mode there is; in those that compile, which take most of the time, where `compiled`."""
    modes = ["eager"] + (["graph"] if GPU else [])
    if COMPILE and compiled:
        modes += ["compile", "reduce_overhead", "compile_graph"]
    for mode in modes:
        attempt(f"{work} {setting} {mode}{suffix}",
                lambda: measure(work, make_net, setting, batch, micro_steps, mode, suffix))
        if COMPILE:
            torch._dynamo.reset()
