// Labels for memory that this thread allocates, for reports (memory/report.h): the operation, and
// the path of the module that is being called. Operations and layers set them, not models.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "firn/thread_context.h"

namespace firn::runtime {

/// Number of paths that reports can distinguish; further ones count as one, "(more modules)".
inline constexpr std::uint32_t kMaxModules = 2048;

/// Returns the number of a path; 0 is the number of "", outside of all modules. Paths are kept for
/// ever. Returns 0 if the heap has no memory for a new path.
std::uint32_t module_number(std::string_view path) noexcept;
/// Returns the path of a number.
std::string_view module_path(std::uint32_t number) noexcept;
/// One more than the largest number so far.
std::uint32_t module_count() noexcept;

/// While alive, memory that this thread allocates is labelled with the operation `op`.
class OpScope {
 public:
  [[nodiscard]] explicit OpScope(const char* op) noexcept
      : before_(std::exchange(thread_context.labels.op, op)) {}
  ~OpScope() { thread_context.labels.op = before_; }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  const char* before_;
};

/// While alive, memory is labelled with `kernel` if no operation is known.
class KernelScope : OpScope {
 public:
  [[nodiscard]] explicit KernelScope(const char* kernel) noexcept
      : OpScope(thread_context.labels.op ? thread_context.labels.op : kernel) {}
};

/// While alive, memory that this thread allocates counts for this module.
class ModuleScope {
 public:
  [[nodiscard]] explicit ModuleScope(std::uint32_t module) noexcept
      : before_(std::exchange(thread_context.labels.module, module)) {}
  ~ModuleScope() { thread_context.labels.module = before_; }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  std::uint32_t before_;
};

}  // namespace firn::runtime
