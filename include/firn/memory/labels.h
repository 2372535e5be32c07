// What this thread is doing, as reports of memory name it (memory/report.h): the operation, and the
// path of the module that is being called. For operations and layers; models need not care.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace firn::runtime {

/// Paths that can be told apart; further ones count as one, "(more modules)".
inline constexpr std::uint32_t kMaxModules = 2048;

/// The number of a path; 0 is that of no module, "". Paths are kept for ever. If the heap has no
/// memory for a new one, it is 0.
std::uint32_t module_number(std::string_view path) noexcept;
/// The path of a number.
std::string_view module_path(std::uint32_t number) noexcept;
/// One more than the largest number so far.
std::uint32_t module_count() noexcept;

/// What a thread is doing, as the memory report names it.
struct Labels {
  const char* op = nullptr;  ///< a string literal; null: none is known
  std::uint32_t module = 0;  ///< module_number() of the innermost module that is called
  /// The call of checkpoint() that is under way (firn/checkpoint.h), 0 for none. Later calls have
  /// larger numbers.
  std::uint64_t segment = 0;
};
/// Of this thread. Not an inline variable: each variant of the CPU kernels (kernels/isa.h) would
/// have its own.
extern thread_local constinit Labels labels;

/// While alive, what this thread allocates was made by `op`.
class OpScope {
 public:
  [[nodiscard]] explicit OpScope(const char* op) noexcept : before_(std::exchange(labels.op, op)) {}
  ~OpScope() { labels.op = before_; }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  const char* before_;
};

/// The same where no operation is known: the kernel stands for it.
class KernelScope : OpScope {
 public:
  [[nodiscard]] explicit KernelScope(const char* kernel) noexcept
      : OpScope(labels.op ? labels.op : kernel) {}
};

/// While alive, what this thread allocates counts for this module.
class ModuleScope {
 public:
  [[nodiscard]] explicit ModuleScope(std::uint32_t module) noexcept
      : before_(std::exchange(labels.module, module)) {}
  ~ModuleScope() { labels.module = before_; }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  std::uint32_t before_;
};

}  // namespace firn::runtime
