"""bench/run on made-up programs: who runs with what, its table, void rounds, what it refuses. bench/check on its
files: what is accepted, what fell.
  cpu_run.py BENCH WORK"""
import json
import pathlib
import shutil
import subprocess
import sys

bench, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
shutil.rmtree(work, ignore_errors=True)
programs = work / "programs"
programs.mkdir(parents=True)


def expect(holds, what, *seen):
    if not holds:
        sys.exit("\n".join([f"FAILED: {what}", *map(str, seen)]))


def call(name, *args, status=0):
    done = subprocess.run([bench / name, *map(str, args)], capture_output=True, text=True, check=False)
    expect(done.returncode == status, f"{name} {args}: status {done.returncode}, not {status}", done.stdout, done.stderr)
    return done.stdout + done.stderr


def program(name, *lines):
    path = programs / f"bench_{name}"
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)


def says(*figures):
    return [f"printf '{what}\\t{median}\\t{unit}\\t1\\t9\\t3\\n'" for what, median, unit in figures]


def row(text, what):
    found = [line for line in text.splitlines() if line.startswith(what + " ")]
    expect(len(found) == 1, f"one row of {what}", text)
    return found[0]


# Each run of a program leaves its arguments and environment, and counts: the second round is another figure.
COUNT = 'n=$(cat "$0.n" 2>/dev/null || echo 0); n=$((n + 1)); echo $n >"$0.n"; r=$((n % 2)); '
LOG = f'echo "${{0##*/}} $* ${{MALLOC_TRIM_THRESHOLD_-}}" >>"{work}/log"; '
program("train", LOG + COUNT, 'rate=$((400 + r * 200)); [ "$1" = mlp_accum ] && rate=200',
        'printf "$1.rate\\t$rate\\tsamples/s\\t1\\t9\\t3\\n$1.peak_rss\\t100\\tMiB\\t1\\t9\\t3\\n"')
program("torch_train", LOG, 'rate=200; [ "$1" = mlp_accum ] && rate=50',
        'printf "$1.rate\\t$rate\\tsamples/s\\t1\\t9\\t3\\n$1.peak_rss\\t160\\tMiB\\t1\\t9\\t3\\n"')
program("memory", LOG, *says(("memory.copy", 20, "GB/s"), ("memory.add", 60, "GB/s")))
program("torch_memory", LOG, *says(("memory.add", 40, "GB/s")), "echo not a figure")

out = call("run", "--programs", programs, "--only", "mlp_,mem", "--rounds", 2, "--epochs", 3, "--threads", 2,
           "--quick", "--json", work / "quick.json")
log = (work / "log").read_text().splitlines()
expect(log[:2] == ["bench_train mlp_sgd --threads 2 --epochs 1 --images 6400 ",
                   "bench_torch_train mlp_sgd --threads 2 --epochs 1 --images 6400 4294967296"], "firn, then the peer", log)
expect(len(log) == 8 and "bench_memory --threads 2 --quick " in log, "one quick round of four works", log)
expect("not a figure: not a figure" in out and "QUICK" in out, "says what it could not read", out)

for counter in work.glob("**/*.n"):
    counter.unlink()
out = call("run", "--programs", programs, "--only", "mlp_sgd,mlp_accum,memory", "--rounds", 2, "--json", work / "a.json")
result = json.loads((work / "a.json").read_text())
expect([r["work"] for r in result["rounds"] if r["kept"]] == ["mlp_sgd", "mlp_accum", "memory"] * 2, "rounds", result)
expect("LibTorch" in out and "MALLOC_TRIM_THRESHOLD_=4294967296" in out, "the peer's environment", out)
expect(" 1.60 (1.60-1.60)" in row(out, "mlp_sgd.peak_rss"), "less memory is better", out)
expect(" 4.00 (4.00-4.00)" in row(out, "mlp_accum.rate"), "more samples are better", out)
expect(" 1.50 (1.50-1.50)" in row(out, "memory.add"), "more bandwidth is better", out)
expect("(1." not in row(out, "memory.copy") and " 20 " in row(out, "memory.copy"), "a ceiling has no ratio", out)
by_name = {r["what"]: r for r in result["rows"]}
cost = by_name["cost of 16x4 accumulation"]
expect(cost["peer"]["median"] == 4 and cost["firn"]["min"] >= 2 and cost["ratio"]["median"] > 1, "derived row", cost)
sgd = [r for r in result["rounds"] if r["kept"] and r["work"] == "mlp_sgd"]
pairs = sorted(r["firn"]["mlp_sgd.rate"]["median"] / r["peer"]["mlp_sgd.rate"]["median"] for r in sgd)
expect([by_name["mlp_sgd.rate"]["ratio"][k] for k in ("min", "max")] == [pairs[0], pairs[-1]], "pairs", result["rows"])
expect(call("run", "--table", work / "a.json") == out[:out.index("round 1")], "--table is what was printed")

