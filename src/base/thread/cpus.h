// Number of threads that a process begins with (device.cpp), for descriptions of the machine.
#pragma once

#include <string_view>

namespace firn {

/// Returns the number of CPUs that this process may run on. It is less than the machine has under
/// taskset or in a container.
int usable_cpus() noexcept;
/// Returns the number of set_num_threads(), else of FIRN_THREADS, else usable_cpus().
int chosen_threads() noexcept;

namespace detail {
/// Returns the value of FIRN_THREADS, or 0 if the text is not a whole number of 1 or more.
int parse_threads(std::string_view text) noexcept;
inline constexpr const char* kThreadsHint = "set it to a whole number of 1 or more";
}  // namespace detail

}  // namespace firn
