#include "firn/device.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "base/check.h"
#include "base/thread/cpus.h"
#include "firn/thread_context.h"

namespace firn {

Device default_device() noexcept { return thread_context.device; }
DeviceScope::DeviceScope(Device device) noexcept : previous_(thread_context.device) {
  thread_context.device = device;
}
DeviceScope::~DeviceScope() { thread_context.device = previous_; }

Device Device::parse(std::string_view text) {
  constexpr const char* hint = "use cpu, cuda or cuda:N";
  if (text == "cpu") return cpu();
  if (text == "cuda") return cuda(0);
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + 5, end, index);
    FIRN_CHECK(error == std::errc() && rest == end && index >= 0 && index < 128, "device", hint,
               "'{}' is not a device", text);
    return cuda(index);
  }
  detail::fail("device", hint, "'{}' is not a device", text);
}

void Device::refuse(DeviceType kind, int number) {
  require_named("device", "DeviceType", kind, DeviceType::cuda);
  if (kind == DeviceType::cpu)
    detail::fail("device", "use Device::cpu(); set_num_threads() sets how many threads compute",
                 "there is no CPU device {}: all CPUs are one device", number);
  detail::fail("device", "CUDA devices are numbered from 0 to 127", "there is no CUDA device {}",
               number);
}

std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : fmt::format("cuda:{}", device.index);
}

int detail::parse_threads(std::string_view text) noexcept {
  int n = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, n);
  return error == std::errc() && rest == end && n >= 1 ? n : 0;
}

int usable_cpus() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

namespace {
/// Returns FIRN_THREADS, or else the number of CPUs. num_threads() cannot throw: the first
/// allocation reports a wrong value (runtime/memory/limit.h).
int initial_threads() noexcept {
  const char* const text = std::getenv("FIRN_THREADS");
  const int n = text ? detail::parse_threads(text) : 0;
  return n > 0 ? n : usable_cpus();
}
std::atomic<int>& thread_count() noexcept {
  static std::atomic<int> count{initial_threads()};
  return count;
}
}  // namespace

int num_threads() noexcept {
  return std::min(thread_context.most_threads, thread_count().load(std::memory_order_relaxed));
}

int chosen_threads() noexcept { return thread_count().load(std::memory_order_relaxed); }

void set_num_threads(int n) {
  FIRN_CHECK(n >= 1, "set_num_threads", "1 computes in the calling thread alone",
             "needs at least 1 thread, got {}", n);
  thread_count().store(n, std::memory_order_relaxed);
}

NumThreadsScope::NumThreadsScope(int n) : previous_(thread_context.most_threads) {
  FIRN_CHECK(n >= 1, "NumThreadsScope", "1 computes in the calling thread alone",
             "needs at least 1 thread, got {}", n);
  thread_context.most_threads = std::min(previous_, n);
}
NumThreadsScope::~NumThreadsScope() { thread_context.most_threads = previous_; }

}  // namespace firn
