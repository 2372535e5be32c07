// Losses term by term: sums of terms are the losses, factors weight and mask them, and the formulas
// of the losses that are made of tensor operations, worked out by hand.
#include <cmath>
#include <functional>
#include <limits>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/values.h"

namespace firn::testing {
namespace {

const std::vector<double> kX = {1, -0.5, 2, 0.25}, kY = {0.5, -1, 2.5, 1};

Tensor list(const std::vector<double>& values, DType t = f64) {
  return make(values, {static_cast<std::int64_t>(values.size())}, t);
}

/// What f(x[i], y[i]) gives in order.
template <class F>
std::vector<double> each(F f, const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<double> out;
  for (std::size_t i = 0; i < x.size(); ++i) out.push_back(f(x[i], y[i]));
  return out;
}

/// The terms are `want`; the loss is their sum over their number.
void check_terms(const char* name, const LossTerms& got, const Loss& loss,
                 const std::vector<double>& want) {
  expect_close(name, values_of(got.terms), want, 1e-12);
  double sum = 0;
  for (const double v : want) sum += v;
  INFO(name);
  CHECK(loss.sum.item() == Approx(sum).epsilon(1e-12));
  CHECK(loss.weight.item() == static_cast<double>(want.size()));
  CHECK(got.loss().sum.item() == Approx(sum).epsilon(1e-12));
  CHECK(loss.count.number == static_cast<double>(want.size()));
}

double softplus_of(double v) { return std::log1p(std::exp(v)); }

TEST_CASE("terms of pairs of elements by hand") {
  const Tensor x = list(kX), y = list(kY);
  check_terms("mse", mse_terms(x, y), mse_loss(x, y),
              each([](double a, double b) { return (a - b) * (a - b); }, kX, kY));
  check_terms("l1", l1_terms(x, y), l1_loss(x, y),
              each([](double a, double b) { return std::abs(a - b); }, kX, kY));
  const auto huber = [](double a, double b) {
    const double d = std::abs(a - b);
    return d <= 0.6 ? d * d / 2 : 0.6 * (d - 0.3);
  };
  check_terms("huber", huber_terms(x, y, 0.6), huber_loss(x, y, 0.6), each(huber, kX, kY));
  check_terms("smooth_l1", smooth_l1_terms(x, y, 0.6), smooth_l1_loss(x, y, 0.6),
              each([&](double a, double b) { return huber(a, b) / 0.6; }, kX, kY));
  check_terms("smooth_l1, beta 0", smooth_l1_terms(x, y, 0), smooth_l1_loss(x, y, 0),
              each([](double a, double b) { return std::abs(a - b); }, kX, kY));

  const std::vector<double> signs = {1, -1, -1, 1};
  const Tensor s = list(signs);
  check_terms("soft_margin", soft_margin_terms(x, s), soft_margin_loss(x, s),
              each([](double a, double b) { return softplus_of(-a * b); }, kX, signs));
  check_terms("hinge", hinge_terms(x, s), hinge_loss(x, s),
              each([](double a, double b) { return std::max(0.0, 1 - a * b); }, kX, signs));
  check_terms(
      "hinge_embedding", hinge_embedding_terms(x, s, 0.75), hinge_embedding_loss(x, s, 0.75),
      each([](double a, double b) { return b == 1 ? a : std::max(0.0, 0.75 - a); }, kX, signs));
  check_terms("margin_ranking", margin_ranking_terms(x, y, s, 0.1),
              margin_ranking_loss(x, y, s, 0.1), {0, 0.6, 0, 0.85});
}

TEST_CASE("binary terms by hand, at the ends too") {
  const std::vector<double> logits = {2, -1, 40, -40}, targets = {1, 0.25, 0, 0};
  const Tensor x = list(logits), y = list(targets);
  const auto bce = [](double a, double b) { return softplus_of(a) - a * b; };
  check_terms("bce_with_logits", bce_with_logits_terms(x, y), bce_with_logits(x, y),
              each(bce, logits, targets));
  check_terms("pos_weight", bce_with_logits_terms(x, y, {.pos_weight = full({}, 3, f64)}),
              bce_with_logits(x, y, {.pos_weight = full({1}, 3, f64)}),
              each([](double a, double b) { return (1 - b) * a + (1 + 2 * b) * softplus_of(-a); },
                   logits, targets));
  const auto focal = [&](double a, double b, double gamma) {
    const double p = 1 / (1 + std::exp(-a));
    return bce(a, b) * std::pow(p * (1 - b) + (1 - p) * b, gamma);
  };
  check_terms(
      "focal", focal_terms(x, y), focal_loss(x, y),
      each([&](double a, double b) { return focal(a, b, 2) * (0.75 - 0.5 * b); }, logits, targets));
  check_terms("focal without alpha", focal_terms(x, y, {.gamma = 0.5, .alpha = std::nullopt}),
              focal_loss(x, y, {.gamma = 0.5, .alpha = std::nullopt}),
              each([&](double a, double b) { return focal(a, b, 0.5); }, logits, targets));
  CHECK(focal_loss(x, y, {.gamma = 0, .alpha = std::nullopt}).item() ==
        Approx(bce_with_logits(x, y).item()));

  Tensor p = list({0, 1, 0, 1, 0.25});
  p.set_requires_grad();
  const Tensor t = list({1, 0, 0, 1, 0.5});
  const LossTerms terms = bce_terms(p, t);
  expect_close("bce", values_of(terms.terms),
               {100, 100, 0, 0, -0.5 * std::log(0.25) - 0.5 * std::log(0.75)}, 1e-14);
  terms.loss().sum.backward();
  expect_close("bce'", values_of(p.grad()), {-1e12, 1e12, 0, 0, -0.25 / 0.1875}, 1e-13);
  CHECK(std::isnan(bce_loss(list({1.5}), list({1})).item()));
}

TEST_CASE("negative log-likelihoods by hand") {
  const std::vector<double> rates = {0.5, 1, 3, 2}, counts = {0, 1, 4, 2};
  const Tensor x = list(rates), t = list(counts);
  check_terms("poisson", poisson_nll_terms(x, t), poisson_nll_loss(x, t),
              each([](double a, double b) { return std::exp(a) - a * b; }, rates, counts));
  const auto stirling = [](double c) {
    return c > 1 ? c * std::log(c) - c + 0.5 * std::log(2 * 3.14159265358979323846 * c) : 0;
  };
  check_terms("poisson of rates", poisson_nll_terms(x, t, {.log_input = false, .full = true}),
              poisson_nll_loss(x, t, {.log_input = false, .full = true}),
              each([&](double a, double b) { return a - b * std::log(a + 1e-8) + stirling(b); },
                   rates, counts));

  const std::vector<double> v = {0.5, 2, 1e-9, 1};
  std::vector<double> want;
  for (std::size_t i = 0; i < 4; ++i) {
    const double s = std::max(v[i], 1e-6), d = kX[i] - kY[i];
    want.push_back(0.5 * (std::log(s) + d * d / s));
  }
  check_terms("gaussian", gaussian_nll_terms(list(kX), list(kY), list(v)),
              gaussian_nll_loss(list(kX), list(kY), list(v)), want);
  // One variance for each row, in both shapes.
  const Tensor m = reshape(list(kX), {2, 2}), g = reshape(list(kY), {2, 2}), r = list({0.5, 2});
  const double by_rows = gaussian_nll_loss(m, g, r, {.full = true}).item();
  CHECK(gaussian_nll_loss(m, g, unsqueeze(r, 1), {.full = true}).item() == by_rows);
  CHECK(gaussian_nll_loss(m, g, expand(unsqueeze(r, 1), {2, 2})).item() ==
        Approx(by_rows - 0.5 * std::log(2 * 3.14159265358979323846)));
  // Below eps the gradient is that of the clamped value.
  Tensor tiny = list({1e-9});
  tiny.set_requires_grad();
  gaussian_nll_loss(list({1}), list({1}), tiny).backward();
  CHECK(tiny.grad().item() == Approx(0.5e6));
}

TEST_CASE("losses of rows and samples by hand") {
  const Tensor a = make({3, 4, 1, 0, 0, 0}, {3, 2}), b = make({4, 3, -1, 0, 1, 1}, {3, 2});
  const Tensor y = tensor<std::int64_t>({1, -1, 1}, {3});
  check_terms("cosine", cosine_embedding_terms(a.to(f64), b.to(f64), y),
              cosine_embedding_loss(a.to(f64), b.to(f64), y), {1 - 24.0 / 25, 0, 1});
  const Tensor p = make({0, 0}, {1, 2}, f64), q = make({3, 4}, {1, 2}, f64),
               n = make({0, 6}, {1, 2}, f64);
  const auto triplet = [&](const TripletMarginOptions& o) {
    return triplet_margin_loss(p, q, n, o).item();
  };
  CHECK(triplet({.eps = 0}) == Approx(5 - 6 + 1).margin(1e-14));
  CHECK(triplet({.margin = 2, .eps = 0}) == Approx(1));
  CHECK(triplet({.margin = 2, .p = 1, .eps = 0}) == Approx(7 - 6 + 2));
  CHECK(triplet({.margin = 2, .p = 3, .eps = 0}) == Approx(std::cbrt(27 + 64) - 6 + 2));
  CHECK(triplet({.margin = 2, .p = HUGE_VAL, .eps = 0}) == Approx(4 - 6 + 2).margin(1e-14));
  CHECK(triplet({.margin = 2, .eps = 0, .swap = true}) == Approx(5 - std::sqrt(13) + 2));
  const Tensor probabilities = make({0.5, 0.25, 1, 0, 0, 0}, {2, 3}, f64),
               target = make({1, 0, 1, 0, 0, 0}, {2, 3}, f64);
  check_terms("dice", dice_terms(probabilities, target), dice_loss(probabilities, target),
              {1 - (2 * 1.5 + 1) / (1.75 + 2 + 1), 0});
}

TEST_CASE("kl_div_terms has a term for each row, as kl_div counts") {
  const Tensor log_p = log_softmax(make(Rng(3).uniforms(24, -2, 2), {2, 3, 4}, f64));
  const Tensor t = softmax(make(Rng(4).uniforms(24, -2, 2), {2, 3, 4}, f64));
  const LossTerms terms = kl_div_terms(log_p, t);
  CHECK(terms.terms.shape() == Shape{2, 3});
  CHECK(terms.loss().item() == Approx(kl_div(log_p, t).item()).epsilon(1e-13));
}

TEST_CASE("the terms of cross-entropy add up to the loss, with every option") {
  const Tensor target = tensor<std::int64_t>({2, -100, 0, 1, 3, 0}, {6});
  const Tensor row_weights = list({1, 2, 0, 0.5, 3, 1}), class_weights = list({1, 0.5, 2, 0});
  const CrossEntropyOptions all[] = {
      {},
      {.label_smoothing = 0.2},
      {.class_weights = class_weights},
      {.label_smoothing = 0.2, .class_weights = class_weights},
      {.ignore_index = 0, .row_weights = abs(row_weights)},
      {.label_smoothing = 0.1,
       .class_weights = class_weights,
       .row_weights = row_weights,
       .z_loss = 0.3},
  };
  for (const CrossEntropyOptions& o : all)
    for (const bool logits : {true, false}) {
      if (!logits && (o.z_loss > 0)) continue;
      const Tensor t =
          o.ignore_index == 0 ? where(lt(target, 0), 0, target.to(f64)).to(i64) : target;
      Tensor x = make(Rng(5).uniforms(24, -2, 2), {6, 4}, f64), z = x.clone();
      x.set_requires_grad();
      z.set_requires_grad();
      const Loss fused = logits ? cross_entropy(x, t, o) : nll_loss(x, t, o);
      const LossTerms terms = logits ? cross_entropy_terms(z, t, o) : nll_terms(z, t, o);
      CHECK(terms.terms.shape() == t.shape());
      const Loss loss = terms.loss();
      CHECK(loss.sum.item() == Approx(fused.sum.item()).epsilon(1e-13));
      CHECK(loss.weight.item() == Approx(fused.weight.item()).epsilon(1e-14));
      fused.sum.backward();
      loss.sum.backward();
      expect_close("gradients", values_of(z.grad()), values_of(x.grad()), 1e-13);
    }
}

TEST_CASE("cross-entropy takes probabilities, of which classes are a case") {
  const Tensor classes = tensor<std::int64_t>({2, 0, 1, 3}, {4});
  const Tensor one_hots = one_hot(classes, 4, f64);
  for (const double smoothing : {0.0, 0.2}) {
    Tensor x = make(Rng(6).uniforms(16, -2, 2), {4, 4}, f64), z = x.clone();
    x.set_requires_grad();
    z.set_requires_grad();
    const Loss a = cross_entropy(x, classes, {.label_smoothing = smoothing, .z_loss = 0.1});
    const Loss b = cross_entropy(z, one_hots, {.label_smoothing = smoothing, .z_loss = 0.1});
    CHECK(b.item() == Approx(a.item()).epsilon(1e-13));
    a.backward();
    b.backward();
    expect_close("gradients", values_of(z.grad()), values_of(x.grad()), 1e-13);
  }
  // On axis 1, with weights; PyTorch 2: cross_entropy(x, t, weight) of the same numbers.
  const Tensor x = make({0, 1, 2, 3, 4, 5, 6, 7}, {1, 2, 4}, f64);
  const Tensor t = make({0.5, 0, 1, 0.25, 0.5, 1, 0, 0.75}, {1, 2, 4}, f64);
  const Loss loss = cross_entropy(x, t, {.class_weights = list({1, 2}), .axis = 1});
  const double low = std::log1p(std::exp(4.0)), high = low - 4;  // -log p of both classes
  CHECK(loss.sum.item() == Approx(low * (0.5 + 0 + 1 + 0.25) + 2 * high * (0.5 + 1 + 0 + 0.75)));
  CHECK(loss.weight.item() == 4);
  // The target's gradient is -log p.
  Tensor p = make({0.25, 0.75}, {1, 2}, f64);
  p.set_requires_grad();
  cross_entropy(make({0, 4}, {1, 2}, f64), p).sum.backward();
  expect_close("target", values_of(p.grad()), {low, high}, 1e-13);
  const Loss rows = cross_entropy(make({0, 4, 1, 1}, {2, 2}, f64),
                                  one_hot(tensor<std::int64_t>({0, 1}, {2}), 2, f64),
                                  {.row_weights = list({3, 0})});
  CHECK(rows.sum.item() == Approx(3 * low));
  CHECK(rows.weight.item() == 3);
}

TEST_CASE("factors weight terms and denominator, and a factor of 0 leaves a term out") {
  Tensor x = list({1, 2, std::nan(""), 4}), y = list({0, 0, 0, 0});
  x.set_requires_grad();
  const Loss masked = mse_terms(x, y).loss(tensor<bool>({true, true, false, true}, {4}));
  CHECK(masked.sum.item() == 1 + 4 + 16);
  CHECK(masked.weight.item() == 3);
  const Loss weighted = mse_terms(x, y).loss(list({0.5, 2, 0, 1}));
  CHECK(weighted.sum.item() == 0.5 + 8 + 16);
  CHECK(weighted.weight.item() == 3.5);
  CHECK(mse_terms(x, y).loss(list({0, 0, 0, 0})).item() == 0);
  // Factors broadcast; those of a loss with weights multiply them.
  const LossTerms two{make({1, 2, 3, 4}, {2, 2}, f64), make({1, 0, 2, 1}, {2, 2}, f64)};
  const Loss rows = two.loss(make({2, 1}, {2, 1}, f64));
  CHECK(rows.sum.item() == 2 * (1 + 2) + 3 + 4);
  CHECK(rows.weight.item() == 2 * 1 + 2 + 1);
  CHECK(error_of([&] {
          two.loss(ones({2, 2}, i64));
        }).find("a mask of bools") != std::string::npos);
  CHECK(error_of([&] { two.loss(ones({3}, f64)); }) != "");
}

// One step over micro-batches of uneven sizes, in which different numbers of tokens count, has the
// gradient of the mean over all tokens that count.
TEST_CASE("masked losses accumulate exactly over uneven micro-batches") {
  const auto train = [](const std::vector<std::int64_t>& cuts) {
    manual_seed(11);
    nn::Linear net(3, 4);
    net.to(f64);
    const Tensor x = make(Rng(7).uniforms(30, -1, 1), {10, 3}, f64);
    const Tensor y = make(Rng(8).uniforms(40, 0, 1), {10, 4}, f64);
    const Tensor mask = gt(make(Rng(9).uniforms(40, -1, 1), {10, 4}, f64), 0.2);
    optim::AdamW opt(net.parameters(), {.lr = 0.1},
                     {.accumulate = static_cast<std::int64_t>(cuts.size()) - 1});
    for (int step = 0; step < 3; ++step)
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const auto part = [&](const Tensor& t) { return slice(t, 0, cuts[i], cuts[i + 1]); };
        opt.backward(focal_terms(net(part(x)), part(y)).loss(part(mask)));
        opt.step();
      }
    return values_of(net.weight);
  };
  expect_close("weights", train({0, 1, 7, 10}), train({0, 10}), 1e-13);
}

TEST_CASE("losses by terms train a 16-bit network under a loss scale") {
  manual_seed(12);
  nn::Sequential net(nn::Linear(4, 16), nn::ReLU(), nn::Linear(16, 3));
  net.to(f16);
  const Tensor x = make(Rng(10).uniforms(128, -1, 1), {32, 4}, f16);
  const Tensor t = softmax(make(Rng(11).uniforms(96, -3, 3), {32, 3}, f32));
  optim::Adam opt(net.parameters(), {.lr = 0.02});
  std::vector<double> losses;
  for (int step = 0; step < (on_slow_device() ? 30 : 60); ++step) {
    opt.backward(cross_entropy(net(x), t.to(f16)));
    losses.push_back(opt.step().loss());
  }
  CHECK(losses.back() < 0.97 * losses.front());
}

TEST_CASE("well classified samples have a gradient in focal_loss, whatever gamma") {
  for (const DType t : {f32, f64})
    for (const double gamma : {0.5, 1.0, 2.0})
      for (const double x : {10., 17., 90., 800.}) {
        Tensor logits = make({x, -x}, {2}, t);
        logits.set_requires_grad();
        const Loss loss =
            focal_loss(logits, make({1, 0}, {2}, t), {.gamma = gamma, .alpha = std::nullopt});
        loss.sum.backward();
        const auto g = values_of(logits.grad());
        CAPTURE(to_string(t), gamma, x);
        CHECK(std::isfinite(g[0]));
        // The derivative of bce_with_logits(x, 1) is sigmoid(x) - 1.
        if (x <= 10) CHECK(g[0] == Approx(-g[1]).epsilon(5e-3));
        const double e = std::exp(-x);
        if (x < 20)
          CHECK(loss.sum.item() ==
                Approx(2 * std::log1p(e) * std::pow(e / (1 + e), gamma)).epsilon(1e-4));
      }
}

TEST_CASE("rows that are left out are not read, and impossible classes cost nothing") {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const Tensor u = list({0, 2});
  const auto gradient = [&](const std::function<Loss(const Tensor&)>& loss) {
    Tensor x = make({nan, nan, 1, 2}, {2, 2}, f64);
    x.set_requires_grad();
    const Loss l = loss(x);
    CHECK(std::isfinite(l.item()));
    l.sum.backward();
    return values_of(x.grad());
  };
  const double p = 1 / (1 + std::exp(1.0));
  expect_close("probabilities", gradient([&](const Tensor& x) {
                 return cross_entropy(x, full({2, 2}, 0.5, f64), {.row_weights = u, .z_loss = 0});
               }),
               {0, 0, 2 * (p - 0.5), 2 * (0.5 - p)}, 1e-13);
  expect_close("classes", gradient([&](const Tensor& x) {
                 return cross_entropy_terms(x, zeros({2}, i64), {.row_weights = u}).loss();
               }),
               {0, 0, 2 * (p - 1), 2 * (1 - p)}, 1e-13);
  expect_close("ignored", gradient([&](const Tensor& x) {
                 return cross_entropy_terms(x, tensor<std::int64_t>({-100, 1}, {2})).loss();
               }),
               {0, 0, p, -p}, 1e-13);
  Tensor masked = make({-inf, 0, 1}, {1, 3}, f64), target = make({0, 0, 1}, {1, 3}, f64);
  masked.set_requires_grad();
  const Loss loss = cross_entropy(masked, target);
  CHECK(loss.item() == Approx(std::log1p(std::exp(-1.0))));
  loss.sum.backward();
  expect_close("masked", values_of(masked.grad()), {0, p, -p}, 1e-13);
}

TEST_CASE("losses of the same factors have one denominator") {
  const Tensor x = list(kX), y = list(kY), mask = gt(x, 0);
  const Loss both = mse_terms(x, y).loss(mask) + 0.5 * l1_terms(x, y).loss(mask);
  CHECK(both.sum.item() ==
        Approx(mse_terms(x, y).loss(mask).sum.item() + 0.5 * l1_terms(x, y).loss(mask).sum.item()));
  CHECK(both.weight.item() == 3);
  const Tensor logits = make(Rng(1).uniforms(8, -1, 1), {2, 4}, f64), t = zeros({2}, i64);
  const LossTerms terms = cross_entropy_terms(logits, t);
  CHECK((terms.loss() + terms.loss()).weight.item() == 2);
  // The same mask of more terms is another number, and so is a mask that was written to.
  const LossTerms rows = mse_terms(expand(x, {3, 4}).clone(), expand(y, {3, 4}).clone());
  CHECK(error_of([&] {
          return mse_terms(x, y).loss(mask) + rows.loss(mask);
        }).find("not known to be divided by the same number: the factors [4]") != std::string::npos);
  const Loss before = mse_terms(x, y).loss(mask);
  fill_(mask, 1);
  CHECK(error_of([&] { return before + mse_terms(x, y).loss(mask); }) != "");
}

TEST_CASE("losses by terms refuse what does not fit", "[host]") {
  const auto refused = [](auto&& call, const char* op, const char* what) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(op) != std::string::npos);
    CHECK(text.find(what) != std::string::npos);
  };
  const Tensor x = zeros({2, 3}), y = zeros({2, 3});
  refused([&] { smooth_l1_loss(x, y, -1); }, "[smooth_l1]", "beta is -1");
  refused([&] { smooth_l1_loss(x, zeros({2})); }, "[smooth_l1]", "shapes differ");
  refused([&] { focal_loss(x, y, {.gamma = -1}); }, "[focal]", "gamma is -1");
  refused([&] { focal_loss(x, y, {.alpha = 2}); }, "[focal]", "alpha is 2");
  refused([&] { hinge_loss(x, y, NAN); }, "[hinge]", "margin is nan");
  refused([&] { margin_ranking_loss(x, y, zeros({2})); }, "[margin_ranking]", "shapes differ");
  refused([&] { poisson_nll_loss(x, y, {.eps = 0}); }, "[poisson_nll]", "eps is 0");
  refused([&] { gaussian_nll_loss(x, y, zeros({3})); }, "[gaussian_nll]", "variance [3]");
  refused(
      [&] {
        gaussian_nll_loss(x, y, zeros({2, 3}), {.eps = -1});
      },
      "[gaussian_nll]", "eps is -1");
  refused([&] { cosine_embedding_loss(x, y, zeros({3})); }, "[cosine_embedding]", "target [3]");
  refused([&] { cosine_embedding_loss(x, y, zeros({2}), 2); }, "[cosine_embedding]", "margin is 2");
  refused([&] { triplet_margin_loss(x, y, y, {.p = 0}); }, "[triplet_margin]", "p is 0");
  refused([&] { triplet_margin_loss(x, y, zeros({3})); }, "[triplet_margin]", "shapes differ");
  refused([&] { triplet_margin_loss(x, y, y, {.p = NAN}); }, "[triplet_margin]", "p is nan");
  refused([&] { bce_with_logits(x, y, {.pos_weight = ones({2})}); }, "[bce_with_logits]",
          "pos_weight [2] f32 cpu does not broadcast to [2, 3]");
  refused([&] { LossTerms{x, ones({2})}.loss(); }, "[LossTerms::loss]", "weights [2]");
  refused([&] { mse_terms(x, y).loss(ones({4})); }, "[LossTerms::loss]",
          "factors [4] f32 cpu does not broadcast to [2, 3]");
  refused([&] { dice_loss(zeros({3}), zeros({3})); }, "[dice]", "no axis beside the samples");
  refused([&] { bce_with_logits(x, y, {.pos_weight = ones({3}, i64)}); }, "[bce_with_logits]",
          "pos_weight [3] i64");
  refused(
      [&] {
        cross_entropy(zeros({2, 3, 4}), zeros({2, 3, 4}));
      },
      "[cross_entropy]", "may be on any axis");
  refused([&] { cross_entropy(x, y, {.ignore_index = 0}); }, "[cross_entropy]", "ignore_index = 0");
  refused([&] { cross_entropy(x, y, {.row_weights = ones({3})}); }, "[cross_entropy]",
          "row_weights [3]");
  refused([&] { cross_entropy_terms(x, y.to(f64)); }, "[cross_entropy_terms]", "dtypes");
  refused([&] { nll_terms(x, y); }, "[nll_terms]", "");
}

}  // namespace
}  // namespace firn::testing
