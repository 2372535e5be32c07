#include "firn/metrics/classification.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "firn/io/record.h"
#include "firn/ops/ops.h"
#include "firn/ops/sort.h"
#include "metrics/classes.h"

namespace firn::metrics {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Returns a / b, or 0 if b is 0.
double share(double a, double b) { return b == 0 ? 0 : a / b; }

/// Checks the number of classes, before the number of sums is computed from it.
std::int64_t checked_classes(const char* name, std::int64_t classes) {
  FIRN_CHECK(classes > 1 && classes < (std::int64_t{1} << 24), name,
             "give the number of classes in the options", "classes = {}", classes);
  return classes;
}

}  // namespace

// The sums are hits and samples.
Accuracy::Accuracy(const Options& options) : SumMetric("Accuracy", i64, 2), options_(options) {
  FIRN_CHECK(options.top_k > 0, name(), "1 is the usual accuracy", "top_k = {}", options.top_k);
}

Tensor Accuracy::sums_of(const Tensor& output, const Tensor& target) const {
  const auto axis = class_axis(name(), output, target, 1, 0);
  const std::int64_t classes = axis ? output.size(*axis) : 2;
  FIRN_CHECK(options_.top_k == 1 || (axis && options_.top_k <= classes), name(),
             "top_k is at most the number of classes", "top_k = {} for output {}", options_.top_k,
             describe(output));
  const Tensor classes_of = class_numbers(name(), target, classes, options_.ignore_index);
  Tensor hits;
  if (options_.top_k == 1) {
    hits = eq(chosen_classes(output, axis), classes_of);
  } else {
    const Tensor first = topk(output, options_.top_k, *axis).indices;
    hits = eq(first, unsqueeze(reshape(classes_of, target.shape()), *axis));
  }
  return stack({sum(hits), sum(ge(classes_of, 0.0))});
}

std::vector<Value> Accuracy::figures(const std::vector<double>& sums) const {
  const std::string which =
      options_.top_k == 1 ? "accuracy" : fmt::format("top{}_accuracy", options_.top_k);
  return {{which, sums[0] / sums[1]}};
}

// The sums are the matrix, row by row.
Confusion::Confusion(const Options& options)
    : SumMetric("Confusion", i64, checked_classes("Confusion", options.classes) * options.classes),
      options_(options) {}

Tensor Confusion::sums_of(const Tensor& output, const Tensor& target) const {
  const std::int64_t classes = options_.classes;
  const auto axis = class_axis(name(), output, target, 1, classes);
  const Tensor t = class_numbers(name(), target, classes, options_.ignore_index);
  const Tensor cell = t * static_cast<double>(classes) + chosen_classes(output, axis);
  return class_counts(name(), where(lt(t, 0.0), -1.0, cell), classes * classes);
}

std::vector<std::vector<std::int64_t>> Confusion::matrix() const try {
  const auto classes = static_cast<std::size_t>(options_.classes);
  const std::vector<double> cells = sums();
  std::vector<std::vector<std::int64_t>> rows(classes, std::vector<std::int64_t>(classes));
  for (std::size_t i = 0; i < cells.size(); ++i)
    rows[i / classes][i % classes] = static_cast<std::int64_t>(cells[i]);
  return rows;
}
FIRN_OUT_OF_MEMORY(name())

void Confusion::add_details(io::Record& details) const try {
  const auto rows = matrix();
  details.add("confusion", std::span<const std::vector<std::int64_t>>(rows));
}
FIRN_OUT_OF_MEMORY(name())

std::vector<Value> Confusion::figures(const std::vector<double>& sums) const {
  const auto classes = static_cast<std::size_t>(options_.classes);
  std::vector<Value> out;
  double all = 0;
  for (const double n : sums) all += n;
  for (std::size_t t = 0; t < classes; ++t) {
    double samples = 0;
    for (std::size_t p = 0; p < classes; ++p) samples += sums[t * classes + p];
    out.push_back({fmt::format("class_accuracy_{}", t),
                   all == 0 ? kNaN : share(sums[t * classes + t], samples)});
  }
  return out;
}

// The sums are the hits of each class, then the samples of each class, then the choices.
PrecisionRecallF1::PrecisionRecallF1(const Options& options)
    : SumMetric("PrecisionRecallF1", i64,
                3 * checked_classes("PrecisionRecallF1", options.classes)),
      options_(options) {
  FIRN_CHECK(options.average <= Average::none, name(), "macro, micro, weighted or none",
             "average = {}", static_cast<int>(options.average));
}

