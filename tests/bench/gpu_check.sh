#!/usr/bin/env bash
# scripts/gpu-check on a made-up machine: programs that stand for the GPU's, a build that is there already,
# and one that fails. What it would do, what it runs, what its table, its last lines and its exit status say.
#   gpu_check.sh GPU_CHECK WORK
set -euo pipefail
check="$1" work="$2"
rm -rf "$work"
mkdir -p "$work"/{bin,no-gpu,build/bench/gpu,catch,build/samples/images,build/sim/bench/gpu}
fail() { echo "gpu_check.sh: $*" >&2; exit 1; }
program() { cat >"$1"; chmod +x "$1"; }

# A GPU by the name of what is asked about it.
program "$work/bin/nvidia-smi" <<'END'
#!/bin/sh
case "$*" in *compute_cap*noheader*) echo 9.0 ;; -L) for i in $(seq 0 $((${FAKE_GPUS:-1} - 1))); do echo "GPU $i: made up"; done ;; *) echo "name" ;; esac
END
program "$work/no-gpu/nvidia-smi" <<'END'
#!/bin/sh
exit 9
END
program "$work/bin/compute-sanitizer" <<'END'
#!/usr/bin/env bash
tool="$2"
while [[ $1 == --* ]]; do shift 2; done
if [[ -e ${FAKE_ERRORS:-} && $tool == racecheck && $3 == gemm ]]; then
  echo "========= a made-up hazard"
  exit 9
elif [[ $1 == *firn_test_* && $2 != "~"* ]]; then
  echo "========= Invalid __global__ write of size 4 bytes in $2"
  exit 9
fi
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
if [ -n "${OUT:-}" ]; then echo more >"$OUT/more"; fi
echo '{"who": "firn", "work": "copy", "mode": "memcpy", "dtype": "-", "median": 2000, "min": 1, "max": 3, "unit": "us", "nodes": 1, "bytes": 8.6e9, "flop": 0}'
END
for folder in build build/sim; do
  program "$work/$folder/bench/gpu/firn_probe_gpu" <<'END'
#!/bin/sh
echo "probe: on a made-up machine"
echo "GPU: made up"
if [ -n "${FAKE_DEATH:-}" ]; then kill -9 $$; fi
echo "probe: 1 lines, 0 ended in an error"
END
done
program "$work/build/samples/images/images" <<'END'
#!/usr/bin/env bash
while (($#)); do
  if [[ $1 == --log ]]; then echo "{\"record\": \"epoch\", \"metrics\": {\"accuracy\": ${FAKE_ACCURACY:-0.885}}, \"measured\": {\"samples_per_second\": 12345.6}}" >"$2"; fi
  shift
done
END
# A program of Catch2 with failing cases, of which the second fails only in company.
for name in memory nn; do
  program "$work/catch/firn_test_$name" <<'END'
#!/usr/bin/env bash
rule=-------------------------------------------------------------------------------
dots=...............................................................................
me="${0##*_}"
fails() { printf '%s\n' "$rule" "$1" "$rule" "made_up.cpp:$2" "$dots" "" "made_up.cpp:$2: FAILED: $3" ""; }
case "$*" in
  *--list-test-names-only) printf '%s\n' "first, of $me" "third of $me"; exit 2 ;;
  "~[host]")
    [[ -z ${FAKE_CRASH:-} ]] || kill -s "$FAKE_CRASH" $$
    for i in {1..4000}; do echo "line $i of much output"; done
    fails "first, of $me" 11 "in company"
    fails $'second of a long name of\n'"$me"$'\n  and a section' 12 "in company" ;;
  "first\\, of $me") fails "first, of $me" 11 "blocking ${CUDA_LAUNCH_BLOCKING:-no}, device ${FIRN_TEST_DEVICE:-none}" ;;
  "second of a long name of $me") echo "All tests passed"; exit 0 ;;
  *) echo "no case: $*"; exit 5 ;;
esac
exit 1
END
done
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
run() {  # expected status, arguments...; at most eight files come of it
  local expected="$1" got=0
  shift
  PATH="$work/bin:$PATH" OUT="$work/out" FIRN_PYTHON="$work/python" "$check" --build "$work/build" "$@" \
    >"$work/said" 2>&1 || got=$?
  [[ $got == "$expected" ]] || { cat "$work/said"; fail "$* ended with $got, not $expected"; }
  [[ ! -d $work/out || $(find "$work/out" -mindepth 1 | wc -l) -le 8 ]] ||
    { ls -R "$work/out"; fail "$*: more than eight files"; }
}
says() { grep -qF -- "$1" "$work/said" || { cat "$work/said"; fail "nothing says '$1'"; }; }
says_last() { tail -c 12000 "$work/said" | grep -qF -- "$1" || { cat "$work/said"; fail "the end does not say '$1'"; }; }
never_says() { if grep -qF -- "$1" "$work/said"; then cat "$work/said"; fail "something says '$1'"; fi; }

