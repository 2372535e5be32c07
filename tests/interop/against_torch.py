"""firn against PyTorch: every operation of the runner's table over PyTorch's own OpInfo samples, or those of
compositions.py, in f32, f64, f16 and bf16, forward and gradient. Run by scripts/interop in the virtual environment
that it made.

Prints a table: samples run, equal, refused. Fails on a difference, on a refusal whose reason is not in
opinfo/refusals.txt, on an operation without samples, and on a reason that no sample met.

In f64 second derivatives are compared too, of operations that have them in PyTorch and in firn: with respect to
operands and seeds, of the gradients' sum with random weights. Those that firn does not have are counted; the list is
SECOND_LEFT_OUT.
"""
import argparse
import collections
import fnmatch
import math
import pathlib
import re
import sys
import warnings

import torch
import wire
from compositions import COMPOSITIONS

HERE = pathlib.Path(__file__).resolve().parent


def listed_refusals():
    """[(operations, pattern of the message, reason)]"""
    out = []
    for line in (HERE / "opinfo" / "refusals.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            operations, message, reason = (part.strip() for part in line.split(" | "))
            out.append((operations, re.compile(message), reason))
    return out


def listed_without():
    """Patterns of the operations that no table has."""
    lines = (HERE / "opinfo" / "without.txt").read_text().splitlines()
    return [o for line in lines if line.strip() and not line.startswith("#") for o in line.split(" | ")[0].split()]


def bind(parameters, sample):
    """The sample's arguments by the names of the table."""
    given, named = [sample.input, *sample.args], dict(sample.kwargs)
    out = {}
    for at, parameter in enumerate(parameters):
        name = parameter.strip("*?!")
        if parameter[0] == "*":
            rest = given[at:]
            out[name] = list(rest[0]) if len(rest) == 1 and isinstance(rest[0], (list, tuple)) else rest
            if name in named:
                out[name] = named.pop(name)
            given = given[:at]
            break
        if at < len(given):
            v = given[at]
        elif name in named:
            v = named.pop(name)
        else:
            continue
        if parameter[-1] == "!" and v is not None and v is not False:
            raise wire.Refused(f"argument '{name}' is given")
        if parameter[-1] not in "?!":
            out[name] = v
    if len(given) > len(parameters):
        raise wire.Refused(f"{len(given)} arguments in order")
    for name in named:
        raise wire.Refused(f"argument '{name}' is given")
    return out


def tensors_in(arguments):
    for v in arguments:
        if isinstance(v, torch.Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from tensors_in(v)


def flat(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


def wide(v):
    """The same argument in f64, for PyTorch's answer with fewer roundings."""
    if isinstance(v, torch.Tensor):
        out = v.detach().double() if v.is_floating_point() else v.detach()
        return out.requires_grad_(v.requires_grad)
    if isinstance(v, (list, tuple)):
        return type(v)(wide(e) for e in v)
    return v


def torch_side(op, sample, leaves, seeds=None):
    """(results, gradients for the seeds; those are made if there are none, seeds)"""
    results = flat(op(sample.input, *sample.args, **sample.kwargs))
    if seeds is None:
        generator = torch.Generator().manual_seed(1)
        seeds = [torch.rand(r.shape, generator=generator, dtype=r.dtype) + 0.5 if r.requires_grad else None
                 for r in results]
    flows = [(r, s) for r, s in zip(results, seeds) if s is not None]
    gradients = [None] * len(leaves)
    if flows and leaves:
        gradients = torch.autograd.grad([r for r, _ in flows], leaves, [s.to(r.dtype) for r, s in flows],
                                        allow_unused=True)
    return [r.detach() for r in results], gradients, seeds


def largest(tensors):
    """The largest finite magnitude in them."""
    out = 0.0
    for t in tensors:
        if t is not None and t.is_floating_point() and t.numel():
            finite = t.detach()[t.detach().isfinite()]
            out = max(out, float(finite.abs().max())) if finite.numel() else out
    return out


# Operations whose terms cancel in PyTorch: 1 + erf(x) near erf(x) = -1. Its f64 is then good to eps of the largest
# operand only; firn's gelu is good to 2 eps of the result (tests/ops/numbers.cpp).
CANCELS = {"nn.functional.gelu"}


# Operations whose gradient PyTorch computes with a constant that it has rounded to f32 (1/6), in f64 too.
F32_CONSTANTS = {"nn.functional.hardsigmoid"}


def difference(what, found, torchs, exact, length, terms, cancels=False, least_eps=0):
    """None, or how firn's tensor differs. `exact` is PyTorch's in f64. `length` is the number of terms that
    one element may sum up, and `terms` the largest operand or seed: terms may cancel. Allowed: eps (8 + 2
    length) of the largest of these and the elements, and 4 times what PyTorch itself lost in the same dtype.
    16-bit terms are summed in f32, so there 2 length counts in f32's eps. An element that sums nothing up is
    measured by itself, unless PyTorch `cancels`. eps is at least `least_eps`."""
    if found is None:  # no gradient is one of zeros
        found = torch.zeros_like(torchs)
    if found.shape != torchs.shape:
        return f"{what}: shape {list(found.shape)}, PyTorch's is {list(torchs.shape)}"
    if found.dtype != torchs.dtype:
        return f"{what}: dtype {found.dtype}, PyTorch's is {torchs.dtype}"
    if not found.dtype.is_floating_point:
        return None if torch.equal(found, torchs) else f"{what}: {found.flatten()[:8]}, PyTorch's is {torchs.flatten()[:8]}"
    if found.numel() == 0:
        return None
    # In 16 bits PyTorch may overflow on the way to a number that fits: then f64's is the measure.
    overflowed = ~torchs.isfinite() & exact.isfinite() & (exact.abs() <= torch.finfo(found.dtype).max)
    torchs = torch.where(overflowed, exact.to(torchs.dtype), torchs)
    finite = torchs.isfinite()
    same = (found == torchs) | (found.isnan() & torchs.isnan())
    if not bool((same | finite).all()) or not bool(found[finite].isfinite().all()):
        at = int((~(same | finite) | (finite & ~found.isfinite())).flatten().nonzero()[0])
        return f"{what}[{at}]: {found.flatten()[at]:.17g}, PyTorch's is {torchs.flatten()[at]:.17g}"
    f, t, e = found[finite].double(), torchs[finite].double(), exact[finite].double()
    if f.numel() == 0:
        return None
    eps, tiny = torch.finfo(found.dtype).eps, torch.finfo(found.dtype).tiny
    eps = max(eps, least_eps)
    sum_eps = min(eps, torch.finfo(torch.float32).eps)
    if found.dtype == torch.float16:  # its subnormals are kept
        tiny *= eps
    lost = (t - e).abs()
    lost = float(lost[lost.isfinite()].max()) if bool(lost.isfinite().any()) else 0.0
    scale = max(float(t.abs().max()), terms) if length > 1 or cancels else t.abs()
    allowed = (8 * eps + 2 * length * sum_eps) * scale + 4 * lost + 4 * tiny
    worst = (f - t).abs() - allowed
    at = int(worst.argmax())
    if float(worst[at]) <= 0:
        return None
    return f"{what}[{at}]: {float(f[at]):.17g}, PyTorch's is {float(t[at]):.17g}"


DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# Of operations that take no floating dtype.
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)


# Operations without second derivatives in firn: docs/from-pytorch.md. PyTorch has them.
SECOND_LEFT_OUT = re.compile(r"has no second derivative")
# Of a second derivative, relative to the largest of all: both sides round in f64 along different formulas.
SECOND_TOLERANCE = 1e-7


def second_derivatives(op, sample, leaves, seeds, weights):
    """Of the sum of all gradients times the weights, with respect to leaves and seeds; None for those of zeros."""
    results = flat(op(sample.input, *sample.args, **sample.kwargs))
    seeds = [None if s is None else s.detach().requires_grad_() for s in seeds]
    of = leaves + [s for s in seeds if s is not None]
    flows = [(r, s) for r, s in zip(results, seeds) if s is not None]
    first = torch.autograd.grad([r for r, _ in flows], leaves, [s for _, s in flows], create_graph=True,
                                allow_unused=True)
    total = [(g * w).sum() for g, w in zip(first, weights) if g is not None and g.requires_grad]
    return torch.autograd.grad(sum(total), of, allow_unused=True) if total else [None] * len(of)


def compare_second(runner, name, info, sample, parameters, leaves, seeds, row):
    """Counts, or adds to, what the row says of second derivatives."""
    generator = torch.Generator().manual_seed(2)
    arguments = bind(parameters, sample)
    sent = [t for v in arguments.values() for t in tensors_in([v]) if t.requires_grad]
    weights = [torch.rand(t.shape, generator=generator, dtype=t.dtype) + 0.5 for t in sent]
    try:
        wanted = second_derivatives(info.op, sample, sent, seeds, weights)
    except (RuntimeError, NotImplementedError):  # PyTorch has none
        return None
    try:
        found = runner.call(name, arguments, seeds, weights)[1]
    except wire.Refused as refused:
        message = str(refused).splitlines()[0]
        if not SECOND_LEFT_OUT.search(message):
            return f"second derivative: {message}"
        row.second_left_out += 1
        return None
    except EOFError as ended:
        return f"second derivative: {ended}"
    scale = max(1.0, largest([t for t in wanted if t is not None]), largest(weights + [s for s in seeds if s is not None]))
    for i, (f, w) in enumerate(zip(found, wanted)):
        if f is None and w is None:
            continue
        f, w = (torch.zeros_like(o) if t is None else t for t, o in ((f, w), (w, f)))
        finite = w.isfinite()
        if f.shape != w.shape or not bool(((f - w).abs() <= SECOND_TOLERANCE * scale)[finite].all()):  # NaN is no match
            return f"second derivative {i}: {f.flatten()[:6].tolist()}, PyTorch's is {w.flatten()[:6].tolist()}"
    row.second += 1
    return None


class Row:
    def __init__(self):
        self.run = self.equal = self.refused = self.second = self.second_left_out = 0
        self.problems = []
        self.reasons = collections.Counter()


def compare(runner, name, info, dtype, row, refusals, limit):
    parameters, sums = runner.table[name]
    gradient = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    samples = info.sample_inputs("cpu", dtype, requires_grad=gradient)
    for number, sample in enumerate(samples):
        if limit and number >= limit:
            break
        row.run += 1
        label = f"{name} {str(dtype)[6:]} sample {number}"
        leaves = [t for t in tensors_in([sample.input, *sample.args, *sample.kwargs.values()]) if t.requires_grad]
        try:
            results, gradients, seeds = torch_side(info.op, sample, leaves)
            exact_sample = type(sample)(wide(sample.input), args=wide(tuple(sample.args)),
                                        kwargs={k: wide(v) for k, v in sample.kwargs.items()})
            exact_leaves = [t for t in tensors_in([exact_sample.input, *exact_sample.args, *exact_sample.kwargs.values()])
                            if t.requires_grad]
            exact, exact_gradients, _ = torch_side(info.op, exact_sample, exact_leaves, seeds)
            found, found_gradients = runner.call(name, bind(parameters, sample), seeds)
        except wire.Refused as refused:
            message = str(refused).splitlines()[0]
            reason = next((i for i, (operations, pattern, _) in enumerate(refusals)
                           if any(fnmatch.fnmatch(name, o) for o in operations.split()) and pattern.search(message)), None)
            if reason is None:
                row.problems.append(f"{label}: refused, and no reason is listed: {message}")
            else:
                row.refused += 1
                row.reasons[reason] += 1
            continue
        except EOFError as ended:
            row.problems.append(f"{label}: {ended}")
            continue
        if len(found) != len(results):
            row.problems.append(f"{label}: {len(found)} results, PyTorch has {len(results)}")
            continue
        operands = list(tensors_in([sample.input, *sample.args, *sample.kwargs.values()]))
        length = 1
        known = getattr(sample, "length", None)
        if sums:
            length = known or max([1] + [t.numel() for t in operands])
        terms = largest(operands)
        cancels = name in CANCELS
        least_eps = torch.finfo(torch.float32).eps if name in F32_CONSTANTS else 0
        wrong = [difference(f"result {i}", f, r, e, length, terms, cancels)
                 for i, (f, r, e) in enumerate(zip(found, results, exact))]
        # A gradient sums over broadcast axes, whatever the operation.
        most = known or max([1] + [r.numel() for r in results] + [t.numel() for t in leaves])
        by_leaf = {id(t): i for i, t in enumerate(leaves)}
        sent = [t for v in bind(parameters, sample).values() for t in tensors_in([v]) if t.requires_grad]
        if len(sent) != len(found_gradients):
            wrong.append(f"{len(found_gradients)} gradients for {len(sent)} operands")
        for t, g in zip(sent, found_gradients):
            i = by_leaf[id(t)]
            if gradients[i] is None:
                if g is not None and bool((g != 0).any()):
                    wrong.append(f"gradient {i}: PyTorch has none")
            else:
                wrong.append(difference(f"gradient {i}", g, gradients[i], exact_gradients[i], max(length, most),
                                        largest(operands + seeds), least_eps=least_eps))
        if gradient and leaves and info.supports_gradgrad and dtype == torch.float64:
            wrong.append(compare_second(runner, name, info, sample, parameters, leaves, seeds, row))
        wrong = [w for w in wrong if w]
        if wrong:
            row.problems.append(f"{label}: " + "; ".join(wrong))
        else:
            row.equal += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", required=True, help="the program firn_interop")
    parser.add_argument("--short", action="store_true", help="three samples of each operation and dtype")
    parser.add_argument("--only", default="*", help="only operations whose name fits this pattern")
    parser.add_argument("--verbose", action="store_true", help="every problem, not the first three of an operation")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from torch.testing._internal.common_methods_invocations import op_db  # takes some seconds

    runner = wire.Runner(arguments.runner)
    infos = {o.name + (f"/{o.variant_test_name}" if o.variant_test_name else ""): o for o in op_db} | COMPOSITIONS
    refusals = listed_refusals()
    rows, met = {}, collections.Counter()
    print(f"{'operation':<50} {'samples':>8} {'equal':>7} {'refused':>8} {'differ':>7} {'twice':>7} {'not':>5}")
    for name in runner.table:
        if not fnmatch.fnmatch(name, arguments.only):
            continue
        row = rows[name] = Row()
        if name not in infos:
            row.problems.append(f"{name}: this PyTorch has no such OpInfo")
        else:
            supported = infos[name].supported_dtypes("cpu")
            for dtype in [d for d in DTYPES if d in supported] or [d for d in INTEGERS if d in supported]:
                compare(runner, name, infos[name], dtype, row, refusals, 3 if arguments.short else None)
            if row.run == 0:
                row.problems.append(f"{name}: PyTorch has no samples")
        met += row.reasons
        differ = row.run - row.equal - row.refused
        print(f"{name:<50} {row.run:>8} {row.equal:>7} {row.refused:>8} {differ:>7} {row.second:>7} "
              f"{row.second_left_out:>5}", flush=True)
    runner.close()
    total = [sum(getattr(r, k) for r in rows.values()) for k in ("run", "equal", "refused", "second", "second_left_out")]
    print(f"{'total of ' + str(len(rows)) + ' operations':<50} {total[0]:>8} {total[1]:>7} {total[2]:>8} "
          f"{total[0] - total[1] - total[2]:>7} {total[3]:>7} {total[4]:>5}")
    print("twice: samples whose second derivatives in f64 are equal; not: firn has none of them")

    if met:
        print("\nrefused, by reason:")
    for i, count in met.most_common():
        print(f"  {count:>6}  {refusals[i][0]}: {refusals[i][2]}")
    problems = [p for r in rows.values() for p in (r.problems if arguments.verbose else r.problems[:3])]
    if not arguments.short and arguments.only == "*":
        missing = [n for n in infos if n not in runner.table]
        without = listed_without()
        problems += [f"without.txt: no line names {n}" for n in missing if not any(fnmatch.fnmatch(n, o) for o in without)]
        problems += [f"without.txt: nothing fits {o}" for o in without if not any(fnmatch.fnmatch(n, o) for n in missing)]
        problems += [f"refusals.txt: no sample met '{pattern.pattern}' of {operations}"
                     for i, (operations, pattern, _) in enumerate(refusals) if i not in met]
    for p in problems:
        print(f"FAILED: {p}")
    print(f"interop: torch {torch.__version__}: {total[1]} equal, {total[2]} refused for listed reasons, "
          f"{total[0] - total[1] - total[2]} not")
    return 1 if problems or math.isclose(total[1], 0) else 0


if __name__ == "__main__":
    sys.exit(main())
