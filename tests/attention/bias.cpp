// A bias of the scores: values and gradients beside plain loops, for every way to broadcast.
#include <cmath>
#include <limits>
#include <optional>

#include "reference.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/device/slow_device.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

const double kNan = std::nan(""), kInf = std::numeric_limits<double>::infinity();

/// Every way in which a bias broadcasts to [b, hq, n, m].
std::vector<Shape> forms(const AttentionCase& c) {
  return {{c.b, c.hq, c.n, c.m},
          {1, c.hq, c.n, c.m},
          {c.hq, c.n, c.m},
          {c.b, 1, c.n, c.m},
          {c.n, c.m},
          {c.b, 1, 1, c.m},
          {c.b, c.hq, 1, c.m},
          {c.hq, 1, c.m},
          {c.m},
          {c.b, 1, c.n, 1},
          {c.n, 1},
          {c.b, c.hq, 1, 1},
          {1, 1, 1, 1},
          {}};
}

void check(const AttentionCase& c, DType dtype, double bound) {
  INFO(c.name() << " " << to_string(dtype));
  const auto [got, want] = check_results(c, dtype, bound);
  if (c.m > 1 && (c.bias_shape.empty() || c.bias_shape.back() == 1)) {
    // One number for all keys changes no probability: the gradient is 0, a sum of larger terms.
    const double rows = static_cast<double>(c.b * c.hq * c.n) / static_cast<double>(c.bias.size());
    expect_close("dbias", got.dbias, want.dbias, bound * rows);
  } else {
    CHECK(relative_error(got.dbias, want.dbias) <= bound);
  }
}

}  // namespace

TEST_CASE("attention: a bias of every form, with all options, equals plain loops") {
  const AttentionCase sizes[] = {{.b = 2, .hq = 4, .hk = 2, .n = 7, .m = 18, .d = 8, .dv = 5},
                                 {.b = 3, .hq = 2, .hk = 1, .n = 67, .m = 70, .d = 16, .dv = 33}};
  for (const AttentionCase& size : sizes) {
    int set = 0;
    for (const Shape& form : forms(size)) {
      set = (set + 5) % 32;
      if (on_slow_device() && size.n > 60 && set % 4 != 0) continue;
      AttentionCase c = size;
      Rng rng(seed_of("bias" + std::to_string(set)));
      c.take_options(set, rng);
      c.take_bias(form, rng);
      check(c, f64, 1e-12);
      check(c, f32, 2e-6);
    }
  }
}

TEST_CASE("attention: a bias over many blocks, whose sums are cut into parts or not", "[long]") {
  AttentionCase c{.b = 2, .hq = 4, .hk = 2, .n = 293, .m = 361, .d = 20, .dv = 24};
  for (const Shape& form : forms(c)) {
    Rng rng(seed_of("blocks"));
    AttentionCase each = c;
    each.take_options(form.size() % 2 ? 1 : 2, rng);
    each.take_bias(form, rng);
    check(each, f32, 2e-6);
  }
}

TEST_CASE("attention: 16-bit results with a bias err at most twice as much as the composed form") {
  for (const DType dtype : {f16, bf16}) {
    for (const DType bias_dtype : {dtype, f32}) {
      AttentionCase c{.b = 2, .hq = 4, .hk = 2, .n = 67, .m = 67, .d = 32, .dv = 24};
      c.bias_dtype = bias_dtype;
      Rng rng(seed_of("16 bits"));
      c.take_bias({c.hq, c.n, c.m}, rng);
      c.bias = rounded(c.bias, dtype);  // as the composed form rounds it
      INFO(c.name() << " " << to_string(dtype) << " " << to_string(bias_dtype));
      const AttentionValues x = random_values(c, rng, dtype);
      const AttentionResults want = reference(c, x), got = run_attention(c, x, dtype),
                             composed = run_composed(c, x, dtype);
      CHECK(relative_error(got.o, want.o) <= 2 * relative_error(composed.o, want.o));
      CHECK(relative_error(got.dq, want.dq) <= 2 * relative_error(composed.dq, want.dq));
      CHECK(relative_error(got.dk, want.dk) <= 2 * relative_error(composed.dk, want.dk));
      CHECK(relative_error(got.dv, want.dv) <= 2 * relative_error(composed.dv, want.dv));
      CHECK(relative_error(got.dbias, want.dbias) <=
            2 * relative_error(composed.dbias, want.dbias));
    }
  }
}

