# shellcheck shell=bash disable=SC2154
# Part of scripts/gpu-check: which calls make a whole check, if a call may last ten minutes, a machine is
# there for half an hour in all, and nothing comes along but what is carried.

# Parts, works, seconds. Each call builds what its parts need: nothing, if the build folder is still there.
call_list=(
  "build,probe,test||510"
  "build,sample,sanitize,profile||330"
  "build,bench|ceilings,mlp,accum,cnn,optim,overhead|390"
  "build,bench|gemm,memory_bound|330"
  "build,ranks||570"  # only if --ranks asks for it
)
call_margin=30     # s, for a part that ends late and for the table
call_most=600      # s
travel_most_mib=64
folder_mib() {  # tenths of MiB of the files named on stdin, NUL between them
  xargs -0 -r stat -c %s 2>/dev/null | awk '{n += $1} END {printf "%.1f", n / 1048576}'
}

calls() {
  local tree carried=0 carry="nothing" i=0 total=0 entry parts kept part limit options
  tree="$(git ls-files -z --cached --others --exclude-standard 2>/dev/null | folder_mib)"
  if [[ -d $offline ]]; then
    carried="$(find "$offline" -type f -print0 | folder_mib)"
    carry="third_party_offline ($carried MiB)"
  else
    carry="third_party_offline (not there: scripts/offline-deps makes it, about 40 MiB)"
  fi
  echo "Each call: at most $call_most s, with the working tree ($tree MiB) and $carry;"
  awk -v a="$tree" -v b="$carried" -v most="$travel_most_mib" 'BEGIN {
    printf "together %.1f of %d MiB%s.\n", a + b, most, (a + b > most) ? ": TOO MUCH" : "" }'
  echo "A call goes on from the build folder of the one before; on a new machine it builds what its parts need."
  for entry in "${call_list[@]}"; do
    IFS='|' read -r parts works_of limit <<<"$entry"
    # What --only leaves of it: nothing, if that is the build alone and not asked for.
    kept=""
    for part in ${parts//,/ }; do
      wanted "$part" && [[ $part != build ]] && kept+=",$part"
    done
    if [[ -z $kept ]] && { ((i > 0)) || ! wanted build || wanted ranks; }; then continue; fi
    kept="build$kept"
    options=""
    [[ -n $works_of ]] && options=" --works $works_of"
    if ((${#works[@]} > 0)) && [[ $kept == *bench* ]]; then
      options="$(chosen_works "$works_of")" || continue
    fi
    ((i += 1))
    ((total += limit + call_margin))
    echo "call $i, limit $((limit + call_margin)) s, carry third_party_offline:"
    echo "  scripts/gpu-check --only $kept$options --seconds $limit$same"
  done
  echo "all $i calls: at most $total s"
}
# The works of a call that --works names too, as an option; fails if there is none.
chosen_works() {
  local work kept=""
  for work in ${1//,/ }; do
    [[ " ${works[*]} " == *" $work "* ]] && kept+="${kept:+,}$work"
  done
  [[ -n $kept ]] && echo " --works $kept"
}
