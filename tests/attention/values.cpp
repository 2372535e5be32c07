// Values and gradients of attention beside plain loops, for all options and sizes.
#include <cmath>

#include "reference.h"
#include "support/catch.h"
#include "support/device/slow_device.h"

namespace firn::testing {
namespace {

const AttentionCase kSizes[] = {
    {.b = 1, .hq = 1, .hk = 1, .n = 1, .m = 1, .d = 1, .dv = 1},
    {.b = 2, .hq = 2, .hk = 2, .n = 5, .m = 5, .d = 3, .dv = 3},
    {.b = 2, .hq = 4, .hk = 2, .n = 7, .m = 18, .d = 8, .dv = 5},
    {.b = 1, .hq = 3, .hk = 1, .n = 33, .m = 9, .d = 4, .dv = 16},
    {.b = 1, .hq = 1, .hk = 1, .n = 1, .m = 70, .d = 17, .dv = 2},
    {.b = 1, .hq = 2, .hk = 2, .n = 67, .m = 66, .d = 16, .dv = 33},
};

}  // namespace

TEST_CASE("attention: every combination of options in f32 is within 2e-6 of plain loops") {
  for (const AttentionCase& sizes : kSizes) {
    for (int set = 0; set < 32; set += fewer(5)) {
      AttentionCase c = sizes;
      Rng rng(seed_of(sizes.name() + std::to_string(set)));
      c.take_options(set, rng);
      check_results(c, f32, 2e-6);
    }
  }
}

TEST_CASE("attention: every combination of options in f64 is within 1e-13 of plain loops") {
  for (int set = 0; set < 32; ++set) {
    AttentionCase c = kSizes[2];
    Rng rng(seed_of("f64" + std::to_string(set)));
    c.take_options(set, rng);
    check_results(c, f64, 1e-13);
  }
}

TEST_CASE("attention: sizes that are no multiple of a block, and many blocks", "[long]") {
  for (int set : {0, 1, 3, 9, 20, 31}) {
    AttentionCase c{.b = 1, .hq = 4, .hk = 2, .n = 193, .m = 261, .d = 20, .dv = 72};
    Rng rng(seed_of("blocks" + std::to_string(set)));
    c.take_options(set, rng);
    check_results(c, f32, 2e-6);
    std::swap(c.n, c.m);
    c.lengths.clear();
    c.mask.clear();
    check_results(c, f32, 2e-6);
  }
  check_results({.b = 1, .hq = 1, .hk = 1, .n = 300, .m = 300, .d = 129, .dv = 200, .causal = true},
                f32, 2e-6);
}

TEST_CASE("attention: 16-bit results err at most twice as much as the composed form") {
  for (const DType dtype : {f16, bf16}) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t n : {16, 67, 130}) {
        if (on_slow_device() && n != 67) continue;
        AttentionCase c{.b = 2, .hq = 4, .hk = 2, .n = n, .m = n, .d = 32, .dv = 24};
        c.causal = causal;
        INFO(c.name() << " " << to_string(dtype));
        Rng rng(seed_of(c.name()));
        const AttentionValues x = random_values(c, rng, dtype);
        const AttentionResults want = reference(c, x), got = run_attention(c, x, dtype),
                               composed = run_composed(c, x, dtype);
        CHECK(relative_error(got.o, want.o) <= 2 * relative_error(composed.o, want.o));
        CHECK(relative_error(got.dq, want.dq) <= 2 * relative_error(composed.dq, want.dq));
        CHECK(relative_error(got.dk, want.dk) <= 2 * relative_error(composed.dk, want.dk));
        CHECK(relative_error(got.dv, want.dv) <= 2 * relative_error(composed.dv, want.dv));
      }
    }
  }
}

TEST_CASE("attention: any finite scale") {
  for (const double scale : {0.0, -0.7, 1.0, 30.0, -1e30, 1e-30}) {
    AttentionCase c{.b = 1, .hq = 2, .hk = 1, .n = 9, .m = 11, .d = 4, .dv = 3};
    c.scale = scale;
    // With 1e30 a row takes its largest score alone; its gradients are 0 times a large number.
    if (std::abs(scale) < 100) {
      check_results(c, f64, 1e-12);
      continue;
    }
    INFO("scale " << scale);
    Rng rng(1);
    const AttentionValues x = random_values(c, rng, f32);
    CHECK(relative_error(run_attention(c, x, f32).o, reference(c, x).o) <= 1e-6);
  }
}

