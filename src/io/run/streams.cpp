#include "io/run/streams.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "firn/random.h"
#include "firn/runtime/kernel_support.h"

namespace firn::io {

namespace {

constexpr std::size_t kBytes = 2 * sizeof(std::int64_t);  // seed and offset

}  // namespace

StreamsOfRanks::StreamsOfRanks(const autograd::Peers* copies, std::size_t streams)
    : copies_(copies && copies->size() > 1 && streams > 0 && !runtime::dry_run() ? copies
                                                                                 : nullptr) {
  if (!copies_) return;
  const auto n = static_cast<std::int64_t>(streams);
  const std::int64_t ranks = copies_->size();
  own_ = empty({n, 2}, i64, Device::cpu());
  all_ = empty({ranks, n, 2}, i64, Device::cpu());
  for (std::size_t i = 0; i < streams; ++i) rows_.push_back(empty({ranks, 2}, i64, Device::cpu()));
}

void StreamsOfRanks::set_own(std::size_t i, const Tensor& stream) const {
  if (copies_)
    std::memcpy(own_.mutable_view().as<std::int64_t>() + 2 * i, stream.view().data, kBytes);
}

void StreamsOfRanks::exchange() const {
  if (copies_) copies_->all_gather(own_, all_);
}

Tensor StreamsOfRanks::rows(std::size_t i) const {
  if (!copies_) return {};
  const auto of_rank = [&](std::size_t r) {
    return all_.view().as<std::int64_t>() + 2 * (r * rows_.size() + i);
  };
  bool same = true;
  for (std::size_t r = 0; r < static_cast<std::size_t>(copies_->size()); ++r) {
    same = same && std::equal(of_rank(r), of_rank(r) + 2, of_rank(0));
    std::memcpy(rows_[i].mutable_view().as<std::int64_t>() + 2 * r, of_rank(r), kBytes);
  }
  return same ? Tensor() : rows_[i];
}

bool is_stream(const Tensor& read) noexcept {
  const Shape& shape = read.shape();
  return read.dtype() == i64 &&
         (shape == Shape{2} || (shape.size() == 2 && shape[0] > 0 && shape[1] == 2));
}

Tensor stream_of_rank(const Tensor& read, int rank) {
  if (read.rank() == 1) return read;
  if (rank < read.size(0)) return read.select(0, rank);
  const Tensor own = empty({2}, i64, Device::cpu());
  const auto* const first = read.view().as<std::int64_t>();
  auto* const words = own.mutable_view().as<std::int64_t>();
  const auto seed = std::bit_cast<std::uint64_t>(first[0]);
  words[0] = std::bit_cast<std::int64_t>(
      Generator::of_thread(seed, static_cast<std::uint64_t>(rank)).get().seed);
  words[1] = first[1];
  return own;
}

}  // namespace firn::io
