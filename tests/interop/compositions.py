"""What PyTorch has no single operation for, or no OpInfo: each is composed of its operations, with samples that
reach every option of firn's. A Composition stands for an OpInfo in against_torch.py."""
import math

import torch
import torch.nn.functional as F


class Sample:
    """Arguments of a call, as in PyTorch's SampleInput. `length`: the number of terms that one element of a result
    or of a gradient sums up; None if against_torch.py is to take the largest operand's."""

    def __init__(self, input, args=(), kwargs=None, length=None):
        self.input, self.args, self.kwargs, self.length = input, tuple(args), kwargs or {}, length


class Composition:
    supports_autograd = supports_gradgrad = True
    dtypes = {torch.float32, torch.float64, torch.float16, torch.bfloat16}

    def __init__(self, op, samples, dtypes=None):
        self.op, self.samples, self.dtypes = op, samples, dtypes or self.dtypes

    def supported_dtypes(self, device):
        return self.dtypes

    supported_backward_dtypes = supported_dtypes

    def sample_inputs(self, device, dtype, requires_grad):
        return self.samples(Random(dtype, requires_grad))


class Random:
    """Operands of one dtype, the same in every run."""

    def __init__(self, dtype, requires_grad):
        self.dtype, self.requires_grad = dtype, requires_grad
        self.generator = torch.Generator().manual_seed(7)

    def plain(self, *shape):
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(self.dtype)

    def tensor(self, *shape):
        return self.plain(*shape).requires_grad_(self.requires_grad)

    def heads(self, b, h, n, d):
        """[b, h, n, d], in memory [b, n, h, d]."""
        return self.plain(b, n, h, d).transpose(1, 2).requires_grad_(self.requires_grad)

    def weight(self, *shape):
        """Of a layer: its outputs are of the size of its inputs."""
        return (self.plain(*shape) / math.sqrt(shape[-1])).requires_grad_(self.requires_grad)

    def mask(self, *shape):
        return torch.rand(shape, generator=self.generator) < 0.7

    def numbers(self, end, *shape):
        return torch.randint(end, shape, generator=self.generator)


def compute(x):
    """x in the dtype that firn computes in."""
    return x if x.dtype == torch.float64 else x.float()


# ---- Attention ----

def seen_pairs(q, k, causal=False, window=None, lengths=None, mask=None):
    """bool [b, h, n, m], or None if every query sees every key."""
    n, m = q.size(2), k.size(2)
    if not causal and window is None and lengths is None and mask is None:
        return None
    seen = torch.ones(q.size(0), q.size(1), n, m, dtype=torch.bool)
    place, key = torch.arange(n)[:, None] + m - n, torch.arange(m)
    if causal:
        seen = seen & (key <= place)
    if window is not None:
        seen = seen & ((key - place).abs() < window)
    if lengths is not None:
        seen = seen & (key < lengths[:, None, None, None])
    return seen if mask is None else seen & mask


def attention(q, k, v, bias=None, causal=False, window=None, lengths=None, mask=None, scale=None):
    gqa = q.size(1) != k.size(1)
    seen = seen_pairs(q, k, causal, window, lengths, mask)
    if bias is not None:
        added = bias if seen is None else torch.where(seen, bias, -torch.inf)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale, enable_gqa=gqa)
    if seen is None or causal and window is lengths is mask is None and q.size(2) == k.size(2):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=gqa)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale, enable_gqa=gqa)


