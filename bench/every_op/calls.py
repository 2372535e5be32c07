"""The arguments that every_op gives an operation, by the parameters that the table of scripts/interop names.

FAMILIES has, for each family, patterns and a maker. A pattern is an operation's name ("cum*") or, in parentheses, the
table's list of parameters ("(input dim keepdim)"). The first that fits decides, names before parameters. A maker takes
operands (operands.py) and gives the arguments of one call, or of several by name. An operation that nothing fits takes
the largest of PyTorch's own samples.
"""
import fnmatch
import math
import re

import torch
import torch.nn.functional as F
from compositions import Sample
from operands import OWN, Operands

# Operations that are not timed: patterns, reason.
LEFT_OUT = [
    ("diagonal_copy expand_copy narrow_copy permute_copy split_with_sizes_copy t_copy transpose_copy unbind_copy"
     " unfold_copy unsqueeze_copy", "firn says it by a view, which copies nothing"),
    ("nn.MultiheadAttention* composed.MultiHeadAttention composed.SwiGLU", "the table's call makes a layer each time"),
    ("composed.einsum composed.tensordot", "einsum and tensordot have a row of their own"),
    ("composed.svd composed.eigh composed.attention composed.rope composed.swiglu composed.linear_cross_entropy",
     "PyTorch has no such operation; the samples compose it of others"),
]


def call(input, *arguments, **named):
    return Sample(input, arguments, named)


def along(make):
    """One call along the last axis, and one along the first."""
    return lambda o: {"last axis": make(o, 1), "first axis": make(o, 0)}


# ---- Arguments that take more than a line ----

def after_slash(name):
    return name.partition("/")[2]


