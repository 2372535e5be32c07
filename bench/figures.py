"""The figures of a run of bench/run: from the lines that programs print to rows with ratios, and the table."""
import json
import statistics
import sys

MORE_IS_BETTER = {"samples/s", "tokens/s", "GB/s", "GFLOP/s", "%"}
# Rows made of two others of one side: (name, unit, the divided, the divisor).
DERIVED = [("cost of 16x4 accumulation", "times", "mlp_sgd.rate", "mlp_accum.rate")]


def parse(text):
    """{what: figure} of the lines `what <tab> median <tab> unit <tab> min <tab> max <tab> samples`."""
    found = {}
    for line in text.splitlines():
        try:
            what, median, unit, low, high, samples = line.split("\t")
            found[what] = {"median": float(median), "unit": unit, "min": float(low), "max": float(high),
                           "samples": int(samples)}
        except ValueError:
            print(f"not a figure: {line}", file=sys.stderr)
    return found


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(unit, firn, peer):
    """In firn's favour where it is above 1; None where there is none."""
    if not firn or not peer:
        return None
    return firn / peer if unit in MORE_IS_BETTER else peer / firn


def row(what, unit, per_round, void):
    """A row of the table. per_round: {side: value} for each round."""
    out = {"what": what, "unit": unit, "void": void}
    for side in ("firn", "peer"):
        values = [v[side] for v in per_round if side in v]
        out[side] = spread(values) if values else None
    ratios = [ratio(unit, v.get("firn"), v.get("peer")) for v in per_round]
    ratios = [r for r in ratios if r is not None]
    out["ratio"] = spread(ratios) if ratios else None
    return out


def rows(rounds):
    """The rows of the rounds that were kept, in order of appearance, derived ones last."""
    units, values, void = {}, {}, {}
    for one in rounds:
        if not one["kept"]:
            continue
        for side in ("firn", "peer"):
            for what, figure in one.get(side, {}).items():
                units[what] = figure["unit"]
                values.setdefault(what, {}).setdefault(one["round"], {})[side] = figure["median"]
                void[what] = void.get(what, False) or one["void"]
    out = [row(what, unit, list(values[what].values()), void[what]) for what, unit in units.items()]
    for what, unit, top, bottom in DERIVED:
        if top not in values or bottom not in values:
            continue
        per_round = [{side: values[top][r][side] / values[bottom][r][side]
                      for side in ("firn", "peer")
                      if values[top][r].get(side) and values[bottom][r].get(side)}
                     for r in values[top] if r in values[bottom]]
        if any(per_round):
            out.append(row(what, unit, per_round, void[top] or void[bottom]))
    return out


def number(x):
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.4g}"


def table(result):
    """What bench/run prints: where and how, a line a row, and what was void or failed."""
    m, s, peer = result["machine"], result["settings"], result["peer"]
    name = peer["name"] if peer else "peer"
    lines = [f"{result['date']}  {m['cpu']}, {m['cores']} cores, {m['memory']}, {m['system']}, commit {m['commit']}",
             f"{s['threads']} threads, {s['rounds']} rounds, {s['epochs']} epochs"
             + ("; QUICK: figures mean nothing" if s["quick"] else "")]
    if peer:
        lines.append(" ".join(filter(None, [name, peer["version"]])) + " with: " + " ".join(f"{k}={v}" for k, v in peer["environment"].items()))
    lines += ["", f"{'work':38} {'unit':9} {'firn':>9} {'(min-max)':>19} {name:>9} {'(min-max)':>19} "
                  f"{'ratio':>6} (min-max)"]
    for r in result["rows"]:
        cells = []
        for side in ("firn", "peer"):
            v = r[side]
            cells.append(f"{number(v['median']):>9} {'({}-{})'.format(number(v['min']), number(v['max'])):>19}"
                         if v else f"{'-':>9} {'':>19}")
        v = r["ratio"]
        cells.append(f"{v['median']:6.2f} ({v['min']:.2f}-{v['max']:.2f})" if v else "")
        mark = "  void" if r["void"] else ""
        lines.append(f"{r['what']:38} {r['unit']:9} {' '.join(cells)}{mark}".rstrip())
    kept = [r for r in result["rounds"] if r["kept"]]
    void = [r for r in kept if r["void"]]
    if void:
        lines.append(f"\nvoid: other processes used over 3 % of a core in {len(void)} of {len(kept)} rounds that were "
                     "kept: " + ", ".join(f"{r['work']} {r['others']:.0%}" for r in void))
    if any(r["others"] is None for r in kept):
        lines.append("\nwhat other processes used is not known here")
    lines += [f"failed: {f}" for f in result["failed"]]
    return "\n".join(lines) + "\n"


def read(path):
    """The result in a file of `bench/run --json`. Throws ValueError where it is none."""
    try:
        result = json.loads(path.read_text())
        result["rows"], result["settings"], result["machine"]  # noqa: B018
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ValueError(f"{path} is not a file of bench/run --json: {e}") from e
    return result
