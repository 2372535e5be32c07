#!/usr/bin/env python3
"""Writes tests/goldens/rnn.safetensors and rnn_cells.safetensors: recurrent layers and cells in all options, forward
and backward, computed by PyTorch.

The inputs of a record are x, h, c (of an LSTM) and lengths (i64, if the sequences are packed), then the layer's
parameters in PyTorch's order. The output is the layer's output, h and c in a row; there is a gradient for each
input but lengths. Those of a cell are alike, without steps and layers. The format is that of tests/support/golden.h. A
name ends with the options.

Run: python3 tests/goldens/rnn.py  (needs PyTorch >= 1.13)
"""

import itertools
import pathlib
import zlib

import golden
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

OUT = pathlib.Path(__file__).parent
STEPS, BATCH, IN, UNITS = 4, 3, 2, 3
LAYERS = {
    "rnn_tanh": lambda **o: torch.nn.RNN(IN, UNITS, **o),
    "rnn_relu": lambda **o: torch.nn.RNN(IN, UNITS, nonlinearity="relu", **o),
    "gru": lambda **o: torch.nn.GRU(IN, UNITS, **o),
    "lstm": lambda **o: torch.nn.LSTM(IN, UNITS, **o),
}


def add_layer(file, cell, layers=1, bias=True, both=False, first=False, p=0, packed=False):
    names = {"layers=2": layers == 2, "bias=0": not bias, "both": both, "first": first, "p": p, "packed": packed}
    name = " ".join([cell, *(n for n, on in names.items() if on)])
    torch.manual_seed(zlib.crc32(name.encode()))
    options = dict(num_layers=layers, bias=bias, bidirectional=both, batch_first=first)
    if p:
        options["proj_size"] = p
    layer = LAYERS[cell](**options).double()
    states = layers * (2 if both else 1)
    x = torch.randn((BATCH, STEPS, IN) if first else (STEPS, BATCH, IN), dtype=torch.float64)
    given = [x, torch.randn(states, BATCH, p or UNITS, dtype=torch.float64)]
    if cell == "lstm":
        given.append(torch.randn(states, BATCH, UNITS, dtype=torch.float64))
    for t in given:
        t.requires_grad_()
    state = tuple(given[1:]) if cell == "lstm" else given[1]
    lengths = torch.tensor([2, 4, 1])
    if packed:
        y, last = layer(pack_padded_sequence(x, lengths, first, False), state)
        y, _ = pad_packed_sequence(y, first, 0.0, STEPS)
    else:
        y, last = layer(x, state)
    out = torch.cat([t.flatten() for t in (y, *(last if cell == "lstm" else [last]))])
    operands = [*given, *([lengths] if packed else []), *layer.parameters()]
    add(file, name, operands, out, lengths)


def add(file, name, operands, out, lengths=None):
    """Adds the record of an output, after backward from a random seed."""
    seed = torch.randn_like(out)
    out.backward(seed)
    file.record(name, operands, out, seed, {i: t.grad for i, t in enumerate(operands) if t is not lengths})


CELLS = {
    "rnn_tanh": lambda **o: torch.nn.RNNCell(IN, UNITS, **o),
    "rnn_relu": lambda **o: torch.nn.RNNCell(IN, UNITS, nonlinearity="relu", **o),
    "gru": lambda **o: torch.nn.GRUCell(IN, UNITS, **o),
    "lstm": lambda **o: torch.nn.LSTMCell(IN, UNITS, **o),
}


def add_cell(file, cell, bias):
    name = cell if bias else f"{cell} bias=0"
    torch.manual_seed(zlib.crc32(name.encode()))
    layer = CELLS[cell](bias=bias).double()
    sizes = [IN, UNITS, UNITS] if cell == "lstm" else [IN, UNITS]
    given = [torch.randn(BATCH, n, dtype=torch.float64).requires_grad_() for n in sizes]
    y = layer(given[0], tuple(given[1:]) if cell == "lstm" else given[1])
    out = torch.cat([t.flatten() for t in (y if cell == "lstm" else [y])])
    add(file, name, [*given, *layer.parameters()], out)


def main():
    made_by = f"tests/goldens/rnn.py with PyTorch {torch.__version__}"
    file = golden.File(made_by)
    for cell, both, packed in itertools.product(LAYERS, (False, True), (False, True)):
        add_layer(file, cell, both=both, packed=packed)
        add_layer(file, cell, layers=2, both=both, packed=packed, first=both)
        add_layer(file, cell, bias=False, both=both, packed=packed)
        if cell == "lstm":
            add_layer(file, cell, both=both, packed=packed, p=2)
            add_layer(file, cell, layers=2, both=both, packed=packed, p=2)
    file.write(OUT / "rnn.safetensors")
    cells = golden.File(made_by)
    for cell, bias in itertools.product(CELLS, (True, False)):
        add_cell(cells, cell, bias)
    cells.write(OUT / "rnn_cells.safetensors")


if __name__ == "__main__":
    main()