# Without a GPU: a message and 2. What would be done can be asked for.
got=0
PATH="$work/no-gpu:$PATH" "$check" >"$work/said" 2>&1 || got=$?
[[ $got == 2 ]] || fail "no GPU: status $got"
says "no NVIDIA GPU here"
run 0 --dry-run
says "-DCMAKE_CUDA_ARCHITECTURES=90"
says "-DCMAKE_CUDA_FLAGS=-lineinfo"
says "-DFIRN_WERROR=OFF"
says "nothing was done"
[[ ! -e $work/out ]] || fail "a dry run wrote files"
run 2 --only nonsense
says "there is no part 'nonsense': build probe test sample sanitize bench profile"
run 2 --nonsense
run 2 --works gemm,nonsense
says "there is no work 'nonsense': ceilings mlp"
run 2 --arch sm_90
says "--arch sm_90 is not like 90"
for option in --only --works --seconds --arch; do
  run 2 "$option"
  says "$option needs a value"
done
[[ ! -e $work/out ]] || fail "a mistake in the arguments wrote files"

# Calls of at most ten minutes and half an hour together, with every part and every work once.
run 0 --dry-run
says "carry third_party_offline:"
limits="$(sed -n 's/^call [0-9]*, limit \([0-9]*\) s,.*/\1/p' "$work/said")"
awk '$1 > 600 {bad = 1} {n += $1} END {exit bad || NR < 2 || n > 1800}' <<<"$limits" || fail "limits: $limits"
lines="$(grep -E '^  scripts/gpu-check --only ' "$work/said")"
for part in probe test sample sanitize profile; do
  [[ $(grep -c -E "[ ,]$part(,| )" <<<"$lines") == 1 ]] || fail "$part is not once in $lines"
done
names="$(sed -n 's/^WORKS = \[\(.*\)\]/\1/p' "$(dirname "$check")/../bench/gpu/run" | tr -d '",')"
for name in ${names:?no works in bench/gpu/run}; do
  [[ $(grep -c -E "[ ,]$name(,| )" <<<"$lines") == 1 ]] || fail "work $name is not once in $lines"
done
while read -r line; do
  grep -qF "$line" "$(dirname "$check")/../docs/gpu.md" || fail "docs/gpu.md does not have the call '$line'"
done < <(sed 's/ --build .*//; s/^ *//' <<<"$lines")
while read -r _ words; do
  words="${words% --build *}"
  # shellcheck disable=SC2086
  run 0 $words --dry-run
done <<<"$lines"
run 0 --dry-run --only bench --works gemm,mlp
[[ $(grep -c '^call' "$work/said") == 2 ]] || fail "two works of two calls are not two calls"
says "--only build,bench --works gemm --seconds"

tests '"/bin/true"'
run 0 --only probe,test,sanitize,bench,sample,profile
says "100% tests passed, 0 tests failed out of 2, 0 skipped"
says "12 clean, 0 cut short"
says "without PyTorch"
says "fp16 88.50 % at 12346 images/s"
says "    2.34 us       update(int, float)"
says "1 launches, listed above"
says "probe      ok"
never_says "the first failure"
for file in bench.jsonl bench.txt profile.log sample.log sanitize.log summary.txt test.log; do
  [[ -s $work/out/$file ]] || fail "no $file"
done
[[ $(grep -n '^== probe' "$work/said") < $(grep -n '^== test' "$work/said") ]] || fail "the tests come before the probe"
grep -q '^GPU: made up$' "$work/out/summary.txt" || fail "no probe in summary.txt"

run 0 --only bench --seconds 5
says "no time left"

# Ranks: only if they are asked for, and only with two GPUs; as threads, and each as a process.
mkdir -p "$work/build/tests/nccl"
program "$work/build/tests/nccl/firn_nccl_ranks" <<'END'
#!/bin/sh
echo "all_reduce of 64 KiB: 3 GB/s, arguments '$*'"
[ -z "${FAKE_RANK:-}" ] || [ "$1" != "$FAKE_RANK" ]
END
run 0 --only ranks
says "ranks      skipped"
says "1 GPU, and ranks need two"
FAKE_GPUS=3 run 0 --only ranks
says "ranks      ok"
says "3 GPUs; "
for rank in 0 1 2; do
  grep -q "process $rank: all_reduce of 64 KiB: 3 GB/s, arguments '$rank 3 " "$work/out/ranks.log" || fail "no process $rank"
done
FAKE_GPUS=2 FAKE_RANK=1 run 1 --only ranks
says "1 of 2 processes failed"
says_last "== the first failure: ranks"
run 0 --ranks --dry-run
says "--target firn_nccl_ranks"
says "scripts/gpu-check --only build,ranks --seconds"

# Each thing that can be wrong fails its part and the whole; what the first one said comes last.
tests '"/bin/false"'
run 1 --only test
says "1 tests failed out of 2"
says_last "== the first failure: test"
says_last "gpu/b: status 1"
tests '"/bin/echo" "skipped: no CUDA device"'
run 1 --only test
says "1 skipped"
touch "$work/errors"
FAKE_ERRORS="$work/errors" run 1 --only sanitize
says "errors in racecheck:gemm"
says_last "== the first failure: sanitize racecheck:gemm"
says_last "a made-up hazard"
FAKE_ACCURACY=0.5 run 1 --only sample,profile
says "sample     failed"
says_last "== the first failure: sample fp32: 50.00 % of the test images, not 86"
FAKE_DEATH=1 run 1 --only probe,profile
says "probe      failed"
says_last "== the first failure: probe"
says "1 launches, listed above"

