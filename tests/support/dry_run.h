// A call for real and by shapes alone (firn/runtime/kernel_support.h), compared: what both
// allocate, and that the second writes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"

namespace firn::testing {

/// While alive, this thread runs by shapes alone.
class DryRun {
 public:
  DryRun() noexcept : before_(thread_context.dry_run) { thread_context.dry_run = true; }
  ~DryRun() { thread_context.dry_run = before_; }
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

 private:
  bool before_;
};

/// What a call allocates on the default device, beyond what was in use before.
struct Footprint {
  std::uint64_t allocations = 0;
  std::size_t total = 0;                         ///< peak bytes
  std::array<std::size_t, kOwnerCount> owner{};  ///< peak bytes of each owner

  std::size_t workspace() const { return owner[static_cast<std::size_t>(Owner::workspace)]; }
  bool operator==(const Footprint&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Footprint& f);
Footprint footprint_of(const std::function<void()>& call);

/// The bytes of the tensors' storages, to be compared later.
class Kept {
 public:
  explicit Kept(std::vector<Tensor> tensors);
  /// The storages that have other bytes now.
  int changed() const;

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::vector<char>> bytes_;
};

/// Catch checks: the call allocates the same for real and by shapes alone. By shapes alone, the
/// storages of `kept` stay as they are, and so does the memory that the results are given. The call
/// returns its results, and has the same operands each time. Returns how many results were
/// compared.
int check_dry_run(const std::string& what, const std::function<std::vector<Tensor>()>& call,
                  const std::vector<Tensor>& kept);

struct OpRow;
/// check_dry_run() for a row of the op table, forward and backward, for 1 to 3 threads, in every
/// floating dtype, and for operands with strides.
void check_dry_run(const OpRow& row);

}  // namespace firn::testing
