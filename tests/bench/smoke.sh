#!/usr/bin/env bash
# A work of firn_bench_gpu in tiny sizes; and the bytes that its figures say, where goals rest on them.
#   smoke.sh FIRN_BENCH_GPU WORK
set -euo pipefail
bench="$1" work="$2"
said="$(mktemp)"
trap 'rm -f "$said"' EXIT
status=0
"$bench" --smoke "$work" | tee "$said" || status=$?
((status == 0)) || exit "$status"
bytes() {  # work, dtype, bytes
  grep -F "\"work\": \"$1\"" "$said" | grep -F "\"dtype\": \"$2\"" | grep -qF "\"bytes\": $3," ||
    { echo "smoke.sh: $1 $2 does not move $3 bytes" >&2; exit 1; }
}
case "$work" in
  memory_bound)  # three passes over 8 x 64 logits
    bytes cross_entropy_8x64 f16 $((3 * 8 * 64 * 2))
    bytes cross_entropy_8x64 f32 $((3 * 8 * 64 * 4)) ;;
  optim)  # the norm's 4 bytes, the update's 16 read and 14 or 12 written, for each parameter
    count=$((16 * 24 + 16 + 16 * 16 + 16 + 10 * 16 + 10))
    bytes adamw_mlp_6 f16 $((34 * count))
    bytes adamw_mlp_6 f32 $((32 * count)) ;;
esac
