// linear_cross_entropy beside cross_entropy of linear: values and gradients for every way to cut
// the logits, options, compositions, memory, refusals.
#include <cmath>
#include <limits>
#include <optional>

#include "firn/firn.h"
#include "firn/memory.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

constexpr std::int64_t kRows = 23, kWidth = 6, kClasses = 150;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// |got - want| / |want|, norm-wise; 0 if both are 0.
double error(const std::vector<double>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

/// Operands of one dtype and all options, on numbers that every dtype gets rounded.
struct Problem {
  Tensor x, w, b, target, class_weights, row_weights;

  explicit Problem(DType t, std::int64_t rows = kRows, std::int64_t classes = kClasses,
                   std::uint64_t seed = 1) {
    Rng rng(seed);
    const auto in_f16 = [&](std::int64_t n, double low, double high) {
      return rounded(rng.uniforms(n, low, high), f16);
    };
    x = make(in_f16(rows * kWidth, -2, 2), {rows, kWidth}, t).set_requires_grad();
    w = make(in_f16(classes * kWidth, -1, 1), {classes, kWidth}, t).set_requires_grad();
    b = make(in_f16(classes, -1, 1), {classes}, t).set_requires_grad();
    std::vector<double> targets, weights;
    for (std::int64_t i = 0; i < rows; ++i) {
      targets.push_back(i % 5 == 3 ? -100 : static_cast<double>(rng.below(classes)));
      weights.push_back(i % 7 == 2 ? 0 : rng.uniform(0.25, 2));
    }
    target = make(targets, {rows}, i64);
    const DType compute = compute_dtype(t);
    class_weights = make(in_f16(classes, 0.5, 2), {classes}, compute);
    row_weights = make(rounded(weights, f16), {rows}, compute);
  }

  CrossEntropyOptions all_options() const {
    return {.label_smoothing = 0.1,
            .class_weights = class_weights,
            .row_weights = row_weights,
            .z_loss = 0.01};
  }
  std::vector<Tensor> inputs() const { return {x, w, b}; }
};

struct Result {
  double sum = 0, weight = 0;
  std::vector<std::vector<double>> grads;
};

/// Sum, weight and the gradients of 3 times the sum, which are cleared.
Result result_of(const Loss& loss, const std::vector<Tensor>& inputs) {
  Result r{loss.sum.item(), loss.weight.item(), {}};
  backward(loss.sum, {.initial_gradient = full({}, 3, loss.sum.dtype())});
  for (const Tensor& t : inputs) {
    r.grads.push_back(values_of(t.grad()));
    t.set_grad({});
  }
  return r;
}

Result fused(const Problem& p, const CrossEntropyOptions& options, std::int64_t rows = 0,
             std::int64_t classes = 0) {
  return result_of(
      linear_cross_entropy(p.x, p.w, p.target, options,
                           {.bias = p.b, .chunk_rows = rows, .chunk_classes = classes}),
      p.inputs());
}
Result composed(const Problem& p, const CrossEntropyOptions& options) {
  return result_of(cross_entropy(linear(p.x, p.w, p.b), p.target, options), p.inputs());
}

void expect_equal(const Result& got, const Result& want, double bound) {
  CHECK(got.sum == Approx(want.sum).epsilon(bound));
  CHECK(got.weight == Approx(want.weight).epsilon(bound));
  for (std::size_t i = 0; i < want.grads.size(); ++i) {
    CAPTURE(i);
    CHECK(error(got.grads[i], want.grads[i]) <= bound);
  }
}

TEST_CASE(
    "linear_cross_entropy: loss and gradients are those of the composed form in f64, for "
    "every chunk", "[once]") {
  for (const bool all : {false, true}) {
    const Problem exact(f64);
    const Result want = composed(exact, all ? exact.all_options() : CrossEntropyOptions{});
    for (const DType t : {f32, f64}) {
      const Problem p(t);
      const CrossEntropyOptions options = all ? p.all_options() : CrossEntropyOptions{};
      for (const std::int64_t rows : {0, 1, 7, 64, 1000})
        for (const std::int64_t classes : {0, 1, 7, 64, 1000}) {
          CAPTURE(all, to_string(t), rows, classes);
          expect_equal(fused(p, options, rows, classes), want, t == f64 ? 1e-13 : 1e-6);
        }
    }
  }
}

TEST_CASE("linear_cross_entropy: each option has the effect that it has in cross_entropy") {
  const Problem p(f64);
  const CrossEntropyOptions options[] = {{.ignore_index = 5},
                                         {.label_smoothing = 0.3},
                                         {.class_weights = p.class_weights},
                                         {.row_weights = p.row_weights},
                                         {.z_loss = 0.1}};
  const Result plain = fused(p, {}, 7, 64);
  for (const CrossEntropyOptions& o : options) {
    Problem q = p;
    if (o.ignore_index == 5) {  // then -100 is no longer ignored
      q.target = where(lt(p.target, 0), full(p.target.shape(), 5, i64), p.target);
      fill_(q.target[0], 5);
    }
    const Result got = fused(q, o, 7, 64);
    expect_equal(got, composed(q, o), 1e-13);
    CHECK(got.sum != plain.sum);
  }
}

TEST_CASE("linear_cross_entropy: 16-bit operands lose no more than in the composed form") {
  for (const DType t : {f16, bf16}) {
    const Problem p(t, 40, 300), exact(f64, 40, 300);
    // The operands that the 16-bit form reads, in f64.
    for (std::size_t i = 0; i < 3; ++i)
      copy_(exact.inputs()[i].detach(), p.inputs()[i].detach().to(f64));
    const Result want = composed(exact, exact.all_options());
    const Result unfused = composed(p, p.all_options());
    for (const std::int64_t rows : {0, 7})
      for (const std::int64_t classes : {0, 64}) {
        CAPTURE(to_string(t), rows, classes);
        const Result got = fused(p, p.all_options(), rows, classes);
        CHECK(std::abs(got.sum - want.sum) <= 1e-5 * want.sum);  // logits are not rounded
        for (std::size_t i = 0; i < 3; ++i) {
          CAPTURE(i);
          CHECK(error(got.grads[i], want.grads[i]) <=
                1.05 * error(unfused.grads[i], want.grads[i]));
          CHECK(error(got.grads[i], want.grads[i]) <= 2 * epsilon_of(t));
        }
      }
  }
}

TEST_CASE("linear_cross_entropy: classes that are masked by -infinity, in chunks of their own") {
  const Problem p(f32);
  {
    const NoGrad guard;
    fill_(p.b.slice(0, 0, 70), -kInfinity);
    fill_(p.b.slice(0, 140, kClasses), -kInfinity);
    copy_(p.target, where(lt(p.target, 0), p.target, full({kRows}, 80, i64)));
  }
  const Result want = composed(p, {.z_loss = 0.1});
  CHECK(std::isfinite(want.sum));
  for (const std::int64_t classes : {1, 10, 64, 1000})
    expect_equal(fused(p, {.z_loss = 0.1}, 7, classes), want, 1e-6);
  // A class of probability 0 as the target: an infinite loss, and finite gradients.
  fill_(p.target, 3);
  const Result never = fused(p, {}, 7, 10);
  CHECK(never.sum == kInfinity);
  expect_equal({0, never.weight, never.grads}, {0, never.weight, composed(p, {}).grads}, 1e-6);
  // All logits -infinity, or one NaN: NaN, as there.
  for (const double v : {-kInfinity, std::nan("")}) {
    const NoGrad guard;
    fill_(p.b, v);
    CHECK(
        std::isnan(linear_cross_entropy(p.x, p.w, p.target, {}, {.bias = p.b, .chunk_classes = 64})
                       .sum.item()));
  }
}

TEST_CASE("linear_cross_entropy: large logits keep their digits") {
  Problem p(f32);
  {
    const NoGrad guard;
    add_(p.b, full({kClasses}, 30000, f32));
  }
  Problem exact(f64);
  {
    const NoGrad guard;
    copy_(exact.b, p.b.to(f64));
  }
  const CrossEntropyOptions smooth{.label_smoothing = 0.2};
  const Result want = composed(exact, smooth);
  // The logits themselves have only 2e-3 left, which their gradients see in full.
  const double unfused = error(composed(p, smooth).grads[0], want.grads[0]);
  for (const std::int64_t classes : {7, 1000}) {
    const Result got = fused(p, smooth, 5, classes);
    CHECK(got.sum == Approx(want.sum).epsilon(1e-3));
    CHECK(error(got.grads[0], want.grads[0]) <= 1.1 * unfused);
  }
}

TEST_CASE("linear_cross_entropy: leading axes, no axes, and operands that are not contiguous") {
  const Problem p(f64, 24);
  const Result want = composed(p, {});
  const auto value = [](const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& b) {
    return linear_cross_entropy(x, w, y, {}, {.bias = b, .chunk_rows = 5, .chunk_classes = 64})
        .sum.item();
  };
  CHECK(value(p.x.reshape({2, 3, 4, kWidth}), p.w, p.target.reshape({2, 3, 4}), p.b) ==
        Approx(want.sum).epsilon(1e-13));
  CHECK(linear_cross_entropy(p.x[1], p.w, p.target[1], {}, {.bias = p.b}).sum.item() ==
        Approx(cross_entropy(linear(p.x[1], p.w, p.b), p.target[1]).sum.item()));
  for (const Layout layout : {Layout::transposed, Layout::stepped, Layout::offset}) {
    CAPTURE(to_string(layout));
    Tensor x = make(values_of(p.x), p.x.shape(), f64, layout).set_requires_grad();
    Tensor w = make(values_of(p.w), p.w.shape(), f64, layout).set_requires_grad();
    Tensor b = make(values_of(p.b), p.b.shape(), f64, layout).set_requires_grad();
    const Tensor y = make(values_of(p.target), p.target.shape(), i32, layout);
    expect_equal(result_of(linear_cross_entropy(x, w, y, {},
                                                {.bias = b, .chunk_rows = 5, .chunk_classes = 64}),
                           {x, w, b}),
                 want, 1e-13);
  }
}

TEST_CASE("linear_cross_entropy: without rows, and of width 0") {
  for (const DType t : {f16, f32}) {
    Tensor x = zeros({0, 3}, t).set_requires_grad(), w = ones({5, 3}, t).set_requires_grad(),
           b = ones({5}, t).set_requires_grad();
    const Loss none = linear_cross_entropy(x, w, zeros({0}, i64), {}, {.bias = b});
    CHECK(none.sum.item() == 0);
    CHECK(none.weight.item() == 0);
    none.backward();
    expect_same("dw", values_of(w.grad()), std::vector<double>(15, 0.0));
    expect_same("db", values_of(b.grad()), std::vector<double>(5, 0.0));
    CHECK(x.grad().shape() == Shape{0, 3});

    const Loss flat =
        linear_cross_entropy(zeros({4, 0}, t), zeros({5, 0}, t), zeros({4}, i64), {}, {.bias = b});
    CHECK(flat.item() == Approx(std::log(5.0)));
  }
}

TEST_CASE("linear_cross_entropy: one tensor as x and w, and a weight tied to an embedding") {
  for (const DType t : {f16, f32}) {
    const double bound = t == f16 ? 1e-3 : 1e-6;
    const Problem p(t, 40, 40);
    const LinearCrossEntropyOptions chunks{.chunk_rows = 7, .chunk_classes = 16};
    const auto same = [&](const Loss& loss) { return result_of(loss, {p.w}); };
    expect_equal(same(linear_cross_entropy(p.w, p.w, p.target, {}, chunks)),
                 same(cross_entropy(linear(p.w, p.w), p.target)), bound);
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < 40; ++i) numbers.push_back(7 * i % 13);
    const Tensor tokens = tensor(numbers, {40});
    const auto embedded = [&] { return embedding(p.w, tokens); };
    expect_equal(same(linear_cross_entropy(embedded(), p.w, p.target, {}, chunks)),
                 same(cross_entropy(linear(embedded(), p.w), p.target)), bound);
  }
}