def attention_samples(random):
    def sample(b, h, hk, n, m, d, dv, strided=False, bias=None, **options):
        tensor = random.heads if strided else random.tensor
        length = d + dv + max(m, n * h // max(hk, 1)) + (0 if bias is None else b * h * n)
        added = [] if bias is None else [random.tensor(*bias)]
        return Sample(tensor(b, h, n, d), [tensor(b, hk, m, d), tensor(b, hk, m, dv), *added], options, length)

    yield sample(2, 3, 3, 5, 7, 4, 4)
    yield sample(2, 4, 2, 33, 33, 8, 8, causal=True)
    yield sample(1, 6, 1, 5, 9, 6, 3, causal=True, scale=0.3)
    yield sample(1, 2, 2, 9, 4, 6, 6, causal=True)  # the first queries see no key
    yield sample(2, 4, 1, 12, 20, 8, 5, strided=True, window=4)
    yield sample(2, 4, 4, 20, 20, 8, 8, strided=True, causal=True, window=1)
    yield sample(3, 2, 1, 6, 10, 4, 4, lengths=torch.tensor([10, 0, 3]))
    yield sample(2, 2, 2, 6, 10, 4, 4, mask=random.mask(10), scale=-0.7)
    yield sample(2, 4, 2, 6, 10, 4, 4, mask=random.mask(6, 10))
    yield sample(2, 2, 1, 6, 10, 4, 4, mask=random.mask(2, 1, 6, 1))
    yield sample(2, 2, 1, 6, 10, 4, 1, mask=random.mask(2, 2, 6, 10), causal=True, lengths=torch.tensor([4, 10]))
    yield sample(1, 1, 1, 1, 1, 1, 1, scale=0.0)
    yield sample(2, 2, 1, 130, 300, 33, 20, causal=True)
    yield sample(1, 4, 2, 200, 131, 16, 65, strided=True)
    yield sample(2, 2, 2, 140, 140, 64, 64, strided=True, causal=True, window=50, lengths=torch.tensor([140, 77]))
    yield sample(1, 2, 1, 70, 260, 9, 9, mask=random.mask(1, 2, 70, 260), window=100)
    yield sample(2, 4, 2, 9, 12, 8, 5, bias=(4, 9, 12))
    yield sample(2, 4, 1, 12, 12, 8, 8, bias=(12, 12), causal=True, scale=0.4)
    yield sample(2, 2, 2, 70, 90, 16, 16, bias=(2, 1, 1, 90))
    yield sample(2, 4, 2, 33, 40, 8, 8, bias=(4, 1, 40), lengths=torch.tensor([40, 7]), strided=True)
    yield sample(1, 2, 1, 70, 150, 9, 9, bias=(1, 2, 70, 150), window=60, causal=True)
    yield sample(0, 2, 1, 4, 4, 4, 4)
    yield sample(2, 2, 1, 0, 4, 4, 4)
    yield sample(2, 2, 1, 4, 4, 4, 0)


# ---- Rotary positions ----

def turned(x, positions=None, offset=0, theta=10000.0, interleaved=False):
    n, d = x.shape[-2:]
    if positions is None:
        positions = torch.arange(offset, offset + n)
    frequency = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = positions.double()[..., None] * frequency
    if positions.dim() == 2 and x.dim() == 4:
        angle = angle[:, None]
    wide = compute(x)
    cos, sin = angle.cos().to(wide.dtype), angle.sin().to(wide.dtype)
    a, b = (wide[..., ::2], wide[..., 1::2]) if interleaved else wide.chunk(2, -1)
    parts = [a * cos - b * sin, b * cos + a * sin]
    return (torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)).to(x.dtype)


def rope_samples(random):
    def sample(x, **options):
        last = options["positions"].abs().max() if "positions" in options else options.get("offset", 0) + x.size(-2)
        return Sample(x, [], options, 2 + abs(int(last)))  # an angle is as many times as inexact as a frequency

    for interleaved in (False, True):
        yield sample(random.tensor(5, 8), interleaved=interleaved)
        yield sample(random.tensor(2, 5, 6), interleaved=interleaved, offset=-3)
        yield sample(random.tensor(2, 3, 7, 12), interleaved=interleaved, theta=100.0)
        yield sample(random.heads(2, 3, 7, 64), interleaved=interleaved, offset=9)
        yield sample(random.heads(2, 3, 7, 6), interleaved=interleaved, positions=random.numbers(40, 7))
        yield sample(random.tensor(2, 3, 7, 2), interleaved=interleaved, positions=random.numbers(40, 2, 7).int())
        yield sample(random.tensor(3, 4, 10), interleaved=interleaved, positions=random.numbers(40, 3, 4) - 20)
        yield sample(random.tensor(2, 0, 4), interleaved=interleaved)


