// Random integers, choices and noise: ranges, frequencies, seeds, gradients, refusals.
#include <cmath>
#include <set>

#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

/// Of n trials of probability p, a count within 5 standard deviations.
void check_count(double count, double n, double p) {
  INFO(count << " of " << n << ", probability " << p);
  CHECK(std::abs(count - n * p) <= 5 * std::sqrt(n * p * (1 - p)) + 1);
}

std::vector<double> frequencies(const Tensor& classes, std::int64_t n) {
  return values_of(bincount(flatten(classes), {.min_length = n}));
}

TEST_CASE("randint is uniform over its range, in every dtype that holds it") {
  Generator g(1);
  for (const DType t : {i64, i32, u8, f32}) {
    const Tensor x = randint(3, 8, {50, 100}, {.dtype = t, .generator = &g});
    CHECK(x.dtype() == t);
    const auto counts = frequencies(x.to(i64), 8);
    REQUIRE(counts.size() == 8);
    for (std::size_t i = 0; i < 8; ++i) check_count(counts[i], 5000, i < 3 ? 0 : 0.2);
  }
  const Tensor wide =
      randint(-(std::int64_t{1} << 31), std::int64_t{1} << 31, {1000}, {.generator = &g});
  CHECK(min(wide).item() < -(1 << 30));
  CHECK(max(wide).item() > (1 << 30));
  expect_same("one value", values_of(randint(-7, -6, {3})), {-7, -7, -7});
  CHECK(randint(0, 2, {0}).numel() == 0);
}

TEST_CASE("bernoulli, categorical and multinomial draw by their probabilities") {
  Generator g(2);
  const std::vector<double> p = {0.1, 0, 0.6, 0.3};
  const std::int64_t n = on_slow_device() ? 200 : 4000;
  for (const DType t : {f32, f64, f16}) {
    const Tensor probabilities = make(p, {4}, t);
    const Tensor rows = expand(unsqueeze(probabilities, 0), {n, 4});
    const auto of_bernoulli = values_of(sum(bernoulli(rows, g).to(f64), 0));
    const auto of_categorical = frequencies(categorical(log(rows), g), 4);
    const auto repeated = frequencies(multinomial(probabilities, n, true, g), 4);
    for (std::size_t i = 0; i < 4; ++i) {
      check_count(of_bernoulli[i], static_cast<double>(n), p[i]);
      check_count(of_categorical[i], static_cast<double>(n), p[i]);
      check_count(repeated[i], static_cast<double>(n), p[i]);
    }
    // Without replacement: no class twice, the first as with it, and weight 0 last.
    const Tensor order = multinomial(rows * 5, 4, false, g);
    CHECK(order.shape() == Shape{n, 4});
    const auto all = values_of(order);
    std::vector<double> first(4);
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const std::set<double> row(all.begin() + static_cast<std::ptrdiff_t>(4 * i),
                                 all.begin() + static_cast<std::ptrdiff_t>(4 * i + 4));
      if (row.size() != 4 || all[4 * i + 3] != 1) FAIL("row " << i);
      first[static_cast<std::size_t>(all[4 * i])] += 1;
    }
    for (std::size_t i = 0; i < 4; ++i) check_count(first[i], static_cast<double>(n), p[i]);
  }
  const Tensor odd = expand(make({-1, 1, std::nan(""), 1}, {1, 4}), {500, 4});
  for (const bool replacement : {true, false}) {
    const auto counts = frequencies(multinomial(odd, 2, replacement, g), 4);
    CHECK(counts[0] + counts[2] == 0);
    CHECK(counts[1] + counts[3] == 1000);
  }
  CHECK(frequencies(categorical(log(odd), g), 4)[2] == 0);
  expect_same("ends", values_of(bernoulli(make({-1, 0, 1, 2, std::nan("")}, {5}))),
              {0, 0, 1, 1, 0});
}

TEST_CASE("Gumbel noise has its mean and variance, and is finite") {
  Generator g(3);
  const std::int64_t n = on_slow_device() ? 2000 : 100'000;
  const double root = std::sqrt(static_cast<double>(n));
  const Tensor x = gumbel({n}, {.dtype = f64, .generator = &g});
  CHECK(mean(x).item() == Approx(0.5772156649).margin(5 * 1.2825 / root));
  CHECK(var(x).item() == Approx(1.6449340668).epsilon(5 * 2.1 / root));  // the kurtosis is 5.4
  CHECK(std::isfinite(sum(gumbel({n}, {.dtype = f16, .generator = &g}).to(f32)).item()));
}

