// A group of ranks that work together: threads of this process (local.h), processes (mpi.h), or
// ranks with a CUDA device each (nccl.h). Every rank calls the same collectives in the same order,
// and each call combines what the ranks give.
//
//   dist::run_local(4, [](const dist::Group& group) {
//     Tensor x = full({3}, group.rank());
//     group.all_reduce(x);  // 0 + 1 + 2 + 3 on every rank
//   });
//
// Tensors are contiguous and, on all ranks, of one dtype and number of elements. They are on the
// group's device. What a call writes counts as written in place: a leaf that requires a gradient
// needs NoGrad. Floating results have the same bits with every kind of group of the same size,
// unless NcclOptions::exact_sums is off.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "firn/device.h"
#include "firn/error.h"
#include "firn/tensor.h"

namespace firn::dist {

/// How all_reduce() and reduce_scatter() combine elements.
enum class Reduce : std::uint8_t { sum, max, min };

/// A collective did not come to its end: another rank failed, died, called something else, or did
/// not come within the deadline. The group is broken from then on: each later call throws too. What
/// all ranks do together, such as io::save_run(), also throws it if another rank could not do its
/// part; the group is whole then.
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

/// What carries the bytes of a group; group.cpp checks tensors before it is asked. Of firn's own.
class Transport;

/// A handle of one rank's place in a group. Copies are the same place: one thread at a time may use
/// it. A rank that ends (local: its function; mpi: its process) while others are in a collective,
/// or before they come to one, breaks the group.
class Group {
 public:
  /// The group of one rank.
  Group();
  explicit Group(std::shared_ptr<Transport> transport);
  Group(const Group&) = default;  // a move copies: a handle always has its place
  Group& operator=(const Group&) = default;

  int rank() const noexcept;  ///< in [0, size())
  int size() const noexcept;
  /// "one", "local", "mpi" or "nccl".
  std::string_view kind() const noexcept;
  /// Where its tensors are: the CPU, or the rank's CUDA device.
  Device device() const noexcept;
  /// The same ranks as a group whose tensors are on the CPU: this group, if it is one. Ranks with a
  /// CUDA device have the group that brought them together. If a file did, tensors travel by way of
  /// the devices, and each call waits for its own.
  Group host() const;
  /// Seconds that a collective waits for the other ranks; of the group of one infinite.
  double deadline() const noexcept;

  // All throw RankError, and Error for a tensor that is undefined, not contiguous, not on device(),
  // of a dtype that the operation has not, or of sizes that do not fit. Ranks that give tensors of
  // different dtypes or sizes, or make different calls, throw RankError on every rank. After an
  // Error that is no RankError this rank has not taken part. In a dry run (plan_memory()) nothing
  // is exchanged.

  /// Every rank's `x` becomes the sum, maximum or minimum of all ranks' x, element by element, in
  /// the order of the ranks: ((x0 + x1) + x2) + ... So it has the same bits on every rank and in
  /// every run with the same number of ranks. f32, f64, i32, i64, u8. Integer sums wrap around; a
  /// NaN makes a sum, maximum or minimum NaN.
  void all_reduce(const Tensor& x, Reduce op = Reduce::sum) const;
  /// `x` has size() equal parts. Rank r's `part` becomes part r of what all_reduce() would give.
  /// `part` may be part rank() of `x` itself; else `x` stays as it is.
  void reduce_scatter(const Tensor& x, const Tensor& part, Reduce op = Reduce::sum) const;
  /// `all` becomes the ranks' `part`s, one after another. `part` may be part rank() of `all`
  /// itself. Any dtype.
  void all_gather(const Tensor& part, const Tensor& all) const;
  /// Both have size() equal parts: part r of rank q's `from` becomes part q of rank r's `to`. They
  /// have no memory in common. Any dtype.
  void all_to_all(const Tensor& from, const Tensor& to) const;
  /// Every rank's `x` becomes that of rank `root`. Any dtype.
  void broadcast(const Tensor& x, int root = 0) const;
  /// Returns when all ranks have called it.
  void barrier() const;

  /// The ranks that give the same `color` form a new group, in the order of `key`, and of their
  /// ranks here where keys are equal. All ranks call it, and each gets its own group. It has the
  /// same kind and deadline. In it ranks count from 0; errors also say which rank of all that is.
  ///
  /// The groups are apart: a call that fails in one does not break the others. But a rank that ends
  /// has ended in every group that it is in. Processes keep what a split has made as long as they
  /// live. Throws as collectives do, and Error in a dry run.
  Group split(int color, int key = 0) const;

  // Messages between two ranks, which need no other. Each waits for the other side, at most until
  // the deadline. The group is broken if that passes, if the two sides give other dtypes or numbers
  // of elements, if both send or both receive, and for a rank whose other side has ended. Any
  // dtype.

  /// Rank `to` receives `x`. Returns when `x` may be written to again.
  void send(const Tensor& x, int to) const;
  /// `x` becomes what rank `from` sends.
  void recv(const Tensor& x, int from) const;
  /// Sends `x` and receives `y` at once, so that ranks which send to each other do not wait for
  /// each other. The two have no memory in common.
  void send_recv(const Tensor& x, int to, const Tensor& y, int from) const;

 private:
  friend struct GroupAccess;
  std::shared_ptr<Transport> transport_;
};

}  // namespace firn::dist