# ---- Gated units ----

def swiglu_samples(random):
    yield Sample(random.tensor(3, 5), [random.tensor(3, 5)])
    yield Sample(random.tensor(2, 1, 40), [random.tensor(3, 1)])
    yield Sample(random.tensor(), [random.tensor()])
    yield Sample(random.heads(2, 3, 4, 5), [random.tensor(2, 3, 4, 5)])
    yield Sample(random.tensor(0, 5), [random.tensor(5)])


def gated(x, gate, up, down, gate_bias=None, up_bias=None, down_bias=None):
    return F.linear(F.silu(F.linear(x, gate, gate_bias)) * F.linear(x, up, up_bias), down, down_bias)


def gated_samples(random):
    def sample(bias, hidden, *shape):
        width, weight = shape[-1], random.weight
        weights = [weight(hidden, width), weight(hidden, width), weight(width, hidden)]
        biases = [weight(hidden), weight(hidden), weight(width)] if bias else []
        return Sample(random.tensor(*shape), weights + biases, {}, width + hidden + math.prod(shape[:-1]))

    yield sample(False, 12, 4, 6)
    yield sample(True, 12, 2, 3, 6)
    yield sample(True, 1, 1)
    yield sample(False, 130, 70, 40)


# ---- A loss over a vocabulary ----

def linear_cross_entropy(x, weight, target, bias=None, class_weights=None, ignore_index=-100, label_smoothing=0.0,
                         row_weights=None, z_loss=0.0, reduction="mean", chunk_rows=0, chunk_classes=0):
    logits = F.linear(compute(x), compute(weight), None if bias is None else compute(bias)).flatten(0, -2)
    target = target.flatten().long()
    valid = target != ignore_index
    rows = compute(torch.ones_like(target, dtype=x.dtype) if row_weights is None else row_weights.flatten())
    classes = None if class_weights is None else compute(class_weights)
    terms = F.cross_entropy(logits, target, classes, ignore_index=ignore_index, label_smoothing=label_smoothing,
                            reduction="none")
    total = (rows * (terms + logits.logsumexp(-1).square() * z_loss * valid)).sum()
    if reduction == "sum":
        return total
    return total / (rows * valid * (1 if classes is None else classes[target.where(valid, target.new_zeros(()))])).sum()


def vocabulary_samples(random):
    def sample(leading, width, classes, bias=True, **options):
        target = random.numbers(classes, *leading)
        if "ignore_index" in options:
            target[..., 0] = options["ignore_index"]
        rows = math.prod(leading)
        return Sample(random.tensor(*leading, width),
                      [random.weight(classes, width), target, random.weight(classes) if bias else None],
                      options, width + classes + rows)

    def positive(*shape):
        return random.plain(*shape).abs() + 0.5

    yield sample([6], 5, 7)
    yield sample([2, 5], 8, 11, bias=False, reduction="sum")
    yield sample([2, 3, 4], 8, 9, ignore_index=-100)
    yield sample([9], 8, 10, ignore_index=3, label_smoothing=0.1, chunk_rows=4)
    yield sample([9], 8, 10, class_weights=positive(10), label_smoothing=0.2, chunk_classes=3)
    yield sample([3, 3], 8, 10, row_weights=positive(3, 3), z_loss=0.01, ignore_index=-1, chunk_rows=2, chunk_classes=4)
    yield sample([7], 6, 10, z_loss=0.5, class_weights=positive(10), row_weights=positive(7), reduction="sum")
    yield sample([1], 1, 1)
    yield sample([70], 33, 300, chunk_rows=32, chunk_classes=128)
    yield sample([5, 60], 24, 130, bias=False, label_smoothing=0.1, z_loss=1e-4)


