// Collectives as calls of NCCL. Reductions of floats are firn's own, in the order of the ranks:
// NCCL's reductions promise no order, and its maxima leave out a NaN.
#include <algorithm>

#include "base/check.h"
#include "dist/nccl/world.h"
#include "kernels/combine.h"

namespace firn::dist {
namespace {

ncclDataType_t type_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    default:
      return ncclUint8;
  }
}

ncclRedOp_t op_of(Reduce reduce) noexcept {
  return reduce == Reduce::sum ? ncclSum : reduce == Reduce::max ? ncclMax : ncclMin;
}

kernels::CombineOp combine_of(Reduce reduce) noexcept {
  return reduce == Reduce::sum   ? kernels::CombineOp::sum
         : reduce == Reduce::max ? kernels::CombineOp::max
                                 : kernels::CombineOp::min;
}

}  // namespace

NcclSizes& nccl_sizes() noexcept {
  static NcclSizes sizes;
  return sizes;
}

/// Pieces of a reduction in the order of the ranks. In a piece of an all_reduce each rank adds up a
/// share of `share` elements, a multiple of 16 bytes. The elements behind the shares go to all
/// ranks, and each rank adds them up. In a reduce_scatter the share is the whole piece.
struct NcclWorld::Layout {
  Layout(const Call& call, int ranks) : count(call.count), ranks_(ranks) {
    size = static_cast<std::int64_t>(size_of(call.dtype));
    all = call.kind == CallKind::all_reduce;
    unit_ = 16 / size;
    length = std::max<std::int64_t>(1, nccl_sizes().piece / size / (all ? 1 : ranks));
  }
  std::int64_t share(std::int64_t elements) const {
    if (!all) return elements;
    if (elements * size * ranks_ <= nccl_sizes().whole) return 0;
    return elements / ranks_ / unit_ * unit_;
  }
  std::int64_t rest(std::int64_t elements) const {
    return all ? elements - ranks_ * share(elements) : 0;
  }
  std::int64_t scratch(std::int64_t elements) const {
    return (ranks_ - 1) * size * (share(elements) + rest(elements));
  }
  std::int64_t most_scratch() const {
    const std::int64_t first = std::min(length, count), last = count % length;
    return std::max(scratch(first), scratch(last));
  }

  std::int64_t count, size = 1, length = 1;
  bool all = true;

 private:
  std::int64_t ranks_, unit_ = 1;
};

/// Returns true if NCCL's own reduction gives the bits that are promised, or was asked for.
bool NcclWorld::by_engine(const Call& call) const noexcept {
  return !is_floating(call.dtype) || (call.reduce == Reduce::sum && !options_.exact_sums);
}

std::int64_t NcclWorld::scratch_bytes(const Call& call) const {
  if (call.kind == CallKind::barrier) return 1;
  if (call.kind > CallKind::reduce_scatter || by_engine(call)) return 0;
  return Layout(call, size_).most_scratch();
}

/// Calls fn(rank) for all other ranks, from the one after this, so that they get messages in turn.
void NcclWorld::for_others(const std::function<void(int)>& fn) const {
  for (int i = 1; i < size_; ++i) fn((rank_ + i) % size_);
}

void NcclWorld::queue(const Call& call, const std::byte* from, std::byte* to, std::byte* scratch,
                      Stream stream) {
  auto* const native = static_cast<cudaStream_t>(stream.handle);
  const auto count = static_cast<std::size_t>(call.count);
  const std::size_t part = call.bytes();
  const bool reduces = call.kind <= CallKind::reduce_scatter;
  if (reduces && !by_engine(call)) return by_order(call, from, to, scratch, stream);
  if (call.kind == CallKind::all_to_all) {
    const std::size_t own = part * static_cast<std::size_t>(rank_);
    copy_bytes(to + own, device_, from + own, device_, part);
    if (size_ == 1) return;
  }
  step(to_string(call.kind), describe(call), [&](Results& results) {
    switch (call.kind) {
      case CallKind::all_reduce:
        results.add("ncclAllReduce", lib_.ncclAllReduce(from, to, count, type_of(call.dtype),
                                                        op_of(call.reduce), comm_, native));
        return;
      case CallKind::reduce_scatter:
        results.add("ncclReduceScatter",
                    lib_.ncclReduceScatter(from, to, count, type_of(call.dtype), op_of(call.reduce),
                                           comm_, native));
        return;
      case CallKind::all_gather:
        results.add("ncclAllGather", lib_.ncclAllGather(from, to, part, ncclUint8, comm_, native));
        return;
      case CallKind::all_to_all:
        if (!results.add("ncclGroupStart", lib_.ncclGroupStart())) return;
        for_others([&](int r) {
          const std::size_t at = part * static_cast<std::size_t>(r);
          results.add("ncclSend", lib_.ncclSend(from + at, part, ncclUint8, r, comm_, native));
          results.add("ncclRecv", lib_.ncclRecv(to + at, part, ncclUint8, r, comm_, native));
        });
        results.add("ncclGroupEnd", lib_.ncclGroupEnd());
        return;
      case CallKind::broadcast:
        results.add("ncclBroadcast",
                    lib_.ncclBroadcast(from, to, part, ncclUint8, call.root, comm_, native));
        return;
      default:  // a barrier
        results.add("ncclAllReduce",
                    lib_.ncclAllReduce(scratch, scratch, 1, ncclUint8, ncclMax, comm_, native));
        return;
    }
  });
}

