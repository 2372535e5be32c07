# shellcheck shell=bash disable=SC2154
# Part of scripts/gpu-check: what each part runs, and its row of the table.

# ---- build ----------------------------------------------------------------------------------------
# The programs of the parts that are wanted; all, if only the build is.
targets() {
  local part named=("${only[@]}")
  [[ "${only[*]}" == build ]] && named=("${all[@]}")
  for part in "${named[@]}"; do
    case "$part" in
      probe) echo firn_probe_gpu ;;
      test) echo firn_gpu_tests ;;
      sanitize) printf '%s\n' firn_bench_gpu firn_test_memory firn_test_graph firn_test_kernels ;;
      bench | profile) echo firn_bench_gpu ;;
      sample) echo sample_images ;;
      ranks) echo firn_nccl_ranks ;;
    esac
  done | sort -u
}
# One pass over everything: what fails does not keep the rest from being built.
build_targets() {  # targets...
  logged build.log "$(at_most "$seconds")" cmake -S "$root" -B "$build" "${settings[@]}" &&
    logged build.log "$(at_most "$seconds")" cmake --build "$build" -j "$jobs" --target "$@" -- "$go_on"
}
build_errors() { grep -E '(error|fatal|undefined reference|Error)[ :#]|^FAILED: |CMake Error' "$out/build.log"; }
part_build() {
  local code=0 these
  mapfile -t these < <(targets)
  build_targets "${these[@]}" || code=$?
  [[ $dry == yes ]] && return 0
  local warnings
  warnings="$(grep -c -E '(^|[^a-z])warning[ :#]' "$out/build.log")"
  case $code in
    0) row build ok "$(took)" "architecture $arch, $warnings warnings" ;;
    124 | 137)
      row build failed "$(took)" "no time left at $(grep -oE '^\[[0-9]+/[0-9]+\]' "$out/build.log" | tail -n 1); a later call goes on" ;;
    *)
      {
        if [[ -n "$(build_errors)" ]]; then
          grep -E -m 1 -A 12 '(error|fatal)[ :#]|CMake Error' "$out/build.log" | cut -c 1-300
          echo "all errors:"
          build_errors | cut -c 1-200 | awk '!seen[$0]++' | head -n 30
        else  # such as a program that is missing
          tail -n 15 "$out/build.log" | cut -c 1-300
        fi
      } | first_failure build
      row build failed "$(took)" "$(build_errors | grep -c -v '^FAILED: ') errors, $(grep -c '^FAILED: ' "$out/build.log") programs or objects missing (build.log)" ;;
  esac
}

# ---- probe ----------------------------------------------------------------------------------------
# What the libraries answer is a fact and no failure. It builds its program if nothing has.
part_probe() {
  local program=$build/bench/gpu/firn_probe_gpu verdict=ok where="" code=0
  [[ $simulated == yes ]] && where=" on the simulator" && echo "no GPU here: on the simulator"
  if [[ ! -x $program || $simulated == yes || $dry == yes ]] && ! wanted build; then
    build_targets firn_probe_gpu || code=$?
    if ((code == 124 || code == 137)); then
      row probe failed "$(took)" "no time left to build it$where; a later call goes on"
      return
    elif ((code != 0)); then
      { build_errors | head -n 20; tail -n 5 "$out/build.log"; } | first_failure "probe (its build)"
      row probe failed "$(took)" "cannot be built$where (build.log)"
      return
    fi
  fi
  if [[ $dry == yes ]]; then
    printf ' %q   # at most %s s, to %s\n' "$program" "$(at_most 120)" "$out/summary.txt"
    return
  fi
  built probe bench/gpu/firn_probe_gpu || return
  timeout --kill-after=10 "$(at_most 120)" "$program" 2>&1 | tee -a "$out/summary.txt" || code=$?
  if ! grep -qE '^probe: [0-9]+ lines, ' "$out/summary.txt"; then
    verdict=failed
    grep -A 1000 -m 1 '^probe: ' "$out/summary.txt" | tail -n 20 | first_failure "probe (status $code)"
  fi
  row probe "$verdict" "$(took)" "$(grep '^probe: ' "$out/summary.txt" | tail -n 1 | cut -c 8-)$where"
}

# ---- test -----------------------------------------------------------------------------------------
part_test() {
  local verdict=ok passed skipped limit each
  limit="$(at_most 300)"
  each=$((limit > 80 ? limit - 60 : 20))  # a test that hangs is named before the whole is cut short
  logged test.log "$limit" ctest --test-dir "$build" -L '^gpu$' --output-on-failure \
    --timeout "$each" --parallel 4 --no-tests=error || verdict=failed
  local again=("$python" scripts/gpu/again --build "$build" --log "$out/test.log"
    --seconds "$(at_most 180)" ${sanitizer:+--sanitizer "$sanitizer"})
  if [[ $dry == yes ]]; then
    printf ' %q' "${again[@]}"; echo '   # only if a test failed'
    return
  fi
  passed="$(grep -E '^[0-9]+% tests passed' "$out/test.log" | tail -n 1)"
  # Each says that it found no device, which cannot be right here.
  skipped="$(grep -c -F '***Skipped' "$out/test.log")"
  ((skipped == 0)) || verdict=failed
  # Compared with plain loops: as firn chooses, by firn's kernels alone, and by cuDNN wherever it can.
  grep -E 'gpu/attention.*(Passed|Failed)' "$out/test.log"
  if [[ $verdict == failed ]]; then
    grep -F -e '***' "$out/test.log" | cut -c 1-120 | head -n 40
    rm -f "$build/again.txt"
    "${again[@]}" --failure "$build/again.txt"
    [[ -s $build/again.txt ]] || grep -E -e '[*]{3}Skipped|No tests were found' "$out/test.log" >"$build/again.txt"
    first_failure test <"$build/again.txt"
  fi
  row test "$verdict" "$(took)" "${passed:-cut short or none found}, $skipped skipped"
}

