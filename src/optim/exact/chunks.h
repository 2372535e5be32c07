// The tree in which exact mode adds (StepOptions::exact). Chunks 0, 1, 2, ... of the batch are the
// leaves of a binary tree. A node covers 2^k chunks, the first of which is a multiple of 2^k, and
// is the sum of its two halves. The nodes that are left at the end are added from the right. So the
// number of chunks alone fixes the order of all additions. A rank with consecutive chunks can add
// up the nodes within them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace firn::optim {

/// A node, which covers chunks [first, first + count).
struct ChunkRange {
  std::int64_t first = 0, count = 1;
};

/// Returns true if two neighbours are the halves of a node.
inline bool are_halves(const ChunkRange& left, const ChunkRange& right) noexcept {
  return left.count == right.count && left.first + left.count == right.first &&
         left.first % (2 * left.count) == 0;
}

/// The nodes that remain when consecutive chunks are added up as far as possible, with their
/// values. Grows to the right. An Add is called as add(left, right), and sets left to the sum of
/// both.
template <class Value>
class ChunkStack {
 public:
  struct Entry {
    ChunkRange range;
    Value value;
  };

  /// After this, push() allocates nothing until there are more than `count` entries.
  void reserve(std::size_t count) { entries_.reserve(count); }

  template <class Add>
  void push(ChunkRange range, Value value, const Add& add) {
    entries_.push_back({range, std::move(value)});
    while (entries_.size() > 1 && are_halves(entries_[entries_.size() - 2].range, range)) {
      merge_last(add);
      range = entries_.back().range;
    }
  }
  /// Returns the sum of all entries. They must cover chunks from 0 on.
  template <class Add>
  Value& fold(const Add& add) {
    while (entries_.size() > 1) merge_last(add);
    return entries_.front().value;
  }

  const std::vector<Entry>& entries() const noexcept { return entries_; }
  std::vector<Entry>& entries() noexcept { return entries_; }
  void clear() noexcept { entries_.clear(); }

 private:
  template <class Add>
  void merge_last(const Add& add) {
    Entry right = std::move(entries_.back());
    entries_.pop_back();
    add(entries_.back().value, right.value);
    entries_.back().range.count += right.range.count;
  }

  std::vector<Entry> entries_;
};

/// The items that a rank adds up, in this order: chunks to compute, and nodes that are done.
struct ChunkWork {
  struct Item {
    ChunkRange range;
    std::ptrdiff_t done = -1;  ///< index of the finished node; -1: a chunk is to be computed
  };
  std::vector<Item> items;
  std::int64_t to_compute = 0;
};

/// Returns the work of a rank with chunks [first, last), given the finished nodes in ascending
/// order. A finished node belongs to the rank that has its first chunk.
inline ChunkWork work_of(std::int64_t first, std::int64_t last,
                         const std::vector<ChunkRange>& done = {}) {
  ChunkWork out;
  std::size_t next = 0;
  for (std::int64_t q = first; q < last;) {
    while (next < done.size() && done[next].first + done[next].count <= q) ++next;
    if (next < done.size() && done[next].first <= q) {
      if (done[next].first == q)
        out.items.push_back({done[next], static_cast<std::ptrdiff_t>(next)});
      q = done[next].first + done[next].count;
    } else {
      out.items.push_back({{q++, 1}, -1});
      ++out.to_compute;
    }
  }
  return out;
}

/// The nodes that remain of a rank's work, and the largest number of nodes at a time.
struct ChunkPlan {
  std::vector<ChunkRange> nodes;
  std::size_t most = 0;
};

inline ChunkPlan plan_chunks(const ChunkWork& work) {
  struct None {};
  ChunkPlan out;
  ChunkStack<None> stack;
  for (const auto& item : work.items) {
    out.most = std::max(out.most, stack.entries().size() + 1);
    stack.push(item.range, None{}, [](None&, const None&) {});
  }
  for (const auto& e : stack.entries()) out.nodes.push_back(e.range);
  return out;
}

}  // namespace firn::optim