/// Queues both directions at once.
void NcclWorld::queue_messages(std::span<const Message> messages, Stream stream) {
  auto* const native = static_cast<cudaStream_t>(stream.handle);
  std::string what;
  for (const Message& t : messages) what += (what.empty() ? "" : ", ") + describe(t.call);
  step(to_string(messages.front().call.kind), what, [&](Results& results) {
    if (!results.add("ncclGroupStart", lib_.ncclGroupStart())) return;
    for (const Message& t : messages) {
      const std::size_t bytes = t.call.bytes();
      if (bytes == 0) continue;
      if (t.call.kind == CallKind::send)
        results.add("ncclSend",
                    lib_.ncclSend(t.from, bytes, ncclUint8, t.call.root, comm_, native));
      else
        results.add("ncclRecv", lib_.ncclRecv(t.to, bytes, ncclUint8, t.call.root, comm_, native));
    }
    results.add("ncclGroupEnd", lib_.ncclGroupEnd());
  });
}

/// Each rank receives its share of a piece from all others, combines it, and (all_reduce) all
/// gather the shares.
void NcclWorld::by_order(const Call& call, const std::byte* from, std::byte* to, std::byte* scratch,
                         Stream stream) {
  auto* const native = static_cast<cudaStream_t>(stream.handle);
  const char* const op = to_string(call.kind);
  const std::string what = describe(call);
  const Layout cut(call, size_);
  if (cut.all && size_ == 1) return;
  const auto row_of = [this](int r) { return r < rank_ ? r : r - 1; };
  for (std::int64_t first = 0; first < cut.count; first += cut.length) {
    const std::int64_t n = std::min(cut.length, cut.count - first);
    const std::int64_t share = cut.share(n), rest = cut.rest(n);
    const auto share_bytes = static_cast<std::size_t>(share * cut.size);
    const auto rest_bytes = static_cast<std::size_t>(rest * cut.size);
    std::byte* const rest_rows = scratch + (size_ - 1) * share * cut.size;
    // Rank r's share of this rank's input. The elements behind the shares begin at rest_at.
    const auto given = [&](int r) {
      return from + (cut.all ? first + share * r : cut.count * r + first) * cut.size;
    };
    const std::int64_t rest_at = (first + share * size_) * cut.size;
    if (size_ > 1)
      step(op, what, [&](Results& results) {
        if (!results.add("ncclGroupStart", lib_.ncclGroupStart())) return;
        const auto exchange = [&](const std::byte* out, std::byte* in, std::size_t bytes, int r) {
          if (bytes == 0) return;
          results.add("ncclSend", lib_.ncclSend(out, bytes, ncclUint8, r, comm_, native));
          results.add("ncclRecv", lib_.ncclRecv(in, bytes, ncclUint8, r, comm_, native));
        };
        for_others([&](int r) {
          exchange(given(r), scratch + row_of(r) * share * cut.size, share_bytes, r);
          exchange(from + rest_at, rest_rows + row_of(r) * rest * cut.size, rest_bytes, r);
        });
        results.add("ncclGroupEnd", lib_.ncclGroupEnd());
      });
    const auto combine = [&](const std::byte* own, const std::byte* rows, std::int64_t count,
                             std::byte* out) {
      kernels::cuda::combine(
          call.dtype, combine_of(call.reduce),
          {.own = own, .rows = rows, .rank = rank_, .ranks = size_, .count = count}, out, stream);
    };
    std::byte* const out = to + (cut.all ? first + share * rank_ : first) * cut.size;
    combine(given(rank_), scratch, share, out);
    if (rest > 0) combine(from + rest_at, rest_rows, rest, to + rest_at);
    if (cut.all && share > 0)
      step(op, what, [&](Results& results) {
        results.add("ncclAllGather", lib_.ncclAllGather(out, to + first * cut.size, share_bytes,
                                                        ncclUint8, comm_, native));
      });
  }
}

}  // namespace firn::dist
