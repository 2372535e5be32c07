#!/usr/bin/env bash
# scripts/setup against a pretended package manager: what it asks for, when it does nothing, and how it
# treats downloads. Usage: setup.sh PATH-OF-SETUP
set -euo pipefail
source_script="$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
failures=0

expect() {  # text, what should contain it, what it is
  [[ "$2" == *"$1"* ]] || { echo "FAILED: $3: expected '$1' in: $2"; failures=$((failures + 1)); }
}
expect_equal() {
  [[ "$1" == "$2" ]] || { echo "FAILED: $3: expected '$1', found '$2'"; failures=$((failures + 1)); }
}

# ---- A machine with nothing but the basics -----------------------------------------------------------
fresh() {
  rm -rf "${work:?}/tree" "${work:?}/bin"
  mkdir -p "$work/tree/scripts" "$work/bin"
  # The system's own data folder is pretended, too.
  sed "s|/usr/share/datasets|$work/datasets|" "$source_script" >"$work/tree/scripts/setup"
  : >"$work/installed"
  : >"$work/calls"
  printf '%s\n' g++ cmake ninja-build libeigen3-dev libfmt-dev zlib1g-dev libpcre2-dev libutf8proc-dev libdnnl-dev libdeflate-dev libpng-dev libjpeg-dev libcli11-dev \
    doxygen python3-sphinx python3-myst-parser furo nlohmann-json3-dev libssl-dev catch2 ccache clang libclang-rt-dev pkg-config python3 dataset-fashion-mnist curl >"$work/known"
  local tool
  for tool in bash env cat cut dirname find grep head mkdir mv rm sed sha256sum sort chmod; do
    ln -s "$(command -v "$tool")" "$work/bin/$tool"
  done
  cat >"$work/bin/dpkg-query" <<EOF
#!/bin/bash
grep -qxF "\${@: -1}" $work/installed && echo -n installed
EOF
  cat >"$work/bin/apt-cache" <<EOF
#!/bin/bash
grep -xF "\$2" $work/known || true
EOF
  cat >"$work/bin/apt-get" <<EOF
#!/bin/bash
while [[ \$1 == -* ]]; do [[ \$1 == -o ]] && shift; shift; done
echo "\$*" >>$work/calls
[[ ! -f $work/offline ]] || exit 100
[[ \$1 == install ]] || exit 0
for p in "\${@:3}"; do
  echo "\$p" >>$work/installed
  case \$p in
    cmake) answer='cmake version 3.25.1' ;;
    g++) answer='12.2.0' ;;
    *) answer= ;;
  esac
  printf '#!/bin/bash\necho "%s"\n' "\$answer" >"$work/bin/\${p%-build}"
  chmod +x "$work/bin/\${p%-build}"
done
EOF
  # shellcheck disable=SC2016
  printf '#!/bin/bash\nexec "$@"\n' >"$work/bin/sudo"
  chmod +x "$work/bin/"{dpkg-query,apt-cache,apt-get,sudo}
}
setup() {  # runs scripts/setup there; its messages and exit status are in $said and $status
  status=0
  said="$(cd / && env -i PATH="$work/bin" ${data_url:+FIRN_FASHION_MNIST_URL="$data_url"} \
    ${data_folder:+FIRN_DATA="$data_folder"} bash "$work/tree/scripts/setup" "$@" 2>&1)" || status=$?
}
calls() { tr '\n' ';' <"$work/calls"; }
data_url='' data_folder=''

# ---- Packages ------------------------------------------------------------------------------------------
fresh
setup build
expect_equal 0 "$status" "build: $said"
expect_equal "update;install --no-install-recommends g++ cmake ninja-build libeigen3-dev libfmt-dev \
zlib1g-dev libpcre2-dev libutf8proc-dev libdnnl-dev libdeflate-dev libpng-dev libjpeg-dev ccache;" "$(calls)" "build asks for these and no others"
expect "apt-get install --no-install-recommends g++ cmake" "$said" "build says what it installs"

: >"$work/calls"
setup build
expect_equal "" "$(calls)" "the second time there is nothing to do"
expect_equal "" "$said" "nor to say"

setup test
expect_equal "update;install --no-install-recommends pkg-config python3 libcli11-dev nlohmann-json3-dev libssl-dev catch2;" \
  "$(calls)" "test adds what is missing only"

