"""A small set in FashionMNIST's format, for scripts that run the sample."""
import random
import struct


def write_set(folder, training, test):
    """Random images whose label can be seen: a bright row for each class."""
    draw = random.Random(1)
    for name, n in (("train", training), ("t10k", test)):
        labels = bytes(draw.randrange(10) for _ in range(n))
        images = bytearray(draw.randbytes(n * 784))
        for i, label in enumerate(labels):
            at = i * 784 + label * 56
            images[at:at + 56] = b"\xff" * 56
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, n, 28, 28) + images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, n) + labels)