# Failing cases run again alone. The first one by the tests' ladder stands at the end, with memcheck's word.
for name in nn memory; do
  echo "add_test(gpu/$name \"$work/catch/firn_test_$name\" \"~[host]\")"
  echo "set_tests_properties(gpu/$name PROPERTIES LABELS gpu ENVIRONMENT FIRN_TEST_DEVICE=cuda)"
done >"$work/build/CTestTestfile.cmake"
run 1 --only test
says 'again: gpu/memory "first, of memory": status 1'
says 'again: gpu/memory "second of a long name of memory": passes alone'
says 'again: gpu/nn "first, of nn": status 1'
says_last '0% tests passed, 2 tests failed out of 2'
says_last '== the first failure: test'
says_last 'made_up.cpp:11: FAILED: blocking 1, device cuda'
says_last 'memcheck (status 9):'
[[ $(tail -n 1 "$work/said") == '========= Invalid __global__ write of size 4 bytes in first\, of memory' ]] ||
  fail "the output does not end with the first failure"
[[ $(wc -c <"$work/said") -lt 12000 ]] || fail "a failing test's output is printed whole"
grep -q 'line 4000 of much output' "$work/out/test.log" || fail "test.log lacks a failing test's output"
# A program that dies without a word: its cases one by one, up to the first that fails.
for signal in SEGV ABRT KILL; do
  FAKE_CRASH=$signal run 1 --only test
  says 'again: gpu/memory "first, of memory": status 1'
  says_last 'made_up.cpp:11: FAILED: blocking 1, device cuda'
done

# A program that is not there explains nothing, if another one fails.
{
  sed 's/firn_test_nn/firn_test_nowhere/' "$work/build/CTestTestfile.cmake" | grep nn
  grep memory "$work/build/CTestTestfile.cmake"
} >"$work/tests" && mv "$work/tests" "$work/build/CTestTestfile.cmake"
run 1 --only test
says 'again: gpu/nn: Not Run'
says_last 'gpu/memory "first, of memory": status 1'

# A build that fails says all its errors at once, and what there is runs.
program "$work/bin/cmake" <<'END'
#!/usr/bin/env bash
echo "cmake $*" >>"$CMAKE_CALLS"
[[ $1 == --build ]] || exit 0
[[ $* == *"-- -k"* ]] || exit 3
[[ -n ${FAKE_BUILD_ERRORS:-} ]] || exit 0
printf '%s\n' "[1/3] Building" '/src/a.cu(17): error: identifier "x" is undefined' '/src/a.cu(18): warning #177-D: y' \
  "FAILED: a.o" "/src/b.cpp:5:3: error: no member z" "FAILED: b.o"
exit 1
END
cp "$work/bin/cmake" "$work/no-gpu/cmake"
export CMAKE_CALLS="$work/cmake_calls"
tests '"/bin/true"'
FAKE_BUILD_ERRORS=1 run 1 --only build,probe,test
says "2 errors, 2 programs or objects missing"
says "100% tests passed"
says_last "== the first failure: build"
says_last 'a.cu(17): error: identifier "x" is undefined'
says_last "b.cpp:5:3: error: no member z"
[[ $(grep -c -- '--build' "$CMAKE_CALLS") == 1 ]] || fail "built more than once"
grep -q -- '--target firn_gpu_tests firn_probe_gpu -- -k' "$CMAKE_CALLS" || fail "targets: $(cat "$CMAKE_CALLS")"
run 0 --only build
says "0 warnings"
never_says "GPU: made up"
# A build that ends without an error message, as where CMake is missing: the end of its log.
program "$work/bin/cmake" <<'END'
#!/bin/sh
echo "a made-up end of all things"
exit 127
END
run 1 --only build
says_last "== the first failure: build"
says_last "a made-up end of all things"
cp "$work/no-gpu/cmake" "$work/bin/cmake"

# The probe alone: on the GPU, or without one on the simulator, which it builds; it says where it ran.
run 0 --probe
says "GPU: made up"
never_says "on the simulator"
rm "$CMAKE_CALLS"
got=0
PATH="$work/no-gpu:$PATH" OUT="$work/out" "$check" --probe --build "$work/build" >"$work/said" 2>&1 || got=$?
[[ $got == 0 ]] || { cat "$work/said"; fail "the probe on the simulator: status $got"; }
says "no GPU here: on the simulator"
says "1 lines, 0 ended in an error on the simulator"
grep -q -- '-DFIRN_CUDA=SIM' "$CMAKE_CALLS" || fail "it did not build the simulator"
FAKE_BUILD_ERRORS=1 PATH="$work/no-gpu:$PATH" OUT="$work/out" "$check" --probe --build "$work/build" \
  >"$work/said" 2>&1 && fail "a probe that cannot be built passes"
says "cannot be built on the simulator"