TEST_CASE("linear_cross_entropy: only what takes a gradient gets one") {
  const Problem p(f32);
  const Result want = composed(p, {});
  const auto loss = [&] {
    return linear_cross_entropy(p.x, p.w, p.target, {},
                                {.bias = p.b, .chunk_rows = 7, .chunk_classes = 64});
  };
  for (std::size_t only = 0; only < 3; ++only) {
    std::vector<Tensor> rest = p.inputs();
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(only));
    for (const bool late : {false, true}) {  // frozen for the backward pass alone
      CAPTURE(only, late);
      std::optional<Freeze> guard;
      if (!late) guard.emplace(rest);
      const Loss l = loss();
      if (late) guard.emplace(rest);
      l.sum.backward();
      guard.reset();
      for (std::size_t i = 0; i < 3; ++i) {
        const Tensor grad = p.inputs()[i].grad();
        CHECK(grad.defined() == (i == only));
        if (i != only) continue;
        std::vector<double> third = want.grads[i];
        for (double& v : third) v /= 3;
        CHECK(error(values_of(grad), third) <= 1e-6);
        p.inputs()[i].set_grad({});
      }
    }
  }
  const NoGrad guard;
  CHECK_FALSE(loss().sum.requires_grad());
}

TEST_CASE("linear_cross_entropy: a retained graph, hooks, and gradients that are added to others") {
  const Problem p(f32);
  const auto chunks = LinearCrossEntropyOptions{.bias = p.b, .chunk_rows = 7, .chunk_classes = 64};
  const Result want = composed(p, {});
  const Loss loss = linear_cross_entropy(p.x, p.w, p.target, {}, chunks);
  loss.sum.backward();  // the graph is gone after this one
  backward(linear_cross_entropy(p.x, p.w, p.target, {}, chunks).sum,
           {.initial_gradient = full({}, 0.5), .retain_graph = true});
  const Loss kept = linear_cross_entropy(p.x, p.w, p.target, {}, chunks);
  for (int i = 0; i < 2; ++i) backward(kept.sum, {.initial_gradient = full({}, 0.75), .retain_graph = i == 0});
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(error(values_of(p.inputs()[i].grad()), want.grads[i]) <= 1e-6);
    p.inputs()[i].set_grad({});
  }
  int calls = 0;
  for (const Tensor& t : p.inputs())
    add_hook(t, [&](const Tensor& g) {
      ++calls;
      return 2 * g;
    });
  Result doubled = fused(p, {}, 7, 64);
  CHECK(calls == 3);
  for (auto& grad : doubled.grads)
    for (double& v : grad) v /= 2;
  expect_equal(doubled, want, 1e-6);
}

