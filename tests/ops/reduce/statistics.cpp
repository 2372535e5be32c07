// Medians, quantiles, histograms and distinct values: special values, edge cases, and what they
// refuse. The numbers are PyTorch's (2.15) unless a comment says otherwise.
#include <cmath>
#include <limits>

#include "ops/refusals/refused.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;

}  // namespace

TEST_CASE("max_with_indices and min_with_indices take the first of equal elements", "[ops]") {
  for (const DType t : {f64, f32, f16, i64, u8}) {
    const Tensor x = make({3, 7, 7, 1, 0, 1, 0, 5}, {2, 4}, t);
    const Sorted most = max_with_indices(x), least = min_with_indices(x, 0, true);
    CHECK(most.values.dtype() == t);
    CHECK(values_of(most.values) == Values{7, 5});
    CHECK(values_of(most.indices) == Values{1, 3});
    CHECK(most.indices.dtype() == i64);
    CHECK(values_of(least.values) == Values{0, 1, 0, 1});
    CHECK(values_of(least.indices) == Values{1, 1, 1, 0});
    CHECK(least.values.shape() == Shape{1, 4});
  }
  const Tensor odd = make({1, kNaN, 4, kNaN, -kInf, -kInf}, {2, 3});
  CHECK(values_of(max_with_indices(odd).indices) == Values{1, 0});
  CHECK(values_of(min_with_indices(odd).indices) == Values{1, 0});
  const Sorted one = max_with_indices(make({6}, {}), -1, true);
  CHECK(one.values.rank() == 0);
  CHECK(one.values.item() == 6);
  CHECK(one.indices.item() == 0);
  CHECK(max_with_indices(empty({0, 3})).values.shape() == Shape{0});
  refused("max_with_indices", {"[2, 0] f32 cpu", "axis 1"}, [] {
    max_with_indices(empty({2, 0}));
  });
  refused("min_with_indices", {"axis 2"}, [] { min_with_indices(ones({2, 3}), 2); });

  // One position takes the gradient, where max() shares it.
  Tensor x = make({2, 5, 5}, {3}).set_requires_grad();
  (max_with_indices(x).values * 3.0).backward();
  CHECK(values_of(x.grad()) == Values{0, 3, 0});
}

TEST_CASE("reductions: empty, NaN and integers", "[ops]") {
  const Tensor none = empty({0, 3});
  CHECK(values_of(prod(none, 0)) == Values{1, 1, 1});
  CHECK(values_of(any(none, 0)) == Values{0, 0, 0});
  CHECK(values_of(all(none, 0)) == Values{1, 1, 1});
  CHECK(values_of(count_nonzero(none, 0)) == Values{0, 0, 0});
  CHECK(values_of(logsumexp(none, 0)) == Values{-kInf, -kInf, -kInf});
  CHECK(prod(none, 1).shape() == Shape{0});
  CHECK(std::isnan(firn::std(none).item()));
  CHECK(std::isnan(firn::std(ones({1})).item()));
  for (const DType t : {f64, f32, f16, bf16}) {
    const Tensor x = make({0.0, -0.0, kNaN, kInf}, {2, 2}, t);
    CHECK(values_of(any(x, 1)) == Values{0, 1});
    CHECK(values_of(all(x, 1)) == Values{0, 1});
    CHECK(any(x).dtype() == boolean);
    CHECK(count_nonzero(x).item() == 2);
    CHECK(values_of(argmin(x)) == Values{0, 0});
    CHECK(argmin(x.flatten(), 0).item() == 2);  // NaN is below all
    CHECK(std::isnan(prod(x).item()));
    CHECK(logsumexp(make({-kInf, -kInf}, {2}, t)).item() == -kInf);
    CHECK(logsumexp(make({kInf, 1}, {2}, t)).item() == kInf);
    CHECK(std::isnan(logsumexp(x).item()));
  }
  CHECK(any(make({0, 2}, {2}, u8)).dtype() == u8);
  CHECK(any(make({0, 2}, {2}, u8)).item() == 1);
  CHECK(all(make({1, 2}, {2}, i32)).dtype() == boolean);
  for (const DType t : {i64, i32, u8}) {
    CHECK(prod(make({2, 3, 7}, {3}, t)).dtype() == i64);
    CHECK(prod(make({200, 200, 200, 200, 200}, {5}, t)).item() == 3.2e11);
    CHECK(argmin(make({3, 1, 1}, {3}, t)).item() == 1);
  }
  CHECK(prod(ones({3}, boolean)).item() == 1);
  CHECK(count_nonzero(make({1, 0, 1}, {3}, boolean)).item() == 2);
}

TEST_CASE("std: the gradient is 0 if it is 0", "[ops]") {
  const Tensor x = make({2, 2, 2, 1, 3, 5}, {2, 3}).set_requires_grad();
  const Tensor y = firn::std(x, 1);
  CHECK(values_of(y.detach()) == Values{0, 2});
  y.sum().backward();
  CHECK(values_of(x.grad()) == Values{0, 0, 0, -0.5, 0, 0.5});
}

