// A group of ranks that work together: threads of this process (local.h), processes (mpi.h), or
// ranks with a CUDA device each (nccl.h). Every rank calls the same collectives in the same order,
// and each call combines what the ranks give.
//
//   dist::run_local(4, [](const dist::Group& group) {
//     Tensor x = full({3}, group.rank());
//     group.all_reduce(x);  // 0 + 1 + 2 + 3 on every rank
//   });
//
// Tensors are contiguous, on the group's device, and have one dtype and number of elements on all
// ranks. A call writes its results in place: a leaf that requires a gradient needs NoGrad. Floating
// results have the same bits with every kind of group of the same size, unless
// NcclOptions::exact_sums is off.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "firn/device.h"
#include "firn/error.h"
#include "firn/tensor.h"

namespace firn::dist {

/// Operation by which all_reduce() and reduce_scatter() combine elements.
enum class Reduce : std::uint8_t { sum, max, min };

/// Error of a collective that did not finish: another rank failed, ended, made another call, or
/// missed the deadline. The group is invalid from then on: each later call throws too. Operations
/// of all ranks, such as io::save_run(), also throw RankError if another rank has reported its
/// failure. These leave the group usable.
class RankError : public Error {
 public:
  /// `call` is the collective; `rank` the one that throws; `peer` the one to blame, -1: not known.
  RankError(std::string_view call, int rank, int peer, std::string_view message,
            std::string_view hint = {});
  int rank() const noexcept { return rank_; }
  int peer() const noexcept { return peer_; }

 private:
  int rank_, peer_;
};

/// Carries the bytes of a group; internal to firn. Group checks tensors before it calls Transport.
class Transport;

/// A handle of one rank's membership in a group. Copies share it: one thread at a time may use
/// them. A rank invalidates the group if it ends while others are in a collective, or before they
/// reach one. It ends when its function (local) or its process (mpi) ends.
class Group {
 public:
  /// The group of one rank.
  Group();
  explicit Group(std::shared_ptr<Transport> transport);
  Group(const Group&) = default;  // a move copies: a handle is never empty
  Group& operator=(const Group&) = default;

  int rank() const noexcept;  ///< in [0, size())
  int size() const noexcept;
  /// "one", "local", "mpi" or "nccl".
  std::string_view kind() const noexcept;
  /// Device of the group's tensors: the CPU, or the rank's CUDA device.
  Device device() const noexcept;
  /// Returns a group of the same ranks whose tensors are on the CPU: this group, if it has them
  /// there. A group of nccl_group(bootstrap, ...) returns its bootstrap group. A group that found
  /// its ranks by a file sends tensors through the devices, and each call waits for its device.
  Group host() const;
  /// Seconds that a collective waits for the other ranks; infinite for the group of one rank.
  double deadline() const noexcept;

  // All throw RankError. They throw Error for a tensor that is undefined, not contiguous, not on
  // device(), or whose dtype or sizes the operation does not take. If ranks give tensors of
  // different dtypes or sizes, or make different calls, every rank throws RankError. A rank that
  // throws any other Error has not taken part. In a dry run (plan_memory()) nothing is exchanged.

  /// Replaces every rank's `x` by the sum, maximum or minimum over the ranks, element by element,
  /// in the order of the ranks: ((x0 + x1) + x2) + ... So it has the same bits on every rank and in
  /// every run with the same number of ranks. Takes f32, f64, i32, i64 and u8. Integer sums wrap
  /// around; a NaN makes a sum, maximum or minimum NaN. On a CUDA device a collective is only
  /// queued, and errors may come later (nccl.h).
  void all_reduce(const Tensor& x, Reduce op = Reduce::sum) const;
  /// `x` has size() equal parts. Rank r's `part` becomes part r of the result of all_reduce().
  /// `part` may be part rank() of `x` itself; else `x` is unchanged.
  void reduce_scatter(const Tensor& x, const Tensor& part, Reduce op = Reduce::sum) const;
  /// `all` becomes the ranks' `part`s, one after another. `part` may be part rank() of `all`
  /// itself. Takes any dtype.
  void all_gather(const Tensor& part, const Tensor& all) const;
  /// Both have size() equal parts: part r of rank q's `from` becomes part q of rank r's `to`. They
  /// must not overlap in memory. Takes any dtype.
  void all_to_all(const Tensor& from, const Tensor& to) const;
  /// Every rank's `x` becomes that of rank `root`. Takes any dtype.
  void broadcast(const Tensor& x, int root = 0) const;
  /// Returns when all ranks have called it.
  void barrier() const;

  /// Splits the group: the ranks that give the same `color` form a new group. They are ordered by
  /// `key`, then by their rank here. All ranks call it, and each gets its own group, which has the
  /// kind and the deadline of this one. Its ranks count from 0; errors also give the rank here.
  ///
  /// The groups are independent: a call that fails in one does not invalidate the others. But a
  /// rank that ends has ended in each of its groups. The resources of a split live as long as the
  /// process. Throws as collectives do, and Error in a dry run.
  Group split(int color, int key = 0) const;

  // Point-to-point messages between two ranks. Each call waits for the other side, at most until
  // the deadline. The group becomes invalid if the deadline passes, if both sides send or both
  // receive, or if their dtypes or numbers of elements differ. It also does for a rank whose other
  // side has ended. Messages take any dtype.

  /// Sends `x` to rank `to`. Returns when `x` may be written to again.
  void send(const Tensor& x, int to) const;
  /// Receives into `x` the tensor that rank `from` sends.
  void recv(const Tensor& x, int from) const;
  /// Sends `x` and receives `y` at once, so that ranks which send to each other do not wait for
  /// each other. The two must not overlap in memory.
  void send_recv(const Tensor& x, int to, const Tensor& y, int from) const;

 private:
  friend struct GroupAccess;
  std::shared_ptr<Transport> transport_;
};

}  // namespace firn::dist
