#!/usr/bin/env bash
# scripts/gpu-check on a made-up machine: programs that stand for the GPU's, and a build that is there
# already. What it would do, what it runs, what its table and its exit status say.
#   gpu_check.sh GPU_CHECK WORK
set -euo pipefail
check="$1" work="$2"
rm -rf "$work"
mkdir -p "$work"/{bin,no-gpu,build/bench/gpu,build/tests,build/samples/fashion_mnist}
fail() { echo "gpu_check.sh: $*" >&2; exit 1; }
program() { cat >"$1"; chmod +x "$1"; }

# A GPU by the name of what is asked about it.
program "$work/bin/nvidia-smi" <<'END'
#!/bin/sh
case "$*" in *compute_cap*noheader*) echo 9.0 ;; -L) echo "GPU 0: made up" ;; *) echo "name" ;; esac
END
program "$work/no-gpu/nvidia-smi" <<'END'
#!/bin/sh
exit 9
END
program "$work/bin/compute-sanitizer" <<'END'
#!/usr/bin/env bash
tool="$2"
while [[ $1 == --* ]]; do shift 2; done
if [[ -e ${FAKE_ERRORS:-} && $tool == racecheck && $3 == gemm ]]; then exit 9; fi
exec "$@"
END
program "$work/bin/ncu" <<'END'
#!/bin/sh
echo '==PROF== Connected to process 1'
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","update(int, float)","gpu__time_duration.sum","us","2.34"'
echo '"0","update(int, float)","dram__bytes.sum","Mbyte","1"'
exit 9
END
program "$work/build/bench/gpu/firn_bench_gpu" <<'END'
#!/bin/sh
echo '{"who": "firn", "work": "copy", "mode": "memcpy", "dtype": "-", "median": 2000, "min": 1, "max": 3, "unit": "us", "nodes": 1, "bytes": 8.6e9, "flop": 0}'
END
program "$work/build/samples/fashion_mnist/fashion_mnist" <<'END'
#!/usr/bin/env bash
while (($#)); do
  if [[ $1 == --log ]]; then echo "{\"accuracy\": ${FAKE_ACCURACY:-0.885}, \"samples_per_s\": 12345.6}" >"$2"; fi
  shift
done
END
program "$work/python" <<'END'
#!/usr/bin/env bash
if [[ $* == *"import torch"* ]]; then exit 1; fi
exec python3 "$@"
END
tests() {  # line for the second test
  {
    echo 'add_test(gpu/a "/bin/true")'
    echo 'set_tests_properties(gpu/a PROPERTIES LABELS gpu)'
    echo "add_test(gpu/b $1)"
    echo 'set_tests_properties(gpu/b PROPERTIES LABELS gpu SKIP_REGULAR_EXPRESSION "skipped: no CUDA device")'
    echo 'add_test(never "/bin/false")'
    echo 'set_tests_properties(never PROPERTIES LABELS cpu)'
  } >"$work/build/CTestTestfile.cmake"
}
run() {  # expected status, arguments...
  local expected="$1" got=0
  shift
  PATH="$work/bin:$PATH" OUT="$work/out" FIRN_PYTHON="$work/python" "$check" --build "$work/build" "$@" \
    >"$work/said" 2>&1 || got=$?
  [[ $got == "$expected" ]] || { cat "$work/said"; fail "$* ended with $got, not $expected"; }
}
says() { grep -qF -- "$1" "$work/said" || { cat "$work/said"; fail "nothing says '$1'"; }; }

# Without a GPU: a message and 2; what would be done can be asked for.
got=0
PATH="$work/no-gpu:$PATH" "$check" >"$work/said" 2>&1 || got=$?
[[ $got == 2 ]] || fail "no GPU: status $got"
says "no NVIDIA GPU here"
run 0 --dry-run
says "-DCMAKE_CUDA_ARCHITECTURES=90"
says "nothing was done"
[[ ! -e $work/out ]] || fail "a dry run wrote files"
run 2 --only nonsense
run 2 --nonsense

tests '"/bin/true"'
run 0 --only test,sanitize,bench,sample,profile
says "100% tests passed, 0 tests failed out of 2, 0 skipped"
says "12 clean, 0 cut short"
says "without PyTorch"
says "fp16 88.50 % at 12346 images/s"
says "    2.34 us       update(int, float)"
says "1 launches, listed above"
for file in bench.jsonl bench.txt profile.log sample.log sanitize.log summary.txt test.log; do
  [[ -s $work/out/$file ]] || fail "no $file"
done

run 0 --only bench --seconds 5
says "no time left"

# Each thing that can be wrong fails its part and the whole.
tests '"/bin/false"'
run 1 --only test
says "gpu/b (Failed)"
tests '"/bin/echo" "skipped: no CUDA device"'
run 1 --only test
says "1 skipped"
touch "$work/errors"
FAKE_ERRORS="$work/errors" run 1 --only sanitize
says "errors in racecheck:gemm"
FAKE_ACCURACY=0.5 run 1 --only sample
says "sample     failed"
