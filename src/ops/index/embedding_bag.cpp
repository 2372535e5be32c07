// Bags of rows of a table: their sums, means and maxima.
#include <algorithm>
#include <cmath>

#include "firn/ops/elementwise.h"
#include "firn/ops/index.h"
#include "firn/ops/reduce.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "ops/common.h"

namespace firn {

using namespace ops;

namespace {

constexpr const char* kEmbeddingBag = "embedding_bag";

/// Throws unless the offsets of a list of n begin at 0 and never descend. Returns the length of the
/// longest bag. The host reads them.
std::int64_t longest_bag(const Tensor& offsets, std::int64_t n, bool includes_last) {
  std::vector<std::int64_t> starts = offsets.to_vector<std::int64_t>();
  if (starts.empty()) return 0;
  FIRN_CHECK(starts[0] == 0, kEmbeddingBag, "the first bag begins at the first element",
             "the first offset is {}", starts[0]);
  FIRN_CHECK(!includes_last || starts.back() == n, kEmbeddingBag,
             "or leave include_last_offset off",
             "the last offset is {}, not the length of the list, {}", starts.back(), n);
  if (!includes_last) starts.push_back(n);
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < starts.size(); ++i) {
    FIRN_CHECK(starts[i - 1] <= starts[i], kEmbeddingBag, "offsets are ascending",
               "offset {} is {}, beyond {} in a list of {}", i - 1, starts[i - 1], starts[i], n);
    longest = std::max(longest, starts[i] - starts[i - 1]);
  }
  return longest;
}

/// The bag of each of n elements, i64 [n]. Counts in f64 are exact.
Tensor bags_of(const Tensor& offsets, std::int64_t n) {
  const Tensor marks = scatter_add(zeros({n + 1}, f64, offsets.device()), 0, offsets,
                                   ones({offsets.numel()}, f64, offsets.device()));
  return cast(slice(cumsum(marks, 0), 0, 0, n), i64) - 1;
}

/// Returns the largest elements of the rows of index [bags, length] that count.
Tensor max_of_bags(const Tensor& table, const Tensor& index, const Tensor& counts) {
  if (index.numel() == 0)
    return zeros({index.size(0), table.size(1)}, table.dtype(), table.device());
  Tensor row;
  {
    const NoGrad guard;
    Tensor rows = embedding(table, index);
    if (counts.defined()) rows = where(unsqueeze(counts, 2), rows, -INFINITY);
    row = gather(index, 1, argmax(rows, 1));
  }
  const Tensor largest = gather(table, 0, row);
  return counts.defined() ? where(any(counts, 1, true), largest, 0) : largest;
}

void check(const Tensor& table, const Tensor& index, const EmbeddingBagOptions& o) {
  require_floating(kEmbeddingBag, table);
  require_index(kEmbeddingBag, index);
  FIRN_CHECK(table.rank() == 2 && table.size(0) > 0, kEmbeddingBag, "a row is a vector",
             "the table {} is not [n, d]", describe(table));
  FIRN_CHECK(index.device() == table.device(), kEmbeddingBag, "move one of them: index.to(device)",
             "devices differ: {} and index {}", describe(table), describe(index));
  const Tensor &offsets = o.offsets, &weights = o.per_sample_weights;
  FIRN_CHECK(index.rank() == 2 || (index.rank() == 1 && offsets.defined()), kEmbeddingBag,
             "or give a list with .offsets", "index {} is not [bags, length]", describe(index));
  if (offsets.defined()) {
    require_index(kEmbeddingBag, offsets);
    FIRN_CHECK(index.rank() == 1, kEmbeddingBag, "each row of the index is a bag",
               "offsets {} for index {}", describe(offsets), describe(index));
    FIRN_CHECK(offsets.rank() == 1 && offsets.device() == table.device() &&
                   (!o.include_last_offset || offsets.numel() > 0),
               kEmbeddingBag, "one place for each bag, on the same device",
               "offsets {} for index {}", describe(offsets), describe(index));
    FIRN_CHECK(offsets.numel() > 0 || index.numel() == 0, kEmbeddingBag,
               "the first bag begins at 0", "index {} without a bag", describe(index));
  }
  FIRN_CHECK(!o.include_last_offset || offsets.defined(), kEmbeddingBag,
             "it says how to read offsets",
             "include_last_offset is set without offsets for index {}", describe(index));
  require_named(kEmbeddingBag, "BagMode", o.mode, BagMode::max);
  if (weights.defined()) {
    FIRN_CHECK(o.mode == BagMode::sum, kEmbeddingBag, "take BagMode::sum",
               "per_sample_weights with mode {}", to_string(o.mode));
    require_same(kEmbeddingBag, table, weights);
    FIRN_CHECK(weights.shape() == index.shape(), kEmbeddingBag, "one factor for each index",
               "per_sample_weights {} for index {}", describe(weights), describe(index));
  }
  if (o.padding_idx)
    FIRN_CHECK(*o.padding_idx >= -table.size(0) && *o.padding_idx < table.size(0), kEmbeddingBag,
               "it is one of the rows", "padding_idx is {} of the table {}", *o.padding_idx,
               describe(table));
}

}  // namespace

