// A group of ranks that work together: threads of this process (local.h) or processes (mpi.h).
// Every rank calls the same collectives in the same order, and each call combines what the ranks
// give.
//
//   dist::run_local(4, [](const dist::Group& group) {
//     Tensor x = full({3}, group.rank());
//     group.all_reduce(x);  // 0 + 1 + 2 + 3 on every rank
//   });
//
// Tensors are contiguous and, on all ranks, of one dtype and number of elements. They are on the
// CPU. A call writes to what it is given, and counts as an in-place write.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "firn/error.h"
#include "firn/tensor.h"

namespace firn::dist {

/// How all_reduce() and reduce_scatter() combine elements.
enum class Reduce : std::uint8_t { sum, max, min };

/// A collective did not come to its end: another rank failed, died, called something else, or did
/// not come within the deadline. The group is broken from then on: each later call throws too.
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
/// it. A rank that destroys its last handle in the middle of a collective of others breaks the
/// group.
class Group {
 public:
  /// The group of one rank.
  Group();
  explicit Group(std::shared_ptr<Transport> transport);

  int rank() const noexcept;  ///< in [0, size())
  int size() const noexcept;
  /// "one", "local" or "mpi".
  std::string_view kind() const noexcept;
  /// Seconds that a collective waits for the other ranks.
  double deadline() const noexcept;

  // All throw RankError, and Error for a tensor that is undefined, not contiguous, not on the CPU,
  // of a dtype that the operation has not, or of sizes that do not fit. Ranks that give tensors of
  // different dtypes or sizes, or make different calls, throw RankError on every rank.

  /// Every rank's `x` becomes the sum, maximum or minimum of all ranks' x, element by element: the
  /// same bits on every rank, and in every run with the same number of ranks. Floats of 32 and 64
  /// bits, i32, i64, u8. Integer sums wrap around; a NaN makes a maximum NaN.
  void all_reduce(const Tensor& x, Reduce op = Reduce::sum) const;
  /// `x` has size() equal parts. Rank r's `part` becomes part r of what all_reduce() would give.
  void reduce_scatter(const Tensor& x, const Tensor& part, Reduce op = Reduce::sum) const;
  /// `all` becomes the ranks' `part`s, one after another. Any dtype.
  void all_gather(const Tensor& part, const Tensor& all) const;
  /// Both have size() equal parts: part r of rank q's `from` becomes part q of rank r's `to`. Any
  /// dtype.
  void all_to_all(const Tensor& from, const Tensor& to) const;
  /// Every rank's `x` becomes that of rank `root`. Any dtype.
  void broadcast(const Tensor& x, int root = 0) const;
  /// Returns when all ranks have called it.
  void barrier() const;

 private:
  std::shared_ptr<Transport> transport_;
};

}  // namespace firn::dist
