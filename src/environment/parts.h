// The parts of environment(), each in its own file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "firn/environment.h"

namespace firn::environment_parts {

/// Returns the facts that CMake and the compiler know.
Environment::Build build();
Environment::Cpu cpu();
Environment::Memory memory();
Environment::Cuda cuda(const EnvironmentOptions& options);
void add_libraries(Environment& e);
void add_ranks(Environment& e, const EnvironmentOptions& options);
std::vector<Environment::DataSet> data_sets();
std::vector<Environment::Variable> variables();

/// Returns the CPUs that a process's control groups grant (cpu.max of version 2, cpu.cfs_quota_us
/// of version 1); 0: no limit. It reads the files of control_groups().
double cpu_quota(const char* membership = "/proc/self/cgroup", const char* root = "/sys/fs/cgroup");

/// Returns true if firn, one of its scripts or its tests reads the environment variable.
bool is_known_variable(std::string_view name);

/// Replaces bytes that are not UTF-8 by "?".
std::string as_utf8(std::string text);
/// Makes `text` fit for a log: the home folder becomes "~", another folder with the user's name
/// "/USER", and bytes that are not UTF-8 become "?".
std::string presentable(std::string text);

}  // namespace firn::environment_parts