# ---- ranks ----------------------------------------------------------------------------------------
# Every collective beside plain loops, a rank that does not come, and GB/s: ranks as threads; then as
# processes that meet through a file.
part_ranks() {
  local program=$build/tests/nccl/firn_nccl_ranks meet=$build/ranks.id gpus r pids=() code=0 failed=0
  gpus="$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')"
  if [[ $dry == no ]] && ((gpus < 2)); then
    row ranks skipped 0 "$gpus GPU, and ranks need two"
    return
  fi
  logged ranks.log "$(at_most 300)" "$program" || code=$?
  [[ $dry == yes ]] && gpus=2 && echo " # and as many as there are GPUs:"
  rm -f "$meet"
  if [[ $dry == yes ]]; then
    for ((r = 0; r < gpus; ++r)); do logged ranks.log "$(at_most 200)" "$program" "$r" "$gpus" "$meet"; done
    return
  fi
  for ((r = 0; r < gpus; ++r)); do
    timeout --kill-after=10 "$(at_most 200)" "$program" "$r" "$gpus" "$meet" >"$build/rank-$r.txt" 2>&1 &
    pids+=($!)
  done
  for r in "${!pids[@]}"; do wait "${pids[r]}" || ((failed += 1)); done
  for ((r = 0; r < gpus; ++r)); do sed "s/^/process $r: /" "$build/rank-$r.txt"; done >>"$out/ranks.log"
  grep -E 'GB/s|ranks: ' "$out/ranks.log"
  if ((code != 0 || failed > 0)); then
    tail -n 40 "$out/ranks.log" | first_failure "ranks (threads: status $code; $failed processes failed)"
    row ranks failed "$(took)" "threads: status $code; $failed of $gpus processes failed"
    return
  fi
  row ranks ok "$(took)" "$gpus GPUs; $(grep 'GB/s' "$out/ranks.log" | tail -n 1)"
}

# ---- sample ---------------------------------------------------------------------------------------
# Five epochs in each precision; the model reaches 88 to 89 % of the test images.
part_sample() {
  local figures="" verdict=ok precision json figure accuracy speed
  for precision in fp32 fp16 bf16; do
    json="$build/sample-$precision.json"
    rm -f "$json"
    if ! logged sample.log "$(at_most 90)" "$build/samples/images/images" --device cuda \
      --precision "$precision" --epochs 5 --log "$json"; then
      verdict=failed figures+="$precision failed; "
      tail -n 20 "$out/sample.log" | first_failure "sample $precision"
      continue
    fi
    [[ $dry == yes ]] && continue
    figure="$("$python" - "$json" <<'END_PYTHON'
import json, sys
last = [r for r in map(json.loads, open(sys.argv[1])) if r["record"] == "epoch"][-1]
print("%.2f %.0f" % (100 * last["metrics"]["accuracy"], last["measured"]["samples_per_second"]))
END_PYTHON
)" || figure="0 0"
    read -r accuracy speed <<<"$figure"
    figures+="$precision $accuracy % at $speed images/s; "
    if ! awk -v a="$accuracy" 'BEGIN { exit !(a >= 86) }'; then
      verdict=failed
      tail -n 20 "$out/sample.log" | first_failure "sample $precision: $accuracy % of the test images, not 86"
    fi
  done
  # What the graph of a step is made of; its last line says how many nodes.
  logged sample.log "$(at_most 60)" "$build/samples/images/images" --device cuda \
    --precision fp16 --show-graph && [[ $dry == no ]] &&
    figures+="fp16: $(grep -E '^[0-9]+ nodes' "$out/sample.log" | tail -n 1)"
  [[ $dry == yes ]] || row sample "$verdict" "$(took)" "${figures%; }"
}

