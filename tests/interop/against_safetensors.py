"""The models of the sample, saved by firn and loaded by PyTorch, and the other way round: the logits agree.
Run by scripts/interop safetensors."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "samples"))
from small_set import write_set  # noqa: E402


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)])

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(64 * 12 * 12, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x.unsqueeze(1)))))
        x = self.dropout1(torch.max_pool2d(x, 2))
        return self.fc2(self.dropout2(torch.relu(self.fc1(x.flatten(1)))))


class Block(nn.Module):
    def __init__(self, channels, wider):
        super().__init__()
        stride = 1 if channels == wider else 2
        self.body = nn.Sequential(
            nn.Conv2d(channels, wider, 3, stride, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU(),
            nn.Conv2d(wider, wider, 3, 1, 1, bias=False), nn.BatchNorm2d(wider))
        self.shortcut = nn.Identity() if channels == wider else nn.Sequential(
            nn.Conv2d(channels, wider, 1, stride, bias=False), nn.BatchNorm2d(wider))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        widths = [16, 16, 16, 32, 32, 64, 64]
        self.stages = nn.Sequential(*(Block(a, b) for a, b in zip(widths, widths[1:])))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.stages(torch.relu(self.norm(self.conv(x.unsqueeze(1)))))
        return self.fc(x.mean((2, 3)))


MODELS = {"mlp": Mlp, "cnn": Cnn, "resnet": ResNet}
# What firn's BatchNorm keeps of a cycle in mid-way; PyTorch has no counterpart.
OWN = (".pooled", ".pooled_count")
# Of the largest logit. In f32 a sum of 9,216 products is rounded in another order.
BOUNDS = {"f64": 1e-6, "f32": 5e-6}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", required=True, help="firn_logits")
    parser.add_argument("--sample", required=True, help="the sample's program")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_set(folder, 256, 16)
        images = torch.rand(64, 28, 28)
        save_file({"images": images}, folder / "images")

        def firn_logits(name, weights):
            run(arguments.logits, name, weights, folder / "images", folder / "logits")
            return load_file(folder / "logits")

        def differences(ours, net):
            """The largest difference, in each dtype."""
            with torch.no_grad():
                theirs = {"f32": net.eval()(images), "f64": net.double()(images.double())}
            return {t: ((ours[t] - v).abs().max() / v.abs().max()).item() for t, v in theirs.items()}

        for name, Model in MODELS.items():
            saved = folder / f"{name}.safetensors"
            run(arguments.sample, "--data", folder, "--model", name, "--epochs", "2", "--save", saved)
            state = {k: v for k, v in load_file(saved).items() if not k.endswith(OWN)}
            net = Model()
            net.load_state_dict(state, strict=True)
            there = differences(firn_logits(name, saved), net)

            # A few batches in training mode move the running statistics away from 0 and 1.
            other = Model().train()
            with torch.no_grad():
                for _ in range(3):
                    other(torch.rand(32, 28, 28))
            written = folder / f"{name}.torch.safetensors"
            save_file(other.state_dict(), written, metadata={"format": "pt"})
            back = differences(firn_logits(name, written), other)
            for t, bound in BOUNDS.items():
                print(f"{name:7} {t}: firn to PyTorch {there[t]:.1e}, PyTorch to firn {back[t]:.1e}, of {bound:.0e}")
                bad += not (there[t] <= bound and back[t] <= bound)
    print("interop: safetensors: " + ("all logits agree" if bad == 0 else f"{bad} comparisons differ"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