TEST_CASE("attention: a bias in f32 is not rounded to 16 bits, nor is its gradient") {
  // 300 and 301 are one number in bf16.
  const Tensor q = zeros({1, 1, 1, 1}, bf16), v = tensor({0.f, 1.f}, {1, 1, 2, 1}).to(bf16);
  const Tensor bias = tensor({300.f, 301.f}).set_requires_grad();
  const Tensor o = attention(q, v, v, {.bias = bias, .scale = 1.0});
  const double p = 1 / (1 + std::exp(-1.0));
  CHECK(o.item() == Approx(p).epsilon(0.005));
  backward(o);
  CHECK(bias.grad().dtype() == f32);
  CHECK(values_of(bias.grad())[1] == Approx(p * (1 - o.item())).epsilon(1e-5));
}

TEST_CASE("attention: the gradient of a bias equals central differences in f64") {
  AttentionCase c{.b = 2, .hq = 4, .hk = 2, .n = 5, .m = 6, .d = 3, .dv = 4};
  for (const Shape& form : forms(c)) {
    AttentionCase each = c;
    Rng rng(seed_of("central"));
    each.take_options(1 + 4 + 16, rng);
    each.take_bias(form, rng);
    INFO(each.name());
    const AttentionValues x = random_values(each, rng, f64);
    const AttentionResults analytic = run_attention(each, x, f64);
    const auto objective = [&] {
      const NoGrad guard;
      Generator generator;
      const Tensor o = attention(make(x.q, c.q_shape()), make(x.k, c.k_shape()),
                                 make(x.v, c.v_shape()), options_of(each, generator));
      return (o * make(x.dout, c.o_shape())).sum().item();
    };
    std::vector<double> grad, want;
    for (std::size_t i = 0; i < each.bias.size(); i += static_cast<std::size_t>(fewer(7))) {
      double& value = each.bias[i];
      const double before = value, h = 1e-5;
      value = before + h;
      const double up = objective();
      value = before - h;
      const double down = objective();
      value = before;
      grad.push_back((up - down) / (2 * h));
      want.push_back(analytic.dbias[i]);
    }
    CHECK(relative_error(want, grad) <= 1e-6);
  }
}

TEST_CASE("attention: a bias of a hidden pair is not read, and gets the gradient 0") {
  for (const DType dtype : {f32, bf16}) {
    for (const int set : {1, 2, 4, 8, 15}) {
      AttentionCase c{.b = 2, .hq = 2, .hk = 1, .n = 35, .m = 40, .d = 8, .dv = 6};
      Rng rng(seed_of("hidden" + std::to_string(set)));
      c.take_options(set, rng);
      c.take_bias({c.b, c.hq, c.n, c.m}, rng);
      INFO(c.name() << " " << to_string(dtype));
      const AttentionValues x = random_values(c, rng, dtype);
      AttentionCase spoilt = c;
      std::vector<bool> hidden;
      for (std::int64_t b = 0; b < c.b; ++b)
        for (std::int64_t h = 0; h < c.hq; ++h)
          for (std::int64_t i = 0; i < c.n; ++i)
            for (std::int64_t j = 0; j < c.m; ++j) {
              hidden.push_back(!c.sees(b, h, i, j));
              if (hidden.back()) spoilt.bias[hidden.size() - 1] = j % 2 ? kNan : kInf;
            }
      const AttentionResults clean = run_attention(c, x, dtype),
                             got = run_attention(spoilt, x, dtype);
      for (std::size_t part = 0; part < 5; ++part)
        expect_same("part " + std::to_string(part), all_of(got)[part], all_of(clean)[part]);
      bool zero = true;
      for (std::size_t i = 0; i < hidden.size(); ++i) zero = zero && (!hidden[i] || !got.dbias[i]);
      CHECK(zero);
    }
  }
}