# ---- sanitize -------------------------------------------------------------------------------------
# Everything that the benchmarks run, in tiny sizes, and the test programs of the runtime. A program
# that its time ends counts as clean so far.
sanitized() {  # tool, name, command...
  local tool="$1" name="$2" code=0 before
  shift 2
  before="$([[ ! -e $out/sanitize.log ]] || wc -l <"$out/sanitize.log")"
  local options=(--tool "$tool" --error-exitcode 9 --print-limit 5)
  [[ $tool == memcheck ]] && options+=(--leak-check no)
  logged sanitize.log "$(at_most 45)" "$sanitizer" "${options[@]}" "$@" || code=$?
  case $code in
    0) clean=$((clean + 1)) ;;
    124 | 137) cut=$((cut + 1)) ;;
    *)
      dirty+=("$tool:$name")
      tail -n +"$((${before:-0} + 1))" "$out/sanitize.log" |
        awk '/^=========|^\$|FAILED/ {print; next} {other[n++ % 20] = $0}
          END {for (i = n > 20 ? n - 20 : 0; i < n; i++) print other[i % 20]}' | first_failure "sanitize $tool:$name" ;;
  esac
}
part_sanitize() {
  if [[ -z $sanitizer && $dry == no ]]; then
    row sanitize skipped 0 "no compute-sanitizer"
    return
  fi
  clean=0 cut=0 dirty=()
  local sanitize_start=$SECONDS tool work program verdict=ok
  export FIRN_TEST_DEVICE=cuda
  for tool in memcheck racecheck initcheck; do
    for work in mlp memory_bound gemm optim; do
      (((SECONDS - sanitize_start) < 140 && $(left) > 20)) || [[ $dry == yes ]] || { cut=$((cut + 1)); continue; }
      sanitized "$tool" "$work" "$build/bench/gpu/firn_bench_gpu" --smoke "$work"
    done
  done
  for program in memory graph kernels; do
    [[ -x $build/tests/firn_test_$program || $dry == yes ]] || continue
    (((SECONDS - sanitize_start) < 180 && $(left) > 20)) || [[ $dry == yes ]] || { cut=$((cut + 1)); continue; }
    sanitized memcheck "tests/$program" "$build/tests/firn_test_$program" "~[host]"
  done
  unset FIRN_TEST_DEVICE
  ((${#dirty[@]} == 0)) || verdict=failed
  row sanitize "$verdict" "$(took)" "$clean clean, $cut cut short${dirty[*]:+, errors in ${dirty[*]}}"
}

# ---- bench ----------------------------------------------------------------------------------------
part_bench() {
  local extra=() limit verdict=ok
  "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
    { [[ $dry == yes ]] || extra+=(--no-peer); }
  limit="$(at_most 450)"
  if [[ $dry == yes ]]; then
    logged bench.txt "$limit" env FIRN_PYTHON="$python" bench/gpu/run --build "$build" --out "$out" \
      --seconds "$limit" "${works[@]}"
    return
  fi
  # Prints its table to bench.txt itself; progress and what failed to our stderr.
  FIRN_PYTHON="$python" timeout --kill-after=10 "$((limit + 20))" bench/gpu/run --build "$build" --out "$out" \
    --seconds "$limit" "${extra[@]}" "${works[@]}" >/dev/null || verdict=failed
  grep -E '^  (met|MISSED)' "$out/bench.txt" 2>/dev/null
  grep -E '^(copy|failed:)' "$out/bench.txt" 2>/dev/null
  [[ $verdict == ok ]] || grep -E '^failed:' "$out/bench.txt" 2>/dev/null | first_failure bench
  row bench "$verdict" "$(took)" "$(tail -n 1 "$out/bench.txt" 2>/dev/null)${extra[*]:+, without PyTorch}"
}

# ---- profile --------------------------------------------------------------------------------------
# Each kernel of a few steps of the MLP (batch 64, f16), launched one by one, with the clocks left as
# they are. What stands before them are the kernels that make the weights.
part_profile() {
  local ncu metrics kernels count
  ncu="$(find_tool ncu)"
  [[ $dry == yes ]] && ncu="${ncu:-ncu}"
  if [[ -z $ncu ]]; then
    row profile skipped 0 "no ncu"
    return
  fi
  metrics=gpu__time_duration.sum,dram__bytes.sum,launch__grid_size,launch__block_size,launch__registers_per_thread
  # Ended by ncu after so many launches: the exit status says nothing.
  logged profile.log "$(at_most 120)" "$ncu" --clock-control none --launch-skip 40 --launch-count 60 \
    --kill yes --csv --metrics "$metrics" "$build/bench/gpu/firn_bench_gpu" \
    --windows 1 --window-ms 0.01 mlp
  [[ $dry == yes ]] && return
  kernels="$("$python" - "$out/profile.log" <<'END_PYTHON'
import csv, sys
lines = [line for line in open(sys.argv[1]) if line.startswith('"')]
for row in csv.DictReader(lines):
    if row.get("Metric Name") == "gpu__time_duration.sum":
        print("  %8s %-8s %s" % (row["Metric Value"], row["Metric Unit"], row["Kernel Name"][:90]))
END_PYTHON
)"
  printf '%s\n' "$kernels" | tail -n 30
  count="$(grep -c . <<<"$kernels")"
  if ((count > 0)); then
    row profile ok "$(took)" "$count launches, listed above; bytes and registers in profile.log"
  else
    tail -n 20 "$out/profile.log" | first_failure profile
    row profile failed "$(took)" "profile.log: $(tail -n 1 "$out/profile.log" | cut -c 1-100)"
  fi
}
