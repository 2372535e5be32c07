"""bench/run --only every_op on made-up figures: what it asks measure.py for, its table, its files, what it refuses, and
bench/check on the medians of families.
  every_op.py BENCH WORK"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

bench, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
shutil.rmtree(work, ignore_errors=True)
programs, venv = work / "programs", work / "venv/bin"
for folder in (programs, venv):
    folder.mkdir(parents=True)


def expect(holds, what, *seen):
    if not holds:
        sys.exit("\n".join([f"FAILED: {what}", *map(str, seen)]))


def call(name, *args, status=0, venv=venv):
    done = subprocess.run([bench / name, *map(str, args)], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, env={**os.environ, "FIRN_INTEROP_VENV": str(venv.parent)})
    expect(done.returncode == status, f"{name} {args}: status {done.returncode}, not {status}", done.stdout, done.stderr)
    return done.stdout + done.stderr


def every_op(*args, **more):
    return call("run", "--only", "every_op", "--programs", programs, *args, **more)


def cell(op, family, shape, ratio, firn=1e-6, **more):
    return {"op": op, "variant": "", "family": family, "shape": shape, "dtype": "f32", "threads": 1, "pass": "forward",
            "elements": 16, "firn": firn, "peer": firn * ratio, "others": 0.0, "void": False,
            "ratio": {"median": ratio, "min": ratio / 2, "max": ratio * 2}, **more}


CELLS = [cell("add", "elementwise", "16", 4.0, 2e-7), cell("exp", "elementwise", "16", 3.0),
         cell("exp", "elementwise", "rows", 1.5, 2e-3), cell("sum", "reductions", "16", 0.5, variant="last axis"),
         cell("sum", "reductions", "rows", 0.8, **{"pass": "backward", "void": True, "threads": 2})]
LEFT_OUT = [{"op": "view", "where": "strided f32", "reason": "PyTorch: not contiguous"},
            {"op": "view", "where": "strided bf16", "reason": "PyTorch: not contiguous"},
            {"op": "t_copy", "where": "", "reason": "a view"}]


def measures(cells):
    """The Python of the virtual environment: it notes its arguments, and its measure.py writes these cells."""
    (work / "cells.json").write_text(json.dumps({"cells": cells, "left_out": LEFT_OUT, "python_call": 9e-8, "pairs": 7}))
    (venv / "python").write_text(f"""#!/bin/sh
case "$*" in
  "-c import os, torch"*) printf '9.9\\n/nowhere/torch\\n'; exit ;;
  -c*) exit ;;
esac
echo "$* $MALLOC_TRIM_THRESHOLD_" >"{work}/log"
while [ $# -gt 0 ]; do [ "$1" = --json ] && cp "{work}/cells.json" "$2"; shift; done
""")
    (venv / "python").chmod(0o755)


measures(CELLS)
out = every_op("--json", work / "a.json", "--tsv", work / "a.tsv")
log = (work / "log").read_text()
for part in ("every_op/measure.py --runner", f"{programs}/firn_interop", "--threads 1,2 --dtype f32,bf16 --pairs 7 --filter= ",
             " 4294967296"):
    expect(part in log, f"measure.py is asked for {part}", log)
lines = out.splitlines()
at = [i for i, line in enumerate(lines) if line.split(",")[0].split(" ")[0] in ("add", "exp", "sum")]
expect([lines[i].split()[0].strip(",") for i in at] == ["sum", "sum", "exp", "exp", "add"], "sorted by ratio", out)
expect("0.50 (0.25-1.00)" in lines[at[0]] and "sum, last axis" in lines[at[0]], "the lowest ratio comes first", lines[at[0]])
expect(lines[at[1]].endswith("void") and " 2 backward" in lines[at[1]], "threads, the pass, void", lines[at[1]])
expect("200 ns   800 ns" in lines[at[4]] and "2 ms     3 ms" in lines[at[2]], "units of time", out)
medians = {line.split()[0]: line.split() for line in lines[lines.index("", at[4]):] if " f32 " in line}
expect(medians["elementwise"][2:] == ["3", "3.50", "1.50", "3.00", "0%"], "the medians of a family", medians)
expect(medians["reductions"][-1] == "100%", "how many are below 1", medians)
expect("takes\n90 ns." in out, "what a call from Python costs", out)
expect("not measured: view (strided f32, strided bf16): PyTorch: not contiguous" in out, "left out, by reason", out)
expect("PyTorch 9.9 with: " in out and "1 and 2 threads, 7 pairs" in out, "how it was measured", out)
expect(call("run", "--table", work / "a.json") == out, "--table is what was printed")
table = [line.split("\t") for line in (work / "a.tsv").read_text().splitlines()]
expect(len(table) == 6 and table[1][:3] == ["elementwise", "add", ""] and table[1][10] == "4", "the TSV", table)

rows = {r["what"]: r for r in json.loads((work / "a.json").read_text())["rows"]}
expect(rows["every_op.elementwise.16.f32"]["ratio"] == {"median": 3.5, "min": 3.0, "max": 4.0}, "rows of families", rows)
expect(rows["every_op.reductions.rows.f32"]["void"] and not rows["every_op.reductions.16.f32"]["void"], "void rows", rows)

# Short forms, and many lines.
every_op("--quick", "--filter", "^nn", "--json", work / "q.json")
expect("--threads 1 --dtype f32 --pairs 2 --filter=^nn --quick" in (work / "log").read_text(), "a quick run")
expect(json.loads((work / "q.json").read_text())["rows"] == [], "a part of a family has no median to guard")
measures([cell(f"op{i}", "elementwise", "16", 1 + i) for i in range(200)])
out = every_op("--json", work / "many.json")
expect("... 80 calls between them" in out and "op59 " in out and "op60 " not in out, "the ends of a long table", out)
expect("op60 " in call("run", "--table", work / "many.json", "--all"), "--all")

# What cannot be run is refused or skipped.
nothing = work / "nothing/bin"
expect("skipped: " in every_op("--quick", status=77, venv=nothing), "a quick run without PyTorch is skipped")
expect("--yes installs it" in every_op(status=1, venv=nothing), "a long one says what is missing")
expect("beside --peer torch" in every_op("--peer", "libtorch", status=2), "another peer")
expect("--filter" in every_op("--filter", "(", status=2), "no expression")
expect("takes f32 and bf16" in every_op("--dtype", "f8", status=2), "an unknown dtype")
expect("options of --only every_op" in call("run", "--only", "memory", "--tsv", work / "x", status=2), "an option of it")
expect("several numbers" in call("run", "--only", "memory", "--threads", "1,2", status=2), "threads of other works")

# ---- bench/check ----
check = ["check", "--ratios", work / "ratios.json"]
expect("void, so not accepted: every_op.reductions.rows.f32" in call(*check, "--accept", work / "a.json", status=2), "void")
measures([{**c, "void": False} for c in CELLS])
every_op("--json", work / "b.json")
expect("4 ratios accepted beside PyTorch" in call(*check, "--accept", work / "b.json"), "medians are accepted")
measures([{**c, "void": False, "ratio": {**c["ratio"], "median": c["ratio"]["median"] * (0.5 if c["op"] == "sum" else 1)}}
          for c in CELLS])
every_op("--json", work / "c.json")
out = call(*check, work / "c.json", status=1)
expect("FELL   every_op.reductions.16.f32: 0.50" in out and "4 ratios, 2 fell" in out, "a family that fell", out)
shutil.rmtree(work)
