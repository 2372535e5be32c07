// Functions that are other operations in a row: joins, divisions, sums and differences.
#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/ops/op_row.h"
#include "support/values.h"

namespace firn::testing {
namespace {

FIRN_OP_ROWS(derived) {
  Row("hstack",
      [](const Args& x) {
        return hstack({x[0], x[1]});
      })
      .args({real(), real()})
      .shapes({{{2, 3}, {2, 1}}, {{3}, {2}}, {{}, {2}}, {{2, 1, 2}, {2, 3, 2}}})
      .accuracy(Accuracy::exact)
      .integers();
  Row("vstack",
      [](const Args& x) {
        return vstack({x[0], x[1]});
      })
      .args({real(), real()})
      .shapes({{{2, 3}, {3}}, {{3}, {3}}, {{}, {}}})
      .accuracy(Accuracy::exact);
  Row("dstack",
      [](const Args& x) {
        return dstack({x[0], x[1]});
      })
      .args({real(), real()})
      .shapes({{{2, 3}, {2, 3, 2}}, {{3}, {3}}})
      .accuracy(Accuracy::exact);
  Row("column_stack",
      [](const Args& x) {
        return column_stack({x[0], x[1]});
      })
      .args({real(), real()})
      .shapes({{{3, 2}, {3}}, {{3}, {3}}, {{}, {}}})
      .accuracy(Accuracy::exact);
  Row("unbind", [](const Args& x) { return unbind(x[0], 1)[2]; })
      .args({real()})
      .shapes({{{2, 3}}, {{2, 4, 3}}})
      .accuracy(Accuracy::exact);
  Row("tensor_split", [](const Args& x) { return tensor_split(x[0], 3, -1)[1]; })
      .args({real()})
      .shapes({{{2, 5}}, {{2}}, {{2, 7, 4}}})
      .accuracy(Accuracy::exact);
  Row("unflatten",
      [](const Args& x) {
        return unflatten(x[0], 1, {2, -1});
      })
      .args({real()})
      .shapes({{{2, 6}}, {{2, 4, 3}}})
      .accuracy(Accuracy::exact);
  Row("diag_embed", [](const Args& x) { return diag_embed(x[0], -1); })
      .args({real()})
      .shapes({{{3}}, {{2, 3}}, {{2, 0}}})
      .accuracy(Accuracy::exact);
  Row("diag_embed in front", [](const Args& x) { return diag_embed(x[0], 2, 0, 2); })
      .args({real()})
      .shapes({{{2, 3}}})
      .accuracy(Accuracy::exact);
  Row("trace", [](const Args& x) { return trace(x[0]); })
      .args({real()})
      .shapes({{{3, 3}}, {{2, 4}}, {{0, 2}}})
      .accuracy(Accuracy::sum, 3);
  Row("diff", [](const Args& x) { return diff(x[0], 1, 0); })
      .args({real()})
      .shapes({{{4, 3}}, {{1, 2}}, {{0, 2}}})
      .accuracy(Accuracy::normwise)
      .cancels(4, 2)
      .integers();
  Row("diff twice", [](const Args& x) { return diff(x[0], 2); })
      .args({real()})
      .shapes({{{3, 5}}, {{2}}})
      .accuracy(Accuracy::normwise)
      .cancels(8, 4);
  Row("nansum", [](const Args& x) { return nansum(x[0], {1}); })
      .args({real()})
      .shapes({{{3, 4}}, {{2, 5, 3}}})
      .accuracy(Accuracy::sum, 5);
  Row("nanmean", [](const Args& x) { return nanmean(x[0], {0}, true); })
      .args({real()})
      .shapes({{{3, 4}}, {{2, 5, 3}}})
      .accuracy(Accuracy::sum, 5);
  Row("trapezoid", [](const Args& x) { return trapezoid(x[0], 0.5, 0); })
      .args({real()})
      .shapes({{{4, 3}}, {{1, 2}}})
      .accuracy(Accuracy::sum, 5)
      .cancels(4, 2);
  Row("trapezoid at places", [](const Args& x) { return trapezoid(x[0], x[1]); })
      .args({real(), real()})
      .shapes({{{3, 4}, {4}}, {{3, 4}, {3, 4}}})
      .accuracy(Accuracy::normwise)
      .cancels(32, 16);
  Row("cov", [](const Args& x) { return cov(x[0]); })
      .args({real()})
      .shapes({{{3, 6}}, {{5}}})
      .accuracy(Accuracy::normwise)
      .cancels(16, 16);
  Row("corrcoef", [](const Args& x) { return corrcoef(x[0]); })
      .args({real()})
      .shapes({{{2, 6}}})
      .accuracy(Accuracy::normwise)
      .cancels(8, 32)
      .kinks();
  Row("kron", [](const Args& x) { return kron(x[0], x[1]); })
      .args({real(), real()})
      .shapes({{{2, 3}, {3, 2}}, {{2}, {2, 3}}, {{3}, {2}}, {{}, {2}}, {{2, 0}, {1, 2}}})
      .accuracy(Accuracy::sum, 6);
  Row("isclose", [](const Args& x) { return isclose(x[0], x[1], {.rtol = 0.25, .atol = 0.5}); })
      .args({whole_constant(), whole_constant()})
      .shapes({{{3, 4}, {3, 4}}, {{3, 4}, {4}}})
      .accuracy(Accuracy::exact)
      .own_dtype()
      .integers();
}

TEST_CASE("joins and divisions, written out") {
  const Tensor a = make({1, 2}, {2}, f64), b = make({3, 4}, {2}, f64);
  expect_same("hstack", values_of(hstack({a, b})), {1, 2, 3, 4});
  CHECK(vstack({a, b}).shape() == Shape{2, 2});
  CHECK(dstack({a, b}).shape() == Shape{1, 2, 2});
  expect_same("columns", values_of(column_stack({a, b})), {1, 3, 2, 4});
  const std::vector<Tensor> pieces = tensor_split(arange(7), 3);
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].numel() == 3);
  CHECK(pieces[2].numel() == 2);
  const std::int64_t places[] = {2, 2, 9};
  const std::vector<Tensor> parts = tensor_split(arange(7), places);
  REQUIRE(parts.size() == 4);
  CHECK(parts[1].numel() == 0);
  CHECK(parts[2].numel() == 5);
  CHECK(parts[3].numel() == 0);
  expect_same("diagonal", values_of(diag_embed(a, 1)), {0, 1, 0, 0, 0, 2, 0, 0, 0});
  expect_same("kron", values_of(kron(a, make({1, 10}, {1, 2}, f64))), {1, 10, 2, 20});
  expect_same("diff", values_of(diff(make({1, 4, 9}, {3}, f64), 2)), {2});
  CHECK(diff(make({1, 4, 9}, {3}, f64), 5).numel() == 0);
}