TEST_CASE("linear_cross_entropy: an edit of a saved tensor is found") {
  for (int edited = 0; edited < 6; ++edited) {
    const Problem p(f32);
    const Loss loss = linear_cross_entropy(p.x, p.w, p.target, p.all_options(), {.bias = p.b});
    Tensor saved[] = {p.x, p.w, p.b, p.target, p.class_weights, p.row_weights};
    {
      const NoGrad guard;
      fill_(saved[edited], 0);
    }
    CAPTURE(edited);
    CHECK(error_of([&] { loss.sum.backward(); }).find("modified in place by fill_") !=
          std::string::npos);
  }
}

TEST_CASE(
    "linear_cross_entropy: under autocast products are 16-bit and gradients of f32 weights "
    "f32") {
  const Problem p(f32, 40, 300);
  const auto run = [&](bool one) {
    const Autocast guard(bf16);
    const Loss loss =
        one ? linear_cross_entropy(p.x, p.w, p.target, p.all_options(),
                                   {.bias = p.b, .chunk_rows = 16, .chunk_classes = 64})
            : cross_entropy(linear(p.x, p.w, p.b), p.target, p.all_options());
    CHECK(loss.sum.dtype() == f32);
    return loss;
  };
  const Problem exact(f64, 40, 300);
  const Result want = composed(exact, exact.all_options());
  const Result unfused = result_of(run(false), p.inputs()), got = result_of(run(true), p.inputs());
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(error(got.grads[i], want.grads[i]) <= 1.05 * error(unfused.grads[i], want.grads[i]));
  // A sum that 16 bits would round away arrives in f32.
  run(true).sum.backward();
  CHECK(p.w.grad().dtype() == f32);
  const std::vector<double> grad = values_of(p.w.grad());
  CHECK(error(rounded(grad, bf16), grad) > 1e-4);
}

