"""The figures of a run of bench/run: from the lines that programs print to rows with ratios, and the table.

A round has sides: "firn", "baseline" (an older build of firn) and the modes of the peer, by name: "C++ f32",
"bf16 compile". firn's figures in 16 bits have the precision in the name of the work, as in gpt_bf16.rate; those of the
peer do not: its mode says it.
"""
import json
import re
import statistics
import sys

MORE_IS_BETTER = {"samples/s", "of one rank", "tokens/s", "GB/s", "GFLOP/s", "%"}
# Figures made of two others of one side: (name, unit, the divided, the divisor).
DERIVED = [("cost of 16x4 accumulation", "times", "mlp_sgd.rate", "mlp_accum.rate")]


def parse(text):
    """{what: figure} of the lines `what <tab> median <tab> unit <tab> min <tab> max <tab> samples`, and why a mode
    cannot run here, from a line `skipped <tab> reason`; None where it can."""
    found, skipped = {}, None
    for line in text.splitlines():
        try:
            if line.startswith("skipped\t"):
                skipped = line.partition("\t")[2]
                continue
            what, median, unit, low, high, samples = line.split("\t")
            found[what] = {"median": float(median), "unit": unit, "min": float(low), "max": float(high),
                           "samples": int(samples)}
        except ValueError:
            print(f"not a figure: {line}", file=sys.stderr)
    return found, skipped


def in_f32(what):
    """The same figure of the work in f32: gpt.rate for gpt_bf16.rate."""
    return re.sub(r"^([^.]*)_(bf16|f16|bf16x3)\.", r"\1.", what)


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)} if values else None


def ratios(unit, ours, theirs):
    """The spread of the ratios of the rounds that both have, in our favour where above 1; None where there is none."""
    pairs = [(ours[r], theirs[r]) for r in ours if theirs.get(r) and ours[r]]
    return spread([a / b if unit in MORE_IS_BETTER else b / a for a, b in pairs])


def collect(rounds):
    """({side: {what: {round: value}}}, {what: unit}, {what: is a round void}) of the rounds that were kept."""
    values, units, void = {}, {}, {}
    for one in rounds:
        for side, found in one["sides"].items() if one["kept"] else ():
            for what, figure in found.items():
                units[what] = figure["unit"]
                values.setdefault(side, {}).setdefault(what, {})[one["round"]] = figure["median"]
                void[what] = void.get(what, False) or one["void"]
    for side in values.values():
        for what, unit, top, bottom in DERIVED:
            by_round = {r: v / side[bottom][r] for r, v in side.get(top, {}).items() if side.get(bottom, {}).get(r)}
            if by_round:
                side[what], units[what], void[what] = by_round, unit, void[top] or void[bottom]
    return values, units, void


def decider(what):
    """The figure of the peer that decides which of its modes is the best: the rate of the work, if it has one."""
    for name, _, _, bottom in DERIVED:
        if name == what:
            return bottom
    return re.sub(r"\.(peak_rss|accuracy|loss)$", ".rate", in_f32(what))


def best_mode(what, unit, modes):
    """The mode with the best median. Next to firn in f32, and as bf16x3 (about as exact), only those in f32.
    modes: {mode: {what: {round: value}}}"""
    wide = in_f32(what) == what or "_bf16x3." in what
    medians = {mode: statistics.median(found[decider(what)].values()) for mode, found in modes.items()
               if decider(what) in found and not (wide and "bf16" in mode)}
    if not medians:
        return None
    return (max if unit in MORE_IS_BETTER else min)(medians, key=medians.get)


def rows(rounds):
    """The rows of the rounds that were kept, in order of appearance, derived ones last."""
    values, units, void = collect(rounds)
    ours, before = values.pop("firn", {}), values.pop("baseline", {})
    out = []
    for what in [*ours, *(w for w in units if w not in ours and not any(in_f32(o) == w for o in ours))]:
        unit, wide, mine = units[what], in_f32(what), ours.get(what, {})
        mode = best_mode(what, units.get(decider(what), unit), values)
        theirs = values[mode].get(wide, {}) if mode else {}
        row = {"what": what, "unit": unit, "void": void[what], "firn": spread(list(mine.values())),
               "peer": spread(list(theirs.values())), "mode": mode, "ratio": ratios(unit, mine, theirs),
               "of_f32": ratios(unit, mine, ours.get(wide, {})) if wide != what else None}
        if before:
            row["baseline"] = spread(list(before.get(what, {}).values()))
            row["of_baseline"] = ratios(unit, mine, before.get(what, {}))
            row["of_baseline_f32"] = ratios(unit, mine, before.get(wide, {})) if wide != what else None
        of_modes = {m: statistics.median(v[wide].values()) for m, v in values.items() if wide in v}
        if wide == decider(what) and len(of_modes) > 1:
            row["modes"] = of_modes
        out.append(row)
    return out


