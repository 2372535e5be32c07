// Sorting, statistics and scans.
#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

const Tensor& x(A a) { return a.tensor("input"); }

template <Tensor (*f)(const Tensor&, std::int64_t)>
Results scan(A a) {
  return {f(x(a), a.integer("dim"))};
}
template <Sorted (*f)(const Tensor&, std::int64_t)>
Results scan_of_pairs(A a) {
  const Sorted so_far = f(x(a), a.integer("dim"));
  return {so_far.values, so_far.indices};
}

/// Refuses values of which some are equal: PyTorch gives their positions in any order.
void refuse_ties(A a, std::int64_t dim) {
  if (a.timed || x(a).rank() == 0) return;
  const Tensor sorted = sort(x(a), dim).values;
  const std::int64_t n = sorted.size(dim);
  const Tensor ties =
      eq(slice(sorted, dim, 1, n), slice(sorted, dim, 0, std::max<std::int64_t>(n - 1, 0)));
  if (sum(ties).item() > 0) throw Refused("equal elements, and 'stable' is not asked for");
}

Results middle(A a) {
  if (!a.has("dim")) return {median(x(a))};
  const std::int64_t dim = a.integer("dim");
  refuse_ties(a, dim);
  const Sorted found = median(x(a), dim, a.flag("keepdim", false));
  return {found.values, found.indices};
}

Results at_quantiles(A a) {
  QuantileOptions options{.keepdims = a.flag("keepdim", false)};
  if (a.has("dim")) options.axes = a.integer("dim");
  const std::string how = a.text("interpolation", "linear");
  for (const auto i : {Interpolation::linear, Interpolation::lower, Interpolation::higher,
                       Interpolation::nearest, Interpolation::midpoint})
    if (how == to_string(i)) options.interpolation = i;
  if (a.is<Tensor>("q") && a.tensor("q").requires_grad())
    throw Refused("argument 'q' takes a gradient");
  if (a.is<Tensor>("q")) return {quantile(x(a), a.tensor("q"), options)};
  return {quantile(x(a), a.number("q"), options)};
}

Results binned(A a) {
  HistogramOptions options{.weights = a.tensor_or_none("weight"),
                           .density = a.flag("density", false)};
  if (a.has("range")) throw Refused("argument 'range' is given");
  const Histogram h = a.is<Tensor>("bins") ? histogram(x(a), a.tensor("bins"), options)
                                           : histogram(x(a), a.integer("bins"), options);
  return {h.hist, h.edges};
}

Results distinct(A a) {
  const Unique u = unique(x(a));
  Results all = {u.values};
  if (a.flag("return_inverse", false)) all.push_back(u.inverse);
  if (a.flag("return_counts", false)) all.push_back(u.counts);
  return all;
}

Results in_order(A a) {
  const std::int64_t dim = a.has("dim") ? a.integer("dim") : -1;
  const Sorted all = sort(x(a), dim, {.descending = a.flag("descending", false)});
  if (!a.flag("stable", false)) refuse_ties(a, dim);
  return {all.values, all.indices};
}

}  // namespace

std::vector<Entry> order_entries() {
  return {
      {"sort", "input dim descending stable", Sums::no, in_order},
      {"argsort", "input dim descending stable", Sums::no,
       [](A a) -> Results { return {in_order(a)[1]}; }},
      {"topk", "input k dim largest sorted?", Sums::no,
       [](A a) -> Results {
         const std::int64_t dim = a.has("dim") ? a.integer("dim") : -1;
         refuse_ties(a, dim);
         const Sorted first = topk(x(a), a.integer("k"), dim, {.largest = a.flag("largest", true)});
         return {first.values, first.indices};
       }},

      // ---- Statistics and scans ----
      {"median", "input dim keepdim", Sums::no, middle},
      {"quantile", "input q dim keepdim interpolation", Sums::no, at_quantiles},
      {"histogram", "input bins range weight density", Sums::yes, binned},
      {"unique", "input sorted? return_inverse return_counts dim!", Sums::no, distinct},
      {"cumsum", "input dim dtype!", Sums::yes, scan<cumsum>},
      {"cumprod", "input dim dtype!", Sums::yes, scan<cumprod>},
      {"logcumsumexp", "input dim", Sums::yes, scan<logcumsumexp>},
      {"cummax", "input dim", Sums::no, scan_of_pairs<cummax>},
      {"cummin", "input dim", Sums::no, scan_of_pairs<cummin>},
  };
}

}  // namespace firn::interop