TEST_CASE("attention: a bias of -inf hides a pair, and a query with no other gives 0") {
  for (const DType dtype : {f64, f32, f16}) {
    AttentionCase c{.b = 2, .hq = 2, .hk = 2, .n = 9, .m = 13, .d = 4, .dv = 3};
    Rng rng(6);
    c.take_bias({c.n, c.m}, rng);
    c.bias = rounded(c.bias, dtype);
    for (std::size_t i = 0; i < c.bias.size(); ++i)
      if (i % 3 == 0 || i / 13 == 4) c.bias[i] = -kInf;
    const AttentionValues x = random_values(c, rng, dtype);
    const AttentionResults want = reference(c, x), got = run_attention(c, x, dtype);
    const double bound = dtype == f16 ? 4e-3 : 2e-6;
    CHECK(relative_error(got.o, want.o) <= bound);
    CHECK(relative_error(got.dq, want.dq) <= bound);
    CHECK(relative_error(got.dk, want.dk) <= bound);
    CHECK(relative_error(got.dv, want.dv) <= bound);
    CHECK(relative_error(got.dbias, want.dbias) <= bound);
    bool zero = true;
    for (std::size_t i = 0; i < c.bias.size(); ++i)
      zero = zero && (c.bias[i] != -kInf || got.dbias[i] == 0);
    for (std::size_t e = 0; e < 3; ++e) zero = zero && got.o[4 * 3 + e] == 0;
    for (std::size_t e = 0; e < 4; ++e) zero = zero && got.dq[4 * 4 + e] == 0;
    CHECK(zero);
  }
}

TEST_CASE("attention: a bias in any layout, and sizes of 0") {
  AttentionCase c{.b = 2, .hq = 2, .hk = 1, .n = 5, .m = 7, .d = 4, .dv = 3};
  Rng rng(2);
  c.take_bias({c.b, c.hq, c.n, c.m}, rng);
  const AttentionValues x = random_values(c, rng, f32);
  const AttentionResults want = run_attention(c, x, f32);
  const auto call = [&](const Tensor& bias) {
    const Tensor q = make(x.q, c.q_shape(), f32), k = make(x.k, c.k_shape(), f32),
                 v = make(x.v, c.v_shape(), f32);
    const Tensor o = attention(q, k, v, {.bias = bias});
    backward(o, {.initial_gradient = make(x.dout, c.o_shape(), f32)});
    return values_of(o);
  };
  for (const Layout layout :
       {Layout::transposed, Layout::channels_last, Layout::stepped, Layout::offset}) {
    INFO(to_string(layout));
    const Tensor bias = make(c.bias, c.bias_shape, f32, layout).set_requires_grad();
    expect_same("o", call(bias), want.o);
    expect_same("dbias", values_of(bias.grad()), want.dbias);
  }
  // No pairs: the gradient is 0.
  for (const auto& [b, heads, n, m] : {std::array{0, 2, 3, 4}, std::array{2, 0, 3, 4},
                                       std::array{2, 2, 0, 4}, std::array{2, 2, 3, 0}}) {
    const Tensor q = ones({b, heads, n, 4}), k = ones({b, heads, m, 4});
    const Tensor bias = ones({1, 1, n ? n : 1, m ? m : 1}).set_requires_grad();
    attention(q, k, k, {.bias = bias}).sum().backward();
    for (const double g : values_of(bias.grad())) CHECK(g == 0);
  }
}

TEST_CASE("attention: the bias alone may take a gradient, which adds up over calls") {
  AttentionCase c{.b = 2, .hq = 2, .hk = 1, .n = 5, .m = 7, .d = 4, .dv = 3};
  Rng rng(3);
  c.take_bias({c.hq, 1, c.m}, rng);
  const AttentionValues x = random_values(c, rng, f64);
  const AttentionResults once = run_attention(c, x, f64);
  const Tensor q = make(x.q, c.q_shape()), k = make(x.k, c.k_shape()), v = make(x.v, c.v_shape());
  const Tensor bias = make(c.bias, c.bias_shape).set_requires_grad();
  for (int i = 0; i < 3; ++i)
    backward(attention(q, k, v, {.bias = bias}), {.initial_gradient = make(x.dout, c.o_shape())});
  std::vector<double> want = once.dbias;
  for (double& g : want) g *= 3;
  expect_close("dbias", values_of(bias.grad()), want, 1e-13);
  // And without a gradient of its own it gives the others theirs.
  const Tensor keys = make(x.k, c.k_shape()).set_requires_grad();
  backward(attention(q, keys, v, {.bias = bias.detach()}),
           {.initial_gradient = make(x.dout, c.o_shape())});
  expect_same("dk", values_of(keys.grad()), once.dk);
}

