#!/usr/bin/env bash
# The lines of firn_probe_gpu are all there, also when calls of CUDA fail. On the simulator none ends in an error.
#   probe.sh FIRN_PROBE_GPU sim|gpu
set -euo pipefail
probe="$1" where="$2"
said="$(mktemp)"
trap 'rm -f "$said"' EXIT
fail() { cat "$said"; echo "probe.sh: $*" >&2; exit 1; }
line() {  # name: its line, which begins with it and one of ' ' and ':'
  grep -E -- "^$1 *:" "$said" || fail "no line '$1'"
}

passes=(y "y BIAS" "y RELU" "y RELU_BIAS" "y RELU_AUX" "y RELU_AUX_BIAS" "y GELU" "y GELU_BIAS" "y GELU_AUX"
  "y GELU_AUX_BIAS" dx "dx DRELU" "dx DGELU" dw "dw BGRADB")
all_lines() {
  local dtype name cells
  for name in GPU driver runtime cuBLASLt cuDNN files products "rows x out x in"; do line "$name" >/dev/null; done
  for dtype in f16 bf16 f32; do
    for name in "${passes[@]}"; do line "$dtype $name" >/dev/null; done
    [[ $dtype == f32 ]] || for name in "dw f32" "dw f32 BGRADB"; do line "$dtype $name" >/dev/null; done
    for name in RELU RELU_BIAS RELU_AUX RELU_AUX_BIAS GELU GELU_AUX DGELU; do
      line "values of $dtype $name" >/dev/null
    done
  done
  for name in "handle, heuristic and product" "heuristic and product" "a first product" "a product after a run" \
    "a first matmul by firn"; do
    line "capture of $name" >/dev/null
  done
  [[ $(wc -l <"$said") == 85 ]] || fail "$(wc -l <"$said") lines in place of 85"
  grep -q '^probe: 83 lines, ' "$said" || fail "no last line"
}

status=0
"$probe" >"$said" 2>&1 || status=$?
grep -q '^firn_probe_gpu: no CUDA device' "$said" && { cat "$said"; exit 0; }
all_lines
[[ $where == sim ]] || exit 0  # a GPU's answers are what is asked for
[[ $status == 0 ]] || fail "status $status"
grep -q '^probe: on the simulator$' "$said" || fail "does not say that it is the simulator"
grep -q '^probe: 83 lines, 0 ended in an error$' "$said" || fail "an error"
# Six shapes a line: a product's nodes or the library's refusal for each.
for dtype in f16 bf16 f32; do
  for pass in "${passes[@]}"; do
    cells="$(line "$dtype $pass" | sed 's/^[^:]*: //' | grep -oE '[0-9]+n( |$)|[A-Z]{3,}_[A-Z]+' | wc -l)"
    [[ $cells == 6 ]] || fail "$dtype $pass: $cells answers in place of 6"
  done
  line "values of $dtype RELU" | grep -q ' 0: 0, nan: 0, 1: 1, -1: 0, inf: inf, -inf: 0, -0: 0; UNLIKE firn' ||
    fail "$dtype: the values of RELU"
  line "values of $dtype RELU_AUX" | grep -q ' 0: 0 bit 1, nan: 0 bit 0, 1: 1 bit 1, .*-0: 0 bit 1' ||
    fail "$dtype: the mask"
done
line "values of f32 GELU" | grep -qE 'greatest error [0-9.]+e-0[678] at ' || fail "GELU is far from f64"
line "capture of a product after a run" | grep -q '1n, replay right$' || fail "a captured product"
line "capture of a first matmul by firn" | grep -q 'refused without a run, 1 nodes .*result right$' || fail "firn's captured product"
[[ $(wc -c <"$said") -lt 11000 ]] || fail "longer than what is sent back of a command's output"

# The n-th call of CUDA fails in each process: an error in a line, and all lines.
for n in 3 300; do
  CUSIM_FAIL_API=$n "$probe" >"$said" 2>&1 || true
  all_lines
  grep -qE 'cuda[A-Z]|NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR|error:' "$said" || fail "call $n did not fail"
done

status=0
"$probe" machine nonsense >"$said" 2>&1 || status=$?
[[ $status == 2 ]] || fail "an unknown part: status $status"
