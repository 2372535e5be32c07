// Collectives between processes. Reductions are firn's own, in the order of the ranks: MPI's
// reductions promise neither an order nor a result for NaN.
#include <algorithm>
#include <cstring>

#include "dist/combine.h"
#include "dist/mpi/world.h"

namespace firn::dist {
namespace {

constexpr int kEven = 2, kOdd = 3;  // tags of even and odd pieces, which are in flight at once
constexpr std::int64_t kMostRows = 32 << 20,
                       kLeastShare = 4096;  // bytes: rows of a piece; a share with many ranks

/// Calls fn(rank) for all other ranks, from the one after `own`, so that they get messages in turn.
template <class Fn>
void for_others(int own, int size, const Fn& fn) {
  for (int i = 1; i < size; ++i) fn((own + i) % size);
}

void put(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// Pieces of a reduction. In a piece each rank has a share, for which it receives the others'
/// elements, one row from each.
struct Pieces {
  Pieces(const Call& call, int ranks) : call_(call), ranks_(ranks) {
    const auto size = static_cast<std::int64_t>(size_of(call.dtype));
    const std::int64_t bytes =
        std::min(mpi_sizes().share, std::max(kLeastShare, kMostRows / ranks));
    const std::int64_t share = std::max<std::int64_t>(1, bytes / size);
    length_ = call.kind == CallKind::all_reduce ? share * ranks : share;
    pieces_ = (call.count + length_ - 1) / length_;
  }
  std::int64_t size() const { return pieces_; }
  std::int64_t first(std::int64_t piece) const { return piece * length_; }
  std::int64_t count(std::int64_t piece) const {
    return std::min(length_, call_.count - first(piece));
  }
  /// Returns the element of a rank's input at which rank r's share of the piece begins. The share
  /// of an all_reduce is a part of the piece; that of a reduce_scatter lies in part r.
  std::int64_t begin(std::int64_t piece, int r) const {
    return call_.kind == CallKind::all_reduce
               ? first(piece) + share_begin(count(piece), call_.dtype, r, ranks_)
               : call_.count * r + first(piece);
  }
  std::int64_t share(std::int64_t piece, int r) const {
    return call_.kind == CallKind::all_reduce
               ? share_begin(count(piece), call_.dtype, r + 1, ranks_) -
                     share_begin(count(piece), call_.dtype, r, ranks_)
               : count(piece);
  }

 private:
  const Call& call_;
  int ranks_;
  std::int64_t length_ = 0, pieces_ = 0;
};

bool small(const Call& call, int ranks) {
  return call.kind == CallKind::all_reduce &&
         static_cast<std::int64_t>(call.bytes()) * ranks <= mpi_sizes().whole;
}

}  // namespace

MpiSizes& mpi_sizes() noexcept {
  static MpiSizes sizes;
  return sizes;
}

/// Allocates memory for the rows of two pieces, before the ranks exchange their calls.
void MpiWorld::take_memory(const Call& call) {
  if (call.kind > CallKind::reduce_scatter || call.count == 0 || size_ == 1) return;
  const auto grow = [](Buffer& buffer, std::int64_t bytes) {
    if (static_cast<std::int64_t>(buffer.size()) < bytes)
      buffer.resize(static_cast<std::size_t>(bytes));
  };
  if (fits_in_record(call)) return;
  if (small(call, size_)) return grow(even_rows_, static_cast<std::int64_t>(call.bytes()) * size_);
  const Pieces pieces(call, size_);
  const std::int64_t row = pieces.share(0, 0) * static_cast<std::int64_t>(size_of(call.dtype));
  grow(even_rows_, row * size_);
  if (pieces.size() > 1) grow(odd_rows_, row * size_);
}

void MpiWorld::send(const void* from, std::int64_t bytes, int to, int tag,
                    std::vector<MPI_Request>& requests) {
  if (bytes == 0) return;
  requests.push_back(MPI_REQUEST_NULL);
  ok(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, to, tag, data_, &requests.back()),
     "MPI_Isend");
}

void MpiWorld::receive(void* to, std::int64_t bytes, int from, int tag,
                       std::vector<MPI_Request>& requests) {
  if (bytes == 0) return;
  requests.push_back(MPI_REQUEST_NULL);
  ok(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, from, tag, data_, &requests.back()),
     "MPI_Irecv");
}

void MpiWorld::all_gather(const std::byte* from, std::byte* to, std::int64_t part) {
  put(to + part * rank_, from, part);
  for (std::int64_t at = 0; at < part; at += mpi_sizes().message) {
    const std::int64_t n = std::min(part - at, mpi_sizes().message);
    for_others(rank_, size_, [&](int r) { receive(to + part * r + at, n, r, kEven, even_); });
    for_others(rank_, size_, [&](int r) { send(from + at, n, r, kEven, even_); });
    wait(even_, true);
  }
}

