#!/usr/bin/env bash
# scripts/kernel-report passes a kernel as it was committed, and finds it when it has too few registers.
#   spills.sh SOURCE BUILD WORK NVCC
set -euo pipefail
source="$1" build="$2" work="$3" nvcc="$4"
rm -rf "$work"
mkdir -p "$work"/{good,bad,report}
fail() { echo "spills.sh: $*" >&2; exit 1; }
report() { "$source/scripts/kernel-report" --build "$build" --report "$work/report" "$@"; }

"$nvcc" -arch=sm_90 -c "$source/tests/kernel_report/spills.cu" -o "$work/good/spills.cu.o"
"$nvcc" -arch=sm_90 -maxrregcount=32 -c "$source/tests/kernel_report/spills.cu" -o "$work/bad/spills.cu.o"
printf 'sums of a stream\tspills\tsums_kernel.*\t1\t0\t0.9\n' >"$work/report/families.tsv"
: >"$work/report/exceptions.tsv"

status=0
report --write --objects "$work/good/spills.cu.o" || status=$?
((status != 77)) || exit 77
((status == 0)) || fail "--write ended with status $status"
report --check --objects "$work/good/spills.cu.o" || fail "the kernel as it was committed is refused"

status=0
report --check --objects "$work/bad/spills.cu.o" >"$work/out" || status=$?
cat "$work/out"
((status == 1)) || fail "a kernel that spills ended with status $status"
grep -q '^spills: sums_kernel: [0-9]* accesses to local memory in loops.*\[local\]' "$work/out" || fail "not named: local"
grep -q '^spills: sums_kernel: spills 0 -> [1-9]' "$work/out" || fail "not named: spills"

# An exception lets the rule pass, but not the change; one that nobody needs is a finding.
printf 'local\tspills\tsums_*\tfor this test\nf64\tspills\tsums_*\tfor nothing\n' >"$work/report/exceptions.tsv"
report --check --objects "$work/bad/spills.cu.o" >"$work/out" && fail "the change of figures passed"
! grep -q '\[local\]' "$work/out" || fail "the exception for local was not taken"
grep -q "no kernel needs 'f64 spills sums_\*'" "$work/out" || fail "an exception without use passed"