const char* to_string(BagMode mode) noexcept {
  switch (mode) {
    case BagMode::sum:
      return "sum";
    case BagMode::mean:
      return "mean";
    case BagMode::max:
      return "max";
    default:
      return "unknown mode";
  }
}

Tensor embedding_bag(const Tensor& table, const Tensor& index, const EmbeddingBagOptions& o) {
  check(table, index, o);
  const bool in_rows = index.rank() == 2;
  const Tensor &offsets = o.offsets, &weights = o.per_sample_weights, list = flatten(index);
  const std::int64_t n = list.numel(), d = table.size(1);
  const std::int64_t bags =
      in_rows ? index.size(0) : offsets.numel() - (o.include_last_offset ? 1 : 0);
  Tensor counts;  // true for elements that count; undefined: all
  if (o.padding_idx) {
    const std::int64_t p = *o.padding_idx < 0 ? *o.padding_idx + table.size(0) : *o.padding_idx;
    counts = ne(list, static_cast<double>(p));
  }
  const bool read = !in_rows && (o.mode == BagMode::max || offsets.device() == Device::cpu());
  std::int64_t longest = n;
  if (read && !runtime::dry_run()) longest = longest_bag(offsets, n, o.include_last_offset);

  if (o.mode == BagMode::max) {
    if (in_rows)
      return max_of_bags(table, index, counts.defined() ? reshape(counts, index.shape()) : counts);
    if (autograd::wants_attributes()) [[unlikely]]
      thread_context.attributes->cannot_repeat(kEmbeddingBag, "the longest bag decides a shape",
                                               "give the bags as rows, filled up by padding_idx");
    if (n == 0 || bags == 0) return zeros({bags, d}, table.dtype(), table.device());
    // Bags as rows of the longest length.
    const Tensor first = unsqueeze(slice(cast(offsets, i64), 0, 0, bags), 1);
    const Tensor behind = bags > 1
                              ? cat({slice(first, 0, 1, bags),
                                     full({1, 1}, static_cast<double>(n), i64, first.device())},
                                    0)
                              : full({1, 1}, static_cast<double>(n), i64, first.device());
    const Tensor place = first + arange(longest, i64, first.device());
    const Tensor at = flatten(minimum(place, static_cast<double>(n - 1)));
    Tensor inside = lt(place, behind);
    if (counts.defined())
      inside = logical_and(inside, reshape(index_select(counts, 0, at), place.shape()));
    return max_of_bags(table, reshape(index_select(list, 0, at), place.shape()), inside);
  }

  const DType wide = compute_dtype(table.dtype());
  Tensor rows = cast(embedding(table, list), wide);
  if (counts.defined()) rows = where(unsqueeze(counts, 1), rows, 0);
  if (weights.defined()) rows = rows * unsqueeze(cast(flatten(weights), wide), 1);
  Tensor bag;
  if (!in_rows) bag = bags_of(offsets, n);
  const auto sums = [&](const Tensor& terms, std::int64_t columns) {
    if (in_rows) return sum(reshape(terms, {bags, index.size(1), columns}), 1);
    return index_add(zeros({bags, columns}, wide, table.device()), 0, bag, terms);
  };
  Tensor y = sums(rows, d);
  if (o.mode == BagMode::mean) {
    const Tensor of_each = sums(
        counts.defined() ? cast(unsqueeze(counts, 1), wide) : ones({n, 1}, wide, table.device()),
        1);
    y = y / maximum(of_each, 1);
  }
  return cast(y, table.dtype());
}

}  // namespace firn
