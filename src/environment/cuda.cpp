// The CUDA backend: the build's part of it, the devices, and the libraries that it opens.
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/build.h"
#include "environment/parts.h"
#include "firn/error.h"
#include "firn/runtime/stream.h"
#include "kernels/settings/describe.h"

namespace firn {
namespace environment_parts {
namespace {

/// Returns the version of the driver's kernel module; empty if it is not loaded. Asks no library.
std::string driver_version() {
  std::ifstream in("/proc/driver/nvidia/version");
  std::string line;
  std::getline(in, line);
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan ..."
  std::istringstream words(line);
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos && word[0] >= '0' && word[0] <= '9') return word;
  return "";
}

#ifdef FIRN_HAS_CUDA
void fill(Environment::Library& library, const kernels::LibraryFacts& facts) {
  library.found = facts.version.empty() ? Environment::Found::no : Environment::Found::yes;
  library.version = facts.version;
  library.path = presentable(facts.path);
  library.why = presentable(facts.tried);
}

void add_devices(Environment::Cuda& c) {
  c.found = Environment::Found::no;
  c.driver_cuda = kernels::cuda::driver_version();
  try {
    require_device("environment", Device::cuda());
    for (int i = 0; i < cuda_device_count(); ++i) {
      const kernels::cuda::DeviceFacts facts = kernels::cuda::device_facts(i);
      c.devices.push_back(
          {facts.name, facts.major, facts.minor, facts.multiprocessors, facts.bytes});
    }
    c.found = Environment::Found::yes;
  } catch (const Error& e) {
    c.devices.clear();
    c.why = e.message();
    c.hint = e.hint();
    if (constexpr std::string_view kPrefix = "cuda:0 cannot be used: "; c.why.starts_with(kPrefix))
      c.why.erase(0, kPrefix.size());
  }
}
#endif

}  // namespace

Environment::Cuda cuda([[maybe_unused]] const EnvironmentOptions& options) {
  Environment::Cuda c;
  c.built = kHasCuda;
  c.driver = driver_version();
  c.cublaslt.name = "cuBLASLt";
  c.cudnn.name = "cuDNN";
#ifdef FIRN_HAS_CUDA
#ifdef FIRN_HAS_CUSIM
  c.simulated = true;
#endif
  c.toolkit = kernels::cuda::runtime_version();
  std::istringstream list(FIRN_CUDA_ARCHITECTURES);
  for (std::string word; std::getline(list, word, ',');) c.architectures.push_back(word);
  c.cublaslt.built = true;
#ifdef FIRN_HAS_CUDNN
  c.cudnn.built = true;
#endif
  if (!options.open) {
    c.found = c.cublaslt.found = c.cudnn.found = Environment::Found::not_looked_for;
    return c;
  }
  add_devices(c);
  fill(c.cublaslt, kernels::cuda::cublaslt_facts());
#ifdef FIRN_HAS_CUSIM
  fill(c.cudnn, {.version = "simulator", .path = "simulator", .tried = ""});
#elif defined(FIRN_HAS_CUDNN)
  fill(c.cudnn, kernels::cuda::cudnn_facts());
#endif
#endif
  return c;
}

}  // namespace environment_parts

bool Environment::Cuda::covers(const CudaDevice& device) const {
  if (simulated) return true;
  const int wanted = 10 * device.major + device.minor;
  for (const std::string& architecture : architectures) {
    int number = 0;
    const char* const end = architecture.data() + architecture.size();
    const auto [rest, error] = std::from_chars(architecture.data(), end, number);
    if (error != std::errc()) return true;
    // See CUDA's programming guide, "Binary Compatibility", "PTX Compatibility" and "Feature sets".
    const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
    const bool same_major = number / 10 == device.major && number <= wanted;
    const bool exact = suffix.starts_with('a'), family = suffix.starts_with('f');
    if (exact ? number == wanted : same_major && (!suffix.ends_with("-virtual") || family))
      return true;
    const bool has_ptx = !exact && !family && !suffix.ends_with("-real");
    if (has_ptx && number <= wanted) return true;
  }
  return false;
}

}  // namespace firn
