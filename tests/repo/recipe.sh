#!/usr/bin/env bash
# A program of docs/recipes.md, killed at several moments and started again, ends as one that nobody
# killed: the same line, and the same files to the byte. The log of a run has times, so a folder with
# one is not compared, nor are the checkpoints, which know its length.
#   recipe.sh PROGRAM WORK BEGINNING     the line begins so
set -euo pipefail
program="$1" work="$2" beginning="$3"
fail() { echo "recipe.sh: $*" >&2; exit 1; }
rm -rf "$work"
for run in whole killed; do
  mkdir -p "$work/$run"
  awk 'BEGIN {
    print "area,rooms,price"
    for (i = 0; i < 400; ++i) printf "%.3f,%d,%.4f\n", (i * 37 % 400) / 400, 1 + i % 6, (i * 37 % 400) / 200 + i % 6 / 3
  }' >"$work/$run/houses.csv"
done
whole="$(cd "$work/whole" && "$program")"
[[ $whole == "$beginning"* ]] || fail "it said: $whole"
kills=0
for pause in 0.01 0.02 0.05 0.1 0.15 0.2 0.3 0.4 0.6 0.8 20 20; do
  status=0
  line="$(cd "$work/killed" && timeout -s KILL "$pause" "$program")" || status=$?
  ((status == 0)) && break
  [[ $status == 137 || $status == 124 ]] || fail "a resumed run ended with $status: $line"
  kills=$((kills + 1))
done
((status == 0)) || fail "it did not end"
((kills > 0)) || fail "nothing was killed"
[[ $line == "$whole" ]] || fail "after $kills kills '$line', else '$whole'"
# A kill between the last save and the removal of older checkpoints leaves an older one behind.
for folder in "$work"/whole/*.run; do
  oldest="$(ls "$folder" | head -n 1)"
  for file in "$work/killed/${folder##*/}"/*; do [[ ${file##*/} < $oldest ]] && rm "$file"; done
done
[[ -n $(find "$work/whole" -name "*.jsonl") ]] || diff -r "$work/whole" "$work/killed" || fail "the folders differ after $kills kills"
echo "$kills kills, equal"
rm -rf "$work"
