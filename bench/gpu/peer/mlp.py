"""A training step of the MLP 784-512-512-10 (training.py): batches of 64 and 4096, and 64 as 16 x 4."""
import torch

from common import sized
from training import measure_all

WIDTH = sized(512, 16)


def net():
    return torch.nn.Sequential(torch.nn.Linear(784, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH),
                               torch.nn.ReLU(), torch.nn.Linear(WIDTH, 10))


for work, batch, micro_steps in (("mlp_b64", sized(64, 8), 1), ("mlp_16x4", sized(64, 8), 4),
                                 ("mlp_b4096", sized(4096, 16), 1)):
    for setting in ("fp16_adam", "fp32_sgd", "fp32_adam", "bf16_adam"):
        # Compiling takes most of this script's time: where goals ask for it.
        compiled = setting == "fp16_adam" or (work, setting) == ("mlp_b64", "fp32_sgd")
        measure_all(work, net, setting, batch, micro_steps, compiled)
