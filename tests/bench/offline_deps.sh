#!/usr/bin/env bash
# scripts/offline-deps makes a folder with which firn, its tests and samples can be configured where the
# system's folders hold nothing.
#   offline_deps.sh SOURCE WORK
set -euo pipefail
source="$1" work="$2"
skip() { echo "skipped: $*"; exit 0; }
fail() { echo "offline_deps.sh: $*" >&2; exit 1; }
command -v make >/dev/null || skip "no make"
command -v dpkg-query >/dev/null || skip "not a Debian or Ubuntu system"
[[ -f /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ||
  -f $source/data/fashion-mnist/train-images-idx3-ubyte.gz ]] || skip "no FashionMNIST here"
for package in libeigen3-dev libfmt-dev zlib1g-dev libpcre2-dev libutf8proc-dev catch2 libcli11-dev nlohmann-json3-dev; do
  dpkg-query -W "$package" >/dev/null 2>&1 || skip "package $package is not installed"
done

rm -rf "$work"
mkdir -p "$work"
FIRN_DATA='' "$source/scripts/offline-deps" "$work/deps"
[[ -s $work/deps/data/t10k-labels-idx1-ubyte.gz ]] || fail "no data"
mv "$work/deps" "$work/moved"  # it works wherever it lies

cmake -S "$source" -B "$work/build" -G "Unix Makefiles" \
  -DCMAKE_MAKE_PROGRAM="$(command -v make)" -DCMAKE_CXX_COMPILER="$(command -v c++)" \
  -DCMAKE_PREFIX_PATH="$work/moved/prefix" \
  -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF \
  -DFIRN_CUDA=OFF -DFIRN_ONEDNN=OFF -DFIRN_TESTS=ON -DFIRN_SAMPLES=ON >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "cmake failed"; }
for package in Eigen3 fmt Catch2 CLI11 nlohmann_json; do
  grep -q "^${package}_DIR:PATH=$work/moved/prefix/" "$work/build/CMakeCache.txt" ||
    fail "$package is not the folder's: $(grep "^${package}_DIR" "$work/build/CMakeCache.txt")"
done
grep -q "^ZLIB_INCLUDE_DIR:PATH=$work/moved/prefix/" "$work/build/CMakeCache.txt" || fail "zlib.h"
grep -q "^ZLIB_LIBRARY_RELEASE:FILEPATH=$work/moved/prefix/lib/libz.a" "$work/build/CMakeCache.txt" || fail "libz.a"

# {fmt} as headers alone, and zlib's archive.
cat >"$work/use.cpp" <<'END'
#include <fmt/format.h>
#include <zlib.h>
int main() { return fmt::format("{}", crc32(0, nullptr, 0)) == "0" ? 0 : 1; }
END
c++ -std=c++20 -DFMT_HEADER_ONLY=1 -I"$work/moved/prefix/include" "$work/use.cpp" \
  "$work/moved/prefix/lib/libz.a" -o "$work/use"
"$work/use" || fail "a program with {fmt} and zlib"
rm -rf "$work"
