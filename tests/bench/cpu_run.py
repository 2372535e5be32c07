"""bench/run on made-up programs: who runs with what, its table, void rounds, what it refuses, the modes of a made-up
PyTorch, and an older build beside. bench/check on its files: what is accepted, what fell.
  cpu_run.py BENCH WORK"""
import json
import os
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


def call(name, *args, status=0, **environment):
    done = subprocess.run([bench / name, *map(str, args)], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, env={**os.environ, **environment})
    expect(done.returncode == status, f"{name} {args}: status {done.returncode}, not {status}", done.stdout, done.stderr)
    return done.stdout + done.stderr


def program(name, *lines, folder=programs):
    path = folder / f"bench_{name}"
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
           "--quick", "--precision", "f32", "--json", work / "quick.json")
log = (work / "log").read_text().splitlines()
expect(log[:2] == ["bench_train mlp_sgd --threads 2 --epochs 1 --images 6400 ",
                   "bench_torch_train mlp_sgd --threads 2 --epochs 1 --images 6400 4294967296"], "firn, then the peer", log)
expect(len(log) == 8 and "bench_memory --threads 2 --quick " in log, "one quick round of four works", log)
expect("not a figure: not a figure" in out and "QUICK" in out, "says what it could not read", out)

for counter in work.glob("**/*.n"):
    counter.unlink()
out = call("run", "--programs", programs, "--only", "mlp_sgd,mlp_accum,memory", "--precision", "f32",
           "--rounds", 2, "--json", work / "a.json")
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
pairs = sorted(r["sides"]["firn"]["mlp_sgd.rate"]["median"] / r["sides"]["C++ f32"]["mlp_sgd.rate"]["median"] for r in sgd)
expect([by_name["mlp_sgd.rate"]["ratio"][k] for k in ("min", "max")] == [pairs[0], pairs[-1]], "pairs", result["rows"])
expect(call("run", "--table", work / "a.json") == out[:out.index("round 1")], "--table is what was printed")

# A file of before there were modes and precisions.
for r in result["rows"]:
    del r["mode"], r["of_f32"]
for r in result["rounds"]:
    r.update(r.pop("sides"))
del result["machine"]["isa"], result["skipped"], result["baseline"]
(work / "before.json").write_text(json.dumps(result))
expect(" 4.00 (4.00-4.00)" in row(call("run", "--table", work / "before.json"), "mlp_accum.rate"), "an older file")

# ---- 16 bits, PyTorch's modes, and an older build ----
venv = work / "venv/bin"
venv.mkdir(parents=True)
(venv / "python").write_text(f"""#!/bin/sh
case "$*" in
  "-c import os, torch"*) printf '9.9\\n/nowhere/torch\\n'; exit ;;
  -c*) exit ;;
  *"f32 eager"*) rate=500 ;;
  *"bf16 eager"*) rate=1000 ;;
  *"f32 compile"*) rate=100 ;;
  *"bf16 compile"*) printf 'skipped\\tno compiler\\n'; exit ;;
esac
{LOG}
printf "mlp_sgd.rate\\t$rate\\tsamples/s\\t1\\t9\\t3\\nmlp_sgd.peak_rss\\t$rate\\tMiB\\t1\\t9\\t3\\n"
""")
(venv / "python").chmod(0o755)
old = work / "old"
old.mkdir()
program("train", r"printf 'mlp_sgd.rate\t450\tsamples/s\t1\t9\t3\n'", folder=old)  # knows no --precision
(work / "log").unlink()
program("train", LOG, 'rate=600; name=$1',
        'case "$*" in *bf16*) rate=900; name=$1_bf16 ;; *f16*) rate=300; name=$1_f16 ;; esac',
        'printf "$name.rate\\t$rate\\tsamples/s\\t1\\t9\\t3\\n$name.peak_rss\\t100\\tMiB\\t1\\t9\\t3\\n"')
out = call("run", "--programs", programs, "--baseline", old, "--only", "mlp_sgd", "--peer", "torch", "--rounds", 2, "--json",
           work / "torch.json", FIRN_INTEROP_VENV=str(venv.parent))
log = (work / "log").read_text().splitlines()
expect([line.split()[0] for line in log[:3]] == ["bench_train"] * 3 and log[3].startswith("bench_torch_train mlp_sgd")
       and log[4].startswith("bench_torch_train") and "--precision bf16" in log[4], "firn, then C++ in two precisions", log)
expect("--mode f32 eager" in log[5] and "4294967296" in log[5] and "torch_modes.py mlp_sgd --threads" in log[5],
       "then Python", log)
