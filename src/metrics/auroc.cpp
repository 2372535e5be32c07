#include <algorithm>
#include <limits>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/dist/group.h"
#include "firn/metrics/classification.h"
#include "firn/ops/autocast.h"
#include "firn/ops/ops.h"
#include "firn/ops/sort.h"
#include "metrics/batch.h"
#include "metrics/classes.h"

namespace firn::metrics {
namespace {

constexpr const char* kName = "Auroc";
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Returns the area for one class. Scores are in ascending order with their classes; -1 marks a
/// sample that does not count. NaN if the class, or all others, have no sample, or if a score is
/// NaN.
double area(const std::vector<double>& scores, const std::vector<std::int64_t>& classes,
            std::int64_t of_class, bool& undefined) {
  double hits = 0, others = 0, twice = 0;  // `twice`: 2 x pairs in the right order; exact to 2^53
  for (std::size_t i = 0; i < scores.size();) {
    double hits_here = 0, others_here = 0;
    const double score = scores[i];
    do {
      if (classes[i] < 0) continue;
      if (scores[i] != scores[i]) return kNaN;
      (classes[i] == of_class ? hits_here : others_here) += 1;
    } while (++i < scores.size() && scores[i] == score);
    twice += hits_here * (2 * others + others_here);
    hits += hits_here;
    others += others_here;
  }
  undefined = hits == 0 || others == 0;
  return twice / (2 * hits * others);
}

}  // namespace

Auroc::Auroc(const Options& options) try : options_(options) {
  FIRN_CHECK(options.classes > 1, kName, "give the number of classes in the options",
             "classes = {}", options.classes);
}
FIRN_OUT_OF_MEMORY(kName)

Auroc::Samples Auroc::Samples::separate() const {
  Samples copy = *this;
  if (!own.scores.defined()) return copy;
  // All rows of the copy are in use: an update() that adds rows makes a larger block first.
  copy.own = {slice(own.scores, 0, 0, count), slice(own.classes, 0, 0, count)};
  return copy;
}

void Auroc::update(const Tensor& output, const Tensor& target) try {
  require_batch(kName, output, target, samples_->own.scores);
  FIRN_CHECK(target.rank() == 1, kName, "flatten it", "targets are a list, got {}",
             describe(target));
  const NoGrad no_grad;
  const NoAutocast no_autocast;
  const auto axis = class_axis(kName, output, target, 1, options_.classes);
  Tensor scores = cast(output.detach(), f64);
  if (!axis) {
    scores = unsqueeze(scores, 1);
  } else {
    if (options_.logits) scores = softmax(scores, 1);
    if (options_.classes == 2) scores = slice(scores, 1, 1, 2);
  }
  const Tensor classes =
      class_numbers(kName, target.detach(), options_.classes, options_.ignore_index);

  const std::int64_t count = samples_->count, all = count + classes.numel();
  Part own = samples_->own;
  if (!own.scores.defined() || own.scores.size(0) < all) {
    const std::int64_t rows = std::max(all, 2 * count);
    const Part larger{empty({rows, columns()}, f64, scores.device()),
                      empty({rows}, i64, scores.device())};
    if (count > 0) {
      copy_(slice(larger.scores, 0, 0, count), slice(own.scores, 0, 0, count));
      copy_(slice(larger.classes, 0, 0, count), slice(own.classes, 0, 0, count));
    }
    own = larger;
  }
  copy_(slice(own.scores, 0, count, all), scores);
  copy_(slice(own.classes, 0, count, all), classes);
  samples_.change() = {.own = own, .all = {}, .count = all};
}
FIRN_OUT_OF_MEMORY(kName)

void Auroc::reset() { samples_.change() = {}; }

void Auroc::combine(const dist::Group& group) try {
  const NoGrad no_grad;
  const NoAutocast no_autocast;
  const Device device = group.device();
  const Part& own = samples_->own;
  const std::int64_t rows = samples_->count, width = columns();
  const Tensor sizes = empty({group.size(), 2}, i64, device);
  group.all_gather(tensor({rows, width}, device), sizes);
  const auto of_rank = sizes.to_vector<std::int64_t>();
  std::int64_t most = 0;
  for (std::size_t r = 0; r < of_rank.size(); r += 2) {
    most = std::max(most, of_rank[r]);
    FIRN_CHECK(of_rank[r + 1] == of_rank[1], kName, "give all ranks' metrics the same options",
               "rank 0 has scores of {} columns, rank {} of {}", of_rank[1], r / 2, of_rank[r + 1]);
  }
  // Every rank sends the same number of rows; the rows that it lacks do not count.
  const Tensor scores = zeros({most, width}, f64, device);
  const Tensor classes = full({most}, -1, i64, device);
  if (rows > 0) {
    copy_(slice(scores, 0, 0, rows), slice(own.scores, 0, 0, rows).to(device));
    copy_(slice(classes, 0, 0, rows), slice(own.classes, 0, 0, rows).to(device));
  }
  const std::int64_t total = most * group.size();
  Part all{empty({total, width}, f64, device), empty({total}, i64, device)};
  group.all_gather(scores, all.scores);
  group.all_gather(classes, all.classes);
  samples_.change().all = all;
}
FIRN_OUT_OF_MEMORY(kName)

std::vector<Value> Auroc::values() const try {
  const NoGrad no_grad;
  const NoAutocast no_autocast;
  const Samples taken = samples_->separate();
  const Part& part = taken.all.scores.defined() ? taken.all : taken.own;
  if (!part.scores.defined()) return {{"auroc", kNaN}};
  double total = 0, areas = 0;
  for (std::int64_t c = 0; c < columns(); ++c) {
    const Sorted sorted = sort(select(part.scores, 1, c));
    const Tensor classes = index_select(part.classes, 0, sorted.indices);
    bool undefined = false;
    const double found = area(sorted.values.to_vector<double>(), classes.to_vector<std::int64_t>(),
                              columns() == 1 ? 1 : c, undefined);
    if (undefined) continue;
    total += found;
    areas += 1;
  }
  return {{"auroc", total / areas}};
}
FIRN_OUT_OF_MEMORY(kName)

}  // namespace firn::metrics
