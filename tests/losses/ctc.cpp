// Connectionist temporal classification beside the sum over all paths, in both forms of targets,
// and what hostile lengths and labels do.
#include <cmath>
#include <limits>
#include <string>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Values = std::vector<double>;
using Numbers = std::vector<std::int64_t>;
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor numbers(const Numbers& values, const Shape& shape, DType t = i64) {
  return to_device(tensor(values, shape).to(t), default_device());
}
Tensor numbers(const Numbers& values) {
  return numbers(values, {static_cast<std::int64_t>(values.size())});
}

/// Log-probabilities [steps, n, classes] and the same as a table.
Tensor draw(const char* name, const Shape& shape) {
  const Tensor x = make(Rng(seed_of(name)).uniforms(shape.product(), -2, 2), shape);
  return log_softmax(x).detach();
}

/// -log of the sum over all paths of `steps` classes that spell the target.
double by_all_paths(const Values& x, std::int64_t steps, std::int64_t classes,
                    const Numbers& target, std::int64_t blank) {
  std::int64_t paths = 1;
  for (std::int64_t t = 0; t < steps; ++t) paths *= classes;
  double sum = 0;
  for (std::int64_t path = 0; path < paths; ++path) {
    Numbers spelled;
    double log_probability = 0;
    std::int64_t rest = path, before = -1;
    for (std::int64_t t = 0; t < steps; ++t, rest /= classes) {
      const std::int64_t c = rest % classes;
      log_probability += x[static_cast<std::size_t>(t * classes + c)];
      if (c != before && c != blank) spelled.push_back(c);
      before = c;
    }
    if (spelled == target) sum += std::exp(log_probability);
  }
  return -std::log(sum);
}

TEST_CASE("ctc_terms: the sum over all paths that spell the target") {
  const std::int64_t steps = 5, classes = 3;
  const Tensor x = draw("paths", {steps, 1, classes});
  const Values values = values_of(x);
  for (const std::int64_t blank : {0, 2}) {
    const std::int64_t a = blank == 0 ? 1 : 0, b = blank == 0 ? 2 : 1;
    for (const Numbers& target :
         std::vector<Numbers>{{}, {a}, {a, b}, {a, a}, {b, b, b}, {a, b, a, b}, {a, a, a, a}}) {
      const auto count = static_cast<std::int64_t>(target.size());
      INFO("blank " << blank << ", " << count << " labels");
      const Tensor terms = ctc_terms(x, numbers(target, {1, count}), numbers({steps}),
                                     numbers({count}), {.blank = blank})
                               .terms;
      expect_close("term", values_of(terms), {by_all_paths(values, steps, classes, target, blank)},
                   1e-12);
    }
  }
}

/// The gradient with respect to log-probabilities, and the terms.
std::pair<Values, Values> terms_and_gradient(const Tensor& x, const Tensor& targets,
                                             const Tensor& steps, const Tensor& counts,
                                             const CtcOptions& options = {}) {
  const Tensor leaf = x.detach().set_requires_grad();
  const Tensor terms = ctc_terms(leaf, targets, steps, counts, options).terms;
  terms.sum().backward();
  return {values_of(terms), values_of(leaf.grad())};
}