def number(x):
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.4g}"


def times(x):
    return f"{x:.2f}"


def with_range(v, show, columns, range_columns, align=">"):
    """The median and (min-max), in columns."""
    if not v:
        return f"{'-':>{columns}} {'':{range_columns}}"
    return f"{show(v['median']):>{columns}} {'({}-{})'.format(show(v['min']), show(v['max'])):{align}{range_columns}}"


def ratio_columns(v):
    return with_range(v, times, 6, 13, "<")


def where(result):
    """The day, the machine, and how firn uses it."""
    m = result["machine"]
    lines = [f"{result['date']}  {m['cpu']}, {m['cores']} cores, {m['memory']}, {m['system']}, commit {m['commit']}"]
    if "isa" in m:
        lines.append(f"instruction sets: {' '.join(m['isa']) or 'none of those that matter'}"
                     + (f"; FIRN_CPU_ISA={m['forced_isa']}" if m.get("forced_isa") else ""))
    if m.get("firn_uses"):
        lines.append(f"firn uses: {m['firn_uses']}")
    return lines


def settings_of_peer(result):
    peer = result["peer"]
    return [" ".join(filter(None, [peer["name"], peer["version"]])) + " with: "
            + " ".join(f"{k}={v}" for k, v in peer["environment"].items())] if peer else []


def head(result):
    """Where and how it was measured."""
    s = result["settings"]
    return [*where(result), f"{s['threads']} threads, {s['rounds']} rounds, {s['epochs']} epochs"
            + ("; QUICK: figures mean nothing" if s["quick"] else ""),
            *([f"before: {result['baseline']}"] if result.get("baseline") else []), *settings_of_peer(result)]


def table(result):
    """What bench/run prints: where and how, a line a row, the peer's modes, and what was void, skipped or failed."""
    rows_, peer = result["rows"], result["peer"]
    modes = {in_f32(r["what"]): r for r in rows_ if r.get("modes")}
    narrow = any(r.get("of_f32") for r in rows_)
    before = any("baseline" in r for r in rows_)
    name = peer["name"] if peer else "peer"
    title = (f"{'work':38} {'unit':9} {'firn':>9} {'(min-max)':>19} {name:>9} {'(min-max)':>19} "
             + (f"{'its best mode':22} " if modes else "") + f"{'ratio':>6} {'(min-max)':13}"
             + (f" {'of f32':>6} {'(min-max)':13}" if narrow else "")
             + (f" {'before':>9} {'ratio':>6} {'(min-max)':13} {'of its f32':>10}" if before else ""))
    lines = [*head(result), "", title]

    for r in rows_:
        cells = [f"{r['what']:38} {r['unit']:9}", *(with_range(r[side], number, 9, 19) for side in ("firn", "peer"))]
        if modes:
            cells.append(f"{r['mode'] or '':22}")
        cells.append(ratio_columns(r["ratio"]))
        if narrow:
            cells.append(ratio_columns(r["of_f32"]))
        if before:
            cells.append(f"{number(r['baseline']['median']) if r['baseline'] else '-':>9}")
            cells.append(ratio_columns(r["of_baseline"]))
            cells.append(f"{times(r['of_baseline_f32']['median']) if r['of_baseline_f32'] else '-':>10}")
        lines.append((" ".join(cells) + ("  void" if r["void"] else "")).rstrip())
    if modes:
        lines += ["", f"{name}'s modes, medians:"]
        lines += [f"{what:38} {r['unit']:9} " + ", ".join(f"{m} {number(v)}" for m, v in r["modes"].items())
                  for what, r in modes.items()]
    kept = [r for r in result["rounds"] if r["kept"]]
    void = [r for r in kept if r["void"]]
    if void:
        lines.append(f"\nvoid: other processes used over 3 % of a core in {len(void)} of {len(kept)} rounds that were "
                     "kept: " + ", ".join(f"{r['work']} {r['others']:.0%}" for r in void))
    if any(r["others"] is None for r in kept):
        lines.append("\nwhat other processes used is not known here")
    lines += [f"skipped: {s}" for s in result.get("skipped", [])] + [f"failed: {f}" for f in result["failed"]]
    return "\n".join(lines) + "\n"


def read(path):
    """The result in a file of `bench/run --json`. Throws ValueError where it is none."""
    try:
        result = json.loads(path.read_text())
        result["rows"], result["settings"], result["machine"]  # noqa: B018
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ValueError(f"{path} is not a file of bench/run --json: {e}") from e
    return result
