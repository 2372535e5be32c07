// What carries the bytes of a group: one rank's end of it. group.cpp has checked the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "firn/dist/group.h"
#include "firn/dtype.h"

namespace firn::dist {

enum class CallKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  barrier
};
/// "all_reduce" and so on: a text that is never freed.
const char* to_string(CallKind kind) noexcept;

/// A collective as all ranks must make it. Transports exchange it as bytes, so it has no gaps.
struct Call {
  CallKind kind = CallKind::barrier;
  DType dtype = DType::u8;
  Reduce reduce = Reduce::sum;
  std::uint8_t unused = 0;
  std::int32_t root = 0;   ///< of a broadcast
  std::int64_t count = 0;  ///< elements of one part; of the tensor where there are no parts

  bool operator==(const Call&) const = default;
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(count) * size_of(dtype); }
};
static_assert(sizeof(Call) == 16);

/// "all_reduce(max) of 5 f32", "broadcast from rank 2 of 0 i64", "barrier".
std::string describe(const Call& call);

/// Throws RankError on each rank if the ranks' calls are not all the same. Its peer is the first
/// rank whose call is another one than that of `rank`.
void check_same(int rank, std::span<const Call> calls);

/// One rank's end of a group. One thread at a time calls it.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual std::string_view kind() const noexcept = 0;
  virtual double deadline() const noexcept = 0;
  /// Where tensors are.
  virtual Device device() const noexcept { return Device::cpu(); }

  /// Makes `call` with all others. `from` and `to` have `call.count` elements each, but for
  ///   all_reduce, broadcast   from == to
  ///   reduce_scatter          `from` has size() times as many; `to` is apart from it, or is its
  ///                           own part
  ///   all_gather              `to` has size() times as many; `from` is apart from it, or is its
  ///                           own part
  ///   all_to_all              both have size() times as many, and are apart
  /// Null pointers are only for nothing. Throws RankError, std::bad_alloc.
  virtual void run(const Call& call, const void* from, void* to) = 0;
  /// In a dry run: allocates and releases what run() would on device().
  virtual void plan(const Call&) {}

  /// Whether a call that threw may go on to read and write its memory. The memory must then live
  /// as long as the process.
  virtual bool keeps_memory() const noexcept { return false; }
};

}  // namespace firn::dist