TEST_CASE("ctc_terms: sequences of a batch are those alone, and padding may hold anything") {
  const Tensor x = draw("batch", {9, 4, 6});
  const Numbers steps = {9, 6, 7, 0}, counts = {3, 1, 0, 0};
  const Tensor padded =
      numbers({1, 1, 5, 77, 2, -9, 6, 6, 0, 0, 0, 0}, {4, 3});  // -9, 6 and 77 are no labels
  Numbers given = {1, 1, 5, 2};
  const auto together = terms_and_gradient(
      x, make({1, 1, 5, 2, 0, 0, 0, 0, 0, 0, 0, 0}, {4, 3}, i64), numbers(steps), numbers(counts));
  const auto joined = terms_and_gradient(x, numbers(given), numbers(steps), numbers(counts));
  const auto narrow = terms_and_gradient(x, numbers(given, {4}, i32), numbers(steps, {4}, i32),
                                         numbers(counts, {4}, i32));
  expect_same("joined", joined.first, together.first);
  expect_same("i32", narrow.second, joined.second);
  const auto hostile = terms_and_gradient(
      x, numbers({1, 1, 5, 2, -9, 77, 6, 6, 0, 0, 0, 0}, {4, 3}), numbers(steps), numbers(counts));
  expect_same("padding", hostile.second, joined.second);
  CHECK(together.first[3] == 0);

  std::size_t at = 0;
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::size_t n = static_cast<std::size_t>(counts[static_cast<std::size_t>(i)]);
    const Numbers labels(given.begin() + static_cast<std::ptrdiff_t>(at),
                         given.begin() + static_cast<std::ptrdiff_t>(at + n));
    at += n;
    const std::int64_t length = steps[static_cast<std::size_t>(i)];
    // Without a batch, and with log-probabilities of the steps that count.
    const Tensor alone = contiguous(select(x, 1, i)).slice(0, 0, length);
    const auto one = terms_and_gradient(alone, numbers(labels), numbers({length}),
                                        numbers({static_cast<std::int64_t>(n)}, {}));
    INFO("sequence " << i);
    CHECK(one.first[0] == together.first[static_cast<std::size_t>(i)]);
    for (std::int64_t t = 0; t < 9; ++t) {
      for (std::int64_t c = 0; c < 6; ++c) {
        const double got = together.second[static_cast<std::size_t>((t * 4 + i) * 6 + c)];
        CHECK(got == (t < length ? one.second[static_cast<std::size_t>(t * 6 + c)] : 0));
      }
    }
  }
}

TEST_CASE("ctc_terms: any layout and dtype of log-probabilities") {
  const Tensor wide = draw("layouts", {8, 3, 5});
  const Tensor targets = numbers({1, 2, 3, 3, 4, 0}, {3, 2}), steps = numbers({8, 7, 5}),
               counts = numbers({2, 2, 1});
  const auto want = terms_and_gradient(wide, targets, steps, counts);
  for (const Layout layout : {Layout::transposed, Layout::stepped, Layout::offset}) {
    INFO(to_string(layout));
    const Tensor x = make(values_of(wide), wide.shape(), f64, layout);
    const auto got = terms_and_gradient(x, targets, steps, counts);
    expect_same("terms", got.first, want.first);
    expect_same("gradient", got.second, want.second);
  }
  for (const DType t : {f32, f16, bf16}) {
    INFO(to_string(t));
    const Tensor x = wide.to(t);
    const auto exact = terms_and_gradient(x.to(f64), targets, steps, counts);
    const Tensor terms = ctc_terms(x, targets, steps, counts).terms;
    CHECK(terms.dtype() == f32);
    const auto got = terms_and_gradient(x, targets, steps, counts);
    expect_close("terms", got.first, exact.first, 1e-5);
    expect_close("gradient", got.second, exact.second, t == f32 ? 1e-5 : t == f16 ? 1e-3 : 8e-3);
  }
}

TEST_CASE("ctc_loss: PyTorch's three reductions, and masks of sequences") {
  const Tensor x = draw("reductions", {6, 3, 4});
  const Tensor targets = numbers({1, 2, 3, 0, 0, 0}, {3, 2}), steps = numbers({6, 6, 6}),
               counts = numbers({2, 1, 0});
  const LossTerms none = ctc_terms(x, targets, steps, counts);
  const Values t = values_of(none.terms);
  const Loss loss = ctc_loss(x, targets, steps, counts);
  CHECK(loss.item() == Approx((t[0] / 2 + t[1] + t[2]) / 3).epsilon(1e-12));
  CHECK(loss.count.number == 3.0);
  CHECK(none.loss().sum.item() == Approx(t[0] + t[1] + t[2]).epsilon(1e-12));
  CHECK(none.loss(make({1, 0, 1}, {3}, boolean)).item() ==
        Approx((t[0] + t[2]) / 2).epsilon(1e-12));
  // Micro-batches of any size are one batch.
  Loss parts = ctc_loss(x.slice(1, 0, 1), targets.slice(0, 0, 1), steps.slice(0, 0, 1),
                        counts.slice(0, 0, 1));
  const Loss rest = ctc_loss(x.slice(1, 1, 3), targets.slice(0, 1, 3), steps.slice(0, 1, 3),
                             counts.slice(0, 1, 3));
  CHECK(parts.sum.item() + rest.sum.item() == Approx(loss.sum.item()).epsilon(1e-12));
}