: >"$work/calls"
setup test clang
expect_equal "update;install --no-install-recommends clang libclang-rt-dev;" "$(calls)" \
  "clang adds the compiler and its sanitizers"

: >"$work/calls"
setup docs
expect_equal "update;install --no-install-recommends doxygen python3-sphinx python3-myst-parser furo;" "$(calls)" \
  "docs takes Doxygen, Sphinx and what it needs"
: >"$work/calls"
setup doxygen
expect_equal "" "$(calls)" "Doxygen alone is there then"

# A system without oneDNN: said once, and no reason to look again.
fresh
sed -i /libdnnl/d "$work/known"
setup build
expect_equal 0 "$status" "without oneDNN"
expect "no package libdnnl-dev" "$said" "without oneDNN"
: >"$work/calls"
setup build
expect_equal "" "$(calls)" "without oneDNN, the second time"

touch -d '8 days ago' "$work/tree/build/setup-unavailable"
setup build
expect_equal "update;" "$(calls)" "without oneDNN, a week later"

# Offline, nothing that firn can do without ends it, and nothing is noted as missing from the archive.
fresh
setup build
sed -i '/libdnnl\|libpng/d' "$work/installed"
sed -i /libpng/d "$work/known"  # as if the lists were empty
: >"$work/offline"
setup build
expect_equal 0 "$status" "offline"
expect "firn works without libdnnl-dev" "$said" "offline, a package that cannot be fetched"
expect "no package libpng-dev; firn works without it" "$said" "offline, a package not in the lists"
rm "$work/offline"
echo libpng-dev >>"$work/known"
: >"$work/calls"
setup build
expect_equal "update;install --no-install-recommends libdnnl-dev libpng-dev;" "$(calls)" "online again"

# Offline, what firn needs is missing: that is an error.
fresh
: >"$work/offline"
setup build
expect_equal 1 "$([[ $status != 0 ]] && echo 1)" "offline without a compiler"
rm "$work/offline"

# An old CMake is refused by its number.
fresh
setup build
printf '#!/bin/bash\necho "cmake version 3.22.1"\n' >"$work/bin/cmake"
setup build
expect_equal 1 "$status" "old CMake"
expect "CMake 3.25 or newer is needed, this is 3.22.1" "$said" "old CMake"

# Neither root nor sudo.
fresh
rm "$work/bin/sudo"
if ((EUID != 0)); then
  setup sample
  expect_equal 1 "$status" "neither root nor sudo"
  expect "apt-get install --no-install-recommends g++ cmake" "$said" "neither root nor sudo"
  expect_equal "" "$(calls)" "neither root nor sudo"
fi

setup nonsense
expect_equal 1 "$status" "an unknown word"
expect "unknown word 'nonsense'" "$said" "an unknown word"

# ---- FashionMNIST --------------------------------------------------------------------------------------
names=(train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte)
fresh
setup data
expect_equal "update;install --no-install-recommends dataset-fashion-mnist;" "$(calls)" "the package"

# Data that is there already, plain or packed.
fresh
mkdir -p "$work/mine/fashion-mnist"
for n in "${names[@]:0:2}"; do : >"$work/mine/fashion-mnist/$n"; done
for n in "${names[@]:2}"; do : >"$work/mine/fashion-mnist/$n.gz"; done
data_folder="$work/mine"
setup data
expect_equal 0 "$status" "FIRN_DATA"
expect_equal "" "$(calls)$said" "FIRN_DATA"
data_folder=''

# No package: a download, refused where its checksum is wrong.
if command -v curl >/dev/null; then
  fresh
  ln -s "$(command -v curl)" "$work/bin/curl"
  sed -i /dataset/d "$work/known"
  mkdir "$work/server"
  for n in "${names[@]}"; do echo wrong >"$work/server/$n.gz"; done
  data_url="file://$work/server"
  setup data
  expect_equal 1 "$status" "a wrong checksum"
  expect "train-images-idx3-ubyte.gz: SHA-256 is" "$said" "a wrong checksum"
  expect_equal "" "$(ls "$work/tree/data/fashion-mnist")" "a wrong checksum"
fi

((failures == 0)) && echo "setup: all as expected"
exit $((failures > 0))