TEST_CASE("attention: one tensor as queries, keys, values and bias gets the sum of all gradients") {
  AttentionCase c{.b = 2, .hq = 2, .hk = 2, .n = 6, .m = 6, .d = 6, .dv = 6};
  for (const DType dtype : {f64, f32}) {
    Rng rng(4);
    AttentionValues x = random_values(c, rng, dtype);
    x.k = x.v = x.q;
    c.bias = x.q;
    c.bias_shape = c.q_shape();
    const AttentionResults want = reference(c, x);
    const Tensor t = make(x.q, c.q_shape(), dtype).set_requires_grad();
    backward(attention(t, t, t, {.bias = t}),
             {.initial_gradient = make(x.dout, c.o_shape(), dtype)});
    std::vector<double> sum = want.dq;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += want.dk[i] + want.dv[i] + want.dbias[i];
    CHECK(relative_error(values_of(t.grad()), sum) <= (dtype == f64 ? 1e-14 : 2e-6));
  }
}

TEST_CASE("attention: a bias gives the same bits for any number of threads", "[host]") {
  const AttentionCase sizes{.b = 3, .hq = 4, .hk = 2, .n = 150, .m = 170, .d = 16, .dv = 24};
  for (const Shape& form : forms(sizes)) {
    AttentionCase c = sizes;
    c.causal = true;
    c.dropout = 0.1;
    Rng rng(9);
    c.take_bias(form, rng);
    check_threads(c);
  }
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("attention: a bias gives the same bits in every order of threads and blocks", "[gpu]") {
  AttentionCase c{.b = 2, .hq = 2, .hk = 1, .n = 70, .m = 90, .d = 20, .dv = 30, .causal = true};
  Rng rng(4);
  c.take_bias({c.hq, 1, c.m}, rng);
  const AttentionValues x = random_values(c, rng, f32);
  expect_same_in_every_order([&] {
    std::vector<double> all;
    for (const auto& part : all_of(run_attention(c, x, f32)))
      all.insert(all.end(), part.begin(), part.end());
    return all;
  });
}
#endif

TEST_CASE("attention: the gradient of a bias takes no memory but itself", "[host]") {
  const std::int64_t heads = 16, n = 512, d = 16;
  const Tensor q = full({8, heads, n, d}, 0.1);
  const Tensor bias = zeros({heads, n, n}).set_requires_grad();  // an eighth of the scores
  const std::size_t before = memory_stats().total.current;
  reset_peak_memory();
  const Tensor o = attention(q, q, q, {.window = 64, .bias = bias});
  backward(o, {.initial_gradient = ones(o.shape())});
  const std::size_t extra = memory_stats().total.peak - before;
  CHECK(extra <= bias.bytes() + 3 * o.bytes() + (std::size_t{8} << 20));
}

TEST_CASE("attention: what does not fit as a bias is refused, with the values") {
  const Tensor q = ones({2, 4, 3, 8}), k = ones({2, 2, 5, 8});
  const auto refused = [&](const Tensor& bias, const char* part, const char* hint) {
    const std::string message = error_of([&] { attention(q, k, k, {.bias = bias}); });
    INFO(message);
    CHECK(message.find("[attention]") != std::string::npos);
    CHECK(message.find(part) != std::string::npos);
    CHECK(message.find(hint) != std::string::npos);
  };
  refused(ones({3, 4}), "bias [3, 4] f32", "unsqueeze");
  refused(ones({3, 4}), "does not broadcast to [batch, heads, n, m] = [2, 4, 3, 5]", "unsqueeze");
  refused(ones({1, 2, 4, 3, 5}), "bias [1, 2, 4, 3, 5]", "unsqueeze");
  refused(ones({2, 3, 5}), "bias [2, 3, 5]", "unsqueeze");
  refused(ones({3, 5}, f64), "bias [3, 5] f64", "bias.to(firn::f32)");
  refused(ones({3, 5}, bf16), "bias [3, 5] bf16", "bias.to(firn::f32)");
  refused(ones({3, 5}, i64), "bias [3, 5] i64", "bias.to(firn::f32)");
  refused(ones({3, 5}, boolean), "bias [3, 5] bool", "hint: give it as mask");
}

}  // namespace firn::testing
