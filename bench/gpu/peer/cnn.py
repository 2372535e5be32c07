"""A training step of the CNN of two convolutions and two dense layers (training.py), batches of 64, in both
memory formats: modes that end in _nhwc have their images and weights in channels-last."""
import torch

from common import sized
from training import measure_all

WIDE = sized(32, 8)
torch.backends.cudnn.allow_tf32 = False  # FP32 that is FP32
torch.backends.cudnn.benchmark = True    # the fastest algorithm of each convolution


class Cnn(torch.nn.Module):
    def __init__(self, memory_format):
        super().__init__()
        self.memory_format = memory_format
        self.conv1 = torch.nn.Conv2d(1, WIDE, 3)
        self.conv2 = torch.nn.Conv2d(WIDE, 2 * WIDE, 3)
        self.fc1 = torch.nn.Linear(2 * WIDE * 144, 4 * WIDE)
        self.fc2 = torch.nn.Linear(4 * WIDE, 10)
        self.to(memory_format=memory_format)

    def forward(self, x):
        x = x.view(-1, 1, 28, 28).contiguous(memory_format=self.memory_format)
        x = torch.relu_(self.conv2(torch.relu_(self.conv1(x))))
        x = torch.max_pool2d(x, 2).flatten(1)
        return self.fc2(torch.relu_(self.fc1(x)))


for setting in ("fp16_adam", "fp32_adam", "bf16_adam"):
    compiled = setting == "fp16_adam"
    measure_all("cnn_b64", lambda: Cnn(torch.contiguous_format), setting, sized(64, 4), 1, compiled)
    measure_all("cnn_b64", lambda: Cnn(torch.channels_last), setting, sized(64, 4), 1, False, "_nhwc")
