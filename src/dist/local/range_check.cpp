#include "dist/local/range_check.h"

#include <algorithm>

namespace firn::dist {
namespace {

/// The range seen so far that ends last, and the last one of any other rank.
class Furthest {
 public:
  void add(const std::byte* end, int rank) noexcept {
    if (rank == first_.rank) {
      first_.end = std::max(first_.end, end, std::less<>());
    } else if (std::less<>()(first_.end, end)) {
      second_ = std::exchange(first_, {end, rank});
    } else if (std::less<>()(second_.end, end)) {
      second_ = {end, rank};
    }
  }
  /// Returns a rank other than `rank` with a range that ends behind `begin`, or -1.
  int other_behind(const std::byte* begin, int rank) const noexcept {
    const End& other = first_.rank == rank ? second_ : first_;
    return std::less<>()(begin, other.end) ? other.rank : -1;
  }

 private:
  struct End {
    const std::byte* end = nullptr;
    int rank = -1;
  };
  End first_, second_;
};

}  // namespace

RangeCheck::RangeCheck(std::size_t ranges) { ranges_.reserve(ranges); }

void RangeCheck::add(int rank, const void* begin, std::size_t bytes, bool written) {
  if (bytes == 0) return;
  const auto* first = static_cast<const std::byte*>(begin);
  ranges_.push_back({first, first + bytes, rank, written});
}

std::optional<std::pair<int, int>> RangeCheck::conflict() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return std::less<>()(a.begin, b.begin); });
  Furthest all, written;
  for (const Range& r : ranges_) {
    const int other = (r.written ? all : written).other_behind(r.begin, r.rank);
    if (other >= 0) return std::minmax(r.rank, other);
    all.add(r.end, r.rank);
    if (r.written) written.add(r.end, r.rank);
  }
  return {};
}

}  // namespace firn::dist
