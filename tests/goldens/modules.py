#!/usr/bin/env python3
"""Writes tests/goldens/modules.safetensors: transformer layers, weight norm, spectral norm and maxima of bags, computed
by PyTorch.

A record has the operands as inputs, then the parameters and buffers in firn's order; the weights of attention to a
memory are cut as firn has them. Layers with spectral norm have y, u and v in a row as their output. Everything has a
gradient but integers and buffers. The format is that of tests/support/golden.h.

Run: python3 tests/goldens/modules.py  (needs PyTorch >= 2.1)
"""

import pathlib
import zlib

import golden
import torch
from torch import nn
from torch.nn.utils import parametrizations

OUT = pathlib.Path(__file__).parent / "modules.safetensors"
WIDTH, HEADS = 4, 2
file = golden.File(f"tests/goldens/modules.py with PyTorch {torch.__version__}")


def cut(name, t, width):
    """What firn has in place of a tensor of PyTorch's."""
    if "multihead_attn.in_proj" not in name:
        return [t]
    return [t[:width], t[width:]]


def ordered(state):
    """[(name, tensor)] in firn's order: q.weight, q.bias, kv.weight, kv.bias of attention to a memory."""
    out = []
    for name, t in state:
        if name.endswith("multihead_attn.in_proj_bias"):
            (_, q), (_, kv) = out[-2:]
            out[-2:] = [(name, q), (name, t[:WIDTH]), (name, kv), (name, t[WIDTH:])]
        else:
            out += [(name, part) for part in cut(name, t, WIDTH)]
    return out


def record(name, module, operands, call=lambda m, *x: m(*x), buffers=()):
    operands = [x.requires_grad_() if x.dtype == torch.float64 else x for x in operands]
    state = [(n, p.detach().clone()) for n, p in module.named_parameters()]
    before = [(n, b.clone()) for n, b in module.named_buffers()]
    y = call(module, *operands)
    seed = torch.rand(y.shape, dtype=torch.float64) * 2 - 1
    y.backward(seed)
    inputs = [(x, x.grad) for x in operands]
    gradients = ordered([(n, p.grad) for n, p in module.named_parameters()])
    inputs += [(p, g) for (_, p), (_, g) in zip(ordered(state), gradients)]
    inputs += [(b, None) for _, b in before]
    file.record(name, [x for x, _ in inputs], y, seed,
                {i: g for i, (_, g) in enumerate(inputs) if g is not None})


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64)


def prepared(module, scale=0.5):
    module = module.double()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(normal(*p.shape) * scale)
    return module


def layer(kind, **options):
    return kind(WIDTH, HEADS, dim_feedforward=6, dropout=0.0, batch_first=True, **options)


def hidden_after(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def hidden_behind(lengths, n):
    return torch.arange(n) >= lengths[:, None]


def case(name, make, operands, **rest):
    torch.manual_seed(zlib.crc32(name.encode()))
    record(name, make(), operands(), **rest)


X = lambda: [normal(2, 3, WIDTH)]
PAIR = lambda: [normal(2, 3, WIDTH), normal(2, 5, WIDTH)]
ENCODER, DECODER = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
LENGTHS = lambda: [torch.tensor([2, 3])]
case("encoder layer", lambda: prepared(layer(ENCODER)), X)
case("encoder layer norm_first gelu causal", lambda: prepared(layer(ENCODER, norm_first=True, activation="gelu")), X,
     call=lambda m, x: m(x, src_mask=hidden_after(3)))
case("encoder layer without bias, lengths", lambda: prepared(layer(ENCODER, bias=False)), lambda: X() + LENGTHS(),
     call=lambda m, x, n: m(x, src_key_padding_mask=hidden_behind(n, 3)))
case("encoder", lambda: prepared(nn.TransformerEncoder(layer(ENCODER), 2, nn.LayerNorm(WIDTH))), X)
case("decoder layer", lambda: prepared(layer(DECODER)), PAIR)
case("decoder layer norm_first causal, lengths of the memory", lambda: prepared(layer(DECODER, norm_first=True)),
     lambda: PAIR() + [torch.tensor([5, 1])],
     call=lambda m, x, memory, n: m(x, memory, tgt_mask=hidden_after(3), memory_key_padding_mask=hidden_behind(n, 5)))
case("decoder", lambda: prepared(nn.TransformerDecoder(layer(DECODER), 2)), PAIR)


def spectral(m, x):
    y = m(x)
    p = m.parametrizations.weight[0]
    return torch.cat([y.flatten(), p._u.detach().clone(), p._v.detach().clone()])


def normed(make, norm, train=True, **options):
    def module():
        m = norm(make().double(), **options)
        with torch.no_grad():
            for p in m.parameters():
                p.copy_(normal(*p.shape))
        return m.train(train)

    return module


IMAGES = lambda: [normal(1, 2, 4, 3)]
case("weight_norm linear", normed(lambda: nn.Linear(3, 4), parametrizations.weight_norm), lambda: [normal(2, 3)])
case("weight_norm conv2d axis 1", normed(lambda: nn.Conv2d(2, 3, 2), parametrizations.weight_norm, dim=1), IMAGES)
case("weight_norm conv2d of all", normed(lambda: nn.Conv2d(2, 3, 2), parametrizations.weight_norm, dim=None), IMAGES)
case("spectral_norm linear", normed(lambda: nn.Linear(3, 4), parametrizations.spectral_norm), lambda: [normal(2, 3)],
     call=spectral)
case("spectral_norm conv2d, 3 iterations",
     normed(lambda: nn.Conv2d(2, 3, 2), parametrizations.spectral_norm, n_power_iterations=3), IMAGES, call=spectral)
case("spectral_norm conv_transpose2d", normed(lambda: nn.ConvTranspose2d(2, 3, 2), parametrizations.spectral_norm), IMAGES,
     call=spectral)
case("spectral_norm linear in evaluation", normed(lambda: nn.Linear(3, 4), parametrizations.spectral_norm, train=False),
     lambda: [normal(2, 3)], call=spectral)

BAGS = lambda: [torch.randint(0, 5, (9,)), torch.tensor([0, 2, 2, 5])]
case("embedding_bag max", lambda: nn.EmbeddingBag(5, 3, mode="max", padding_idx=1).double(), BAGS)

file.write(OUT)