Tensor PrecisionRecallF1::sums_of(const Tensor& output, const Tensor& target) const {
  const std::int64_t classes = options_.classes;
  const auto axis = class_axis(name(), output, target, 1, classes);
  const Tensor t = class_numbers(name(), target, classes, options_.ignore_index);
  const Tensor chosen = where(lt(t, 0.0), -1.0, chosen_classes(output, axis));
  return cat({class_counts(name(), where(eq(t, chosen), t, -1.0), classes),
              class_counts(name(), t, classes), class_counts(name(), chosen, classes)});
}

std::vector<Value> PrecisionRecallF1::figures(const std::vector<double>& sums) const {
  const auto classes = static_cast<std::size_t>(options_.classes);
  struct Counts {
    double hits = 0, samples = 0, choices = 0;
    double precision() const { return share(hits, choices); }
    double recall() const { return share(hits, samples); }
    double f1() const { return share(2 * hits, samples + choices); }
  };
  std::vector<Counts> of(classes);
  Counts all;
  for (std::size_t c = 0; c < classes; ++c) {
    of[c] = {sums[c], sums[classes + c], sums[2 * classes + c]};
    all.hits += of[c].hits;
    all.samples += of[c].samples;
    all.choices += of[c].choices;
  }
  if (options_.average == Average::none) {
    std::vector<Value> out;
    const auto add = [&](const char* figure, double (Counts::*value)() const) {
      for (std::size_t c = 0; c < classes; ++c)
        out.push_back(
            {fmt::format("{}_{}", figure, c), all.samples == 0 ? kNaN : (of[c].*value)()});
    };
    add("precision", &Counts::precision);
    add("recall", &Counts::recall);
    add("f1", &Counts::f1);
    return out;
  }
  const auto averaged = [&](double (Counts::*value)() const) {
    if (all.samples == 0) return kNaN;
    if (options_.average == Average::micro) return (all.*value)();
    double total = 0, weights = 0;
    for (const Counts& c : of) {
      const bool there = c.samples + c.choices > 0;
      const double weight = options_.average == Average::weighted ? c.samples : there ? 1 : 0;
      total += weight * (c.*value)();
      weights += weight;
    }
    return total / weights;
  };
  return {{"precision", averaged(&Counts::precision)},
          {"recall", averaged(&Counts::recall)},
          {"f1", averaged(&Counts::f1)}};
}

// The sums are that of -log p and the number of tokens.
Perplexity::Perplexity(const Options& options)
    : SumMetric("Perplexity", f64, 2), options_(options) {}

Tensor Perplexity::sums_of(const Tensor& output, const Tensor& target) const {
  FIRN_CHECK(output.shape() != target.shape(), name(),
             "the target has the output's shape without the axis of classes",
             "output {} has no axis of classes, target {}", describe(output), describe(target));
  const int axis = *class_axis(name(), output, target, options_.axis, 0);
  const std::int64_t classes = output.size(axis), rows = target.numel();
  const Tensor t = class_numbers(name(), target, classes, options_.ignore_index);
  Axes order;
  for (int a = 0; a < output.rank(); ++a)
    if (a != axis) order.push_back(a);
  order.push_back(axis);
  const Tensor logits = reshape(permute(output, order), {rows, classes});
  const Tensor at = unsqueeze(maximum(t, 0.0), 1);
  // Takes as many rows at once as have 16 MiB of logits in f64.
  const std::int64_t together = std::max<std::int64_t>(1, (std::int64_t{1} << 21) / classes);
  Tensor total = zeros({}, f64, output.device());
  for (std::int64_t r = 0; r < rows; r += together) {
    const std::int64_t end = std::min(rows, r + together);
    const Tensor log_p = log_softmax(cast(slice(logits, 0, r, end), f64));
    const Tensor terms = neg(gather(log_p, 1, slice(at, 0, r, end))).squeeze(1);
    total = total + sum(where(ge(slice(t, 0, r, end), 0.0), terms, 0.0));
  }
  return stack({total, cast(sum(ge(t, 0.0)), f64)});
}

std::vector<Value> Perplexity::figures(const std::vector<double>& sums) const {
  return {{"perplexity", std::exp(sums[0] / sums[1])}};
}

}  // namespace firn::metrics
