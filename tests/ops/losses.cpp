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
  return arange(n, {.start = 0.5, .step = 0.25, .dtype = x.dtype() == f64 ? f64 : f32});
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

/// Sequences of steps, and of steps - 1; targets of `longest` labels and of one label less.
Tensor every_second_less(std::int64_t most, const Tensor& like) {
  std::vector<std::int64_t> counts;
  for (std::int64_t i = 0; i < like.size(1); ++i)
    counts.push_back(std::max<std::int64_t>(0, most - i % 2));
  return tensor(counts, {like.size(1)});
}

FIRN_OP_ROWS(sequence_losses) {
  // The gradient is that of the logits, so the row has them. They are f32 before the softmax: the
  // last class is the blank.
  Row("ctc_loss",
      [](const Args& a) {
        const Tensor x = log_softmax(a[0].to(a[0].dtype() == f64 ? f64 : f32));
        return both(ctc_loss(x, a[1], every_second_less(x.size(0), x),
                             every_second_less(a[1].size(1), x), {.blank = x.size(2) - 1}));
      })
      .args({real(-2, 2), index(4)})
      .shapes({{{7, 3, 5}, {3, 3}},
               {{1, 1, 5}, {1, 1}},
               {{3, 0, 5}, {0, 1}},
               {{9, 33, 6}, {33, 2}},
               {{4, 2, 5}, {2, 0}}})
      .accuracy(Accuracy::normwise, 33)
      .cancels(32, 16)  // probabilities are differences of logarithms of this size
      .golden()
      .first_derivative_only()
      .own_dtype();
}

/// Targets of 1 and -1 from numbers.
Tensor signs(const Tensor& t) {
  return where(gt(t, 0), ones_like(t),
               full(t.shape(), -1, {.dtype = t.dtype(), .device = t.device()}));
}

FIRN_OP_ROWS(losses_by_terms) {
  const std::vector<std::vector<Shape>> shapes = {
      {{3, 4}, {3, 4}}, {{}, {}}, {{0}, {0}}, {{7}, {7}}, {{65, 33}, {65, 33}}};
  const auto pairs = [&](const char* name, std::function<Loss(const Tensor&, const Tensor&)> loss,
                         const Arg& a, const Arg& b) {
    Row(name, [loss](const Args& x) { return both(loss(x[0], x[1])); })
        .args({a, b})
        .shapes(shapes)
        .accuracy(Accuracy::normwise, 2145)
        .cancels(4, 4)
        .roundings(4)
        .own_dtype();
  };
  pairs(
      "smooth_l1_loss", [](const Tensor& x, const Tensor& y) { return smooth_l1_loss(x, y, 0.5); },
      apart(-2, 2), apart(-2, 2, 1.0 / 128));
  pairs("bce_loss", bce_loss, real(0.05, 0.95), constant(0, 1));
  pairs(
      "bce_with_logits with pos_weight",
      [](const Tensor& x, const Tensor& y) {
        return bce_with_logits(x, y, {.pos_weight = full({}, 2.5, y.dtype(), y.device())});
      },
      real(-4, 4), constant(0, 1));
  pairs(
      "focal_loss", [](const Tensor& x, const Tensor& y) { return focal_loss(x, y); }, real(-3, 3),
      constant(0, 1));
  pairs(
      "soft_margin_loss",
      [](const Tensor& x, const Tensor& y) { return soft_margin_loss(x, signs(y)); }, real(-3, 3),
      constant(-1, 1));
  pairs(
      "hinge_loss", [](const Tensor& x, const Tensor& y) { return hinge_loss(x, signs(y)); },
      real(-3, 3, {-1, 1}), constant(-1, 1));
  pairs(
      "hinge_embedding_loss",
      [](const Tensor& x, const Tensor& y) { return hinge_embedding_loss(x, signs(y)); },
      real(0, 3, {1}), constant(-1, 1));
  pairs(
      "margin_ranking_loss",
      [](const Tensor& x, const Tensor& y) {
        return margin_ranking_loss(x, y,
                                   full(x.shape(), -1, {.dtype = x.dtype(), .device = x.device()}));
      },
      apart(-2, 2), apart(-2, 2, 1.0 / 128));
  pairs(
      "poisson_nll_loss", [](const Tensor& x, const Tensor& y) { return poisson_nll_loss(x, y); },
      real(-1, 1), constant(0, 3));
  pairs(
      "poisson_nll_loss of rates",
      [](const Tensor& x, const Tensor& y) {
        return poisson_nll_loss(x, y, {.log_input = false, .full = true});
      },
      real(0.3, 3), constant(0, 3));
  pairs(
      "gaussian_nll_loss",
      [](const Tensor& x, const Tensor& y) {
        return gaussian_nll_loss(x, y, square(x) + 0.5, {.full = true});
      },
      real(), real());
  pairs(
      "huber_terms with factors",
      [](const Tensor& x, const Tensor& y) { return huber_terms(x, y).loss(gt(y.detach(), 0)); },
      apart(-2, 2), apart(-2, 2, 1.0 / 128));
  const auto rows = [](const char* name, std::function<Loss(const Args&)> loss,
                       std::vector<Arg> args, std::vector<std::vector<Shape>> of) {
    Row(name, [loss](const Args& x) { return both(loss(x)); })
        .args(std::move(args))
        .shapes(std::move(of))
        .accuracy(Accuracy::normwise, 256)
        .cancels(8, 8)
        .roundings(6)
        .own_dtype();
  };
  rows("cosine_embedding_loss",
       [](const Args& a) {
         return cosine_embedding_loss(a[0], a[1],
                                      ones({a[0].size(0)}, a[0].dtype(), a[0].device()));
       },
       {real(0.5, 2), real(-2, -0.5)},
       {{{3, 4}, {3, 4}}, {{1, 1}, {1, 1}}, {{0, 4}, {0, 4}}, {{9, 17}, {9, 17}}});
  rows("triplet_margin_loss",
       [](const Args& a) { return triplet_margin_loss(a[0], a[1], a[2], {.margin = 9}); },
       {real(-1, 1), real(-1, 1), real(-1, 1)},
       {{{3, 4}, {3, 4}, {3, 4}},
        {{5}, {5}, {5}},
        {{0, 4}, {0, 4}, {0, 4}},
        {{9, 17}, {9, 17}, {9, 17}}});
  rows("dice_loss", [](const Args& a) { return dice_loss(a[0], a[1]); },
       {real(0.05, 0.95), real(0.05, 0.95)},
       {{{3, 4}, {3, 4}},
        {{1, 1}, {1, 1}},
        {{0, 4}, {0, 4}},
        {{2, 3, 4}, {2, 3, 4}},
        {{9, 17}, {9, 17}}});
  rows(
      "cross_entropy_terms",
      [](const Args& a) {
        return cross_entropy_terms(a[0], a[1],
                                   {.label_smoothing = 0.1, .class_weights = weights_for(a[0])})
            .loss();
      },
      {real(-3, 3), index_or(4, -100)}, kRows);
  rows(
      "cross_entropy of probabilities",
      [](const Args& a) {
        return cross_entropy(a[0], a[1], {.label_smoothing = 0.1, .axis = -1, .z_loss = 0.1});
      },
      {real(-3, 3), real(0.05, 1)},
      {{{3, 4}, {3, 4}}, {{4}, {4}}, {{0, 4}, {0, 4}}, {{2, 3, 4}, {2, 3, 4}}, {{9, 17}, {9, 17}}});
}

}  // namespace
}  // namespace firn::testing