# ---- Layers with heads ----

def module_of(x, memory_width, in_weight, in_bias, out_weight, out_bias, heads):
    """torch.nn.MultiheadAttention with these parameters, as a function."""
    width = x.size(-1)
    layer = torch.nn.MultiheadAttention(width, heads, bias=in_bias is not None, kdim=memory_width, vdim=memory_width,
                                        batch_first=True, dtype=x.dtype)
    parameters = {"out_proj.weight": out_weight}
    if memory_width == width:
        parameters["in_proj_weight"] = in_weight[0] if len(in_weight) == 1 else torch.cat(in_weight)
    else:
        parameters["q_proj_weight"] = in_weight[0]
        parameters["k_proj_weight"], parameters["v_proj_weight"] = in_weight[1].chunk(2)
    if in_bias is not None:
        parameters["in_proj_bias"], parameters["out_proj.bias"] = torch.cat(in_bias), out_bias
    return lambda *operands, **options: torch.func.functional_call(
        layer, parameters, operands, {"need_weights": False, **options})[0]


def hidden_keys(m, causal, lengths, mask):
    """PyTorch's masks are true for what is not seen."""
    hidden = {"attn_mask": None if mask is None else ~mask}
    if causal:
        hidden["attn_mask"] = torch.ones(m, m, dtype=torch.bool).triu(1)
    if lengths is not None:
        hidden["key_padding_mask"] = torch.arange(m) >= lengths[:, None]
    return hidden


def self_attention(x, weight, out_weight, bias=None, out_bias=None, heads=1, causal=False, lengths=None, mask=None):
    layer = module_of(x, x.size(-1), [weight], None if bias is None else [bias], out_weight, out_bias, heads)
    return layer(x, x, x, **hidden_keys(x.size(1), causal, lengths, mask))


def self_attention_samples(random):
    def sample(b, n, width, bias=True, **options):
        weight = random.weight
        return Sample(random.tensor(b, n, width),
                      [weight(3 * width, width), weight(width, width)] + ([weight(3 * width), weight(width)] if bias else []),
                      options, 2 * width + (b + 1) * n)

    yield sample(2, 5, 12, heads=3)
    yield sample(2, 9, 8, bias=False, heads=2, causal=True)
    yield sample(3, 6, 8, heads=1, lengths=torch.tensor([6, 1, 4]))
    yield sample(2, 7, 8, heads=4, mask=random.mask(7, 7) | torch.eye(7, dtype=torch.bool))
    yield sample(1, 100, 48, heads=4, causal=True, lengths=torch.tensor([80]))


def memory_attention(x, memory, q_weight, kv_weight, out_weight, q_bias=None, kv_bias=None, out_bias=None, heads=1,
                     lengths=None, mask=None):
    bias = None if q_bias is None else [q_bias, kv_bias]
    layer = module_of(x, memory.size(-1), [q_weight, kv_weight], bias, out_weight, out_bias, heads)
    return layer(x, memory, memory, **hidden_keys(memory.size(1), False, lengths, mask))


def memory_attention_samples(random):
    def sample(b, n, m, width, memory, bias=True, **options):
        weight = random.weight
        weights = [weight(width, width), weight(2 * width, memory), weight(width, width)]
        biases = [weight(width), weight(2 * width), weight(width)] if bias else []
        return Sample(random.tensor(b, n, width), [random.tensor(b, m, memory), *weights, *biases], options,
                      2 * width + memory + b * (n + m))

    yield sample(2, 5, 7, 12, 12, heads=3)
    yield sample(2, 5, 7, 12, 10, heads=2, mask=random.mask(5, 7))
    yield sample(3, 4, 6, 8, 5, bias=False, heads=4, lengths=torch.tensor([6, 2, 3]))
    yield sample(1, 80, 150, 32, 20, heads=2)


