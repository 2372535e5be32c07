// Rows: products, standard deviations, statistics and scans. A product of n numbers is off by up to
// n roundings, and `sum` allows 4 sqrt(terms): n roundings take n^2 / 16 terms.
#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

using Shapes = std::vector<std::vector<Shape>>;

constexpr double factors(double n) { return n * n / 4; }  // twice that

FIRN_OP_ROWS(more_reductions) {
  struct Form {
    const char* suffix;
    Axes axes;
    bool keepdims;
    Shapes shapes;
    double most;  ///< elements of one result
  };
  const Form forms[] = {
      {"all", {}, false, {{{}}, {{1}}, {{7}}, {{2, 3, 4}}, {{65}}}, 65},
      {"axis 0", {0}, false, {{{1}}, {{6, 4}}, {{3, 0}}, {{2, 3, 4}}, {{65, 3}}}, 65},
      {"last axis", {-1}, false, {{{7}}, {{6, 4}}, {{0, 3}}, {{2, 3, 33}}}, 33},
      {"axes 0 and 2", {0, 2}, false, {{{2, 3, 4}}, {{3, 1, 5, 2}}, {{7, 5, 9}}}, 63},
      {"middle axis keepdims", {1}, true, {{{2, 3, 4}}, {{5, 7}}, {{2, 65, 3}}}, 65},
  };
  for (const Form& f : forms) {
    using Reduction = Tensor (*)(const Tensor&, const Axes&, bool);
    const auto add = [&](const char* name, Reduction fn, const Arg& arg, auto&& more) {
      Row r(std::string(name) + " " + f.suffix,
            [fn, axes = f.axes, keep = f.keepdims](const Args& x) { return fn(x[0], axes, keep); });
      r.args({arg}).shapes(f.shapes).golden();
      more(r);
    };
    add("prod", prod, real(0.7, 1.4), [&](Row& r) { r.accuracy(Accuracy::sum, factors(f.most)); });
    add("logsumexp", logsumexp, real(-3, 3),
        [](Row& r) { r.accuracy(Accuracy::normwise).cancels(6, 1); });
    add("any", any, whole_constant(0, 2),
        [](Row& r) { r.accuracy(Accuracy::exact).own_dtype().integers(); });
    add("all", all, whole_constant(0, 2),
        [](Row& r) { r.accuracy(Accuracy::exact).own_dtype().integers(); });
    Row("count_nonzero " + std::string(f.suffix),
        [axes = f.axes](const Args& x) { return count_nonzero(x[0], axes); })
        .args({whole_constant(0, 2)})
        .shapes(f.shapes)
        .accuracy(Accuracy::exact)
        .golden()
        .own_dtype()
        .integers();
    if (f.most > 1) {
      Shapes several;  // one value has no deviation
      for (const auto& s : f.shapes)
        if (s[0].product() >= 2 * 3 && s[0] != Shape{7}) several.push_back(s);
      Row("std " + std::string(f.suffix),
          [axes = f.axes, keep = f.keepdims](const Args& x) {
            return firn::std(x[0], axes, 1, keep);
          })
          .args({real(-1, 3)})
          .shapes(several)
          .accuracy(Accuracy::normwise)
          .cancels(4, 2)
          .golden();
    }
  }
  Row("prod with zeros", [](const Args& x) { return prod(x[0], 1); })
      .args({whole(-1, 3)})
      .shapes({{{6, 4}}, {{5, 9}}})
      .accuracy(Accuracy::sum, factors(9))
      .golden()
      .own_dtype()
      .integers();
  Row("var_mean",
      [](const Args& x) {
        const VarMean both = var_mean(x[0], 1);
        return stack({both.var, both.mean});
      })
      .args({real(-1, 3)})
      .shapes({{{6, 4}}, {{2, 33, 3}}})
      .accuracy(Accuracy::normwise)
      .cancels(9, 1)
      .golden();
  for (const std::int64_t axis : {0, 1, -1})
    Row("argmin axis " + std::to_string(axis), [axis](const Args& x) { return argmin(x[0], axis); })
        .args({constant()})
        .shapes({{{6, 4}}, {{2, 3, 33}}, {{5, 129}}})
        .accuracy(Accuracy::exact)
        .golden()
        .own_dtype()
        .integers();
}

