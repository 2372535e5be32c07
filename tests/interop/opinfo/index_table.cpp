// Writing at positions, and searching sorted lists.
#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

const Tensor& x(A a) { return a.tensor("input"); }

ScatterReduce reduction(const std::string& name) {
  for (const auto how : {ScatterReduce::sum, ScatterReduce::prod, ScatterReduce::mean,
                         ScatterReduce::amax, ScatterReduce::amin})
    if (name == to_string(how)) return how;
  throw Refused("no such reduction: " + name);
}

Results scattered(A a) {
  const std::int64_t dim = a.integer("dim");
  const Tensor& index = a.tensor("index");
  const std::string how = a.text("reduce", "");
  if (!a.is<Tensor>("src")) {
    if (how.empty()) return {scatter(x(a), dim, index, a.number("src"))};
    const Tensor src = full(index.shape(), a.number("src"), x(a).dtype());
    return {scatter_reduce(x(a), dim, index, src, reduction(how == "add" ? "sum" : "prod"))};
  }
  if (how.empty()) return {scatter(x(a), dim, index, a.tensor("src"))};
  return {
      scatter_reduce(x(a), dim, index, a.tensor("src"), reduction(how == "add" ? "sum" : "prod"))};
}

Results reduced(A a) {
  return {scatter_reduce(x(a), a.integer("dim"), a.tensor("index"), a.tensor("src"),
                         reduction(a.text("reduce", "")), a.flag("include_self", true))};
}

Results slices_reduced(A a) {
  return {index_reduce(x(a), a.integer("dim"), a.tensor("index"), a.tensor("source"),
                       reduction(a.text("reduce", "")), a.flag("include_self", true))};
}

Results filled(A a) {
  if (a.is<Tensor>("value"))
    return {index_fill(x(a), a.integer("dim"), a.tensor("index"), a.tensor("value"))};
  return {index_fill(x(a), a.integer("dim"), a.tensor("index"), a.number("value"))};
}

Results masked(A a) {
  const Tensor& mask = a.tensor("mask");
  const Shape shape = mask.rank() > x(a).rank() ? mask.shape() : x(a).shape();
  return {masked_scatter(expand(x(a), shape), mask, a.tensor("source"))};
}

Tensor as_asked(A a, const Tensor& places) {
  return a.flag("out_int32", false) ? cast(places, i32) : places;
}

Results searched(A a) {
  Tensor list = a.tensor("sorted_sequence");
  if (a.has("sorter")) list = take_along(list, a.tensor("sorter"), -1);
  const bool right = a.flag("right", false) || a.text("side", "left") == "right";
  const Tensor values =
      a.is<Tensor>("input") ? a.tensor("input") : full({}, a.number("input"), list.dtype());
  return {as_asked(a, searchsorted(list, values, right))};
}

}  // namespace

std::vector<Entry> index_entries() {
  std::vector<Entry> all = {
      {"scatter", "input dim index src reduce", Sums::yes, scattered},
      {"index_copy", "input dim index source", Sums::no,
       [](A a) -> Results {
         return {index_copy(x(a), a.integer("dim"), a.tensor("index"), a.tensor("source"))};
       }},
      {"index_fill", "input dim index value", Sums::yes, filled},
      {"index_put", "input indices values accumulate", Sums::yes,
       [](A a) -> Results {
         return {index_put(x(a), a.tensors("indices"), a.tensor("values"),
                           a.flag("accumulate", false))};
       }},
      {"put", "input index source accumulate", Sums::yes,
       [](A a) -> Results {
         return {put(x(a), a.tensor("index"), a.tensor("source"), a.flag("accumulate", false))};
       }},
      {"take", "input index", Sums::yes,
       [](A a) -> Results { return {take(x(a), a.tensor("index"))}; }},
      {"masked_scatter", "input mask source", Sums::yes, masked},
      {"searchsorted", "sorted_sequence input out_int32 right side sorter", Sums::no, searched},
      {"bucketize", "input boundaries out_int32 right", Sums::no,
       [](A a) -> Results {
         return {as_asked(a, bucketize(x(a), a.tensor("boundaries"), a.flag("right", false)))};
       }},
      {"select_scatter", "input src dim index", Sums::no,
       [](A a) -> Results {
         return {select_scatter(x(a), a.tensor("src"), a.integer("dim"), a.integer("index"))};
       }},
      {"slice_scatter", "input src dim start end step", Sums::no,
       [](A a) -> Results {
         return {slice_scatter(x(a), a.tensor("src"), a.integer("dim"), a.integer("start"),
                               a.integer("end"), a.integer("step", 1))};
       }},
      {"diagonal_scatter", "input src offset dim1 dim2", Sums::no,
       [](A a) -> Results {
         return {diagonal_scatter(x(a), a.tensor("src"), a.integer("offset", 0),
                                  a.integer("dim1", 0), a.integer("dim2", 1))};
       }},
  };
  for (const char* name : {"scatter_reduce/sum", "scatter_reduce/prod", "scatter_reduce/mean",
                           "scatter_reduce/amax", "scatter_reduce/amin"})
    all.push_back({name, "input dim index src reduce include_self", Sums::yes, reduced});
  for (const char* name :
       {"index_reduce/prod", "index_reduce/mean", "index_reduce/amax", "index_reduce/amin"})
    all.push_back({name, "input dim index source reduce include_self", Sums::yes, slices_reduced});
  return all;
}

}  // namespace firn::interop
