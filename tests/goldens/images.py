#!/usr/bin/env python3
"""Writes tests/goldens/images.safetensors: PNG and JPEG files with their pixels, and scaled images.

Run: python3 tests/goldens/images.py  (needs numpy, Pillow >= 10 with libjpeg-turbo, and jpegtran:
apt-get install libjpeg-turbo-progs)
The format is described in tests/support/golden.h. A record `read NAME CHANNELS` has a file's bytes
as its input and its pixels [channels, height, width] as its output; `resize NAME` has two images.

PNG files are written here, byte by byte, and their pixels are what was written; Pillow is asked for
a second opinion. The pixels of JPEG files and scaled images are Pillow's.
"""

import io
import pathlib
import struct
import subprocess
import tempfile
import zlib

import golden
import numpy as np
import PIL
from PIL import Image

OUT = pathlib.Path(__file__).parent / "images.safetensors"
rng = np.random.default_rng(1)
out = golden.File(f"tests/goldens/images.py with Pillow {PIL.__version__}")


def record(name, source, output):
    source = np.frombuffer(source, np.uint8) if isinstance(source, bytes) else source
    out.record(name, [source], output)


CONVERTED = ["png grey 4", "png rgb 8", "png palette 4", "png rgba 16", "jpeg grey", "jpeg 4:2:0", "jpeg cmyk"]


def record_read(name, file, pixels, one, three):
    record(f"read {name} 0", file, pixels)
    if name in CONVERTED:
        record(f"read {name} 1", file, one)
        record(f"read {name} 3", file, three)


def planar(image):
    image = np.asarray(image, np.uint8)
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)


def luma(rgb):
    rgb = rgb.astype(np.uint32)
    return ((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16).astype(np.uint8)[None]


# ---- PNG (ISO/IEC 15948) --------------------------------------------------------------------------
def chunk(kind, data=b""):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(row, bits):
    """The samples of a row, in order, as bytes."""
    if bits == 16:
        return row.astype(">u2").tobytes()
    if bits == 8:
        return row.astype(np.uint8).tobytes()
    text = "".join(format(v, f"0{bits}b") for v in row.flat)
    text += "0" * (-len(text) % 8)
    return bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))