TEST_CASE("linear_cross_entropy: the same bits for any number of threads") {
  const Problem p(f32, 130, 500);
  std::optional<Result> first;
  for (const int threads : {1, 2, 3}) {
    const Threads scope(threads);
    const Result r = fused(p, p.all_options(), 50, 128);
    if (!first) first = r;
    CHECK(r.sum == first->sum);
    CHECK(r.grads == first->grads);
  }
}

TEST_CASE("linear_cross_entropy: losses that count the same rows are added") {
  const Problem p(f32);
  const CrossEntropyOptions by_row{.row_weights = p.row_weights};
  const Loss main = linear_cross_entropy(p.x, p.w, p.target, by_row);
  const Loss both = main + 0.5 * cross_entropy(linear(p.x, p.w), p.target, by_row);
  CHECK(both.item() == Approx(1.5 * main.item()).epsilon(1e-6));
  CHECK_THROWS_AS(main + linear_cross_entropy(p.x, p.w, p.target), Error);
}

TEST_CASE("linear_cross_entropy: operands that do not fit are refused by name", "[host]") {
  const Problem p(f32);
  const auto refused = [&](const Tensor& x, const Tensor& w, const Tensor& y,
                           const CrossEntropyOptions& o = {},
                           const LinearCrossEntropyOptions& l = {}) {
    return error_of([&] { linear_cross_entropy(x, w, y, o, l); });
  };
  CHECK(refused(p.x, ones({150, 5}), p.target) ==
        "[linear_cross_entropy] x [23, 6] f32 cpu, weight [150, 5] f32 cpu; hint: the last axis of "
        "x must be the weight's second: weight is [out, in]");
  CHECK(refused(p.x, p.w, zeros({22}, i64)) ==
        "[linear_cross_entropy] target [22] i64 cpu for x [23, 6] f32 cpu: expected shape [23]; "
        "hint: give one class number per row of x");
  CHECK(refused(p.x, p.w, zeros({23})) ==
        "[linear_cross_entropy] class numbers are integers, target is [23] f32 cpu; hint: cast it: "
        "target.to(firn::i64)");
  CHECK(refused(p.x, p.w, p.target, {.axis = 1}) ==
        "[linear_cross_entropy] axis = 1; hint: leave the axis out: the classes are the rows of "
        "the weight");
  CHECK(refused(p.x, p.w, p.target, {}, {.bias = ones({23})}) ==
        "[linear_cross_entropy] bias [23] f32 cpu, weight [150, 6] f32 cpu; hint: bias is [out]");
  CHECK(refused(p.x, p.w, p.target, {}, {.chunk_rows = -1}) ==
        "[linear_cross_entropy] chunk_rows = -1, chunk_classes = 0; hint: 0 lets the shapes "
        "choose");
  CHECK(refused(p.x, p.w, p.target, {.row_weights = ones({22})}) ==
        "[linear_cross_entropy] row_weights [22] f32 cpu for target [23] i64 cpu; hint: one "
        "floating weight per target, on the device of the logits");
  CHECK(refused(p.x, p.w, p.target, {.z_loss = kInfinity}) ==
        "[linear_cross_entropy] z_loss = inf is not finite in f32; hint: 1e-4 is usual, 0 is off");
  CHECK(refused(p.x, zeros({0, 6}), p.target) ==
        "[linear_cross_entropy] weight [0, 6] f32 cpu has no classes; hint: weight is [classes, "
        "in]");
  // A bad target, in a later chunk: its row is counted from the first one.
  fill_(p.target[20], 150);
  CHECK(refused(p.x, p.w, p.target, {}, {.chunk_rows = 6, .chunk_classes = 64}) ==
        "[linear_cross_entropy] target 150 of row 20 is not one of 150 classes; hint: targets are "
        "0 to 149, or ignore_index (-100)");
}