def grouped_attention(x, weight, out_weight, bias=None, out_bias=None, heads=1, key_heads=1, causal=False, window=None,
                      theta=None, interleaved=False, lengths=None):
    """Self-attention with grouped heads and rotary positions, as in Llama and Mistral."""
    width = weight.size(0) // (heads + 2 * key_heads)
    parts = F.linear(x, weight, bias).unflatten(2, (-1, width)).transpose(1, 2).split([heads, key_heads, key_heads], 1)
    q, k, v = parts if theta is None else [*(turned(t, None, 0, theta, interleaved) for t in parts[:2]), parts[2]]
    y = attention(q, k, v, None, causal, window, lengths)
    return F.linear(y.transpose(1, 2).flatten(2), out_weight, out_bias)


def grouped_attention_samples(random):
    def sample(b, n, width, head_width, heads, key_heads, bias=False, **options):
        inner, weight = (heads + 2 * key_heads) * head_width, random.weight
        return Sample(random.tensor(b, n, width),
                      [weight(inner, width), weight(width, heads * head_width)] + ([weight(inner), weight(width)] if bias else []),
                      {"heads": heads, "key_heads": key_heads, **options}, width + inner + (b + heads) * n)

    yield sample(2, 6, 8, 4, 2, 2, theta=100.0)
    yield sample(2, 9, 12, 6, 4, 2, bias=True, causal=True, theta=10000.0, interleaved=True)
    yield sample(1, 20, 12, 4, 3, 1, causal=True, window=5, theta=500.0, lengths=torch.tensor([15]))
    yield sample(2, 6, 10, 3, 4, 1, window=2)
    yield sample(1, 90, 32, 16, 4, 2, causal=True, theta=10000.0)


# ---- Sums of products ----

EQUATIONS = {
    "bhid,bhjd->bhij": [(2, 3, 4, 5), (2, 3, 6, 5)], "bihd,bjhd->bhij": [(2, 4, 3, 5), (2, 6, 3, 5)],
    "bij,bjk": [(3, 2, 4), (3, 4, 5)], "ij,jk->ki": [(2, 3), (3, 4)], "ij,ij": [(2, 3), (2, 3)],
    "ij,kj->ik": [(1, 3), (4, 1)], "ij,j->i": [(3, 4), (1,)], "iij,jk->ik": [(3, 3, 2), (2, 4)], "ii->i": [(4, 4)],
    "iijj": [(2, 2, 3, 3)], "...ij,...jk->...ik": [(2, 1, 3, 4), (5, 4, 2)], "i...,...j": [(2, 3, 4), (4, 2)],
    "...a->a": [(2, 3, 4)], "Ba": [(2, 3)], " a b , b -> a ": [(2, 3), (3,)], ",ab": [(), (2, 3)], "": [()],
    "ij,jk,kl": [(2, 3), (3, 4), (4, 5)], "bi,oij,bj->bo": [(4, 2), (5, 2, 3), (4, 3)],
    "ab,bc,cd,de,ea": [(2, 3), (3, 2), (2, 4), (4, 3), (3, 2)], "a,b,c->cab": [(2,), (3,), (4,)],
    "ab,cd->": [(2, 3), (4, 5)], "abc,bcd->ad": [(2, 3, 0), (3, 0, 2)], "ab,bc->ac": [(0, 3), (3, 2)],
    "i,j->": [(3,), (1,)], "abcd,abef,cdef->": [(2, 3, 2, 3), (2, 3, 4, 2), (2, 3, 4, 2)],
}


def einsum_samples(random):
    for equation, shapes in EQUATIONS.items():
        length = sum(math.prod(shape) for shape in shapes) * len(shapes)
        yield Sample([random.tensor(*shape) for shape in shapes], [equation], {}, length)
    yield Sample([random.heads(2, 3, 4, 5), random.heads(2, 3, 6, 5)], ["bhid,bhjd->bhij"])
    yield Sample([random.tensor(70, 130), random.tensor(130, 40), random.tensor(40, 3)], ["ij,jk,kl->li"], {}, 200)