def filtered(rows, step):
    """Rows behind their filter types, each of which is used (section 9)."""
    before, out = bytes(len(rows[0]) if rows else 0), b""
    for y, row in enumerate(rows):
        kind, line = y % 5, bytearray()
        for i, v in enumerate(row):
            a = row[i - step] if i >= step else 0
            b, c = before[i], before[i - step] if i >= step else 0
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            line.append((v - [0, a, b, (a + b) // 2, paeth][kind]) % 256)
        out += bytes([kind]) + bytes(line)
        before = row
    return out


ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def png(samples, colour, bits, interlaced=False, chunks=b""):
    """samples: [height, width, channels] of `bits` bits."""
    height, width, channels = samples.shape
    step = max(1, channels * bits // 8)
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    data = b""
    for y, x, dy, dx in passes:
        part = samples[y::dy, x::dx]
        if part.size:
            data += filtered([packed(row, bits) for row in part], step)
    data = zlib.compress(data, 9)
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, int(interlaced))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunks
        + chunk(b"IDAT", data[:11]) + chunk(b"IDAT", data[11:])
        + chunk(b"tEXt", b"Comment\0between the rows and the end") + chunk(b"IEND")
    )


GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}


def add_png(name, colour, bits, interlaced=False, size=(6, 7), chunks=b"", palette=None):
    most = len(palette) if palette is not None else 1 << bits
    samples = rng.integers(0, most, (*size, CHANNELS[colour]))
    file = png(samples, colour, bits, interlaced, chunks)
    stored = {GREY_ALPHA: 1, RGBA: 3}.get(colour, CHANNELS[colour])
    values = samples[..., :stored]
    if palette is not None:
        pixels = palette[values[..., 0]].transpose(2, 0, 1).astype(np.uint8)
    elif bits == 16:
        pixels = ((values * 2 + 257) // 514).astype(np.uint8).transpose(2, 0, 1)
    else:
        pixels = (values * 255 // (2**bits - 1)).astype(np.uint8).transpose(2, 0, 1)
    three = pixels if pixels.shape[0] == 3 else pixels.repeat(3, 0)
    one = pixels if pixels.shape[0] == 1 else luma(pixels)
    if bits < 16:
        image = Image.open(io.BytesIO(file))
        assert (planar(image.convert("RGB")) == three).all(), name
        assert (planar(image.convert("RGB").convert("L")) == one).all(), name
    record_read(name, file, pixels, one, three)


colours = rng.integers(0, 256, (9, 3))
plte = chunk(b"PLTE", colours.astype(np.uint8).tobytes())
for bits in (1, 2, 4, 8, 16):
    add_png(f"png grey {bits}", GREY, bits)
add_png("png rgb 8", RGB, 8)
add_png("png rgb 16", RGB, 16)
add_png("png grey alpha 8", GREY_ALPHA, 8)
add_png("png grey alpha 16", GREY_ALPHA, 16)
add_png("png rgba 8", RGBA, 8)
add_png("png rgba 16", RGBA, 16)
two = chunk(b"PLTE", colours[:2].astype(np.uint8).tobytes())
add_png("png palette 1", PALETTE, 1, chunks=two, palette=colours[:2])
add_png("png palette 4", PALETTE, 4, chunks=plte, palette=colours)
add_png("png palette 8 with alpha", PALETTE, 8, chunks=plte + chunk(b"tRNS", bytes([0, 128])), palette=colours)
add_png("png rgb 8 with a transparent colour", RGB, 8, chunks=chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3)))
add_png("png grey 4 with a transparent grey", GREY, 4, chunks=chunk(b"tRNS", struct.pack(">H", 3)))
gamma = chunk(b"gAMA", struct.pack(">I", 100000))
add_png("png with gamma and text", RGB, 8, chunks=gamma + chunk(b"tEXt", b"Title\0x"))
add_png("png interlaced grey 1", GREY, 1, True, (9, 11))
add_png("png interlaced rgb 8", RGB, 8, True, (9, 11))
add_png("png interlaced rgba 16", RGBA, 16, True, (3, 2))
add_png("png interlaced palette 4", PALETTE, 4, True, (8, 8), plte, colours)
add_png("png of a pixel", RGB, 8, size=(1, 1))
add_png("png interlaced of a pixel", GREY, 8, True, (1, 1))


# ---- JPEG -----------------------------------------------------------------------------------------
def smooth(height, width):
    y, x = np.mgrid[0:height, 0:width]
    planes = [(x * 13 + y * 3) % 256, 255 - x * 5 - y, 90 + 60 * np.sin(x / 3 + y / 5)]
    return np.stack(planes, -1).astype(np.uint8)


def add_jpeg(name, image, jpegtran=(), **options):
    file = io.BytesIO()
    image.save(file, "JPEG", optimize=True, **options)
    file = file.getvalue()
    if jpegtran:
        file = subprocess.run(["jpegtran", *jpegtran], input=file, stdout=subprocess.PIPE, check=True).stdout
    image = Image.open(io.BytesIO(file))
    three = planar(image.convert("RGB"))
    one = planar(image.convert("RGB").convert("L"))
    record_read(name, file, one if image.mode == "L" else three, one, three)


picture = Image.fromarray(smooth(11, 13))
add_jpeg("jpeg grey", picture.convert("L"), quality=80)
add_jpeg("jpeg 4:4:4", picture, quality=90, subsampling=0)
add_jpeg("jpeg 4:2:2", picture, quality=80, subsampling=1)
add_jpeg("jpeg 4:2:0", picture, quality=75, subsampling=2)
add_jpeg("jpeg with restarts", picture, quality=75, subsampling=2, restart_marker_rows=1)
add_jpeg("jpeg progressive", picture, quality=80, progressive=True)
add_jpeg("jpeg progressive grey", picture.convert("L"), quality=80, progressive=True)
with tempfile.NamedTemporaryFile("w") as script:
    script.write("0: 0-0, 0, 0; 0: 1-63, 0, 0;")
    script.flush()
    add_jpeg("jpeg progressive of two scans", picture.convert("L"), ["-scans", script.name], quality=80)
add_jpeg("jpeg arithmetic", picture, ["-arithmetic"], quality=80)
add_jpeg("jpeg stored as rgb", picture, quality=80, keep_rgb=True)
add_jpeg("jpeg cmyk", picture.convert("CMYK"), quality=80)
add_jpeg("jpeg of a pixel", picture.crop((3, 3, 4, 4)), quality=80)
exif = Image.Exif()
exif[0x0112] = 6  # turned by a quarter
add_jpeg("jpeg with exif", picture.crop((0, 0, 9, 5)), quality=80, exif=exif)


# ---- Scaling --------------------------------------------------------------------------------------
def resized(image, height, width):
    planes = [Image.fromarray(p).resize((width, height), Image.Resampling.BILINEAR) for p in image]
    return np.stack([np.asarray(p) for p in planes])


for (h, w), (height, width) in [
    ((7, 9), (7, 9)), ((7, 9), (3, 4)), ((7, 9), (15, 20)), ((7, 9), (14, 4)), ((7, 9), (3, 18)),
    ((16, 16), (8, 8)), ((31, 23), (5, 7)), ((1, 1), (3, 4)), ((6, 40), (1, 1)), ((5, 5), (5, 9)),
    ((3, 64), (2, 3)),
]:  # fmt: skip
    image = rng.integers(0, 256, (2, h, w)).astype(np.uint8)
    image[1] = rng.choice([0, 255], (h, w))
    record(f"resize {h} {w} to {height} {width}", image, resized(image, height, width))

# torchvision's Resize(shorter side) and CenterCrop: the longer side is rounded down, and half a
# pixel at the border as Python rounds it.
for (h, w), (height, width) in [
    ((12, 17), (6, 6)), ((17, 12), (6, 6)), ((9, 20), (4, 6)), ((9, 10), (5, 2)), ((4, 5), (9, 9)),
    ((30, 11), (7, 4)), ((5, 7), (5, 5)), ((5, 9), (5, 6)),
]:  # fmt: skip
    image = rng.integers(0, 256, (1, h, w)).astype(np.uint8)
    tall, wide = (height, height * w // h) if height * w >= width * h else (width * h // w, width)
    top, left = round((tall - height) / 2), round((wide - width) / 2)
    cut = resized(image, tall, wide)[:, top : top + height, left : left + width]
    record(f"crop {h} {w} to {height} {width}", image, cut)

out.write(OUT)
