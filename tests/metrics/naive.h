// The metrics by plain loops in double, straight from their definitions.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "support/values.h"

namespace firn::testing {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Samples: a row of `classes` logits each (1: two classes), and the class.
struct Samples {
  std::int64_t classes = 2, n = 0;
  std::vector<double> logits;
  std::vector<double> targets;

  double logit(std::int64_t i, std::int64_t c) const {
    return logits[static_cast<std::size_t>(i * classes + c)];
  }
  std::int64_t target(std::int64_t i) const {
    return static_cast<std::int64_t>(targets[static_cast<std::size_t>(i)]);
  }
  std::int64_t chosen(std::int64_t i) const {
    if (classes == 1) return logit(i, 0) > 0 ? 1 : 0;
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < classes; ++c)
      if (logit(i, c) > logit(i, best)) best = c;
    return best;
  }
  /// Samples [begin, end) as tensors: logits [n, C], or [n] for one column; classes [n] i64.
  Tensor output(std::int64_t begin, std::int64_t end, DType t = f32,
                Layout layout = Layout::contiguous, Device device = default_device()) const {
    const auto from = logits.begin() + begin * classes, to = logits.begin() + end * classes;
    const Shape shape = classes == 1 ? Shape{end - begin} : Shape{end - begin, classes};
    return make(std::vector<double>(from, to), shape, t, layout, device);
  }
  Tensor target_of(std::int64_t begin, std::int64_t end, DType t = i64,
                   Device device = default_device()) const {
    return make(std::vector<double>(targets.begin() + begin, targets.begin() + end), {end - begin},
                t, Layout::contiguous, device);
  }
};

/// Random logits in steps of `step`, which f16 holds; so some are equal. A part of the targets is
/// `ignored`, if that is not the default.
inline Samples drawn(std::int64_t n, std::int64_t classes, std::uint64_t seed, double step = 0.25,
                     std::int64_t ignored = -1000) {
  Rng rng(seed);
  Samples s{classes, n, {}, {}};
  const std::int64_t numbers = classes == 1 ? 2 : classes;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t t = rng.below(numbers);
    for (std::int64_t c = 0; c < classes; ++c) {
      const double own = (classes == 1 ? t == 1 : c == t) ? 0.5 : 0;
      s.logits.push_back(own + step * static_cast<double>(rng.below(17) - 8));
    }
    const bool left_out = ignored != -1000 && rng.below(4) == 0;
    s.targets.push_back(static_cast<double>(left_out ? ignored : t));
  }
  return s;
}

using Figures = std::map<std::string, double>;

inline Figures figures_of(const metrics::Metric& metric) {
  Figures out;
  for (const metrics::Value& v : metric.values()) out[v.name] = v.value;
  return out;
}

namespace naive {

inline double accuracy(const Samples& s, std::int64_t k, std::int64_t ignored) {
  double hits = 0, n = 0;
  for (std::int64_t i = 0; i < s.n; ++i) {
    const std::int64_t t = s.target(i);
    if (t == ignored) continue;
    n += 1;
    if (k == 1) {
      hits += s.chosen(i) == t ? 1 : 0;
      continue;
    }
    std::int64_t before = 0;  // classes that come before the target
    for (std::int64_t c = 0; c < s.classes; ++c)
      before += s.logit(i, c) > s.logit(i, t) || (s.logit(i, c) == s.logit(i, t) && c < t) ? 1 : 0;
    hits += before < k ? 1 : 0;
  }
  return hits / n;
}

inline std::vector<std::vector<std::int64_t>> confusion(const Samples& s, std::int64_t ignored) {
  const auto classes = static_cast<std::size_t>(s.classes == 1 ? 2 : s.classes);
  std::vector<std::vector<std::int64_t>> m(classes, std::vector<std::int64_t>(classes));
  for (std::int64_t i = 0; i < s.n; ++i) {
    if (s.target(i) == ignored) continue;
    ++m[static_cast<std::size_t>(s.target(i))][static_cast<std::size_t>(s.chosen(i))];
  }
  return m;
}

/// precision, recall and f1 of one class against the rest.
inline std::vector<double> of_class(const std::vector<std::vector<std::int64_t>>& m,
                                    std::size_t c) {
  double tp = static_cast<double>(m[c][c]), fp = 0, fn = 0;
  for (std::size_t o = 0; o < m.size(); ++o) {
    if (o == c) continue;
    fn += static_cast<double>(m[c][o]);
    fp += static_cast<double>(m[o][c]);
  }
  const auto ratio = [](double a, double b) { return b == 0 ? 0 : a / b; };
  return {ratio(tp, tp + fp), ratio(tp, tp + fn), ratio(2 * tp, 2 * tp + fp + fn)};
}

/// Pairs in the right order, ties one half, of all pairs.
inline double auroc(const std::vector<double>& scores, const std::vector<bool>& positive) {
  double right = 0, pairs = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (!positive[i] || positive[j]) continue;
      pairs += 1;
      right += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  return right / pairs;
}

inline double probability(const Samples& s, std::int64_t i, std::int64_t c) {
  double top = s.logit(i, 0), sum = 0;
  for (std::int64_t k = 1; k < s.classes; ++k) top = std::max(top, s.logit(i, k));
  for (std::int64_t k = 0; k < s.classes; ++k) sum += std::exp(s.logit(i, k) - top);
  return std::exp(s.logit(i, c) - top) / sum;
}

inline double auroc(const Samples& s) {
  double total = 0;
  for (std::int64_t c = 0; c < s.classes; ++c) {
    std::vector<double> scores;
    std::vector<bool> positive;
    for (std::int64_t i = 0; i < s.n; ++i) {
      scores.push_back(s.classes == 1 ? s.logit(i, 0) : probability(s, i, c));
      positive.push_back(s.target(i) == (s.classes == 1 ? 1 : c));
    }
    total += auroc(scores, positive);
  }
  return total / static_cast<double>(s.classes);
}

inline double perplexity(const Samples& s, std::int64_t ignored) {
  double sum = 0, n = 0;
  for (std::int64_t i = 0; i < s.n; ++i) {
    if (s.target(i) == ignored) continue;
    sum -= std::log(probability(s, i, s.target(i)));
    n += 1;
  }
  return std::exp(sum / n);
}

}  // namespace naive
}  // namespace firn::testing
