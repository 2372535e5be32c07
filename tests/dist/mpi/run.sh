#!/usr/bin/env bash
# A job of ranks over MPI, and what must come of it: run.sh PROGRAM RANKS MODE. The modes are those of
# main.cpp, and `kill`: kill -9 of ranks at random (FIRN_MPI_KILLS times, 3 by itself).
set -euo pipefail
program="$1" ranks="$2" mode="$3"

# Open MPI as root, with more ranks than cores, and in containers. Others ignore these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe  # the first of these, since Open MPI 5
export OMPI_MCA_btl_vader_single_copy_mechanism=none
# What MPI keeps until the end is not a leak of firn.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
mpirun="${MPIRUN:-mpirun}"

fail() { echo "run.sh: $*"; cat "$out" 2>/dev/null; exit 1; }
out="$(mktemp)"
parent=
trap '[[ -z $parent ]] || kill "$parent" 2>/dev/null || true; rm -f "$out"' EXIT

# Waits for mpirun ($parent; $1: whether its ranks have been seen) and sets `status`. Open MPI's may wait for itself for ever after an abort
# (PMIx_server_finalize, seen with 4.1.4), when all its ranks have gone: 5 s later it is killed.
end_of_job() {
  local begin=$SECONDS had_ranks=$1 alone=0 ranks_now
  while kill -0 "$parent" 2>/dev/null; do
    ranks_now=$(ps -o stat= --ppid "$parent" || true)
    [[ -z $ranks_now ]] || had_ranks=1
    if grep -q '^[^Z]' <<<"$ranks_now"; then
      alone=0
    elif ((had_ranks && ++alone > 50)); then
      echo "run.sh: mpirun has no ranks, and does not end: killed"
      kill -9 "$parent" 2>/dev/null || true
    fi
    ((SECONDS - begin < 120)) || { kill -9 "$parent"; fail "$mode: the job has not ended after 120 s"; }
    sleep 0.1
  done
  status=0
  wait "$parent" || status=$?
  parent=
}
job() {  # arguments of the program: sets `status` and `seconds`
  local begin=$SECONDS
  "$mpirun" -np "$ranks" "$program" "$@" >"$out" 2>&1 </dev/null &
  parent=$!
  end_of_job 0
  seconds=$((SECONDS - begin))
}
lines() { grep -c "$1" "$out" || true; }
expect() {  # count, pattern
  (($(lines "$2") == $1)) || fail "$mode: $(lines "$2") lines, not $1, have '$2'"
}
expect_end() {  # at most so many seconds, not 0
  ((status != 0)) || fail "$mode: exit status $status"
  ((seconds <= $1)) || fail "$mode: took $seconds s, more than $1"
}

case "$mode" in
  checks)
    job checks
    ((status == 0)) || fail "exit status $status"
    expect "$ranks" "rank [0-9]* of $ranks: [0-9]* calls and 200 sequences"
    ;;
  train)
    job train
    ((status == 0)) || fail "exit status $status"
    expect "$ranks" "rank [0-9]* of $ranks: trained"
    ;;
  stages)
    job stages
    ((status == 0)) || fail "exit status $status"
    expect "$ranks" "rank [0-9]* of $ranks: stages"
    ;;
  apart)
    job apart
    ((status == 0)) || fail "exit status $status"
    ;;
  mismatch)
    job mismatch
    expect_end 15
    expect $((ranks - 1)) "blames 1: \[all_reduce\] rank . calls all_reduce(max) of 6 f64, rank 1 calls all_gather with parts of 5 f32"
    expect 1 "rank 1 blames 0: \[all_gather\] rank 1 calls all_gather with parts of 5 f32, rank 0 calls all_reduce(max) of 6 f64"
    ;;
  late)  # the others throw within a second of the deadline
    job late 2
    expect_end 15
    expect $((ranks - 1)) "blames 1: \[all_reduce\] rank 1 did not come to all_reduce within 2 s"
    expect $((ranks - 1)) "rank [02-9]: 2.[0-9] s"
    expect 1 "rank 1 blames 1: \[all_reduce\] rank . waited 2 s for rank 1"
    ;;
  early)
    job early
    expect_end 15
    expect $((ranks - 1)) "blames 1: \[broadcast\] rank 1 ended before it came to this call"
    ;;
  unlike)
    job unlike
    expect_end 15
    expect 1 "rank $((ranks - 1)) blames $((ranks - 2)): \[recv\] rank $((ranks - 1)) (rank 0 of all) calls recv of 6 f64 from rank $((ranks - 2)), rank $((ranks - 2)) (rank 1 of all) calls send of 5 f32 to rank $((ranks - 1))"
    expect 1 "rank $((ranks - 2)) blames $((ranks - 1)): \[send\]"
    ;;
  same_way)
    job same_way
    expect_end 15
    expect 1 "rank 0 blames 1: \[send\] rank 0 calls send of 5 f32 to rank 1, rank 1 calls send of 6 f32 to rank 0"
    expect 1 "rank 1 blames 0: \[send\] rank 1 calls send of 6 f32 to rank 0, rank 0 calls send of 5 f32 to rank 1"
    if ((ranks == 4)); then
      expect 1 "rank 2 blames 3: \[recv\] rank 2 calls recv of 7 f32 from rank 3, rank 3 calls recv of 8 f32 from rank 2"
    fi
    ;;
  goes_on)
    job goes_on
    ((status == 0)) || fail "exit status $status"
    expect "$ranks" "rank [0-9]* of $ranks: went on"
    ;;
  stage_fails)
    job stage_fails
    expect_end 15
    expect "$ranks" "blames 1: .* has failed: no more disk"
    ;;
  silent)
    job silent
    expect_end 15
    expect 1 "rank 0 blames 1: \[recv\] rank 1 (rank 1 of all) ended before it came to this call"
    ;;
  uncaught)
    job uncaught
    expect_end 15
    ;;
  kill)
    for ((round = 1; round <= ${FIRN_MPI_KILLS:-3}; ++round)); do
      : >"$out"  # now: the job's shell may come to it later
      "$mpirun" -np "$ranks" "$program" loop >"$out" 2>&1 </dev/null &
      parent=$!
      for ((i = 0; i < 300; ++i)); do
        grep -q running "$out" && break
        sleep 0.1
      done
      grep -q running "$out" || fail "the job does not run"
      mapfile -t pids < <(pgrep -P "$parent" -f "$program")
      ((${#pids[@]} == ranks)) || fail "${#pids[@]} processes of $ranks"
      victim=$((RANDOM % ranks))
      sleep "0.0$((RANDOM % 100))"
      begin=$(date +%s%N)
      kill -9 "${pids[victim]}"
      for pid in "${pids[@]}"; do
        while [[ $(ps -o stat= -p "$pid") == [^Z]* ]]; do
          (($(date +%s%N) - begin < 5000000000)) || fail "process $pid lives 5 s later"
          sleep 0.05
        done
      done
      took=$((($(date +%s%N) - begin) / 1000000))
      end_of_job 1
      ((status != 0)) || fail "exit status 0 after kill -9"
      ((took < 5000)) || fail "took $took ms"
      echo "round $round: process $victim of $ranks killed; all gone after $took ms, status $status"
    done
    ;;
  *) fail "no mode '$mode'" ;;
esac
echo "$mode with $ranks ranks: as it must be"