TEST_CASE("median: the lower one, and NaN", "[ops]") {
  for (const DType t : {f64, f32, f16, i64, i32, u8}) {
    CHECK(median(make({4, 1, 3, 2}, {2, 2}, t)).item() == 2);
    CHECK(median(make({5, 1, 3}, {3}, t)).item() == 3);
    const Sorted rows = median(make({4, 1, 3, 9, 9, 0}, {2, 3}, t), 1);
    CHECK(values_of(rows.values) == Values{3, 9});
    CHECK(rows.values.dtype() == t);
    CHECK(rows.indices.shape() == Shape{2});
    CHECK(rows.indices[0].item() == 2);
    CHECK(median(make({4, 1, 3, 9, 9, 0}, {2, 3}, t), 0, true).values.shape() == Shape{1, 3});
  }
  const Tensor x = make({1, kNaN, 0, kNaN, kInf, -kInf, 2, 3}, {2, 4});
  CHECK(std::isnan(median(x).item()));
  const Sorted rows = median(x, 1);
  expect_same("values", values_of(rows.values), {kNaN, 2});
  CHECK(values_of(rows.indices) == Values{1, 2});
  CHECK(median(full({}, 7)).item() == 7);
  CHECK(median(full({}, 7), 0).indices.item() == 0);
}

