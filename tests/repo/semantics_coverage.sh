#!/usr/bin/env bash
# scripts/semantics-coverage on a page and tests made here: what it must accept, list and refuse.
#   semantics_coverage.sh SCRIPT
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/scripts" "$work/docs" "$work/tests/a" "$work/tests/semantics"
cp "$1" "$work/scripts/semantics-coverage"

checks=0
run() { "$work/scripts/semantics-coverage" ${1+"$1"} >"$work/out" 2>&1; }
fail() { echo "FAILED: $*"; cat "$work/out"; exit 1; }
accepts() { run ${1+"$1"} || fail "refused: ${FUNCNAME[1]} ${1-}"; checks=$((checks + 1)); }
refuses() {
  ! run --quiet || fail "accepted, though: $1"
  grep -qF -e "$1" "$work/out" || fail "does not say: $1"
  checks=$((checks + 1))
}
# 31 rules: S01-S30 with a test each, S31 for later.
make() {
  for ((n = 1; n <= 30; ++n)); do printf '### S%02d Rule\n\nText.\n\n' $n; done >"$work/docs/semantics.md"
  printf '### S31 Rule (later)\n\nText.\n' >>"$work/docs/semantics.md"
  for ((n = 1; n <= 30; ++n)); do printf 'TEST_CASE("[S%02d] holds") {}\n' $n; done >"$work/tests/a/a.cpp"
  run --write || fail "refused: make"
}

make
accepts
grep -qxF "S07 Rule  (1)" "$work/out" || fail "does not list S07"
grep -qxF "     tests/a/a.cpp: [S07] holds" "$work/out" || fail "does not list the test of S07"
grep -qxF "semantics: 30 rules held by 30 tests, 1 later" "$work/out" || fail "verdict"
grep -qxF -e '- holds (`tests/a/a.cpp`)' "$work/tests/semantics/tests.md" || fail "does not write the test"
accepts --quiet
[[ $(wc -l <"$work/out") == 1 ]] || fail "--quiet is not quiet"

sed -i '/S07/d' "$work/tests/a/a.cpp"
refuses "S07 has no test"
refuses "tests/semantics/tests.md is out of date"

make
cp "$work/tests/semantics/tests.md" "$work/once"
accepts --write
cmp -s "$work/once" "$work/tests/semantics/tests.md" || fail "--write twice is not --write once"
rm "$work/tests/semantics/tests.md"
refuses "tests/semantics/tests.md is out of date"

make
sed -i 's/^### S07 .*/### Seven/' "$work/docs/semantics.md"
refuses "has not one heading for S07"
refuses "a test has the id S07"

make
echo 'TEST_CASE("[S32] beyond") {}' >>"$work/tests/a/a.cpp"
refuses "a test has the id S32"

# A name that the source cuts in two, with two ids and a quote, is one name of both rules.
make
printf 'TEST_CASE(\n    "[S03][S31] a \\"long\\" name, "\n    "cut in two", "[slow]") {}\n' >>"$work/tests/a/a.cpp"
accepts --write
[[ $(grep -cxF -e '- a "long" name, cut in two (`tests/a/a.cpp`)' "$work/tests/semantics/tests.md") == 2 ]] ||
  fail "the long name"
accepts
echo "$checks checks passed"