FIRN_OP_ROWS(scans) {
  for (const std::int64_t axis : {0, 1, -1}) {
    const std::string where = " axis " + std::to_string(axis);
    Row("cumsum" + where, [axis](const Args& x) { return cumsum(x[0], axis); })
        .args({real()})
        .shapes({{{6, 4}}, {{2, 5, 33}}, {{3, 0}}, {{0, 3}}, {{2, 300}}, {{300, 9}}})
        .accuracy(Accuracy::sum, 300)
        .golden();
    Row("cumprod" + where, [axis](const Args& x) { return cumprod(x[0], axis); })
        .first_derivative_only()
        .args({real(0.7, 1.4)})
        .shapes({{{6, 4}}, {{2, 5, 33}}, {{3, 0}}, {{70, 9}}})
        .accuracy(Accuracy::sum, factors(70))
        .golden();
    Row("logcumsumexp" + where, [axis](const Args& x) { return logcumsumexp(x[0], axis); })
        .first_derivative_only()
        .args({real(-3, 3)})
        .shapes({{{6, 4}}, {{2, 5, 33}}, {{3, 0}}, {{2, 270}}, {{70, 9}}})
        .accuracy(Accuracy::normwise)
        .cancels(9, 1)
        .golden();
    Row("cummax" + where, [axis](const Args& x) { return cummax(x[0], axis).values; })
        .args({apart()})
        .shapes({{{6, 4}}, {{2, 5, 33}}, {{3, 0}}, {{70, 9}}})
        .accuracy(Accuracy::exact)
        .golden()
        .integers();
    Row("cummin" + where, [axis](const Args& x) { return cummin(x[0], axis).values; })
        .args({apart()})
        .shapes({{{6, 4}}, {{2, 5, 33}}, {{0, 3}}, {{2, 300}}})
        .accuracy(Accuracy::exact)
        .golden()
        .integers();
    Row("cummax, positions" + where, [axis](const Args& x) { return cummax(x[0], axis).indices; })
        .args({whole_constant()})
        .shapes({{{6, 4}}, {{2, 5, 33}}, {{70, 9}}})
        .accuracy(Accuracy::exact)
        .golden()
        .own_dtype()
        .integers();
    Row("cummin, positions" + where, [axis](const Args& x) { return cummin(x[0], axis).indices; })
        .args({whole_constant()})
        .shapes({{{6, 4}}, {{2, 5, 33}}, {{2, 300}}})
        .accuracy(Accuracy::exact)
        .golden()
        .own_dtype()
        .integers();
  }
  Row("cumsum of a scalar", [](const Args& x) { return cumsum(x[0], 0); })
      .args({real()})
      .shapes({{{}}})
      .accuracy(Accuracy::exact)
      .golden();
  Row("cumprod with zeros", [](const Args& x) { return cumprod(x[0], 1); })
      .first_derivative_only()
      .args({whole(-1, 3)})
      .shapes({{{6, 4}}, {{5, 9}}})
      .accuracy(Accuracy::sum, factors(9))
      .golden();
  Row("cummax of equal elements", [](const Args& x) { return cummax(x[0], 1).values; })
      .args({whole()})
      .shapes({{{6, 4}}, {{2, 33}}})
      .accuracy(Accuracy::exact)
      .kinks()
      .golden();
}

FIRN_OP_ROWS(statistics) {
  for (const std::int64_t axis : {0, 1}) {
    const std::string where = " axis " + std::to_string(axis);
    Row("max_with_indices" + where,
        [axis](const Args& x) { return max_with_indices(x[0], axis).values; })
        .args({apart()})
        .shapes({{{6, 4}}, {{5, 3, 4}}, {{3, 33}}})
        .accuracy(Accuracy::exact)
        .integers();
    Row("min_with_indices" + where,
        [axis](const Args& x) { return min_with_indices(x[0], axis, true).values; })
        .args({apart()})
        .shapes({{{6, 4}}, {{5, 3, 4}}, {{3, 33}}})
        .accuracy(Accuracy::exact)
        .integers();
  }
  Row("median", [](const Args& x) { return median(x[0]); })
      .first_derivative_only()
      .args({apart()})
      .shapes({{{6, 4}}, {{7}}, {{}}})
      .accuracy(Accuracy::exact)
      .golden()
      .integers();
  Row("median with ties", [](const Args& x) { return median(x[0]); })
      .args({whole()})
      .shapes({{{6, 4}}, {{33}}})
      .accuracy(Accuracy::exact)
      .kinks()
      .golden();
  for (const std::int64_t axis : {0, 1}) {
    const std::string where = " axis " + std::to_string(axis);
    Row("median" + where, [axis](const Args& x) { return median(x[0], axis).values; })
        .args({apart()})
        .shapes({{{6, 4}}, {{5, 3, 4}}, {{3, 33}}})
        .accuracy(Accuracy::exact)
        .golden()
        .integers();
    Row("median, positions" + where,
        [axis](const Args& x) { return median(x[0].detach(), axis, true).indices; })
        .args({[] {
          Arg a = apart();
          a.differentiable = false;
          return a;
        }()})
        .shapes({{{6, 4}}, {{5, 3, 4}}})
        .accuracy(Accuracy::exact)
        .golden()
        .own_dtype();
  }
  for (const auto how : {Interpolation::linear, Interpolation::lower, Interpolation::higher,
                         Interpolation::nearest, Interpolation::midpoint}) {
    Row(std::string("quantile ") + to_string(how),
        [how](const Args& x) {
          return quantile(x[0], tensor({0.0, 0.13, 0.5, 0.77, 1.0}, {5}, x[0].device()),
                          {.axes = 1, .interpolation = how});
        })
        .args({apart()})
        .shapes({{{6, 4}}, {{3, 33}}})
        .accuracy(Accuracy::normwise)
        .golden();
  }
  Row("quantile of all", [](const Args& x) { return quantile(x[0], 0.3, {.keepdims = true}); })
      .args({apart()})
      .shapes({{{6, 4}}, {{2, 3, 4}}})
      .accuracy(Accuracy::normwise)
      .golden();
}

}  // namespace
}  // namespace firn::testing