TEST_CASE("attention: hidden pairs stay hidden for a scale of 0 or less") {
  for (const double scale : {0.0, -0.7}) {
    AttentionCase c{.b = 2, .hq = 2, .hk = 1, .n = 19, .m = 33, .d = 4, .dv = 3};
    Rng rng(seed_of("scale"));
    c.take_options(1 + 4 + 8, rng);
    c.scale = scale;
    check_results(c, f64, 1e-12);
    check_results(c, f32, 2e-6);
  }
}

TEST_CASE("attention: gradients equal central differences in f64") {
  AttentionCase c{.b = 2, .hq = 4, .hk = 2, .n = 5, .m = 6, .d = 3, .dv = 4};
  Rng rng(seed_of("central"));
  c.take_options(1 + 2 + 8 + 16, rng);
  AttentionValues x = random_values(c, rng, f64);
  const AttentionResults analytic = run_attention(c, x, f64);
  const auto objective = [&] {
    const NoGrad guard;
    Generator generator;
    const Tensor o = attention(make(x.q, c.q_shape()), make(x.k, c.k_shape()),
                               make(x.v, c.v_shape()), options_of(c, generator));
    return (o * make(x.dout, c.o_shape())).sum().item();
  };
  const auto compare = [&](std::vector<double>& values, const std::vector<double>& all) {
    std::vector<double> grad, want;
    for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(fewer(7))) {
      double& value = values[i];
      const double before = value, h = 1e-5;
      value = before + h;
      const double up = objective();
      value = before - h;
      const double down = objective();
      value = before;
      grad.push_back((up - down) / (2 * h));
      want.push_back(all[i]);
    }
    CHECK(relative_error(want, grad) <= 1e-6);
  };
  compare(x.q, analytic.dq);
  compare(x.k, analytic.dk);
  compare(x.v, analytic.dv);
}

TEST_CASE("attention: sizes of 0") {
  const auto shape_of = [](const AttentionCase& c) {
    const AttentionResults r =
        run_attention(c,
                      {std::vector<double>(static_cast<std::size_t>(c.q_shape().product()), 1),
                       std::vector<double>(static_cast<std::size_t>(c.k_shape().product()), 1),
                       std::vector<double>(static_cast<std::size_t>(c.v_shape().product()), 2),
                       std::vector<double>(static_cast<std::size_t>(c.o_shape().product()), 1)},
                      f32);
    return r;
  };
  // No keys: every query gives 0.
  const AttentionResults none =
      shape_of({.b = 2, .hq = 2, .hk = 1, .n = 3, .m = 0, .d = 4, .dv = 2});
  CHECK(none.o == std::vector<double>(24, 0.0));
  CHECK(none.dq == std::vector<double>(48, 0.0));
  // No queries: the keys get the gradient 0.
  const AttentionResults no_query =
      shape_of({.b = 1, .hq = 2, .hk = 1, .n = 0, .m = 3, .d = 4, .dv = 2});
  CHECK(no_query.dk == std::vector<double>(12, 0.0));
  CHECK(no_query.dv == std::vector<double>(6, 0.0));
  // No depth: all scores are 0, so a query gives the mean of the values.
  const AttentionResults flat =
      shape_of({.b = 1, .hq = 1, .hk = 1, .n = 2, .m = 3, .d = 0, .dv = 2});
  expect_close("mean", flat.o, std::vector<double>(4, 2.0), 1e-6);
  expect_close("dv", flat.dv, std::vector<double>(6, 2.0 / 3), 1e-6);
  shape_of({.b = 0, .hq = 1, .hk = 1, .n = 2, .m = 3, .d = 4, .dv = 2});
  shape_of({.b = 1, .hq = 0, .hk = 0, .n = 2, .m = 3, .d = 4, .dv = 2});
  shape_of({.b = 1, .hq = 1, .hk = 1, .n = 2, .m = 3, .d = 4, .dv = 0});
}

}  // namespace firn::testing
