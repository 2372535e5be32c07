// Data sets that are derived from other data sets.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "data/collate.h"
#include "data/scramble.h"
#include "firn/data/dataset.h"
#include "firn/data/permutation.h"
#include "firn/ops/ops.h"

namespace firn::data {
namespace {

using Source = std::shared_ptr<const DatasetSource>;

// ---- Map ----

class Mapped : public DatasetSource {
 public:
  Mapped(Source set, std::function<Sample(Sample, Generator&)> fn)
      : set_(std::move(set)), fn_(std::move(fn)) {}

  std::int64_t size() const override { return set_->size(); }
  Sample get(std::int64_t index) const override { return take(index, {}); }
  Sample take(std::int64_t index, const DrawContext& context) const override {
    Sample sample = take_sample(*set_, index, context.inner());
    Generator own = context.generator(index);
    const GeneratorScope scope(own);
    return fn_(std::move(sample), own);
  }

 private:
  Source set_;
  std::function<Sample(Sample, Generator&)> fn_;
};

template <class Fn>
Source mapped(const Dataset& set, Fn fn) {
  require_function("Map", fn, "give a function of a sample");
  if constexpr (std::is_same_v<Fn, std::function<Sample(Sample)>>) {
    return std::make_shared<const Mapped>(
        set.source(), [fn = std::move(fn)](Sample s, Generator&) { return fn(std::move(s)); });
  } else {
    return std::make_shared<const Mapped>(set.source(), std::move(fn));
  }
}

// ---- Sets that select samples of other sets ----

/// Runs fn(), which collects samples `theirs` of another set as `ours` of this set. Changes the
/// number in a SampleError to this set's.
template <class Fn>
Sample collect_renumbered(std::span<const std::int64_t> theirs, std::span<const std::int64_t> ours,
                          Fn&& fn) {
  try {
    return fn();
  } catch (const SampleError& e) {
    const auto at = std::find(theirs.begin(), theirs.end(), e.index());
    if (at == theirs.end()) throw;
    throw e.renumbered(ours[static_cast<std::size_t>(at - theirs.begin())]);
  }
}

/// Selects samples of one set by a function of the index.
template <class Index>
class Selected : public DatasetSource {
 public:
  Selected(Source set, std::int64_t size, Index index)
      : set_(std::move(set)), size_(size), index_(std::move(index)) {}

  std::int64_t size() const override { return size_; }
  Sample get(std::int64_t index) const override { return set_->get(index_(index)); }
  Sample take(std::int64_t index, const DrawContext& context) const override {
    return take_sample(*set_, index_(index), context);
  }
  Sample collect(std::span<const std::int64_t> indices, const DrawContext& context) const override {
    std::vector<std::int64_t> theirs;
    theirs.reserve(indices.size());
    for (const std::int64_t i : indices) theirs.push_back(index_(i));
    return collect_renumbered(theirs, indices, [&] { return set_->collect(theirs, context); });
  }

 private:
  Source set_;
  std::int64_t size_;
  Index index_;
};

template <class Index>
Source selected(const Dataset& set, std::int64_t size, Index index) {
  return std::make_shared<const Selected<Index>>(set.source(), size, std::move(index));
}

Source chosen(const Dataset& set, std::vector<std::int64_t> indices) {
  const std::int64_t n = set.size();
  for (const std::int64_t i : indices)
    FIRN_CHECK(i >= 0 && i < n, "Subset", "samples count from 0", "index {} in a set of {} samples",
               i, n);
  const auto size = static_cast<std::int64_t>(indices.size());
  return selected(set, size, [list = std::move(indices)](std::int64_t i) {
    return list[static_cast<std::size_t>(i)];
  });
}

Source range(const Dataset& set, std::int64_t first, std::int64_t last) {
  FIRN_CHECK(first >= 0 && first <= last && last <= set.size(), "Subset",
             "0 <= first <= last <= size", "samples [{}, {}) of a set of {}", first, last,
             set.size());
  return selected(set, last - first, [first](std::int64_t i) { return first + i; });
}

class Joined : public DatasetSource {
 public:
  explicit Joined(std::vector<Source> parts) : parts_(std::move(parts)) {
    ends_.push_back(0);
    for (const Source& part : parts_)
      ends_.push_back(checked_sum("Concat", ends_.back(), part->size()));
  }

  std::int64_t size() const override { return ends_.back(); }
  Sample get(std::int64_t index) const override {
    const std::size_t p = part_of(index);
    return parts_[p]->get(index - ends_[p]);
  }
  Sample take(std::int64_t index, const DrawContext& context) const override {
    const std::size_t p = part_of(index);
    return take_sample(*parts_[p], index - ends_[p], context.inner(1 + p));
  }
  Sample collect(std::span<const std::int64_t> indices, const DrawContext& context) const override {
    // Row i of the batch is row place[i] of the concatenated batches of the parts.
    std::vector<std::int64_t> place(indices.size());
    std::vector<Sample> batches;
    std::int64_t rows = 0;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      std::vector<std::int64_t> ours, theirs;
      for (std::size_t i = 0; i < indices.size(); ++i) {
        if (indices[i] < ends_[p] || indices[i] >= ends_[p + 1]) continue;
        ours.push_back(indices[i]);
        theirs.push_back(indices[i] - ends_[p]);
        place[i] = rows++;
      }
      if (ours.empty()) continue;
      batches.push_back(collect_renumbered(
          theirs, ours, [&] { return parts_[p]->collect(theirs, context.inner(1 + p)); }));
      FIRN_CHECK(batches.back().size() == batches[0].size(), "Concat", "Map can add or drop fields",
                 "{} fields in one part, {} in another", batches[0].size(), batches.back().size());
    }
    if (batches.size() == 1) return batches[0];
    return in_order(batches, tensor(place, {rows}, Device::cpu()));
  }