// ---- Training ----

/// A model whose last layer and loss are one op or two, trained in f16 with loss scaling.
struct Training {
  Tensor hidden, w, b;
  optim::SGD opt;
  bool one;

  Training(bool fused_form, DType t, std::int64_t accumulate)
      : hidden(make(Rng(2).uniforms(8 * kWidth, -0.5, 0.5), {kWidth, 8}, t).set_requires_grad()),
        w(make(Rng(3).uniforms(kClasses * kWidth, -0.5, 0.5), {kClasses, kWidth}, t)
              .set_requires_grad()),
        b(zeros({kClasses}, t).set_requires_grad()),
        opt({hidden, w, b}, {.lr = 0.1, .momentum = 0.9},
            {.accumulate = accumulate,
             .loss_scale = t == f16 ? optim::LossScale::dynamic({.growth_interval = 3})
                                    : optim::LossScale::none()}),
        one(fused_form) {}

  Loss loss(const Tensor& x, const Tensor& y) const {
    const Tensor h = linear(x, hidden);
    const CrossEntropyOptions options{.label_smoothing = 0.1, .z_loss = 1e-3};
    return one ? linear_cross_entropy(h, w, y, options,
                                      {.bias = b, .chunk_rows = 5, .chunk_classes = 64})
               : cross_entropy(linear(h, w, b), y, options);
  }
  static std::pair<Tensor, Tensor> batch(int step, std::int64_t rows, DType t) {
    Rng rng(static_cast<std::uint64_t>(100 + step));
    std::vector<double> labels;
    for (std::int64_t i = 0; i < rows; ++i)
      labels.push_back(i % 4 == 1 ? -100 : static_cast<double>(rng.below(kClasses)));
    return {make(rng.uniforms(rows * 8, -1, 1), {rows, 8}, t), make(labels, {rows}, i64)};
  }
};

