#include "io/run/streams.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "firn/random.h"
#include "firn/runtime/kernel_support.h"

namespace firn::io {

std::vector<Tensor> streams_of_ranks(const autograd::Peers* copies, std::vector<Tensor> mine) {
  if (!copies || copies->size() == 1 || mine.empty() || runtime::dry_run()) return mine;
  const auto streams = static_cast<std::int64_t>(mine.size());
  const std::int64_t ranks = copies->size();
  const Tensor own = empty({streams, 2}, i64, Device::cpu()),
               all = empty({ranks, streams, 2}, i64, Device::cpu());
  constexpr std::size_t kBytes = 2 * sizeof(std::int64_t);
  auto* const words = own.mutable_view().as<std::int64_t>();
  for (std::size_t i = 0; i < mine.size(); ++i)
    std::memcpy(words + 2 * i, mine[i].view().data, kBytes);
  copies->all_gather(own, all);
  for (std::int64_t i = 0; i < streams; ++i) {
    const auto of_rank = [&](std::int64_t r) {
      return all.view().as<std::int64_t>() + 2 * (r * streams + i);
    };
    const Tensor rows = empty({ranks, 2}, i64, Device::cpu());
    bool same = true;
    for (std::int64_t r = 0; r < ranks; ++r) {
      same = same && std::equal(of_rank(r), of_rank(r) + 2, of_rank(0));
      std::memcpy(rows.mutable_view().as<std::int64_t>() + 2 * r, of_rank(r), kBytes);
    }
    if (!same) mine[static_cast<std::size_t>(i)] = rows;
  }
  return mine;
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