 private:
  static Sample in_order(const std::vector<Sample>& batches, const Tensor& place) {
    Sample all;
    for (std::size_t f = 0; f < batches[0].size(); ++f) {
      std::vector<Tensor> pieces;
      for (const Sample& batch : batches) {
        pieces.push_back(batch[f]);
        FIRN_CHECK(pieces.back().dtype() == pieces[0].dtype(), "Concat", "cast one in a Map",
                   "field {} differs: {} in one part, {} in another", f, describe(pieces[0]),
                   describe(pieces.back()));
      }
      all.push_back(index_select(cat(pieces), 0, place));
    }
    return all;
  }
  std::size_t part_of(std::int64_t index) const {
    const auto after = std::upper_bound(ends_.begin(), ends_.end(), index);
    return static_cast<std::size_t>(after - ends_.begin()) - 1;
  }

  std::vector<Source> parts_;
  std::vector<std::int64_t> ends_;  // part p is [ends_[p], ends_[p + 1])
};

Source joined(const std::vector<Dataset>& sets) {
  FIRN_CHECK(!sets.empty(), "Concat", "give one data set or more", "there are no parts");
  std::vector<Source> parts;
  for (const Dataset& set : sets) parts.push_back(set.source());
  return std::make_shared<const Joined>(std::move(parts));
}

/// Cuts a random order into parts that end at `ends`.
std::vector<Dataset> cut(const Dataset& set, const std::vector<std::int64_t>& ends,
                         std::uint64_t seed) {
  const Permutation order(set.size(), seed_for(seed, Purpose::split));
  std::vector<Dataset> parts;
  std::int64_t first = 0;
  for (const std::int64_t end : ends) {
    parts.emplace_back(
        selected(set, end - first, [order, first](std::int64_t i) { return order[first + i]; }));
    first = end;
  }
  return parts;
}

}  // namespace

Map::Map(Dataset set, std::function<Sample(Sample)> fn) try : Dataset(mapped(set, std::move(fn))) {}
FIRN_OUT_OF_MEMORY("Map")

Map::Map(Dataset set, std::function<Sample(Sample, Generator&)> fn) try
    : Dataset(mapped(set, std::move(fn))) {}
FIRN_OUT_OF_MEMORY("Map")

Subset::Subset(Dataset set, std::vector<std::int64_t> indices) try
    : Dataset(chosen(set, std::move(indices))) {}
FIRN_OUT_OF_MEMORY("Subset")

Subset::Subset(Dataset set, std::int64_t first, std::int64_t last) try
    : Dataset(range(set, first, last)) {}
FIRN_OUT_OF_MEMORY("Subset")

Concat::Concat(std::vector<Dataset> parts) try : Dataset(joined(parts)) {}
FIRN_OUT_OF_MEMORY("Concat")

std::vector<Dataset> random_split(const Dataset& set, std::span<const double> fractions,
                                  std::uint64_t seed) try {
  const std::int64_t n = set.size();
  double sum = 0;
  std::vector<std::int64_t> ends;
  for (const double f : fractions) {
    FIRN_CHECK(f >= 0 && std::isfinite(f), "random_split", "give shares of the set, from 0 to 1",
               "{} is no fraction", f);
    sum += f;
    // Beyond 2^53 samples the product is rounded, and must not exceed n.
    const double end = std::round(std::min(sum, 1.0) * static_cast<double>(n));
    ends.push_back(end >= static_cast<double>(n) ? n : static_cast<std::int64_t>(end));
  }
  FIRN_CHECK(std::abs(sum - 1) <= 1e-6, "random_split", "add a part for the rest",
             "the fractions add up to {}, not to 1", sum);
  ends.back() = n;
  return cut(set, ends, seed);
}
FIRN_OUT_OF_MEMORY("random_split")

std::vector<Dataset> random_split(const Dataset& set, std::span<const std::int64_t> counts,
                                  std::uint64_t seed) try {
  std::int64_t sum = 0;
  std::vector<std::int64_t> ends;
  for (const std::int64_t count : counts) {
    FIRN_CHECK(count >= 0, "random_split", "a part has 0 samples or more", "a part of {} samples",
               count);
    ends.push_back(sum = checked_sum("random_split", sum, count));
  }
  FIRN_CHECK(sum == set.size(), "random_split", "add a part for the rest",
             "the parts have {} samples, the set has {}", sum, set.size());
  return cut(set, ends, seed);
}
FIRN_OUT_OF_MEMORY("random_split")

std::vector<Dataset> random_split(const Dataset& set, std::initializer_list<SplitPart> parts,
                                  std::uint64_t seed) try {
  std::vector<double> fractions;
  std::vector<std::int64_t> counts;
  for (const SplitPart& part : parts) {
    if (part.is_fraction())
      fractions.push_back(part.fraction());
    else
      counts.push_back(part.count());
  }
  FIRN_CHECK(fractions.empty() || counts.empty(), "random_split", "write 1.0 for all of the set",
             "{} fractions and {} numbers of samples", fractions.size(), counts.size());
  if (!fractions.empty()) return random_split(set, std::span<const double>(fractions), seed);
  return random_split(set, std::span<const std::int64_t>(counts), seed);
}
FIRN_OUT_OF_MEMORY("random_split")

}  // namespace firn::data