TEST_CASE("ctc_terms: a target without a path is infinite, or 0 if asked for") {
  const Tensor x = draw("short", {3, 4, 4});
  // As many labels as steps, of which two are equal; more labels; no step; and one that fits.
  const Tensor targets = numbers({1, 1, 2, 0, 1, 2, 3, 1, 1, 0, 0, 0, 2, 3, 0, 0}, {4, 4});
  const Tensor steps = numbers({3, 3, 0, 3}), counts = numbers({3, 4, 1, 2});
  const auto plain = terms_and_gradient(x, targets, steps, counts);
  for (int i = 0; i < 3; ++i) CHECK(plain.first[static_cast<std::size_t>(i)] == kInf);
  CHECK(std::isfinite(plain.first[3]));
  const auto zero = terms_and_gradient(x, targets, steps, counts, {.zero_infinity = true});
  CHECK(zero.first == Values{0, 0, 0, plain.first[3]});
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t c = 0; c < 4; ++c) {
        const std::size_t at = (t * 4 + i) * 4 + c;
        CHECK(std::isnan(plain.second[at]) == (i < 2));
        CHECK(zero.second[at] == (i < 3 ? 0 : plain.second[at]));
      }
    }
  }
}

TEST_CASE("ctc_terms: a NaN stays in its sequence, and a class of probability 0 is none") {
  Values values = values_of(draw("nan", {4, 2, 3}));
  values[(1 * 2 + 0) * 3 + 1] = std::nan("");
  for (std::size_t t = 0; t < 4; ++t) values[(t * 2 + 1) * 3 + 2] = -kInf;
  const auto got = terms_and_gradient(make(values, {4, 2, 3}), numbers({1, 1}, {2, 1}),
                                      numbers({4, 4}), numbers({1, 1}));
  CHECK(std::isnan(got.first[0]));
  CHECK(std::isfinite(got.first[1]));
  for (std::size_t t = 0; t < 4; ++t)
    for (std::size_t c = 0; c < 3; ++c) CHECK(std::isfinite(got.second[(t * 2 + 1) * 3 + c]));
}

TEST_CASE("ctc_terms: gradients add up, and a second backward pass gives the same") {
  const Tensor x = draw("twice", {5, 2, 4}).set_requires_grad();
  const Tensor targets = numbers({1, 2, 3, 3}, {2, 2}), steps = numbers({5, 4}),
               counts = numbers({2, 2});
  const Tensor sum = ctc_terms(x, targets, steps, counts).terms.sum();
  backward(sum, {.retain_graph = true});
  const Values once = values_of(x.grad());
  sum.backward();
  Values twice = once;
  for (double& v : twice) v *= 2;
  expect_close("sum of two", values_of(x.grad()), twice, 1e-14);

  const Tensor again = x.detach().set_requires_grad();
  checkpoint([&](const Tensor& t) { return ctc_terms(t, targets, steps, counts).terms; }, again)
      .sum()
      .backward();
  expect_same("in a checkpoint", values_of(again.grad()), once);
}

TEST_CASE("ctc_terms: the same bits for any number of threads", "[host]") {
  const Tensor x = draw("threads", {40, 12, 30}).to(f32);
  Rng rng(3);
  Numbers labels, steps, counts;
  for (int i = 0; i < 12 * 8; ++i) labels.push_back(1 + rng.below(29));
  for (int i = 0; i < 12; ++i) {
    steps.push_back(40 - i);
    counts.push_back(i % 9);
  }
  const auto run = [&](int threads) {
    const Threads these(threads);
    return terms_and_gradient(x, numbers(labels, {12, 8}), numbers(steps), numbers(counts));
  };
  const auto one = run(1), four = run(4);
  expect_same("terms", four.first, one.first);
  expect_same("gradient", four.second, one.second);
}

