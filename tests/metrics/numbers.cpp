// Metrics of scores and numbers: area under the curve, perplexity, errors of regression.
#include "metrics/naive.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using metrics::Auroc;
using metrics::Perplexity;

double only(const metrics::Metric& metric) {
  const auto values = metric.values();
  REQUIRE(values.size() == 1);
  return values[0].value;
}

TEST_CASE("metrics of numbers: the examples of scikit-learn's pages", "[metrics]") {
  Auroc auroc;
  auroc.update(make({0.1, 0.4, 0.35, 0.8}, {4}, f32), make({0, 0, 1, 1}, {4}, i64));
  CHECK(only(auroc) == 0.75);
  const Tensor t = make({3, -0.5, 2, 7}, {4}, f32), y = make({2.5, 0.0, 2, 8}, {4}, f32);
  metrics::MeanAbsoluteError mae;
  metrics::RootMeanSquaredError rmse;
  metrics::R2 r2;
  mae.update(y, t);
  rmse.update(y, t);
  r2.update(y, t);
  CHECK(mae.values()[0].name == "mae");
  CHECK(only(mae) == 0.5);
  CHECK(only(rmse) == Approx(std::sqrt(0.375)).epsilon(1e-15));
  CHECK(only(r2) == Approx(1 - 1.5 / 29.1875).epsilon(1e-14));
}

TEST_CASE("auroc equals the share of pairs, with ties", "[metrics]") {
  for (const std::int64_t classes : {1, 2, 3, 6}) {
    Samples s = drawn(90, classes, 3 + static_cast<std::uint64_t>(classes));
    if (classes > 1) {
      // Probabilities that should be equal may differ by rounding: none are.
      Rng rng(6);
      for (double& v : s.logits) v += rng.uniform(-0.1, 0.1);
      s.logits = rounded(s.logits, f16);
    }
    for (const DType t : {f16, f32, f64}) {
      for (const Layout layout : {Layout::contiguous, Layout::stepped}) {
        INFO(classes << " columns, " << to_string(t));
        Auroc auroc({.classes = std::max<std::int64_t>(classes, 2)});
        auroc.update(s.output(0, 90, t, layout), s.target_of(0, 90));
        CHECK(only(auroc) == Approx(naive::auroc(s)).epsilon(1e-12));
      }
    }
  }
  // Scores as they are: no softmax makes them comparable between samples.
  const Samples s = drawn(70, 3, 4);
  Auroc plain({.classes = 3, .logits = false});
  plain.update(s.output(0, 70), s.target_of(0, 70));
  double want = 0;
  for (std::int64_t c = 0; c < 3; ++c) {
    std::vector<double> scores;
    std::vector<bool> positive;
    for (std::int64_t i = 0; i < 70; ++i) {
      scores.push_back(s.logit(i, c));
      positive.push_back(s.target(i) == c);
    }
    want += naive::auroc(scores, positive) / 3;
  }
  CHECK(only(plain) == Approx(want).epsilon(1e-14));
}

TEST_CASE("auroc: one class alone, absent classes, NaN, ignored samples", "[metrics]") {
  Auroc auroc;
  CHECK(std::isnan(only(auroc)));
  auroc.update(zeros({0}), zeros({0}, i64));
  CHECK(std::isnan(only(auroc)));
  auroc.update(make({1, 2}, {2}, f32), make({1, 1}, {2}, i64));
  CHECK(std::isnan(only(auroc)));  // no pair
  auroc.update(make({1, 0}, {2}, f32), make({0, 0}, {2}, boolean));
  CHECK(only(auroc) == 0.875);
  auroc.update(make({kNaN}, {1}, f32), make({0}, {1}, i64));
  CHECK(std::isnan(only(auroc)));
  // A NaN that does not count hides nothing.
  Auroc ignoring({.ignore_index = 7});
  ignoring.update(make({2, 1, kNaN, 3}, {4}, f32), make({1, 0, 7, 7}, {4}, i64));
  CHECK(only(ignoring) == 1);
  Auroc three({.classes = 3, .logits = false});
  three.update(make({2, 0, 5, 1, 3, 5}, {2, 3}, f32), make({0, 1}, {2}, i64));
  CHECK(only(three) == 1);  // class 2 is left out
  // What it keeps are its own copies.
  Tensor scores = make({2, 1}, {2}, f64);
  Auroc copies;
  copies.update(scores, make({1, 0}, {2}, i64));
  scores.fill_(0);
  CHECK(only(copies) == 1);
  const std::string message = error_of([] {
    Auroc({.classes = 3}).update(zeros({2, 4, 3}), zeros({2, 4}, i64));
  });
  CHECK(message.find("[2, 4] i64") != std::string::npos);
}