void MpiWorld::all_to_all(const std::byte* from, std::byte* to, std::int64_t part) {
  put(to + part * rank_, from + part * rank_, part);
  for (std::int64_t at = 0; at < part; at += mpi_sizes().message) {
    const std::int64_t n = std::min(part - at, mpi_sizes().message);
    for_others(rank_, size_, [&](int r) { receive(to + part * r + at, n, r, kEven, even_); });
    for_others(rank_, size_, [&](int r) { send(from + part * r + at, n, r, kEven, even_); });
    wait(even_, true);
  }
}

void MpiWorld::broadcast(std::byte* x, std::int64_t bytes, int root) {
  for (std::int64_t at = 0; at < bytes; at += mpi_sizes().message) {
    const std::int64_t n = std::min(bytes - at, mpi_sizes().message);
    even_.resize(1);
    ok(MPI_Ibcast(x + at, static_cast<int>(n), MPI_BYTE, root, data_, even_.data()), "MPI_Ibcast");
    wait(even_, true);
  }
}

/// Returns true if the data is small enough to travel with the ranks' calls, in their records.
bool MpiWorld::fits_in_record(const Call& call) noexcept {
  return call.bytes() <= sizeof(Record::given) &&
         (call.kind == CallKind::all_reduce || call.kind == CallKind::all_gather ||
          call.kind == CallKind::broadcast);
}

void MpiWorld::take_from_records(const Call& call, std::byte* to) {
  const auto part = static_cast<std::int64_t>(call.bytes());
  const auto given = [&](int r) {
    return records_[static_cast<std::size_t>((r - rank_ + size_) % size_)].given;
  };
  if (part == 0) return;
  if (call.kind == CallKind::broadcast) return put(to, given(call.root), part);
  for (int r = 0; r < size_; ++r) {
    if (call.kind == CallKind::all_gather) put(to + part * r, given(r), part);
    rows_[static_cast<std::size_t>(r)] = given(r);
  }
  if (call.kind == CallKind::all_gather) return;
  void* const target[] = {to};
  combine_all(call.dtype, call.reduce, rows_, 0, target, 0, call.count);
}

void MpiWorld::reduce_whole(const Call& call, std::byte* x) {
  const auto bytes = static_cast<std::int64_t>(call.bytes());
  all_gather(x, even_rows_.data(), bytes);
  for (int r = 0; r < size_; ++r)
    rows_[static_cast<std::size_t>(r)] = even_rows_.data() + bytes * r;
  void* const to[] = {x};
  combine_all(call.dtype, call.reduce, rows_, 0, to, 0, call.count);
}

/// Each rank receives its share of a piece from all others, combines it, and (all_reduce) sends it
/// to them. The next piece is in flight meanwhile.
void MpiWorld::reduce(const Call& call, const std::byte* from, std::byte* to) {
  if (size_ == 1) return put(to, from, static_cast<std::int64_t>(call.bytes()));
  if (small(call, size_)) return reduce_whole(call, to);
  const Pieces pieces(call, size_);
  const auto size = static_cast<std::int64_t>(size_of(call.dtype));
  const bool all = call.kind == CallKind::all_reduce;
  const auto rows = [&](std::int64_t piece) {
    return (piece % 2 == 0 ? even_rows_ : odd_rows_).data();
  };
  const auto requests = [&](std::int64_t piece) -> std::vector<MPI_Request>& {
    return piece % 2 == 0 ? even_ : odd_;
  };
  const auto scatter = [&](std::int64_t piece) {
    const int tag = piece % 2 == 0 ? kEven : kOdd;
    const std::int64_t row = pieces.share(piece, rank_) * size;
    for_others(rank_, size_,
               [&](int r) { receive(rows(piece) + row * r, row, r, tag, requests(piece)); });
    for_others(rank_, size_, [&](int r) {
      send(from + pieces.begin(piece, r) * size, pieces.share(piece, r) * size, r, tag,
           requests(piece));
    });
  };
  const auto gather = [&](std::int64_t piece) {
    const int tag = piece % 2 == 0 ? kEven : kOdd;
    for_others(rank_, size_, [&](int r) {
      receive(to + pieces.begin(piece, r) * size, pieces.share(piece, r) * size, r, tag,
              requests(piece));
    });
    for_others(rank_, size_, [&](int r) {
      send(to + pieces.begin(piece, rank_) * size, pieces.share(piece, rank_) * size, r, tag,
           requests(piece));
    });
  };
  scatter(0);
  for (std::int64_t piece = 0; piece < pieces.size(); ++piece) {
    wait(requests(piece), true);
    if (piece + 1 < pieces.size()) {
      wait(requests(piece + 1), true);  // the previous piece's gather, which used this buffer
      scatter(piece + 1);
    }
    const std::int64_t share = pieces.share(piece, rank_);
    for (int r = 0; r < size_; ++r)
      rows_[static_cast<std::size_t>(r)] =
          r == rank_ ? from + pieces.begin(piece, r) * size : rows(piece) + share * size * r;
    void* const target[] = {to + (all ? pieces.begin(piece, rank_) : pieces.first(piece)) * size};
    combine_all(call.dtype, call.reduce, rows_, 0, target, 0, share);
    if (all) gather(piece);
  }
  wait(even_, true);
  wait(odd_, true);
}

}  // namespace firn::dist
