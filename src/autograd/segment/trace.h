// A run of a checkpointed function. The segment notes the first run; a later run hands the
// segment's nodes their saved tensors. Operations are told apart by their number in the run.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/segment/segment.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "runtime/graph/draw_tape.h"

namespace firn::autograd {

/// A run of a checkpointed function on this thread, the first one or another one.
class Trace {
 public:
  enum class Mode : std::uint8_t {
    recording,
    filling,    ///< hands saved tensors to the nodes of the segment
    discarding  ///< computes results alone: a checkpoint inside of one that is being filled
  };

  /// The first run.
  explicit Trace(Segment& segment);
  /// Fills the items up to `place`.
  Trace(Segment& segment, std::uint32_t place);
  /// Discards the tensors that operations save; `log` is the first run's.
  explicit Trace(SegmentLog& log);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  bool recording() const noexcept { return mode_ == Mode::recording; }
  /// Returns true if this node existed when the run began, as leaves did.
  bool made_before(const Node& node) const noexcept;
  /// Is called before an operation is recorded, or would be.
  void next_op(const char* op);
  /// Is called before `node` saves `t` in the next slot. Returns true if it must not. `hashed`: the
  /// values are compared the second time.
  bool take(Node& node, const Tensor& t, std::uint32_t version, bool hashed);

  /// Returns the number of a module's next call (nn/call.cpp), which is equal in each run.
  std::size_t next_call(bool training, std::uint32_t label);
  CallNote& call(std::size_t number);

  /// Gets the kept results of the next product. Returns false if it has to be computed.
  bool next_product(std::span<Tensor> results);
  /// Keeps the results of a product; some may be undefined.
  void keep_product(std::span<const Tensor> results, double work, ReadsResult reads);
  /// Returns true if only the tensors of the next operation are still to be handed over.
  bool next_op_is_last() const noexcept;
  bool keeps_products() const noexcept { return log_.keeps_products; }

  /// Returns, on a later run, the log of the first run of a checkpoint inside.
  SegmentLog& inner_log();
  /// Gives the segment of that checkpoint the function of this run, if it needs one. Throws Done if
  /// nothing more is needed.
  void enter_inner(std::function<void()>& again);

  /// Exception that ends the function when nothing more is needed.
  struct Done {};

 private:
  /// Hands over `t`, which the operation of filled_ saves in this slot.
  void fill(int slot, const Tensor& t, std::uint32_t version);
  /// Returns true if a tensor that is about to be saved must not be kept.
  bool goes(const Tensor& t) const noexcept;
  bool is_product(const Tensor& t) const noexcept;
  void count_down();
  /// Ends the first run: releases products that are not worth their memory.
  void release_products();

  Segment* const segment_;  ///< null if it discards
  SegmentLog& log_;
  Trace* const outer_;
  const Mode mode_;
  const std::uint64_t outermost_;       ///< Labels::segment from which on tensors are not kept
  const std::uint64_t number_before_;   ///< Labels::segment
  const std::uint64_t first_sequence_;  ///< sequence number of this run's first node
  runtime::DrawTape tape_;
  runtime::DrawTapeScope tape_scope_;
  const std::uint32_t target_ = 0;   ///< fills items up to this place
  std::uint32_t place_ = 0;          ///< number of the last operation; the first has 1
  std::size_t item_ = 0;             ///< index of the next item
  Segment::Item* filled_ = nullptr;  ///< item of the last operation; null if it needs nothing
  std::size_t missing_ = 0;  ///< tensors and inner functions that are still to be handed over
  std::size_t call_ = 0, product_ = 0, inner_ = 0;

  friend class Segment;
};

/// Returns true if this thread computes a checkpointed function again.
inline bool computing_again() noexcept {
  return thread_context.trace && !thread_context.trace->recording();
}

/// While alive, operations of this thread belong to no checkpoint, and their saved tensors are
/// kept. Hooks run in it, because they run once.
class OutsideOfTrace {
 public:
  OutsideOfTrace() noexcept
      : trace_(std::exchange(thread_context.trace, nullptr)), tape_(nullptr) {}
  ~OutsideOfTrace() { thread_context.trace = trace_; }
  OutsideOfTrace(const OutsideOfTrace&) = delete;
  OutsideOfTrace& operator=(const OutsideOfTrace&) = delete;

 private:
  Trace* trace_;
  runtime::DrawTapeScope tape_;
};

/// Returns the result of compute(): the tensors, some of them undefined, that a product has made. A
/// checkpoint with Keep::products keeps them, and does not compute them again. `work` is the number
/// of multiplications. If a second pass has only operands of this product left to hand over, the
/// result is not computed.
template <class Compute, class Results = decltype(std::declval<Compute>()())>
Results product(double work, ReadsResult reads, const Compute& compute) {
  Trace* const trace = thread_context.trace;
  if (!trace) [[likely]]
    return compute();
  Results results;
  const auto list = [&results] {
    if constexpr (std::is_same_v<Results, Tensor>) {
      return std::span<Tensor>(&results, 1);
    } else {
      return std::span<Tensor>(results);
    }
  };
  if (trace->recording()) {
    results = compute();
    if (trace->keeps_products()) trace->keep_product(list(), work, reads);
    return results;
  }
  if (trace->keeps_products() && trace->next_product(list())) return results;
  const runtime::SkipKernels skip(reads == ReadsResult::no && trace->next_op_is_last());
  return compute();
}

}  // namespace firn::autograd