TEST_CASE("perplexity equals plain loops, over chunks of rows too", "[metrics]") {
  for (const std::int64_t ignored : {std::int64_t{-1000}, std::int64_t{-100}}) {
    const Samples s = drawn(120, 9, 2, 0.25, ignored);
    const std::optional<std::int64_t> ignore =
        ignored == -100 ? std::optional<std::int64_t>(-100) : std::nullopt;
    const double want = naive::perplexity(s, ignored);
    for (const DType t : {f16, bf16, f32, f64}) {
      Perplexity flat({.ignore_index = ignore}), deep({.ignore_index = ignore});
      flat.update(s.output(0, 120, t), s.target_of(0, 120));
      CHECK(only(flat) == Approx(want).epsilon(1e-12));
      deep.update(reshape(s.output(0, 120, t, Layout::stepped), {4, 30, 9}),
                  reshape(s.target_of(0, 120), {4, 30}));
      CHECK(only(deep) == Approx(want).epsilon(1e-12));
    }
    Perplexity first({.ignore_index = ignore, .axis = 1});
    first.update(transpose(reshape(s.output(0, 120), {4, 30, 9}), 1, 2),
                 reshape(s.target_of(0, 120), {4, 30}));
    CHECK(only(first) == Approx(want).epsilon(1e-12));
  }
  Perplexity perplexity;
  CHECK(std::isnan(only(perplexity)));
  // 2^21 / 700,001 classes: two rows at a time. All logits are equal.
  perplexity.update(expand(zeros({1, 1}), {5, 700'001}), make({0, 5, 700'000, 1, 2}, {5}, i64));
  CHECK(only(perplexity) == Approx(700'001).epsilon(1e-12));
  // A logit that is not finite reaches no token that does not count.
  Perplexity ignoring({.ignore_index = 0});
  ignoring.update(make({kNaN, 1, 0, 0}, {2, 2}, f32), make({0, 1}, {2}, i64));
  CHECK(only(ignoring) == Approx(2).epsilon(1e-14));
  CHECK(error_of([&] { perplexity.update(zeros({3}), zeros({3}, i64)); }).find("[Perplexity]") ==
        0);
}

TEST_CASE("errors of regression equal plain loops, and r2 keeps its digits", "[metrics]") {
  Rng rng(1);
  for (const double offset : {0.0, 1e8}) {
    std::vector<double> y, t;
    for (int i = 0; i < 300; ++i) {
      t.push_back(offset + rng.uniform(-1, 1));
      y.push_back(t.back() + rng.uniform(-0.3, 0.3));
    }
    long double mae = 0, squares = 0, mean = 0, spread = 0;
    for (std::size_t i = 0; i < 300; ++i) {
      mae += std::abs(y[i] - t[i]);
      squares += (y[i] - t[i]) * (y[i] - t[i]);
      mean += static_cast<long double>(t[i]) / 300;
    }
    for (const double v : t) spread += (v - mean) * (v - mean);
    metrics::MeanAbsoluteError m;
    metrics::RootMeanSquaredError r;
    metrics::R2 r2;
    for (const auto& [begin, end] :
         std::vector<std::pair<int, int>>{{0, 7}, {7, 7}, {7, 250}, {250, 300}}) {
      const std::vector<double> some_y(y.begin() + begin, y.begin() + end);
      const std::vector<double> some_t(t.begin() + begin, t.begin() + end);
      for (metrics::Metric* metric : std::initializer_list<metrics::Metric*>{&m, &r, &r2})
        metric->update(make(some_y, {end - begin}, f64, Layout::stepped),
                       make(some_t, {end - begin}, f64));
    }
    CHECK(only(m) == Approx(static_cast<double>(mae / 300)).epsilon(1e-12));
    CHECK(only(r) == Approx(std::sqrt(static_cast<double>(squares / 300))).epsilon(1e-12));
    // Means are rounded to 2^-53 of the offset, beside distances of about 1.
    const double bound = 1e-13 + 4 * offset * 0x1p-53;
    CHECK(only(r2) == Approx(static_cast<double>(1 - squares / spread)).epsilon(bound));
  }
}

TEST_CASE("regression: no sample, one sample, equal targets, other dtypes", "[metrics]") {
  metrics::R2 r2;
  metrics::MeanAbsoluteError mae;
  metrics::RootMeanSquaredError rmse;
  for (int round = 0; round < 2; ++round) {
    CHECK(std::isnan(only(r2)));
    CHECK(std::isnan(only(mae)));
    CHECK(std::isnan(only(rmse)));
    r2.update(zeros({0}), zeros({0}));
    mae.update(zeros({0}), zeros({0}));
    rmse.update(zeros({0}), zeros({0}));
  }
  r2.update(ones({1}), ones({1}));
  CHECK(std::isnan(only(r2)));
  r2.update(ones({1}), ones({1}));
  CHECK(only(r2) == 1);
  r2.update(zeros({1}), ones({1}));
  CHECK(only(r2) == 0);
  mae.update(make({1, 2, 3, 4}, {2, 2}, f16), make({0, 4, 3, 1}, {2, 2}, i64));
  CHECK(only(mae) == 1.5);
  CHECK(error_of([&] {
          mae.update(zeros({2, 1}), zeros({2}));
        }).find("[2, 1] f32") != std::string::npos);
  CHECK(only(mae) == 1.5);
}

}  // namespace
}  // namespace firn::testing
