#!/usr/bin/env bash
# The two commands of the README share one build folder: scripts/fashion-mnist and scripts/test against
# a pretended CMake. What each configures is looked at; nothing is built. Usage: one_build.sh SCRIPTS
set -euo pipefail
scripts="$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
failures=0

expect() {  # text, what should contain it, what it is
  [[ "$2" == *"$1"* ]] || { echo "FAILED: $3: expected '$1' in: $2"; failures=$((failures + 1)); }
}
expect_not() {
  [[ "$2" != *"$1"* ]] || { echo "FAILED: $3: '$1' in: $2"; failures=$((failures + 1)); }
}

fresh() {  # gpu or none: whether the driver answers
  rm -rf "${work:?}/tree" "${work:?}/bin"
  mkdir -p "$work/tree/scripts" "$work/bin"
  cp "$scripts/fashion-mnist" "$scripts/test" "$work/tree/scripts/"
  printf '#!/bin/bash\n' >"$work/tree/scripts/setup"
  # It writes what a configured folder holds, and the program that a build makes.
  cat >"$work/bin/cmake" <<EOF
#!/bin/bash
echo "cmake \$*" >>$work/calls
[[ \$1 == --build ]] && exit 0
mkdir -p build/default/samples
: >build/default/build.ninja
case "\$*" in
  *FIRN_TESTS=OFF*) echo FIRN_TESTS:BOOL=OFF >build/default/CMakeCache.txt ;;
  *) echo FIRN_TESTS:BOOL=ON >build/default/CMakeCache.txt ;;
esac
for name in fashion_mnist images; do
  mkdir -p build/default/samples/\$name
  printf '#!/bin/bash\necho "%s trained: \$*"\n' \$name >build/default/samples/\$name/\$name
  chmod +x build/default/samples/\$name/\$name
done
EOF
  cat >"$work/bin/ctest" <<'EOF'
#!/bin/bash
while (($#)); do [[ $1 == --output-log ]] && echo '100% tests passed' >"$2"; shift; done
EOF
  printf '#!/bin/bash\n' | tee "$work/bin/ccache" >"$work/bin/nvcc"
  printf '#!/bin/bash\nexit %s\n' "$([[ $1 == gpu ]] && echo 0 || echo 9)" >"$work/bin/nvidia-smi"
  chmod +x "$work/bin/"* "$work/tree/scripts/"*
  : >"$work/calls"
}
go() {  # runs a script there; output in $said, what CMake was asked in $asked
  : >"$work/calls"
  said="$(cd / && env PATH="$work/bin:$PATH" bash "$work/tree/scripts/$1" "${@:2}" 2>&1)" ||
    { echo "FAILED: $* ended with $?: $said"; failures=$((failures + 1)); }
  asked="$(tr '\n' ';' <"$work/calls")"
}

# ---- No GPU: the sample is built without CUDA, and the tests add it to the same folder ------------------
fresh none
go fashion-mnist
expect "fashion_mnist trained" "$said" "the sample runs"
expect "--target sample_fashion_mnist;" "$asked" "and it alone is built"
expect "--preset default -DFIRN_TESTS=OFF -DFIRN_CUDA=OFF;" "$asked" "without a GPU CUDA stays out"
expect "to have it: cmake --preset default -DFIRN_CUDA=ON" "$said" "and the sample says so"
go fashion-mnist
expect_not "--preset" "$asked" "the second time nothing is configured"
go test
expect "--preset default -DFIRN_TESTS=ON -DFIRN_CUDA=AUTO;" "$asked" "the tests add what the sample left out"
go fashion-mnist
expect_not "--preset" "$asked" "after the tests the sample takes their build"
go test -DFIRN_CUDA=OFF
expect "--preset default -DFIRN_CUDA=OFF;" "$asked" "settings are the caller's"

# ---- Options: what the program of one file does not know, the full program does ---------------------------
for options in "--epochs 3 --precision bf16 --accumulate=2" "--precision=f16" "--epochs -3" "--epochs" "--help" "5"; do
  # shellcheck disable=SC2086
  go fashion-mnist $options
  expect "--target sample_fashion_mnist;" "$asked" "$options"
  expect "fashion_mnist trained: $options" "$said" "$options"
  expect_not "full program" "$said" "$options"
done
while read -r option options; do
  # shellcheck disable=SC2086
  go fashion-mnist $options
  expect "--target sample_images;" "$asked" "$options"
  expect "fashion_mnist.cpp has no ${option/:/ }, so the full program" "$said" "$options"
  expect "images trained: $options" "$said" "$options"
done <<'EOF'
--optimizer --epochs 1 --optimizer sgd
--data --epochs 1 --data=folder
--precision:fp16 --precision fp16
--precision=amp-bf16 --precision=amp-bf16
EOF

# ---- A GPU -----------------------------------------------------------------------------------------------
fresh gpu
go fashion-mnist
expect "--preset default -DFIRN_TESTS=OFF;" "$asked" "with a GPU CUDA is built where it is found"
expect_not "no GPU" "$said" "with a GPU"

((failures == 0)) || exit 1
echo "the sample and the tests share one build"
