// Other ranks whose cycles belong to one step, as a cycle's owner and its members see them.
// src/dist implements this interface.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <new>
#include <string_view>

#include "firn/error.h"
#include "firn/runtime/kernel_support.h"
#include "firn/tensor.h"

namespace firn::autograd {

/// The outcome of a rank's part in what the ranks do together.
enum class Outcome : std::uint8_t { done, failed, out_of_memory };

inline Outcome outcome_of(const std::exception_ptr& failure) {
  if (!failure) return Outcome::done;
  try {
    std::rethrow_exception(failure);
  } catch (const OutOfMemory&) {
    return Outcome::out_of_memory;
  } catch (const std::bad_alloc&) {  // thrown by the user's function
    return Outcome::out_of_memory;
  } catch (...) {
    return Outcome::failed;
  }
}

/// Collectives over the ranks of a step. All ranks make the same calls in the same order. Tensors
/// are contiguous, on the CPU or on the parameters' device, and of the same dtype and size on all
/// ranks.
/// Calls throw what the transport throws; the contents are then undefined. On a device an error may
/// come late, at the host's next wait.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// Gathers the parts of all ranks in `all`, one after another.
  virtual void all_gather(const Tensor& part, const Tensor& all) const = 0;
  /// Sums x over all ranks, with the same bits on each.
  virtual void all_reduce(const Tensor& x) const = 0;
  /// Returns true if exchanges can overlap with computation. Otherwise the next three functions are
  /// not called.
  virtual bool overlaps() const noexcept = 0;
  /// Begins all_reduce(x), which overlaps with what this rank does next. Exchanges complete in
  /// their order. x must not be used until end().
  virtual void begin_all_reduce(const Tensor& x) const = 0;
  /// Begins `calls` on other peers of the same ranks. Their tensors must not be used until end().
  /// If there is no memory to note the calls, makes them at once. So does begin_all_reduce().
  virtual void begin(std::function<void(const Peers&)> calls) const = 0;
  /// Waits for all exchanges that were begun, and throws the first error among them.
  virtual void end() const = 0;
  /// Sums x, which has size() equal parts, over all ranks. `part` is part rank() of x and receives
  /// the sum; the other parts are undefined afterwards.
  virtual void reduce_scatter(const Tensor& x, const Tensor& part) const = 0;
  /// Copies the x of rank `root` to every rank.
  virtual void broadcast(const Tensor& x, int root) const = 0;
  /// Copies part r of rank q's `from` to part q of rank r's `to`, for all q and r.
  virtual void all_to_all(const Tensor& from, const Tensor& to) const = 0;
  /// Exchanges the ranks' outcomes. If a rank has failed, throws on the ranks that have not, and
  /// names the first failed one; they can continue together. If ranks ran out of memory and none
  /// has failed otherwise, the others throw OutOfMemory. Allocates no tensor.
  virtual void agree(const char* op, Outcome mine) const = 0;
  /// Reports that this rank cannot make the call that others wait in. All calls then throw.
  virtual void give_up(std::string_view why) const noexcept = 0;
};

/// The other ranks of a step. A pointer is null if there are none.
struct StepRanks {
  const Peers* copies = nullptr;  ///< ranks with the same parameters and other samples
  const Peers* model = nullptr;   ///< ranks with the rest of the model and the same samples
};

/// Runs the function, then agree(outcome), which throws if another rank has failed. If both throw,
/// the function's exception leaves. In a dry run, only runs the function.
template <class Fn, class Agree>
void run_and_agree(const Fn& function, const Agree& agree) {
  if (runtime::dry_run()) return function();
  std::exception_ptr failure;
  try {
    function();
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    agree(failure ? Outcome::failed : Outcome::done);
  } catch (...) {  // this rank's own failure says more
    if (!failure) throw;
  }
  if (failure) std::rethrow_exception(failure);
}

/// Runs the function on every rank. If it throws on one, all ranks throw. Without peers (null) and
/// in a dry run, only runs it on this rank.
template <class Fn>
void on_every_rank(const char* op, const Peers* peers, const Fn& function) {
  if (!peers) return function();
  run_and_agree(function, [&](Outcome outcome) { peers->agree(op, outcome); });
}

/// Runs the function on all copies of all parts of the model. If it throws on one rank, all throw.
template <class Fn>
void on_every_rank(const char* op, const StepRanks& ranks, const Fn& function) {
  on_every_rank(op, ranks.model, [&] { on_every_rank(op, ranks.copies, function); });
}

}  // namespace firn::autograd
