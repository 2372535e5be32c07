"""The figures of every_op: a line for each call, sorted by ratio, and the medians of families, which bench/check guards.

A cell is one measured call: {"op", "variant", "family", "shape", "dtype", "threads", "pass", "elements", "firn" and
"peer" (seconds), "ratio" (the pairs' median, lowest and highest), "others", "void"}. A ratio is PyTorch's time divided by
firn's, so it is in firn's favour where it is above 1.
"""
import collections
import statistics

SHAPES = ("16", "rows", "4M", "strided", "sample")
COLUMNS = ("family", "op", "variant", "shape", "elements", "dtype", "threads", "pass", "firn", "peer", "ratio", "lowest",
           "highest", "void")
LONGEST = 60  # lines of the table at each end, unless all are asked for
LEGEND = """shapes: 16 elements, rows of 1024, 4 million elements, strided (channels-last or transposed views), sample (one of
PyTorch's own). backward: forward, and the gradients of all operands. views: PyTorch's result shares memory with an operand.
PyTorch is called from Python, as its users call it, and firn from C++. A call of PyTorch's side that computes nothing takes
{:.0f} ns. It is not subtracted, so it counts in the ratios of 16 elements and of views; bench/run --only overhead has
LibTorch from C++. firn's times include that the table looks its arguments up by name."""


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def grouped(cells, *keys):
    """{values of the keys: the ratios of these cells}, in order of appearance."""
    found = collections.defaultdict(list)
    for cell in cells:
        found[tuple(cell[k] for k in keys)].append(cell["ratio"]["median"])
    return found


def rows(cells):
    """A row of bench/run's for each family, shape and dtype: the spread of its cells' ratios."""
    void = collections.Counter((c["family"], c["shape"], c["dtype"]) for c in cells if c["void"])
    return [{"what": f"every_op.{'.'.join(key)}", "unit": "families", "firn": None, "peer": None, "mode": None,
             "of_f32": None, "ratio": spread(found), "void": void[key] > len(found) / 10}
            for key, found in grouped(cells, "family", "shape", "dtype").items()]


def duration(seconds):
    for unit, size in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def line(cell):
    ratio = cell["ratio"]
    name = cell["op"].replace("nn.functional.", "F.") + (f", {cell['variant']}" if cell["variant"] else "")
    return (f"{name:45} {cell['shape']:8} {cell['dtype']:5} {cell['threads']:2} {cell['pass']:8} {duration(cell['firn']):>8} "
            f"{duration(cell['peer']):>8} {ratio['median']:7.2f} {'({:.2f}-{:.2f})'.format(ratio['min'], ratio['max']):15} "
            f"{cell['family']}{'  void' if cell['void'] else ''}")


def families(cells):
    """Lines of the medians: a line for each family and dtype, a column for each shape."""
    shapes = [s for s in SHAPES if any(c["shape"] == s for c in cells)]
    lines = [f"{'family':15} {'dtype':5} {'calls':>6} " + " ".join(f"{s:>8}" for s in shapes) + f" {'all':>8} {'below 1':>8}"]

    def add(name, dtype, chosen):
        by_shape = grouped(chosen, "shape")
        ratios = [c["ratio"]["median"] for c in chosen]
        medians = [f"{statistics.median(by_shape[s,]):8.2f}" if by_shape.get((s,)) else f"{'-':>8}" for s in shapes]
        lines.append(f"{name:15} {dtype:5} {len(chosen):6} {' '.join(medians)} {statistics.median(ratios):8.2f} "
                     f"{sum(r < 1 for r in ratios) / len(ratios):8.0%}")

    for family, dtype in sorted(grouped(cells, "family", "dtype")):
        add(family, dtype, [c for c in cells if (c["family"], c["dtype"]) == (family, dtype)])
    add("all", "", cells)
    return lines


def omissions(left_out):
    """Lines: what is not in the table, by reason."""
    found = collections.defaultdict(dict)
    for one in left_out:
        found[one["reason"]].setdefault(one["op"], []).append(one["where"])
    lines = []
    for reason, ops in found.items():
        named = [op + (f" ({', '.join(filter(None, where))})" if any(where) else "") for op, where in ops.items()]
        lines.append(f"not measured: {', '.join(named)}: {reason}")
    return lines


def table(result, head, everything=False):
    """What bench/run prints: `head`, the cells sorted by ratio, the families' medians, and what is left out."""
    cells = sorted(result["cells"], key=lambda c: c["ratio"]["median"])
    shown = [line(c) for c in cells]
    if not everything and len(shown) > 2 * LONGEST:
        left = len(shown) - 2 * LONGEST
        shown[LONGEST:-LONGEST] = [f"... {left} calls between them: --all shows them, and --tsv FILE writes them"]
    title = (f"{'operation':45} {'shape':8} {'dtype':5} {'t':>2} {'pass':8} {'firn':>8} {'PyTorch':>8} {'ratio':>7} "
             f"{'(min-max)':15} family")
    return "\n".join([*head, LEGEND.format(result["python_call"] * 1e9), "", title, *shown, "", *families(cells), "",
                      *omissions(result["left_out"])]) + "\n"


def tsv(cells):
    lines = ["\t".join(COLUMNS)]
    for cell in cells:
        flat = {**cell, "ratio": cell["ratio"]["median"], "lowest": cell["ratio"]["min"], "highest": cell["ratio"]["max"],
                "void": int(cell["void"])}
        lines.append("\t".join(f"{flat[c]:.6g}" if isinstance(flat[c], float) else str(flat[c]) for c in COLUMNS))
    return "\n".join(lines) + "\n"