TEST_CASE("ctc_loss refuses bad lengths, labels and options, naming them", "[host]") {
  const Tensor x = log_softmax(zeros({5, 2, 4}));
  const Tensor targets = tensor<std::int64_t>({1, 2, 3, 1}, {2, 2});
  const Tensor steps = tensor<std::int64_t>({5, 5}), counts = tensor<std::int64_t>({2, 2});
  const auto refused = [](const std::string& part, auto&& call) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const auto of = [](std::int64_t a, std::int64_t b) { return tensor<std::int64_t>({a, b}); };
  refused("input_lengths of sequence 1 is 6, not in [0, 5]",
          [&] { ctc_loss(x, targets, of(5, 6), counts); });
  refused("input_lengths of sequence 0 is -1", [&] { ctc_loss(x, targets, of(-1, 5), counts); });
  refused("target_lengths of sequence 0 is 3, not in [0, 2]",
          [&] { ctc_loss(x, targets, steps, of(3, 1)); });
  refused("target_lengths of sequence 1 is -2", [&] { ctc_loss(x, targets, steps, of(1, -2)); });
  refused("label 1 of sequence 0 is 4, not in [0, 4)", [&] {
    ctc_loss(x, tensor<std::int64_t>({1, 4, 3, 1}, {2, 2}), steps, counts);
  });
  refused("label 0 of sequence 1 is 0, the blank", [&] {
    ctc_loss(x, tensor<std::int64_t>({1, 2, 0, 1}, {2, 2}), steps, counts);
  });
  refused("targets hold 5 labels, target_lengths add up to 4", [&] {
    ctc_loss(x, tensor<std::int64_t>({1, 2, 3, 1, 1}), steps, counts);
  });
  refused("blank = 4", [&] { ctc_loss(x, targets, steps, counts, {.blank = 4}); });
  refused("blank = -1", [&] { ctc_loss(x, targets, steps, counts, {.blank = -1}); });
  refused("log_probs [5] f32", [&] { ctc_loss(zeros({5}), targets, steps, counts); });
  refused("targets [3, 2]", [&] { ctc_loss(x, ones({3, 2}, i64), steps, counts); });
  refused("input_lengths [3]", [&] { ctc_loss(x, targets, ones({3}, i64), counts); });
  refused("target_lengths []", [&] { ctc_loss(x, targets, steps, ones({}, i64)); });
  refused("i64 or i32", [&] { ctc_loss(x, ones({2, 2}), steps, counts); });
  refused("floating", [&] { ctc_loss(ones({5, 2, 4}, i64), targets, steps, counts); });
}

TEST_CASE("ctc_loss: what only a device sees is an error at the next wait", "[gpu]") {
  if (default_device().is_cpu()) return;  // there it throws at once
  const Tensor x = log_softmax(make(Values(5 * 2 * 4, 0), {5, 2, 4}));
  const auto check = [&](const std::string& part, const Numbers& labels, const Numbers& steps,
                         const Numbers& counts) {
    const Tensor leaf = x.detach().set_requires_grad();
    const Tensor terms =
        ctc_terms(leaf, numbers(labels, {2, 2}), numbers(steps), numbers(counts)).terms;
    const std::string text = error_of([] { synchronize(default_device()); });
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
    terms.sum().backward();
    const Values got = values_of(terms), gradient = values_of(leaf.grad());
    CHECK(std::isnan(got[0]));
    CHECK(std::isfinite(got[1]));
    for (std::size_t c = 0; c < 4; ++c) {
      CHECK(std::isnan(gradient[c]));
      CHECK(std::isfinite(gradient[4 + c]));
    }
  };
  check("[ctc_loss] label 7 at position 1 is not in [0, 4)", {1, 7, 1, 2}, {5, 5}, {2, 2});
  check("[ctc_loss] a label is the blank", {1, 0, 1, 2}, {5, 5}, {2, 2});
  check("[ctc_loss] input length 6 at position 0 is not in [0, 6)", {1, 2, 1, 2}, {6, 5}, {2, 2});
  check("[ctc_loss] target length -1 at position 0", {1, 2, 1, 2}, {5, 5}, {-1, 2});
}

}  // namespace
}  // namespace firn::testing