TEST_CASE("quantile: ranks, NaN and infinities", "[ops]") {
  const Tensor x = make({3, 1, 2, 4}, {4}, f32);
  CHECK(quantile(x, 0.5).item() == 2.5);
  CHECK(quantile(x, 0.4, {.interpolation = Interpolation::lower}).item() == 2);
  CHECK(quantile(x, 0.4, {.interpolation = Interpolation::higher}).item() == 3);
  CHECK(quantile(x, 0.5, {.interpolation = Interpolation::nearest}).item() == 3);  // 1.5 to 2
  CHECK(quantile(x, 0.4, {.interpolation = Interpolation::midpoint}).item() == 2.5);
  CHECK(quantile(x, tensor({0.f, 1.f})).shape() == Shape{2});
  CHECK(quantile(x, tensor(0.5f)).shape() == Shape{});
  CHECK(quantile(x, empty({0})).shape() == Shape{0});
  const Tensor m = make({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(quantile(m, tensor({0.0, 0.5}), {.axes = 1}).shape() == Shape{2, 2});
  CHECK(quantile(m, tensor({0.0, 0.5}), {.axes = 1, .keepdims = true}).shape() == Shape{2, 2, 1});
  CHECK(values_of(quantile(m, 0.5, {.axes = {0, 1}, .keepdims = true})) == Values{3.5});
  // 0.7f is below 0.7, and its rank below 7.
  for (const DType t : {f32, f64})
    CHECK(quantile(arange(11, t), 0.7, {.interpolation = Interpolation::lower}).item() ==
          (t == f32 ? 6 : 7));
  expect_same("NaN", values_of(quantile(make({1, kNaN, 3, 1, 2, 3}, {2, 3}), 0.0, {.axes = 1})),
              {kNaN, 1});
  // PyTorch gives NaN here.
  CHECK(quantile(make({1, kInf, kInf}, {3}), 0.75).item() == kInf);
  CHECK(quantile(make({3, 1, 2, 4}, {4}, f16), 0.5).item() == 2.5);
}

TEST_CASE("histogram refuses edges that descend or are NaN", "[ops][host]") {
  const Tensor x = tensor({0.5f, 1.5f});
  CHECK(error_of([&] {
          histogram(x, tensor({2.f, 1.f, 0.f}));
        }).find("edge 0 is 2 and edge 1 is 1") != std::string::npos);
  CHECK(error_of([&] {
          histogram(x, tensor({0.f, NAN, 2.f}));
        }).find("edge 1 is nan") != std::string::npos);
}

TEST_CASE("cov with the least correction divides by 2^63", "[ops][host]") {
  CHECK(std::abs(cov(tensor({1.f, 2.f, 3.f, 4.f}), INT64_MIN).item()) < 1e-17);
}

TEST_CASE("histogram: bins, edges, weights and density", "[ops]") {
  for (const DType t : {f32, f64}) {
    const Tensor x = make({1, 2, 1, 4, kNaN, 9, -1}, {7}, t);
    const Histogram h = histogram(x, 4, {.low = 0, .high = 4});
    CHECK(values_of(h.edges) == Values{0, 1, 2, 3, 4});
    CHECK(values_of(h.hist) == Values{0, 2, 1, 1});
    CHECK(h.hist.dtype() == t);
    const Tensor w = make({1, 2, 4, 8, 16, 32, 64}, {7}, t);
    CHECK(values_of(histogram(x, 4, {.low = 0, .high = 4, .weights = w}).hist) ==
          Values{0, 5, 2, 8});
    CHECK(values_of(histogram(x, 2, {.low = 0, .high = 4, .density = true}).hist) ==
          Values{0.25, 0.25});
    const Histogram given = histogram(x, make({0, 1, 1, 5}, {4}, t));
    CHECK(values_of(given.hist) == Values{0, 0, 4});
    // From the least to the largest element, and half a bin around one value.
    CHECK(values_of(histogram(make({0, 1, 2, 4}, {2, 2}, t), 2).hist) == Values{2, 2});
    CHECK(values_of(histogram(make({3, 3}, {2}, t), 2).edges) == Values{2.5, 3, 3.5});
    CHECK(values_of(histogram(make({3, 3}, {2}, t), 2).hist) == Values{0, 2});
    CHECK(values_of(histogram(empty({0}, t), 2).hist) == Values{0, 0});
    CHECK(values_of(histogram(empty({0}, t), 2).edges) == Values{0, 0.5, 1});
  }
  const Tensor rows = make({1, 9, 2, 9, 3, 9}, {3, 2}, f32).slice(1, 0, 1);
  CHECK(values_of(histogram(rows, 2).hist) == Values{1, 2});
}

TEST_CASE("unique: values, inverse and counts", "[ops]") {
  for (const DType t : {f64, f32, f16, bf16, i64, i32, u8}) {
    const Tensor x = make({3, 1, 3, 0, 1, 3}, {2, 3}, t);
    const Unique u = unique(x);
    CHECK(values_of(u.values) == Values{0, 1, 3});
    CHECK(u.values.dtype() == t);
    CHECK(values_of(u.counts) == Values{1, 2, 3});
    CHECK(u.inverse.shape() == x.shape());
    CHECK(values_of(u.inverse) == Values{2, 1, 2, 0, 1, 2});
  }
  CHECK(values_of(unique(make({1, 0, 1}, {3}, boolean)).values) == Values{0, 1});
  const Unique special = unique(make({kNaN, kInf, kNaN, -kInf, 0.0, -0.0}, {6}));
  expect_same("special", values_of(special.values), {-kInf, 0.0, kInf, kNaN, kNaN});
  CHECK(values_of(special.counts) == Values{1, 2, 1, 1, 1});
  CHECK(values_of(special.inverse) == Values{3, 2, 4, 0, 1, 1});
  CHECK(unique(empty({0, 2})).values.shape() == Shape{0});
  CHECK(unique(empty({0, 2})).inverse.shape() == Shape{0, 2});
  CHECK(unique(full({}, 2)).inverse.shape() == Shape{});
  // Many values and long runs of equal ones.
  Rng rng(4);
  Values many;
  for (int i = 0; i < 3000; ++i) many.push_back(static_cast<double>(rng.below(700)));
  const Unique u = unique(make(many, {3000}, f32).transpose(0, 0));
  CHECK(values_of(gather(u.values, 0, u.inverse)) == many);
  CHECK(sum(u.counts).item() == 3000);
}

TEST_CASE("refusals: reductions, statistics and scans", "[ops]") {
  const Tensor x = zeros({2, 3}), n = zeros({2}, i64), none = zeros({0, 3});
  refused("prod", {"axis 2"}, [&] { prod(x, 2); });
  refused("any", {}, [] { any(Tensor()); });
  refused("argmin", {"axis 5"}, [&] { argmin(x, 5); });
  refused("argmin", {"[0, 3] f32 cpu"}, [&] { argmin(none, 0); });
  refused("std", {"i64"}, [&] { firn::std(n); });
  refused("logsumexp", {"i64"}, [&] { logsumexp(n); });
  refused("cumsum", {"axis 2"}, [&] { cumsum(x, 2); });
  refused("cumprod", {"axis 1"}, [] { cumprod(full({}, 1), 1); });
  refused("logcumsumexp", {"i64"}, [&] { logcumsumexp(n, 0); });
  refused("cummax", {"axis -3"}, [&] { cummax(x, -3); });
  refused("cummin", {}, [] { cummin(Tensor(), 0); });
  refused("median", {"[0, 3] f32 cpu"}, [&] { median(none); });
  refused("median", {"axis 0"}, [&] { median(none, 0); });
  refused("quantile", {"q = 1.5"}, [&] { quantile(x, 1.5); });
  refused("quantile", {"nan"}, [&] { quantile(x, kNaN); });
  refused("quantile", {"i64"}, [&] { quantile(n, 0.5); });
  refused("quantile", {"[2, 3] f32 cpu"}, [&] { quantile(x, x); });
  refused("quantile", {"no elements"}, [&] { quantile(none, 0.5, {.axes = 0}); });
  refused("histogram", {"i64"}, [&] { histogram(n); });
  refused("histogram", {"bins = 0"}, [&] { histogram(x, 0); });
  refused("histogram", {"inf"}, [] { histogram(make({kInf, 1}, {2}, f32)); });
  refused("histogram", {"[2, 1]"}, [&] { histogram(x, 3, {.low = 2, .high = 1}); });
  refused("histogram", {"[1] f32 cpu"}, [&] { histogram(x, zeros({1})); });
  refused("histogram", {"f64"}, [&] { histogram(x, zeros({3}, f64)); });
  refused("histogram", {"weights [3] f32 cpu"}, [&] { histogram(x, 3, {.weights = zeros({3})}); });
  refused("unique", {}, [] { unique(Tensor()); });
}

}  // namespace firn::testing