TEST_CASE("gumbel_softmax: rows of a simplex, hard rows with the soft gradient") {
  const std::vector<double> logits = {0.5, -1, 2, 0, 0, 0};
  const auto run = [&](bool hard, double temperature) {
    Generator g(4);
    Tensor x = make(logits, {2, 3}, f64);
    x.set_requires_grad();
    const Tensor y = gumbel_softmax(x, {.temperature = temperature, .hard = hard, .generator = &g});
    sum(y * make({1, 2, 3, 4, 5, 6}, {2, 3}, f64)).backward();
    return std::pair(values_of(y), values_of(x.grad()));
  };
  const auto soft = run(false, 0.7), hard = run(true, 0.7);
  CHECK(soft.first[0] + soft.first[1] + soft.first[2] == Approx(1));
  expect_same("the gradient is the soft one", hard.second, soft.second);
  for (std::size_t row = 0; row < 2; ++row) {
    const auto begin = soft.first.begin() + static_cast<std::ptrdiff_t>(3 * row);
    const auto best = std::max_element(begin, begin + 3) - begin;
    for (std::ptrdiff_t i = 0; i < 3; ++i)
      CHECK(hard.first[3 * row + static_cast<std::size_t>(i)] == (i == best ? 1 : 0));
  }
}

TEST_CASE("gumbel_softmax has no NaN at low temperatures, in 16 bits too") {
  for (const DType t : {f16, bf16, f32, f64})
    for (const double temperature : {1e-3, 1e-5, 1e-30})
      for (const bool hard : {false, true}) {
        const Tensor y =
            gumbel_softmax(make({1, 2, 3}, {3}, t), {.temperature = temperature, .hard = hard});
        CHECK(y.dtype() == t);
        CHECK(sum(y.to(f64)).item() == Approx(1).epsilon(1e-2));
      }
}

TEST_CASE("[S29] what is drawn depends on the seed alone, not on threads") {
  const auto draw = [](int threads) {
    const Threads scope(threads);
    Generator g(5);
    const Tensor p = rand({on_slow_device() ? 10 : 100, 40}, {.generator = &g});
    const Tensor all[] = {randint(0, 1000, {on_slow_device() ? 500 : 5000}, {.generator = &g}),
                          bernoulli(p, g).to(i64).flatten(), categorical(p, g),
                          multinomial(p, 7, false, g).flatten(),
                          multinomial(p, 3, true, g).flatten()};
    return values_of(cat(std::span<const Tensor>(all)));
  };
  CHECK(draw(1) == draw(6));
  // The default stream moves on, and manual_seed() sets it.
  manual_seed(9);
  const auto a = values_of(randint(0, 1 << 20, {50})), b = values_of(randint(0, 1 << 20, {50}));
  manual_seed(9);
  CHECK(values_of(randint(0, 1 << 20, {50})) == a);
  CHECK(a != b);
}

TEST_CASE("sampling refuses what has no sense", "[host]") {
  const auto refused = [](auto&& call, const char* op, const char* what) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(op) != std::string::npos);
    CHECK(text.find(what) != std::string::npos);
  };
  refused([] { randint(3, 3, {2}); }, "[randint]", "low 3, high 3");
  refused([] { randint(0, std::int64_t{1} << 40, {2}); }, "[randint]", "high");
  refused([] { randint(0, 300, {2}, {.dtype = u8}); }, "[randint]", "299");
  refused([] { bernoulli(zeros({2}, i64)); }, "[bernoulli]", "floating");
  refused([] { gumbel({2}, {.dtype = i64}); }, "[gumbel]", "dtype");
  refused([] { categorical(zeros({})); }, "[categorical]", "has no classes");
  refused([] { categorical(zeros({2, 0})); }, "[categorical]", "has no classes");
  refused([] { multinomial(ones({3}), 4); }, "[multinomial]", "count is 4");
  refused([] { multinomial(ones({3}), -1, true); }, "[multinomial]", "count is -1");
  refused([] { gumbel_softmax(zeros({3}), {.temperature = 0}); }, "[gumbel_softmax]",
          "temperature is 0");
}

}  // namespace
}  // namespace firn::testing