# A process that is nobody's child burns a core while the program sleeps.
program("overhead", "(timeout 1 sh -c 'while :; do :; done') >/dev/null 2>&1 &", "sleep 1",
        *says(("add.no_grad", 100, "ns")))
out = call("run", "--programs", programs, "--only", "overhead", "--rounds", 1, "--json", work / "void.json")
tries = json.loads((work / "void.json").read_text())["rounds"]
if tries[0]["others"] is not None:
    expect([t["void"] for t in tries] == [True] * 3 and sum(t["kept"] for t in tries) == 1, "void, tried thrice", tries)
    expect(all(t["others"] > 0.5 for t in tries), "what others used", tries)
    expect(row(out, "add.no_grad").endswith("void") and "1 of 1 rounds" in out, "void is marked", out)

# What fails is said, and what cannot be run is refused.
program("optimizer", "exit 3")
expect("exit status 3" in call("run", "--programs", programs, "--only", "optimizer", status=1), "a failure")
expect("no work begins with 'nonsense'" in call("run", "--only", "nonsense", status=2), "an unknown work")
expect("unrecognized" in call("run", "--nonsense", status=2), "an unknown option")
expect("not a number" in call("run", "--rounds", "0", status=2), "no rounds")
expect("not built: compute" in call("run", "--programs", programs, "--only", "compute", status=1), "no program")
for peer in programs.glob("bench_torch_*"):
    peer.unlink()
expect("not installed" in call("run", "--programs", programs, "--peer", "libtorch", status=1), "no peer")
call("run", "--programs", programs, "--only", "memory", "--quick", "--json", work / "alone.json")


# ---- bench/check ----
def invented(name, ratios, **changes):
    rows = [{"what": what, "unit": "ns", "void": what in changes.get("void", ()), "firn": None, "peer": None,
             "ratio": r and {"median": r, "min": r - 0.1, "max": r + 0.1}} for what, r in ratios.items()]
    result = {"date": "2026-11-20T12:00:00+00:00", "machine": {"cpu": changes.get("cpu", "CPU")}, "rows": rows,
              "settings": {"threads": changes.get("threads", 2), "quick": changes.get("quick", False)}}
    (work / name).write_text(json.dumps(result))
    return work / name


ratios = work / "ratios.json"
check = ["check", "--ratios", ratios]
first = invented("first.json", {"a": 2.0, "b": 3.0, "c": 1.0, "ceiling": None})
expect("--accept FILE writes it" in call(*check, first, status=2), "nothing accepted yet")
expect("3 ratios accepted" in call(*check, "--accept", first), "accepted")
expect("3 ratios, 0 fell" in call(*check, first), "the same")
out = call(*check, invented("second.json", {"a": 1.71, "b": 2.5, "d": 5.0}, cpu="Other", void=["b"]), status=1)
expect("FELL   b: 3.00 on 2026-11-20, on CPU, now 2.50 (2.40-2.60), -17%, void" in out, "what fell", out)
expect(" a: " not in out and "new    d: 5.00" in out and "not measured: c" in out and "3 ratios, 1 fell" in out, "rest", out)
expect("rose   c" in call(*check, invented("rose.json", {"c": 1.2})), "a rise is no failure")
call(*check, "--accept", work / "rose.json")
expect({k: v["ratio"] for k, v in json.loads(ratios.read_text())["ratios"].items()} == {"a": 2.0, "b": 3.0, "c": 1.2},
       "accepting merges", ratios.read_text())
expect("void, so not accepted: b" in call(*check, "--accept", work / "second.json", status=2), "void")
expect("quick" in call(*check, "--accept", invented("q.json", {"a": 1}, quick=True), status=2), "quick")
expect("of 2 threads" in call(*check, invented("t.json", {"a": 2}, threads=1), status=2), "threads")
expect("no ratios" in call(*check, work / "alone.json", status=2), "no peer")
(work / "bad.json").write_text("[]")
expect("is not a file of bench/run --json" in call(*check, work / "bad.json", status=2), "another file")
shutil.rmtree(work)
