#!/usr/bin/env bash
# Compiles a program with a mistake, and looks at what the compiler says: no more lines than its line
# "// at most N lines" allows, and the words of each line "// says: WORDS". "// compiles" is the contrary.
# GCC's hints at an option that says more (from GCC 14 on) do not count.
#   check.sh COMPILER INCLUDE_FOLDER PROGRAM
set -euo pipefail
compiler="$1" include="$2" program="$3"
fail() { printf 'check.sh: %s\n%s\n' "$1" "$said" >&2; exit 1; }
status=0
said="$("$compiler" -std=c++20 -fsyntax-only -I"$include" "$program" 2>&1)" || status=$?
said="$(sed '/note: use .*-fdiagnostics-all-candidates/,+2d' <<<"$said")"
if grep -q "^// compiles" "$program"; then
  ((status == 0)) || fail "it does not compile"
  [[ -z $said ]] || fail "the compiler warns"
  exit 0
fi
((status != 0)) || fail "it compiles"
lines="$(wc -l <<<"$said")"
most="$(sed -n 's|^// at most \([0-9]*\) lines.*|\1|p' "$program")"
[[ -n $most ]] || fail "$program does not say how many lines it may cause"
((lines <= most)) || fail "$lines lines of diagnostics, and $most are allowed"
while IFS= read -r words; do
  grep -qF -- "$words" <<<"$said" || fail "nothing says '$words'"
done < <(sed -n 's|^// says: ||p' "$program")
echo "$lines lines"