TEST_CASE("[S02][S03][S18] linear_cross_entropy: trained in f16 with loss scaling as its parts") {
  std::vector<double> weights[2];
  double losses[2], scales[2];
  for (const bool one : {false, true}) {
    Training run(one, f16, 2);
    for (int step = 0; step < 24; ++step) {
      auto [x, y] = Training::batch(step, step % 2 == 0 ? 12 : 7, f16);
      if (step == 9) fill_(x[0], kInfinity);  // a skipped cycle
      run.opt.backward(run.loss(x, y));
      run.opt.step();
    }
    const optim::StepReport report = run.opt.last_report();
    CHECK(report.applied_steps() == 11);
    CHECK(report.skipped_steps() == 1);
    weights[one] = values_of(run.w);
    losses[one] = report.loss();
    scales[one] = report.loss_scale();
  }
  CHECK(scales[0] == scales[1]);
  CHECK(losses[1] == Approx(losses[0]).epsilon(1e-3));
  CHECK(error(weights[1], weights[0]) < 1e-3);
}

TEST_CASE("[S02][S29] linear_cross_entropy: two micro-batches of any size are one batch") {
  for (const DType t : {f32, f64}) {
    const auto [x, y] = Training::batch(1, 19, t);
    std::vector<double> weights[2];
    for (const std::int64_t parts : {1, 2}) {
      Training run(true, t, parts);
      for (int step = 0; step < 3; ++step) {
        for (std::int64_t k = 0; k < parts; ++k) {
          const std::int64_t from = k == 0 ? 0 : 6, to = parts == 1 || k == 1 ? 19 : 6;
          run.opt.backward(run.loss(x.slice(0, from, to), y.slice(0, from, to)));
          run.opt.step();
        }
      }
      weights[parts - 1] = values_of(run.w);
    }
    CHECK(error(weights[1], weights[0]) <= (t == f64 ? 1e-12 : 1e-5));
  }
}

// ---- Memory ----

/// The most memory beside x, w, bias and their gradients, forward and backward. `guard` is the
/// dtype of autocast, if not f32.
std::size_t extra_memory(DType t, DType guard, std::int64_t rows, std::int64_t classes,
                         std::int64_t width) {
  Tensor x = zeros({rows, width}, t).set_requires_grad(),
         w = zeros({classes, width}, t).set_requires_grad(),
         b = zeros({classes}, t).set_requires_grad();
  optim::SGD opt({w, b}, {.lr = 0.1});  // its arenas collect the gradients
  x.set_grad(zeros(x.shape(), t));
  const Tensor target = zeros({rows}, i64);
  reset_peak_memory();
  const std::size_t before = memory_stats().total.current;
  std::optional<Loss> loss;
  {
    std::optional<Autocast> scope;
    if (guard != f32) scope.emplace(guard);
    loss = linear_cross_entropy(x, w, target, {.label_smoothing = 0.1}, {.bias = b});
  }
  opt.backward(*loss);
  return memory_stats().total.peak - before;
}

TEST_CASE("linear_cross_entropy: the logits are never all in memory", "[long]") {
  for (const DType t : {f16, f32, f64}) {
    const std::int64_t rows = 1024, classes = 20000;
    const auto logits = static_cast<std::size_t>(rows * classes) * size_of(compute_dtype(t));
    CAPTURE(to_string(t));
    CHECK(extra_memory(t, f32, rows, classes, 8) <= logits / 2);
  }
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE(
    "linear_cross_entropy: at most 64 MiB beside operands and gradients for 4096 rows, 50,304 "
    "classes, width 768",
    "[host][long]") {
  const std::pair<DType, DType> modes[] = {{f32, f32}, {bf16, f32}, {f32, bf16}};
  for (const auto& [t, guard] : modes) {
    const std::size_t extra = extra_memory(t, guard, 4096, 50304, 768);
    CAPTURE(to_string(t), to_string(guard), extra >> 20);
    CHECK(extra <= std::size_t{64} << 20);
  }
}
#endif

}  // namespace
}  // namespace firn::testing
