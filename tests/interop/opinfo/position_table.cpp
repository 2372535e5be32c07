// Rearrangements, and adding and reading at positions.
#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

const Tensor& x(A a) { return a.tensor("input"); }

Dims dims(A a, const char* name) {
  Dims out;
  for (const std::int64_t v : a.list(name)) out.push_back(v);
  return out;
}

Results chunks(A a) { return chunk(x(a), a.integer("chunks"), a.integer("dim", 0)); }

/// PyTorch rolls by several shifts, each along its axis.
Results rolled(A a) {
  const auto shifts = a.list("shifts"), axes = a.list("dims");
  if (axes.empty()) return {roll(x(a), shifts.at(0))};
  Tensor y = x(a);
  for (std::size_t i = 0; i < shifts.size(); ++i) y = roll(y, shifts[i], axes.at(i));
  return {y};
}

Results turned(A a) {
  const auto axes = a.list("dims");
  return {axes.empty() ? rot90(x(a), a.integer("k", 1))
                       : rot90(x(a), a.integer("k", 1), axes.at(0), axes.at(1))};
}

Results interleaved(A a) {
  const bool flat = !a.has("dim");
  const Tensor y = flat ? flatten(x(a)) : x(a);
  const std::int64_t axis = flat ? 0 : a.integer("dim");
  if (a.is<std::int64_t>("repeats")) return {repeat_interleave(y, a.integer("repeats"), axis)};
  const Tensor& counts = a.tensor("repeats");
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < counts.numel(); ++i)
    numbers.push_back(static_cast<std::int64_t>(flatten(counts)[i].item()));
  if (numbers.size() == 1) return {repeat_interleave(y, numbers[0], axis)};
  return {repeat_interleave(y, numbers, axis)};
}

}  // namespace

std::vector<Entry> position_entries() {
  return {
      {"chunk", "input chunks dim", Sums::no, chunks},
      {"movedim", "input source destination", Sums::no,
       [](A a) -> Results { return {movedim(x(a), dims(a, "source"), dims(a, "destination"))}; }},
      {"diagonal", "input offset dim1 dim2", Sums::no,
       [](A a) -> Results {
         return {
             diagonal(x(a), a.integer("offset", 0), a.integer("dim1", 0), a.integer("dim2", 1))};
       }},
      {"flip", "input *dims", Sums::no,
       [](A a) -> Results { return {flip(x(a), dims(a, "dims"))}; }},
      {"fliplr", "input", Sums::no, [](A a) -> Results { return {flip(x(a), 1)}; }},
      {"flipud", "input", Sums::no, [](A a) -> Results { return {flip(x(a), 0)}; }},
      {"roll", "input shifts dims", Sums::no, rolled},
      {"rot90", "input k dims", Sums::no, turned},
      {"repeat", "input *repeats", Sums::yes,
       [](A a) -> Results { return {repeat(x(a), dims(a, "repeats"))}; }},
      {"tile", "input *dims", Sums::yes,
       [](A a) -> Results { return {tile(x(a), dims(a, "dims"))}; }},
      {"repeat_interleave", "input repeats dim output_size?", Sums::yes, interleaved},
      {"tril", "input diagonal", Sums::no,
       [](A a) -> Results { return {tril(x(a), a.integer("diagonal", 0))}; }},
      {"triu", "input diagonal", Sums::no,
       [](A a) -> Results { return {triu(x(a), a.integer("diagonal", 0))}; }},
      {"diag", "input diagonal", Sums::no,
       [](A a) -> Results { return {diag(x(a), a.integer("diagonal", 0))}; }},
      {"take_along_dim", "input indices dim", Sums::yes,
       [](A a) -> Results {
         if (a.has("dim")) return {take_along(x(a), a.tensor("indices"), a.integer("dim"))};
         return {take_along(flatten(x(a)), flatten(a.tensor("indices")), 0)};
       }},
      {"scatter_add", "input dim index src", Sums::yes,
       [](A a) -> Results {
         return {scatter_add(x(a), a.integer("dim"), a.tensor("index"), a.tensor("src"))};
       }},
      {"index_add", "input dim index source alpha", Sums::yes,
       [](A a) -> Results {
         return {index_add(x(a), a.integer("dim"), a.tensor("index"), a.tensor("source"),
                           a.number("alpha", 1))};
       }},
      {"kthvalue", "input k dim keepdim", Sums::no,
       [](A a) -> Results {
         const Sorted found =
             kthvalue(x(a), a.integer("k"), a.integer("dim", -1), a.flag("keepdim", false));
         return {found.values, found.indices};
       }},
      {"nonzero", "input as_tuple!", Sums::no, [](A a) -> Results { return {nonzero(x(a))}; }},
      {"argwhere", "input", Sums::no, [](A a) -> Results { return {nonzero(x(a))}; }},
      {"masked_select", "input mask", Sums::no,
       [](A a) -> Results { return {masked_select(x(a), a.tensor("mask"))}; }},
  };
}

}  // namespace firn::interop
