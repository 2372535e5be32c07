#include "lm/tokenizer/merger.h"

#include <algorithm>
#include <queue>

namespace firn::lm::bpe {
namespace {

/// Pieces of at most this many symbols are searched for the lowest rank from the left to the right:
/// for them it is faster than a heap.
constexpr std::size_t kShort = 48;

using Found = MergeTable::Found;

void merge_short(const MergeTable& merges, Scratch& s) {
  std::vector<Id>& ids = s.symbols;
  std::size_t n = ids.size();
  if (s.pairs.size() < n) s.pairs.resize(n);
  Found* const pairs = s.pairs.data();
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = merges.find(ids[i], ids[i + 1]);
  while (n > 1) {
    std::size_t at = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[at].rank) at = i;
    if (pairs[at].rank == kNoRank) break;
    ids[at] = pairs[at].result;
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(at) + 2,
              ids.begin() + static_cast<std::ptrdiff_t>(n),
              ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    for (std::size_t i = at + 1; i + 2 < n; ++i) pairs[i] = pairs[i + 1];
    --n;
    if (at > 0) pairs[at - 1] = merges.find(ids[at - 1], ids[at]);
    if (at + 1 < n) pairs[at] = merges.find(ids[at], ids[at + 1]);
  }
  ids.resize(n);
}

/// Symbols as a list with links, and a heap of the merges of neighbours.
class LongPiece {
 public:
  LongPiece(const MergeTable& merges, std::vector<Id>& ids) : merges_(merges), ids_(ids) {
    const std::size_t n = ids.size();
    before_.resize(n);
    after_.resize(n);
    pairs_.resize(n);
    for (std::size_t i = 0; i < n; ++i) before_[i] = i - 1, after_[i] = i + 1;  // the first: wraps
    for (std::size_t i = 0; i + 1 < n; ++i) look(i);
  }

  void run() {
    while (!heap_.empty()) {
      const auto [rank, at] = heap_.top();
      heap_.pop();
      if (pairs_[at].rank != rank) continue;  // one of the two has become another symbol since
      const std::size_t gone = after_[at];
      ids_[at] = pairs_[at].result;
      pairs_[gone] = {};
      ids_[gone] = kNone;
      after_[at] = after_[gone];
      if (after_[at] < ids_.size()) before_[after_[at]] = at;
      look(at);
      if (before_[at] < ids_.size()) look(before_[at]);
    }
    std::erase(ids_, kNone);
  }

 private:
  /// Looks for the merge of a symbol and the one after it.
  void look(std::size_t at) {
    pairs_[at] = after_[at] < ids_.size() ? merges_.find(ids_[at], ids_[after_[at]]) : Found{};
    if (pairs_[at].rank != kNoRank) heap_.push({pairs_[at].rank, at});
  }

  using Entry = std::pair<std::uint32_t, std::size_t>;
  const MergeTable& merges_;
  std::vector<Id>& ids_;
  std::vector<std::size_t> before_, after_;
  std::vector<Found> pairs_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
};

}  // namespace

void merge_symbols(const MergeTable& merges, Scratch& scratch) {
  if (scratch.symbols.size() <= kShort) return merge_short(merges, scratch);
  LongPiece(merges, scratch.symbols).run();
}

}  // namespace firn::lm::bpe
