// Rows: reductions over several sets of axes.
#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

struct Form {
  const char* suffix;
  Axes axes;
  bool keepdims;
  std::vector<std::vector<Shape>> shapes;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"all", {}, false, {{{}}, {{1}}, {{7}}, {{2, 3, 4}}, {{65}}, {{1023}}, {{257, 255}}}},
      {"axis 0", {0}, false, {{{1}}, {{5}}, {{6, 4}}, {{3, 0}}, {{2, 3, 4}}, {{1025, 3}}}},
      {"last axis",
       {-1},
       false,
       {{{7}}, {{6, 4}}, {{0, 3}}, {{2, 3, 33}}, {{65537, 2}}, {{3, 4097}}}},
      {"axes 0 and 2", {0, 2}, false, {{{2, 3, 4}}, {{3, 1, 5, 2}}, {{17, 5, 31}}}},
      {"middle axis keepdims", {1}, true, {{{2, 3, 4}}, {{5, 7}}, {{2, 129, 3}}}},
  };
  return all;
}

using Fn = Tensor (*)(const Tensor&, const Axes&, bool);

void reduction(const std::string& name, OpFn op, const Form& form, const Arg& arg,
               Accuracy accuracy, bool integers = false, double scale = 0, double slope = 0) {
  Row row(name + " " + form.suffix, std::move(op));
  double terms = 1;
  for (const auto& s : form.shapes) terms = std::max(terms, static_cast<double>(s[0].product()));
  row.args({arg}).shapes(form.shapes).accuracy(accuracy, terms).cancels(scale, slope).golden();
  if (integers) row.integers();
  if (form.axes.empty()) row.perf({{1 << 22}});
}

FIRN_OP_ROWS(reductions) {
  for (const Form& f : forms()) {
    const auto with = [&](Fn fn) -> OpFn {
      return [fn, axes = f.axes, keep = f.keepdims](const Args& x) { return fn(x[0], axes, keep); };
    };
    reduction("sum", with(sum), f, real(), Accuracy::sum, true);
    reduction("mean", with(mean), f, real(), Accuracy::sum);
    reduction("max", with(max), f, apart(), Accuracy::exact, true);
    reduction("min", with(min), f, apart(), Accuracy::exact, true);
    reduction("norm", with(norm), f, real(0.3, 2), Accuracy::normwise);
  }
  for (const Form& f : forms()) {
    for (const std::int64_t correction : {0, 1}) {
      Form several = f;  // one value has no variance with divisor n - 1
      std::erase_if(several.shapes, [&](const auto& s) {
        std::int64_t n = 1;
        for (int i = 0; i < s[0].size(); ++i) {
          const bool reduced = f.axes.empty() || f.axes.contains(i) ||
                               f.axes.contains(i - static_cast<std::int64_t>(s[0].size()));
          if (reduced) n *= s[0][i];
        }
        return n <= correction;
      });
      reduction(
          "var correction " + std::to_string(correction),
          [axes = f.axes, keep = f.keepdims, correction](const Args& x) {
            return var(x[0], axes, correction, keep);
          },
          several, real(-1, 3), Accuracy::normwise, false, 9, 1);  // x - mean
    }
  }
  const auto tied = [](const char* name, OpFn op) {
    Row(name, std::move(op))
        .args({whole()})
        .shapes({{{6, 4}}, {{2, 33}}})
        .accuracy(Accuracy::exact)
        .kinks()
        .golden();
  };
  tied("max with ties", [](const Args& x) { return max(x[0], {1}); });
  tied("min with ties", [](const Args& x) { return min(x[0], {1}); });
  Row("norm of zeros", [](const Args& x) { return norm(x[0], {1}); })
      .args({whole(0, 1)})
      .shapes({{{3, 4}}})
      .accuracy(Accuracy::exact)
      .kinks()
      .golden();
  for (const std::int64_t axis : {0, 1, -1}) {
    Row("argmax axis " + std::to_string(axis), [axis](const Args& x) { return argmax(x[0], axis); })
        .args({constant()})
        .shapes({{{6, 4}}, {{2, 3, 33}}, {{5, 129}}})
        .accuracy(Accuracy::exact)
        .golden()
        .own_dtype()
        .integers();
  }
  Row("argmax keepdims", [](const Args& x) { return argmax(x[0], 1, true); })
      .args({constant()})
      .shapes({{{6, 4}}, {{2, 3, 33}}, {{0, 3}}})
      .accuracy(Accuracy::exact)
      .golden()
      .own_dtype();
}

}  // namespace
}  // namespace firn::testing
