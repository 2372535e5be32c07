// Environment variables that change what firn does. The table has every FIRN_* that anything reads;
// a test compares it with the sources.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread/cpus.h"
#include "environment/parts.h"
#include "firn/error.h"
#include "firn/memory.h"
#include "kernels/settings/isa.h"
#include "kernels/settings/settings.h"

namespace firn::environment_parts {
namespace {

/// Returns what is wrong with the value; empty if it is valid. May also throw Error.
using Check = std::string (*)(const std::string& value);

/// Checks a setting that this process has read, or reads now; throws Error for a wrong word.
template <auto& setting>
std::string word(const std::string&) {
  setting();
  return "";
}

std::string folder(const std::string& value) {
  std::error_code ignored;
  return std::filesystem::is_directory(value, ignored) ? "" : "is no folder";
}

std::string writable_folder(const std::string& value) {
  if (std::string why = folder(value); !why.empty()) return why;
  return ::access(value.c_str(), W_OK | X_OK) == 0 ? "" : "is a folder without permission to write";
}

std::string size(const std::string& value) {
  parse_bytes(value);
  return "";
}

std::string threads(const std::string& value) {
  return firn::detail::parse_threads(value) > 0
             ? ""
             : std::string("is no number of threads: ") + firn::detail::kThreadsHint;
}

struct Known {
  std::string_view name;
  Check check = nullptr;
};

constexpr std::array kKnown = {
    Known{"FIRN_ATTENTION", word<kernels::attention_path>},
    Known{"FIRN_CONVOLUTIONS", word<kernels::conv_path>},
    Known{"FIRN_CPU_ISA", word<kernels::cpu::isa>},
    Known{"FIRN_DATA", folder},
    Known{"FIRN_EPILOGUES", word<kernels::epilogues>},
    Known{"FIRN_MEMORY_LIMIT", size},
    Known{"FIRN_OFFLOAD_DIR", writable_folder},
    Known{"FIRN_SPLIT_K", word<kernels::split_k>},
    Known{"FIRN_THREADS", threads},
    // Scripts and tests read these.
    Known{"FIRN_FASHION_MNIST_URL"},
    Known{"FIRN_FUZZ_CALLS"},
    Known{"FIRN_FUZZ_ONLY"},
    Known{"FIRN_FUZZ_SEED"},
    Known{"FIRN_FUZZ_SLOW"},
    Known{"FIRN_INTEROP_VENV"},
    Known{"FIRN_MIRROR"},
    Known{"FIRN_MPI_KILLS"},
    Known{"FIRN_ONNX_VENV"},
    Known{"FIRN_PERFETTO_VENV"},
    Known{"FIRN_PYTHON"},
    Known{"FIRN_READER"},
    Known{"FIRN_SAMPLE"},
    Known{"FIRN_SWEEP_ALL"},
    Known{"FIRN_SWEEP_AT"},
    Known{"FIRN_TENSORBOARD_VENV"},
    Known{"FIRN_TEST_DEVICE"},
    Known{"FIRN_TRANSFORMERS_VENV"},
};

/// Variables of other programs that change threads, devices or instruction sets.
constexpr std::array<std::string_view, 8> kOfOthers = {
    "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "DNNL_MAX_CPU_ISA", "GOMP_CPU_AFFINITY",
    "OMP_NUM_THREADS",      "OMP_PLACES",           "OMP_PROC_BIND",    "ONEDNN_MAX_CPU_ISA"};

const Known* find(std::string_view name) {
  const auto* const known =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return k.name == name; });
  return known == kKnown.end() ? nullptr : known;
}

/// Returns the number of insertions, deletions and replacements that turn one text into the other
/// (Levenshtein 1966).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// Returns the known name that is closest to `name`; empty if none is near.
std::string closest(std::string_view name) {
  constexpr std::size_t kNear = 3;
  std::size_t least = kNear + 1;
  std::string found;
  for (const Known& k : kKnown) {
    const std::size_t d = distance(name, k.name);
    if (d < least) {
      least = d;
      found = k.name;
    }
  }
  return found;
}

std::string problem_of(const Known& known, const std::string& value) {
  if (!known.check || value.empty()) return "";
  try {
    return known.check(value);
  } catch (const Error& e) {
    return e.message() + (e.hint().empty() ? "" : "; " + e.hint());
  }
}

}  // namespace

bool is_known_variable(std::string_view name) { return find(name) != nullptr; }

std::vector<Environment::Variable> variables() {
  std::vector<Environment::Variable> all;
  for (char** entry = ::environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    Environment::Variable v;
    v.name = text.substr(0, equals);
    const bool other = std::find(kOfOthers.begin(), kOfOthers.end(), v.name) != kOfOthers.end();
    if (!other && !v.name.starts_with("FIRN_")) continue;
    const std::string value(text.substr(equals + 1));
    v.value = presentable(value);
    if (!other) {
      const Known* const known = find(v.name);
      v.known = known != nullptr;
      if (known) {
        v.problem = presentable(problem_of(*known, value));
      } else {
        v.closest = closest(v.name);
      }
    }
    v.name = presentable(v.name);
    all.push_back(std::move(v));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

}  // namespace firn::environment_parts