def convolution(o, size, transposed=False):
    """As many channels as before; a transposed one doubles the sizes, and quarters the channels."""
    channels, axes = size[1], len(size) - 2
    if transposed:
        made = max(1, channels // 4)
        return call(o.x(*size), o.weight(channels, made, *[2] * axes), o.vector(made), stride=2)
    return call(o.x(*size), o.weight(channels, channels, *[3] * axes), o.vector(channels), padding=1)


def resized(o, name):
    size = o.line if after_slash(name) == "linear" else o.volume if after_slash(name) == "trilinear" else o.image
    new = [n * 3 // 2 for n in size[2:]]
    return call(o.x(*size), size=new, mode=after_slash(name)) if after_slash(name) else call(o.x(*size), new)


def folded(o):
    n, c, h, w = o.image
    return call(o.x(n, 4 * c, h * w // 4), (h, w), (2, 2), stride=(2, 2))


def shuffled_pixels(o, *arguments):
    n, c, h, w = o.image
    return call(o.x(n, 4 * c, h // 2, w // 2), *arguments)


def time_steps(o):
    """CTC: log-probabilities [steps, batch, classes], and labels that are half as many as the steps at most."""
    steps, batch, classes = (4, 2, 2) if o.small else (128, 4 if o.shape == "rows" else 32, 512)
    labels = torch.randint(1, classes, (batch, min(20, steps // 2)), generator=o.generator)
    scores = o.plain(steps, batch, classes).float().log_softmax(-1).to(o.dtype)
    return call(o.leaf(scores), labels, (steps,) * batch, (labels.shape[1],) * batch)


def attention(o):
    b, h, n, d = (1, 1, 4, 4) if o.small else (4, 16, 1024, 64) if o.shape == "4M" else (2, 8, 256, 64)
    return call(*(o.x(b, h, n, d) for _ in range(3)), is_causal=True)


def batch(o):
    """Sizes of a batched product: batch, rows, columns."""
    return (2, 2, 4) if o.small else (8, o.rows // 8, o.row)


def sides(o):
    """The side of a square matrix with as many elements as the shape has."""
    return math.isqrt(o.count)


def pairs(o, **named):
    return call(o.x(), o.plain(), **named)


# ---- The table ----
FAMILIES = {
    "elementwise": [
        ("(input) (input inplace?) (input negative_slope inplace?) (input alpha inplace?) (input approximate)"
         " (input beta threshold) (input lambd) (input decimals) (input nan posinf neginf)"
         " (input min_val max_val inplace?)", lambda o: call(o.x())),
        ("(input min max)", lambda o: call(o.x(), -0.5, 0.5)),
        ("(input min) (input max)", lambda o: call(o.x(), 0.5)),
        ("(input threshold value inplace?)", lambda o: call(o.x(), 0.1, 0.5)),
        ("pow", lambda o: call(o.x(low=0.1, high=2), o.x())),
        ("__radd__ __rmul__ __rsub__ __rdiv__", lambda o: call(o.x(low=0.1, high=2), 2.5)),
        ("(input other) (input other alpha)", lambda o: call(o.x(), o.x(low=0.5, high=2))),
        ("(input other rtol atol equal_nan)", lambda o: call(o.x(), o.x())),
        ("(input condition other)", lambda o: call(o.x(), o.mask(), o.x())),
        ("(input end weight)", lambda o: call(o.x(), o.x(), 0.3)),
        ("(input a b value)", lambda o: call(o.x(), o.x(), o.x())),
        ("(input mask value)", lambda o: call(o.x(), o.mask(), 0.5)),
        ("(input weight)", lambda o: call(o.x(), o.vector(o.row))),
        ("nn.functional.glu", lambda o: call(o.x(), 1)),
    ],
    "random": [
        ("(input p training inplace?)", lambda o: call(o.x(), 0.5, True)),
    ],
    "reductions": [
        ("prod", along(lambda o, axis: call(o.x(low=0.99, high=1.01), axis))),
        ("(input dim keepdim dtype!) (input dim keepdim) count_nonzero", along(lambda o, axis: call(o.x(), axis))),
        ("(input dim unbiased keepdim correction)", along(lambda o, axis: call(o.x(), axis))),
        ("max/reduction_no_dim min/reduction_no_dim", lambda o: call(o.x())),
        ("(input unbiased)", lambda o: call(o.x(), True)),
        ("norm/fro", lambda o: call(o.x(), "fro")),
        ("norm linalg.vector_norm", along(lambda o, axis: call(o.x(), 2, axis))),
        ("trace", lambda o: call(o.x(sides(o), sides(o)))),
        ("(y x dx dim)", along(lambda o, axis: call(o.x(), dim=axis))),
    ],
    "scans": [
        ("cumprod", along(lambda o, axis: call(o.x(low=0.99, high=1.01), axis))),
        ("cum* logcumsumexp", along(lambda o, axis: call(o.x(), axis))),
        ("diff", lambda o: call(o.x())),
    ],
    "rows": [
        ("softmax log_softmax nn.functional.softmin", along(lambda o, axis: call(o.x(), axis))),
        ("(input p dim eps)", lambda o: call(o.x())),
        ("(input normalized_shape weight bias eps)", lambda o: call(o.x(), (o.row,), o.vector(o.row), o.vector(o.row))),
        ("(input normalized_shape weight eps)", lambda o: call(o.x(), (o.row,), o.vector(o.row))),
        ("(input other dim eps) (input other p eps keepdim)", lambda o: call(o.x(), o.x())),
    ],
    "shapes": [
        ("clone contiguous positive ravel", lambda o: call(o.x())),
        ("reshape view", lambda o: call(o.x(), (o.row, o.rows))),
        ("expand broadcast_to", lambda o: call(o.x(o.rows, 1), o.matrix)),
        ("expand_as", lambda o: call(o.x(o.rows, 1), o.x())),
        ("reshape_as view_as", lambda o: call(o.x(), o.x(o.row, o.rows))),
        ("(input start_dim end_dim)", lambda o: call(o.x(2, o.rows // 2, o.row))),
        ("permute", lambda o: call(o.x(), (1, 0))),
        ("flip", lambda o: call(o.x(), (0, 1))),
        ("fliplr flipud t", lambda o: call(o.x())),
        ("tile repeat", lambda o: call(o.x(o.rows // 2, o.row), (2, 1))),
        ("(input repeats dim output_size?)", lambda o: call(o.x(o.rows // 2, o.row), 2, dim=0)),
        ("(input dim0 dim1) (input source destination)", lambda o: call(o.x(), 0, 1)),
        ("unsqueeze", lambda o: call(o.x(), 1)),
        ("squeeze", lambda o: call(o.x(o.rows, 1, o.row), 1)),
        ("unbind", lambda o: call(o.x(8, o.count // 8), 0)),
        ("(input dim start end step) (input dim start length)", lambda o: call(o.x(), 1, 0, o.row // 2)),
        ("select", lambda o: call(o.x(), 0, o.rows // 2)),
        ("split", lambda o: call(o.x(), o.row // 4, 1)),
        ("(input sizes dim)", lambda o: call(o.x(), [o.row // 2, o.row // 2], 1)),
        ("(input chunks dim) (input indices_or_sections dim)", lambda o: call(o.x(), 4, 1)),
        ("dsplit", lambda o: call(o.x(o.rows // 2, 2, o.row), 2)),
        ("(input parts)", lambda o: call(o.x(), 4)),
        ("(input dim sizes)", lambda o: call(o.x(), 1, (2, o.row // 2))),
        ("(tensors dim)", lambda o: call([o.x(), o.x()], 1)),
        ("(*tensors)", lambda o: call([o.x(), o.x()])),
        ("diag_embed", lambda o: call(o.x(1, 4) if o.small else o.x(o.count // 4096, 64))),
        ("(input offset dim1 dim2)", lambda o: call(o.x())),
        ("(input diagonal)", lambda o: call(o.x())),
        ("diag", lambda o: call(o.x(sides(o)))),
        ("(input shifts dims)", lambda o: call(o.x(), 3, 1)),
        ("(input k dims)", lambda o: call(o.x(), 1, (0, 1))),
        ("(input dimension size step)", lambda o: call(o.x(), 1, 2, 2)),
        ("nn.functional.pad/*", lambda o, name: call(o.x(*o.image), (1, 1, 1, 1), mode=after_slash(name))),
        ("constant_pad_nd", lambda o: call(o.x(*o.image), (1, 1, 1, 1))),
        ("nn.functional.pixel_shuffle nn.functional.channel_shuffle", lambda o: shuffled_pixels(o, 2)),
        ("(input downscale_factor)", lambda o: call(o.x(*o.image), 2)),
    ],
    "index": [
        ("index_select", lambda o: call(o.x(), 0, o.integers(o.rows, o.rows))),
        ("(input dim index sparse_grad?)", lambda o: call(o.x(), 1, o.integers(o.row, *o.matrix))),
        ("(input indices dim)", lambda o: call(o.x(), o.integers(o.row, *o.matrix), 1)),
        ("(input dim index src)", lambda o: call(o.x(), 1, o.integers(o.row, *o.matrix), o.x())),
        ("(input dim index src reduce)", lambda o: call(o.x(), 1, o.shuffled_columns(), o.x())),
        ("scatter_reduce/*",
         lambda o, name: call(o.x(), 1, o.integers(o.row, *o.matrix), o.x(), after_slash(name))),
        ("index_reduce/*", lambda o, name: call(o.x(), 0, o.integers(o.rows, o.rows), o.x(), after_slash(name))),
        ("(input dim index source)", lambda o: call(o.x(), 0, o.permutation(o.rows), o.x())),
        ("(input dim index source alpha)", lambda o: call(o.x(), 0, o.integers(o.rows, o.rows), o.x())),
        ("(input dim index value)", lambda o: call(o.x(), 0, o.integers(o.rows, o.rows // 2), 0.5)),
        ("(input indices values accumulate)", lambda o: call(o.x(), (o.permutation(o.rows),), o.x())),
        ("(input index source accumulate)", lambda o: call(o.x(), o.permutation(o.count), o.x(o.count))),
        ("(input index)", lambda o: call(o.x(), o.integers(o.count, *o.matrix))),
        ("(input mask source)", lambda o: call(o.x(), o.mask(), o.x())),
        ("(input mask)", lambda o: call(o.x(), o.mask())),
        ("nonzero argwhere", lambda o: call(o.laid_out(o.plain() * o.mask()))),
        ("(sorted_sequence input out_int32 right side sorter)",
         lambda o: call(o.plain(o.row).sort().values, o.laid_out(o.plain()))),
        ("(input boundaries out_int32 right)", lambda o: call(o.laid_out(o.plain()), o.plain(64).sort().values)),
        ("(input src dim index)", lambda o: call(o.x(), o.x(o.row), 0, o.rows // 2)),
        ("(input src dim start end step)", lambda o: call(o.x(), o.x(o.rows // 2, o.row), 0, 0, o.rows // 2)),
        ("(input src offset dim1 dim2)", lambda o: call(o.x(), o.x(min(o.matrix)))),
        ("nn.functional.embedding", lambda o: call(o.x(), o.integers(o.rows, o.rows))),
        ("nn.functional.embedding_bag", lambda o: call(o.x(), o.integers(o.rows, max(1, o.rows // 16), 16))),
    ],
    "sort": [
        ("(input dim descending stable)", along(lambda o, axis: call(o.x(), axis))),
        ("median", along(lambda o, axis: call(o.x(), axis))),
        ("(input k dim largest sorted?)", lambda o: call(o.x(), min(50, o.row // 2), 1)),
        ("(input k dim keepdim)", lambda o: call(o.x(), o.row // 2, 1)),
        ("(input q dim keepdim interpolation)", lambda o: call(o.x(), 0.3, 1)),
        ("(input bins range weight density)", lambda o: call(o.laid_out(o.plain()), 100)),
        ("unique", lambda o: call(o.laid_out((o.plain() * 1000).round()))),
        ("msort", lambda o: call(o.x())),
    ],
    "products": [
        ("matmul mm", lambda o: call(o.x(), o.weight(o.row, o.columns))),
        ("__rmatmul__", lambda o: call(o.weight(o.row, o.columns), o.x())),
        ("mv", lambda o: call(o.x(), o.x(o.row))),
        ("nn.functional.linear", lambda o: call(o.x(), o.weight(o.columns, o.row), o.vector(o.columns))),
        ("bmm", lambda o: call(o.x(*batch(o)), o.weight(batch(o)[0], o.row, o.columns))),
        ("dot vdot", lambda o: call(o.x(o.count), o.x(o.count))),
        ("outer", lambda o: call(o.x(o.rows), o.x(o.row))),
        ("linalg.vecdot", lambda o: call(o.x(), o.x())),
        ("addmm*", lambda o: call(o.x(o.rows, o.columns), o.x(), o.weight(o.row, o.columns))),
        ("baddbmm", lambda o: call(o.x(*batch(o)[:2], o.columns), o.x(*batch(o)),
                                   o.weight(batch(o)[0], o.row, o.columns))),
        ("nn.functional.bilinear",
         lambda o: call(o.x(o.rows, 4), o.x(o.rows, 4), o.weight(4, 4, 4)) if o.small
         else call(o.x(o.rows, 64), o.x(o.rows, 64), o.weight(32, 64, 64))),
        ("inner", lambda o: call(o.x(), o.weight(o.columns, o.row))),
        ("linalg.multi_dot",
         lambda o: call([o.x(), o.weight(o.row, o.columns), o.weight(o.columns, o.columns)])),
        ("kron", lambda o: call(o.x(2, 2), o.x(2, 2)) if o.small else call(o.x(o.rows // 16, o.row // 16), o.x(16, 16))),
        ("cov corrcoef", lambda o: call(o.x() if o.small else o.x(64, o.count // 64))),
        ("einsum",
         lambda o: call([o.x(*batch(o)), o.weight(batch(o)[0], o.columns, o.row)], "bmk,bnk->bmn")),
        ("tensordot", lambda o: call(o.x(), o.weight(o.row, o.columns), dims=1)),
    ],
    "attention": [
        ("nn.functional.scaled_dot_product_attention", attention),
    ],
    "linalg": [
        ("linalg.slogdet linalg.det linalg.inv linalg.svdvals linalg.cholesky linalg.qr linalg.eigvalsh"
         " linalg.matrix_norm", lambda o: call(o.square())),
        ("(input other left)", lambda o: call(o.square(), o.x(o.side, 8))),
        ("(input other upper left unitriangular)", lambda o: call(o.square(), o.x(o.side, 8), upper=False)),
        ("composed.lstsq", lambda o: call(o.square(), o.x(o.side, 8))),
        ("(input n)", lambda o: call(o.square(), 3)),
        ("linalg.diagonal", lambda o: call(o.x(sides(o), sides(o)))),
    ],
    "convolutions": [
        ("nn.functional.conv_transpose1d", lambda o: convolution(o, o.line, True)),
        ("nn.functional.conv_transpose2d", lambda o: convolution(o, o.image, True)),
        ("nn.functional.conv_transpose3d", lambda o: convolution(o, o.volume, True)),
        ("nn.functional.conv1d", lambda o: convolution(o, o.line)),
        ("nn.functional.conv2d", lambda o: convolution(o, o.image)),
        ("nn.functional.conv3d", lambda o: convolution(o, o.volume)),
    ],
    "images": [
        ("nn.functional.interpolate/* nn.functional.upsample_*", resized),
        ("nn.functional.unfold", lambda o: call(o.x(*o.image), 3, padding=1, stride=2)),
        ("composed.fold", folded),
    ],
    "pooling": [
        ("nn.functional.*_pool1d", lambda o, name: call(o.x(*o.line), (4,) if "adaptive" in name else 2)),
        ("nn.functional.*_pool2d", lambda o, name: call(o.x(*o.image), (4, 4) if "adaptive" in name else 2)),
        ("nn.functional.*_pool3d", lambda o, name: call(o.x(*o.volume), (2, 2, 2) if "adaptive" in name else 2)),
    ],
    "normalization": [
        ("nn.functional.batch_norm",
         lambda o: call(o.x(*o.image), None, None, o.vector(o.image[1]), o.vector(o.image[1]), True)),
        ("nn.functional.group_norm",
         lambda o: call(o.x(*o.image), 1 if o.small else 8, o.vector(o.image[1]), o.vector(o.image[1]))),
        ("nn.functional.instance_norm",
         lambda o: call(o.x(*o.image), weight=o.vector(o.image[1]), bias=o.vector(o.image[1]))),
        ("nn.functional.local_response_norm", lambda o: call(o.x(*o.image), 3)),
    ],
    "losses": [
        ("nn.functional.cross_entropy", lambda o: call(o.x(), o.integers(o.row, o.rows))),
        ("nn.functional.nll_loss",
         lambda o: call(o.leaf(F.log_softmax(o.plain(), 1)), o.integers(o.row, o.rows))),
        ("nn.functional.kl_div",
         lambda o: call(o.leaf(F.log_softmax(o.plain(), 1)), F.softmax(o.plain(), 1), reduction="batchmean")),
        ("nn.functional.ctc_loss", time_steps),
        ("nn.functional.binary_cross_entropy",
         lambda o: call(o.x(low=0.01, high=0.99), o.plain(low=0, high=1))),
        ("nn.functional.binary_cross_entropy_with_logits", lambda o: call(o.x(), o.plain(low=0, high=1))),
        ("nn.functional.soft_margin_loss nn.functional.hinge_embedding_loss", lambda o: call(o.x(), o.signs(*o.matrix))),
        ("nn.functional.margin_ranking_loss", lambda o: call(o.x(), o.x(), o.signs(*o.matrix))),
        ("nn.functional.cosine_embedding_loss", lambda o: call(o.x(), o.x(), o.signs(o.rows))),
        ("nn.functional.triplet_margin_loss", lambda o: call(o.x(), o.x(), o.x())),
        ("nn.functional.gaussian_nll_loss", lambda o: call(o.x(), o.plain(), o.x(low=0.5, high=2))),
        ("nn.functional.poisson_nll_loss", lambda o: call(o.x(), o.plain(low=0, high=4).round())),
        ("nn.functional.*_loss", pairs),
    ],
}


def words_of(pattern):
    """(names, lists of parameters) of a pattern."""
    found = re.findall(r"\([^)]*\)|\S+", pattern)
    return [w for w in found if w[0] != "("], [w for w in found if w[0] == "("]


def fits(names, name):
    return any(fnmatch.fnmatchcase(name, n) for n in names)


ROWS = [(family, *words_of(pattern), make) for family, rows in FAMILIES.items() for pattern, make in rows]


def maker_of(name, parameters):
    """(family, maker) of an operation; (None, None) if it is to take PyTorch's own sample."""
    said = f"({' '.join(parameters)})"
    by_name = [(family, make) for family, names, _, make in ROWS if fits(names, name)]
    by_parameters = [(family, make) for family, _, lists, make in ROWS if said in lists]
    return (by_name + by_parameters + [(None, None)])[0]


def left_out(name):
    """Why an operation is not timed; None if it is."""
    return next((reason for pattern, reason in LEFT_OUT if fits(pattern.split(), name)), None)


def largest_sample(info, dtype, requires_grad):
    def size(sample):
        operands = [sample.input, *sample.args, *sample.kwargs.values()]
        return sum(t.numel() for t in operands if isinstance(t, torch.Tensor))

    return max(info.sample_inputs("cpu", dtype, requires_grad), key=size, default=None)


def calls_of(name, parameters, info, shape, dtype, requires_grad):
    """(family, shape, {name of the call: its arguments}) of an operation in one of the shapes."""
    family, make = maker_of(name, parameters)
    if make is None:
        sample = largest_sample(info, dtype, requires_grad)
        return "others", OWN, {"": sample} if sample else {}
    operands = Operands(shape, dtype, requires_grad, getattr(info, "domain", (None, None)) or (None, None))
    takes_name = make.__code__.co_argcount == 2
    made = make(operands, name) if takes_name else make(operands)
    return family, shape, made if isinstance(made, dict) else {"": made}