def tensordot_samples(random):
    def sample(a, b, axes, other_axes):
        return Sample(random.tensor(*a), [random.tensor(*b), axes, other_axes])

    yield sample((2, 3, 4), (4, 3, 5), [1, 2], [1, 0])
    yield sample((2, 3, 4), (4, 3, 5), [-1, 1], [0, -2])
    yield sample((2, 1, 4), (4, 3, 5), [1, 2], [1, 0])
    yield sample((2, 3), (4, 5), [], [])
    yield sample((2, 3), (3, 2), [0, 1], [1, 0])
    yield sample((0, 3), (3, 2), [1], [0])


def fold_samples(random):
    for shape, window, options in [((2, 3, 5, 6), (2, 2), {}), ((3, 5, 6), (3, 2), {"padding": 1}),
                                   ((1, 2, 7, 6), (2, 3), {"dilation": (2, 1), "padding": (0, 2), "stride": (1, 2)}),
                                   ((2, 1, 6, 6), (3, 3), {"stride": 3}), ((0, 2, 4, 4), (2, 2), {})]:
        columns = F.unfold(torch.zeros(shape), window, **options).shape
        yield Sample(random.tensor(*columns), [shape[-2:], window], options)


# ---- Factors of matrices ----

def of_svd(x):
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    return u @ u.mT, s, vt.mT @ vt, (u * (-s).exp()[..., None, :]) @ vt


def of_eigh(x):
    w, v = torch.linalg.eigh(x + x.mT)
    return w, (v * w.sin()[..., None, :]) @ v.mT


def matrix_samples(shapes):
    def samples(random):
        for shape in shapes:
            yield Sample(random.tensor(*shape), length=100 * math.prod(shape))  # gaps between values are below 1

    return samples


def lstsq_samples(random):
    for a, b in [((4, 3), (4, 2)), ((2, 4), (2, 3)), ((3, 3), (3, 1)), ((2, 5, 3), (2, 5, 2)), ((2, 5, 3), (2, 5)), ((30, 8), (30, 4))]:
        yield Sample(random.tensor(*a), [random.tensor(*b)], {}, 100 * math.prod(a))


COMPOSITIONS = {
    "composed.lstsq": Composition(lambda a, b: torch.linalg.lstsq(a, b, driver="gelsd").solution, lstsq_samples,
                                  {torch.float32, torch.float64}),
    "composed.svd": Composition(of_svd, matrix_samples([(3, 3), (5, 2), (2, 5), (2, 4, 3), (1, 1), (0, 2), (20, 12)]),
                                {torch.float32, torch.float64}),
    "composed.eigh": Composition(of_eigh, matrix_samples([(3, 3), (2, 4, 4), (1, 1), (0, 0), (20, 20)]),
                                 {torch.float32, torch.float64}),
    "composed.einsum": Composition(lambda operands, equation: torch.einsum(equation, *operands), einsum_samples),
    "composed.tensordot": Composition(lambda a, b, axes, other: torch.tensordot(a, b, [axes, other]), tensordot_samples),
    "composed.fold": Composition(F.fold, fold_samples),
    "composed.attention": Composition(attention, attention_samples),
    "composed.rope": Composition(turned, rope_samples),
    "composed.swiglu": Composition(lambda gate, up: F.silu(gate) * up, swiglu_samples),
    "composed.SwiGLU": Composition(gated, gated_samples),
    "composed.linear_cross_entropy": Composition(linear_cross_entropy, vocabulary_samples),
    "nn.MultiheadAttention": Composition(self_attention, self_attention_samples),
    "nn.MultiheadAttention/memory": Composition(memory_attention, memory_attention_samples),
    "composed.MultiHeadAttention": Composition(grouped_attention, grouped_attention_samples),
}
