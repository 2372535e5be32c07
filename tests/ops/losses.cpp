// Rows: losses. Each gives [sum, weight] in one tensor, so that both are compared.
#include "support/ops/op_row.h"
#include "support/values.h"

namespace firn::testing {
namespace {

Tensor both(const Loss& loss) { return stack({loss.sum, loss.weight}); }

const std::vector<std::vector<Shape>> kRows = {
    {{3, 4}, {3}}, {{1, 4}, {1}}, {{0, 4}, {0}}, {{4}, {}}, {{2, 3, 4}, {2, 3}}, {{33, 65}, {33}}};

void on_classes(const char* name, std::function<Loss(const Args&)> loss, const Arg& x,
                const Arg& target, std::vector<std::vector<Shape>> shapes = kRows) {
  Row(name, [loss](const Args& a) { return both(loss(a)); })
      .args({x, target})
      .shapes(std::move(shapes))
      .accuracy(Accuracy::normwise, 33)
      .cancels(0, 1)  // p - target
      .golden()
      .own_dtype();
}

// Class weights of the table's rows: any fixed numbers.
Tensor weights_for(const Tensor& x) {
  const std::int64_t n = x.size(-1);
  return arange(n, 0.5, 0.25, x.dtype() == f64 ? f64 : f32);
}

// Row weights: any fixed numbers, and some zeros.
Tensor row_weights_for(const Tensor& target) {
  std::vector<float> weights;
  for (std::int64_t i = 0; i < target.numel(); ++i)
    weights.push_back(i % 3 == 1 ? 0 : 0.5f + 0.125f * static_cast<float>(i));
  return tensor<float>(weights, target.shape());
}

FIRN_OP_ROWS(class_losses) {
  const Arg logits = real(-3, 3), target = index(4), some = index_or(4, -100);
  on_classes(
      "cross_entropy", [](const Args& a) { return cross_entropy(a[0], a[1]); }, logits, target);
  on_classes(
      "cross_entropy ignoring some", [](const Args& a) { return cross_entropy(a[0], a[1]); },
      logits, some);
  on_classes(
      "cross_entropy ignoring class 1",
      [](const Args& a) {
        return cross_entropy(a[0], a[1], {.ignore_index = 1, .class_weights = {}});
      },
      logits, target);
  on_classes(
      "cross_entropy smoothed",
      [](const Args& a) {
        return cross_entropy(a[0], a[1], {.label_smoothing = 0.2, .class_weights = {}});
      },
      logits, target);
  on_classes(
      "cross_entropy weighted",
      [](const Args& a) { return cross_entropy(a[0], a[1], {.class_weights = weights_for(a[0])}); },
      logits, target);
  on_classes(
      "cross_entropy weighted smoothed ignoring some",
      [](const Args& a) {
        return cross_entropy(a[0], a[1],
                             {.label_smoothing = 0.1, .class_weights = weights_for(a[0])});
      },
      logits, some);
  // PyTorch has no such options.
  const auto own = [&](const char* name, std::function<Loss(const Args&)> loss, const Arg& t) {
    Row(name, [loss](const Args& a) { return both(loss(a)); })
        .args({logits, t})
        .shapes(kRows)
        .accuracy(Accuracy::normwise, 33)
        .cancels(0, 1)
        .own_dtype();
  };
  own(
      "cross_entropy with row weights",
      [](const Args& a) {
        return cross_entropy(a[0], a[1], {.row_weights = row_weights_for(a[1])});
      },
      some);
  own(
      "cross_entropy with z-loss",
      [](const Args& a) { return cross_entropy(a[0], a[1], {.z_loss = 0.1}); }, some);
  own(
      "cross_entropy with all options",
      [](const Args& a) {
        return cross_entropy(a[0], a[1],
                             {.label_smoothing = 0.1,
                              .class_weights = weights_for(a[0]),
                              .row_weights = row_weights_for(a[1]),
                              .z_loss = 0.1});
      },
      some);
  on_classes(
      "nll_loss", [](const Args& a) { return nll_loss(a[0], a[1]); }, real(-4, -0.1), target);
  on_classes(
      "nll_loss weighted ignoring some",
      [](const Args& a) { return nll_loss(a[0], a[1], {.class_weights = weights_for(a[0])}); },
      real(-4, -0.1), some);
  Row("cross_entropy mean", [](const Args& a) { return cross_entropy(a[0], a[1]).mean(); })
      .args({logits, some})
      .shapes({{{3, 4}, {3}}, {{2, 3, 4}, {2, 3}}, {{33, 65}, {33}}})
      .accuracy(Accuracy::normwise)
      .golden()
      .own_dtype();
}

FIRN_OP_ROWS(linear_class_losses) {
  Row("linear_cross_entropy in chunks",
      [](const Args& a) {
        return both(linear_cross_entropy(
            a[0], a[1], a[3],
            {.label_smoothing = 0.1, .row_weights = row_weights_for(a[3]), .z_loss = 0.1},
            {.bias = a[2], .chunk_rows = 2, .chunk_classes = 3}));
      })
      .args({real(), real(), real(), index_or(7, -100)})
      .shapes({{{5, 4}, {7, 4}, {7}, {5}},
               {{1, 4}, {7, 4}, {7}, {1}},
               {{4}, {7, 4}, {7}, {}},
               {{2, 3, 9}, {7, 9}, {7}, {2, 3}}})
      .accuracy(Accuracy::normwise, 33)
      .cancels(0, 8)
      .roundings(2)
      .own_dtype();
}

FIRN_OP_ROWS(element_losses) {
  const std::vector<std::vector<Shape>> shapes = {
      {{3, 4}, {3, 4}}, {{}, {}}, {{0}, {0}}, {{7}, {7}}, {{65, 33}, {65, 33}}};
  // Roundings: a loss made of tensor ops may round the difference and the term in the dtype.
  const auto add_row = [&](const char* name, Loss (*loss)(const Tensor&, const Tensor&),
                           const Arg& a, const Arg& b) {
    Row(name, [loss](const Args& x) { return both(loss(x[0], x[1])); })
        .args({a, b})
        .shapes(shapes)
        .accuracy(Accuracy::normwise, 2145)
        .roundings(3)
        .golden()
        .own_dtype();
  };
  add_row("mse_loss", mse_loss, real(), real());
  add_row("l1_loss", l1_loss, apart(-2, 2), apart(-2, 2, 1.0 / 128));
  add_row("bce_with_logits", bce_with_logits, real(-4, 4), constant(0, 1));
  add_row("kl_div", kl_div, real(-4, -0.1), constant(0.05, 1));
  Row("huber_loss", [](const Args& x) { return both(huber_loss(x[0], x[1])); })
      .args({apart(-2, 2), apart(-2, 2, 1.0 / 128)})
      .shapes(shapes)
      .accuracy(Accuracy::normwise, 2145)
      .roundings(3)
      .golden()
      .own_dtype();
  Row("huber_loss delta 0.5", [](const Args& x) { return both(huber_loss(x[0], x[1], 0.5)); })
      .args({apart(-2, 2), apart(-2, 2, 1.0 / 128)})
      .shapes(shapes)
      .accuracy(Accuracy::normwise, 2145)
      .roundings(3)
      .golden()
      .own_dtype();
}

}  // namespace
}  // namespace firn::testing
