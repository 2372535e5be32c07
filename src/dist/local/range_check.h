// RangeCheck finds memory that one rank writes and another reads or writes. Ranks that are threads
// can give one tensor to a collective that needs one of each rank.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace firn::dist {

class RangeCheck {
 public:
  /// Throws std::bad_alloc; add() needs no memory for up to `ranges` ranges.
  explicit RangeCheck(std::size_t ranges);

  void clear() noexcept { ranges_.clear(); }
  void add(int rank, const void* begin, std::size_t bytes, bool written);
  /// Returns two ranks of which one writes memory of the other, or nullopt.
  std::optional<std::pair<int, int>> conflict();

 private:
  struct Range {
    const std::byte *begin, *end;
    int rank;
    bool written;
  };
  std::vector<Range> ranges_;
};

}  // namespace firn::dist
