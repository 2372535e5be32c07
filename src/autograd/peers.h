// Other ranks whose cycles belong to one step: what a cycle's owner and its members need of them.
// Who knows how ranks are reached implements it (src/dist).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <new>

#include "firn/error.h"
#include "firn/runtime/kernel_support.h"
#include "firn/tensor.h"

namespace firn::autograd {

/// How a rank has fared in what ranks do together.
enum class Outcome : std::uint8_t { done, failed, out_of_memory };

inline Outcome outcome_of(const std::exception_ptr& failure) {
  if (!failure) return Outcome::done;
  try {
    std::rethrow_exception(failure);
  } catch (const OutOfMemory&) {
    return Outcome::out_of_memory;
  } catch (const std::bad_alloc&) {  // of the user's function
    return Outcome::out_of_memory;
  } catch (...) {
    return Outcome::failed;
  }
}

/// All ranks make the same calls in the same order. Tensors are contiguous, on the CPU or where the
/// ranks' parameters are, and of one dtype and size on all ranks. Throws what the transport throws;
/// the contents are then undefined. On a device that may come late, at the host's next wait.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// `all` becomes the parts of all ranks, one after another.
  virtual void all_gather(const Tensor& part, const Tensor& all) const = 0;
  /// x becomes the sum over all ranks, with the same bits on each.
  virtual void all_reduce(const Tensor& x) const = 0;
  /// Whether ranks exchange beside what they compute: else nobody calls the next three.
  virtual bool overlaps() const noexcept = 0;
  /// Begins all_reduce(x) beside what this rank does next. They end in their order. Nobody touches
  /// x until end().
  virtual void begin_all_reduce(const Tensor& x) const = 0;
  /// Begins calls of other peers of the same ranks. Nobody else touches their tensors until end().
  virtual void begin(std::function<void(const Peers&)> calls) const = 0;
  /// Waits for all that were begun, and throws what the first of them has met.
  virtual void end() const = 0;
  /// x has size() equal parts. Part rank() of it becomes that of the sum over all ranks; the other
  /// parts are then undefined.
  virtual void reduce_scatter(const Tensor& x) const = 0;
  /// Every rank's x becomes that of rank `root`.
  virtual void broadcast(const Tensor& x, int root) const = 0;
  /// Part r of rank q's `from` becomes part q of rank r's `to`.
  virtual void all_to_all(const Tensor& from, const Tensor& to) const = 0;
  /// All ranks tell how they have fared. If one has failed, throws on those that have not, naming
  /// the first that has; they can go on together. If ranks ran out of memory, and none has failed
  /// otherwise, the others throw OutOfMemory. Allocates no tensor.
  virtual void agree(const char* op, Outcome mine) const = 0;
};

/// The other ranks of a step: null if there are none.
struct StepRanks {
  const Peers* copies = nullptr;  ///< that have the same parameters, and other samples
  const Peers* model = nullptr;   ///< that have the rest of the model, and the same samples
};

/// Runs the function on every rank. If it throws on one, all ranks throw. Without peers (null), and
/// in a dry run, it is run here.
template <class Fn>
void on_every_rank(const char* op, const Peers* peers, const Fn& function) {
  if (!peers || runtime::dry_run()) return function();
  std::exception_ptr failure;
  try {
    function();
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    peers->agree(op, failure ? Outcome::failed : Outcome::done);
  } catch (...) {  // what this rank has met says more
    if (!failure) throw;
  }
  if (failure) std::rethrow_exception(failure);
}

/// The same on all copies of all parts of the model.
template <class Fn>
void on_every_rank(const char* op, const StepRanks& ranks, const Fn& function) {
  on_every_rank(op, ranks.model, [&] { on_every_rank(op, ranks.copies, function); });
}

}  // namespace firn::autograd