TEST_CASE("sums without NaN, covariances and closeness, written out") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  Tensor x = make({1, nan, 3, nan}, {2, 2}, f64);
  x.set_requires_grad();
  CHECK(nansum(x).item() == 4);
  CHECK(nanmean(x).item() == 2);
  CHECK(std::isnan(nanmean(x, {0}).to_vector<double>()[1]));
  nanmean(x).backward();
  expect_same("gradient", values_of(x.grad()), {0.5, 0, 0.5, 0});
  const Tensor y = make({1, 2, 3, 6, 4, 2}, {2, 3}, f64);
  expect_same("cov", values_of(cov(y)), {1, -2, -2, 4});
  expect_same("corrcoef", values_of(corrcoef(y)), {1, -1, -1, 1});
  CHECK(cov(make({1, 2, 3}, {3}, f64)).item() == 1);
  CHECK(trapezoid(make({1, 2, 3}, {3}, f64), 2).item() == 8);
  const Tensor a = make({1, inf, nan, inf}, {4}, f64), b = make({1.000001, inf, nan, 0}, {4}, f64);
  expect_same("close", values_of(isclose(a, b)), {1, 1, 0, 0});
  expect_same("and NaN", values_of(isclose(a, b, {.equal_nan = true})), {1, 1, 1, 0});
  // The border itself is close: 0.25 1 + 0.25, and the next number is not.
  const Tensor one = tensor<double>({1, 1}), near = tensor<double>({1.5, std::nextafter(1.5, 2)});
  expect_same("border", values_of(isclose(near, one, {.rtol = 0.25, .atol = 0.25})), {1, 0});
  expect_same("integers", values_of(isclose(near.to(i32) + 2, one.to(i32), {.rtol = 0, .atol = 2})),
              {1, 1});
  CHECK(allclose(slice(a, 0, 0, 2), slice(b, 0, 0, 2)));
  CHECK_FALSE(allclose(a, b));
  CHECK(equal(y, y));
  CHECK_FALSE(equal(x.detach(), x.detach()));  // NaN
  CHECK_FALSE(equal(y, reshape(y, {3, 2})));
}

TEST_CASE("functions of several operations refuse what does not fit") {
  const Tensor x = zeros({2, 3});
  const auto refused = [](auto&& call, const char* op, const char* what) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(op) != std::string::npos);
    CHECK(text.find(what) != std::string::npos);
  };
  refused([&] { unbind(zeros({}), 0); }, "[unbind]", "axis 0");
  refused([&] { tensor_split(x, 0); }, "[tensor_split]", "pieces = 0");
  refused([&] { unflatten(x, 1, {2, -1}); }, "[unflatten]", "does not divide");
  refused([&] { unflatten(x, 1, {-1, -1}); }, "[unflatten]", "sizes");
  refused([&] { diag_embed(zeros({})); }, "[diag_embed]", "no axis");
  refused([&] { diag_embed(x, 0, 1, 1); }, "[diag_embed]", "both axes");
  refused([&] { trace(zeros({3})); }, "[trace]", "no matrix");
  refused([&] { diff(x, -1); }, "[diff]", "times = -1");
  refused([&] { diff(x.to(boolean)); }, "[diff]", "bools");
  refused([&] { nansum(x.to(i64)); }, "[nansum]", "floating");
  refused([&] { trapezoid(x, zeros({2})); }, "[trapezoid]", "one place for each sample");
  refused([&] { cov(zeros({2, 0})); }, "[cov]", "none");
  refused([&] { kron(zeros({1, 1, 1, 1, 1}), x); }, "[kron]", "axes");
  refused([&] { isclose(x, x.to(f64)); }, "[isclose]", "dtypes differ");
  refused([&] { isclose(x, x, {.rtol = -1}); }, "[isclose]", "rtol = -1");
}

}  // namespace
}  // namespace firn::testing