by_name = {r["what"]: r for r in json.loads((work / "torch.json").read_text())["rows"]}
wide, narrow, f16 = (by_name[f"mlp_sgd{p}.rate"] for p in ("", "_bf16", "_f16"))
expect(wide["mode"] == "f32 eager" and wide["peer"]["median"] == 500, "f32 beside the best mode in f32", wide)
expect(narrow["mode"] == "bf16 eager" and narrow["ratio"]["median"] == 0.9, "bf16 beside the best of all modes", narrow)
expect(by_name["mlp_sgd_bf16.peak_rss"]["peer"]["median"] == 1000, "memory is of the mode with the best rate", by_name)
expect(narrow["of_f32"]["median"] == 1.5, "bf16 beside firn's f32", narrow)
expect(f16["of_f32"]["median"] == 0.5 and wide["of_f32"] is None, "f16 likewise", f16)
expect(wide["baseline"]["median"] == 450 and wide["of_baseline"]["max"] == 600 / 450, "the older build", wide)
expect(narrow["baseline"] is None and narrow["of_baseline_f32"]["median"] == 2, "its f32 is what bf16 is held against", narrow)
expect(" 2.00" in row(out, "mlp_sgd_bf16.rate") and "bf16 eager" in row(out, "mlp_sgd_bf16.rate"), "the mode is named", out)
expect("PyTorch 9.9" in out and "f32 compile 100" in out, "all modes are listed", out)
expect(out.count("no compiler") == 1 and "skipped: mlp_sgd, bf16 compile: no compiler" in out, "a mode that cannot run", out)
expect("skipped: mlp_sgd_bf16, baseline: that build" in out, "a build that does not know bf16", out)
expect("instruction sets: " in out and f"before: {old}" in out, "the machine", out)
expect(call("run", "--table", work / "torch.json") == out[:out.index("round 1")], "--table of it")

program("cpu", "echo the matrix unit")
expect("firn uses: the matrix unit\n" in call("run", "--programs", programs, "--only", "memory", "--peer", "none", "--quick"),
       "what firn multiplies with")
chosen = json.loads((work / "torch.json").read_text())["settings"]["works"]
expect(chosen == ["mlp_sgd", "mlp_sgd_bf16", "mlp_sgd_f16"], "a work in all precisions", chosen)
out = call("run", "--programs", programs, "--only", "mlp_sgd_bf16", "--peer", "none", "--quick", "--json", work / "one.json")
expect(json.loads((work / "one.json").read_text())["settings"]["works"] == ["mlp_sgd_bf16"], "a work by its full name", out)
out = call("run", "--programs", programs, "--only", "mlp_sgd_f16", "--peer", "torch", "--quick", FIRN_INTEROP_VENV=str(venv.parent))
expect("bf16 eager" in row(out, "mlp_sgd_f16.rate") and "f32 eager 500" in out, "f16 alone beside all modes", out)
program("product", 'name=product; case "$*" in *"--precision "*) name=product_${4} ;; esac',
        'printf "$name.x\\t600\\tGFLOP/s\\t1\\t9\\t3\\n"')
program("torch_product", 'case "$*" in *bf16*) rate=900 ;; *) rate=300 ;; esac',
        'printf "product.x\\t$rate\\tGFLOP/s\\t1\\t9\\t3\\n"')
out = call("run", "--programs", programs, "--only", "product", "--peer", "torch", "--rounds", 1, FIRN_INTEROP_VENV=str(venv.parent))
expect(" 2.00" in row(out, "product_bf16x3.x") and " 0.67" in row(out, "product_f16.x"), "bf16x3 beside f32", out)
expect("--yes installs it" in call("run", "--programs", programs, "--peer", "torch", status=1,
                                   FIRN_INTEROP_VENV=str(work / "nothing")), "several GB are asked for")
expect("takes f32, bf16, f16, bf16x3, not" in call("run", "--precision", "f8", status=2), "an unknown precision")
expect("nothing in --precision" in call("run", "--only", "memory", "--precision", "f16", status=2), "no such work")
expect("no programs in" in call("run", "--programs", programs, "--baseline", work / "nothing", status=1), "no build")

# A process that is nobody's child burns a core while the program sleeps. If it were the program's child and ended
# first, the shell would collect it, and its time would count as the program's.
program("overhead", "(timeout 1 sh -c 'while :; do :; done' >/dev/null 2>&1 &)", "sleep 1",
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
    if "peer" in changes:
        result["peer"] = {"name": changes["peer"]}
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
# Ratios beside another peer are another story: neither compared with these nor accepted over them.
other = invented("other.json", {"a": 1.1, "b": 3.0}, peer="PyTorch")
expect("--accept FILE writes it" in call(*check, other, status=2), "nothing accepted beside that peer")
expect("2 ratios accepted beside PyTorch" in call(*check, "--accept", other), "accepted apart")
expect("2 ratios, 0 fell" in call(*check, other), "the same beside PyTorch")
expect("FELL   a" in call(*check, invented("less.json", {"a": 0.8}, peer="PyTorch"), status=1), "a fall beside PyTorch")
out = call(*check, invented("system.json", {"a": 2.0, "b": 3.0, "c": 1.2}, peer="LibTorch"))
expect("3 ratios, 0 fell" in out, "LibTorch's ratios are those of old files", out)
(work / "bad.json").write_text("[]")
expect("is not a file of bench/run --json" in call(*check, work / "bad.json", status=2), "another file")
shutil.rmtree(work)
