// Operations that are made of others: an error names the one that was called, and not its parts.
#include <functional>
#include <utility>
#include <vector>

#include "refused.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::refused;

namespace {

using Call = std::function<void()>;
using Calls = std::vector<std::pair<const char*, Call>>;

void check_all(const Calls& calls) {
  for (const auto& [op, call] : calls) {
    INFO(op);
    refused(op, {}, call);
  }
}

}  // namespace

TEST_CASE("refusals: joins and rearrangements name themselves", "[ops]") {
  const Tensor x = zeros({2, 3}), n = zeros({2, 3}, i64), list = zeros({3});
  check_all({
      {"hstack",
       [&] {
         hstack({x, zeros({3, 3})});
       }},
      {"hstack",
       [&] {
         hstack({x, n});
       }},
      {"hstack",
       [&] {
         hstack({list, x});
       }},
      {"vstack",
       [&] {
         vstack({x, zeros({2, 4})});
       }},
      {"vstack",
       [&] {
         vstack({x, n});
       }},
      {"dstack",
       [&] {
         dstack({x, zeros({2, 4})});
       }},
      {"dstack", [&] { dstack(std::vector<Tensor>()); }},
      {"column_stack",
       [&] {
         column_stack({x, zeros({3})});
       }},
      {"column_stack",
       [&] {
         column_stack({x, n});
       }},
      {"tile", [&] { tile(x, {-1}); }},
      {"tile",
       [&] {
         tile(x, {std::int64_t{1} << 62, 4});
       }},
      {"pad",
       [&] {
         pad(n, {0, 0}, {0, 1}, 0.5);
       }},
      {"pad", [&] { pad(x, {0}, {1}, PadMode::reflect); }},
      {"diag_embed", [&] { diag_embed(zeros({2}, f8_e4m3)); }},
      {"diagonal_scatter", [&] { return diagonal_scatter(x, list, 0, 0, 5); }},
      {"diagonal_scatter", [&] { return diagonal_scatter(x, list, 0, 1, 1); }},
      {"zeros_like", [] { zeros_like(Tensor()); }},
      {"ones_like", [] { ones_like(Tensor()); }},
      {"empty_like", [] { empty_like(Tensor()); }},
      {"full_like", [] { full_like(Tensor(), 1); }},
  });
}

TEST_CASE("refusals: sums, products and comparisons name themselves", "[ops]") {
  const Tensor x = zeros({2, 3}), n = zeros({2, 3}, i64), list = zeros({3});
  check_all({
      {"nansum", [&] { nansum(x, {4}); }},
      {"nansum",
       [&] {
         nansum(x, {0, 0});
       }},
      {"nanmean", [&] { nanmean(x, {4}); }},
      {"trace",
       [] {
         trace(zeros({2, 2}, f8_e4m3));
       }},
      {"corrcoef",
       [] {
         corrcoef(zeros({2, 2, 2}));
       }},
      {"isclose", [&] { isclose(x, zeros({4})); }},
      {"allclose", [&] { allclose(x, zeros({4})); }},
      {"allclose", [&] { allclose(x, n); }},
      {"var_mean", [&] { var_mean(x, {4}); }},
      {"outer", [&] { outer(list, zeros({2}, f64)); }},
      {"dot", [&] { dot(list, zeros({3}, f64)); }},
      {"dot", [] { dot(zeros({3}, boolean), zeros({3}, boolean)); }},
      {"addmm", [&] { addmm(x, x, x); }},
      {"addmm",
       [&] {
         addmm(zeros({5, 5}), x, zeros({3, 4}));
       }},
      {"bilinear",
       [&] {
         bilinear(x, x, zeros({4, 3, 3}), zeros({5}));
       }},
      {"bucketize", [&] { bucketize(n, list); }},
      {"trapezoid",
       [&] {
         trapezoid(x, zeros({2, 4}));
       }},
      {"masked_scatter", [&] { return masked_scatter(x, zeros({4}, boolean), list); }},
  });
}

TEST_CASE("refusals: hints of joins and writes fit the case", "[ops]") {
  const Tensor x = zeros({2, 3}), at = zeros({2}, i64);
  refused("cat", {"[2, 3] f32 cpu", "[3] f32 cpu", "hint: unsqueeze()"}, [&] {
    cat({x, zeros({3})});
  });
  refused("cat", {"[] f32 cpu", "hint: stack()"}, [] { cat({zeros({}), zeros({})}); });
  refused("cat", {"hint: shapes must agree off the axis"}, [&] { cat({x, zeros({2, 4})}); });
  refused("index_put", {"values [4] f32 cpu", "expected shape [2, 3]", "broadcast to what is"},
          [&] { return index_put(x, {at}, zeros({4})); });
  refused("index_put", {"for 3 axes, and x is [2, 3]", "a mask stands for all of its axes"}, [&] {
    return index_put(x, {at, at, at}, zeros({2}));
  });
  refused("index_put", {"hint: a scalar has no axis"},
          [&] { return index_put(zeros({}), {at}, 1); });
  refused("masked_scatter", {"mask [4] bool", "[2, 3] f32"},
          [&] { return masked_scatter(x, zeros({4}, boolean), zeros({2})); });
}
