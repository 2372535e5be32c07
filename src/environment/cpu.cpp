// The CPU and its memory.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "base/control_groups.h"
#include "base/thread/cpus.h"
#include "environment/parts.h"
#include "firn/device.h"
#include "firn/error.h"
#include "firn/memory.h"
#include "firn/tensor.h"
#include "kernels/settings/describe.h"

namespace firn::environment_parts {
namespace {

/// Returns the value of the first line "name : value" of a file of /proc; empty if there is none.
std::string value_in(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.rfind(name, 0) != 0) continue;
    if (line.find_first_not_of(" \t", name.size()) != colon) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// Reads /proc/meminfo, whose unit is 1024 bytes.
std::size_t bytes_in_meminfo(const char* name) {
  std::uint64_t kib = 0;
  std::istringstream(value_in("/proc/meminfo", name)) >> kib;
  return static_cast<std::size_t>(kib * 1024);
}

}  // namespace

double cpu_quota(const char* membership, const char* root) {
  double lowest = 0;
  for (const ControlGroup& group : control_groups("cpu", membership, root)) {
    double microseconds = 0, period = 0;  // "max" and -1 stand for no limit
    bool read = false;
    if (group.unified) {
      std::ifstream in(group.folder + "/cpu.max");
      read = static_cast<bool>(in >> microseconds >> period);
    } else {
      std::ifstream quota(group.folder + "/cpu.cfs_quota_us");
      std::ifstream length(group.folder + "/cpu.cfs_period_us");
      read = static_cast<bool>(quota >> microseconds) && static_cast<bool>(length >> period);
    }
    if (!read || microseconds <= 0 || period <= 0) continue;
    const double cpus = microseconds / period;
    if (lowest == 0 || cpus < lowest) lowest = cpus;
  }
  return lowest;
}

Environment::Cpu cpu() {
  namespace kernels = ::firn::kernels::cpu;
  Environment::Cpu c;
  c.model = value_in("/proc/cpuinfo", "model name");
  if (c.model.empty()) c.model = "unknown";
  c.cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  c.usable = usable_cpus();
  c.quota = cpu_quota();
  c.threads = num_threads();
  const char* const wanted = std::getenv("FIRN_THREADS");
  c.threads_set = wanted && firn::detail::parse_threads(wanted) > 0;
  c.features = kernels::cpu_features();
  const kernels::Isa machine = kernels::machine_isa();
  const kernels::Isa compiled = kernels::level_of_kernels(machine);
  c.machine_level = name_of(machine);
  c.kernels = name_of(compiled);
  c.kernels_run = compiled <= machine;
  try {
    const kernels::CpuFacts facts = kernels::cpu_facts();
    c.kernels = name_of(facts.kernels);
    c.level = name_of(facts.level);
    c.level_forced = facts.forced;
    c.variants = facts.variants;
    c.f32 = facts.f32;
    c.bf16 = facts.bf16;
    c.f16 = facts.f16;
    c.bf16_unit = facts.bf16_unit;
    c.f16_unit = facts.f16_unit;
  } catch (const Error& e) {
    c.problem = e.op() + " " + e.message() + (e.hint().empty() ? "" : "; " + e.hint());
  }
  return c;
}

Environment::Memory memory() {
  Environment::Memory m;
  m.total = bytes_in_meminfo("MemTotal");
  m.available = bytes_in_meminfo("MemAvailable");
  try {
    empty({1}, u8, Device::cpu());  // an allocator reads its limit at the first request
    m.limit = memory_stats(Device::cpu()).limit;
  } catch (const Error& e) {
    m.problem = e.op() + ": " + e.message() + (e.hint().empty() ? "" : "; " + e.hint());
  }
  return m;
}

}  // namespace firn::environment_parts
