// How many threads a process begins with (device.cpp), for descriptions of the machine.
#pragma once

#include <string_view>

namespace firn {

/// The CPUs that this process may run on: fewer than the machine has under taskset or in a
/// container.
int usable_cpus() noexcept;
/// FIRN_THREADS, or what set_num_threads() was given; NumThreadsScope does not count.
int chosen_threads() noexcept;

namespace detail {
/// The value of FIRN_THREADS; 0 if the text is no whole number of 1 or more.
int parse_threads(std::string_view text) noexcept;
inline constexpr const char* kThreadsHint = "set it to a whole number of 1 or more";
}  // namespace detail

}  // namespace firn
