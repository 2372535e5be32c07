// Writing at positions: what stays where indices meet, and what is made of the elements that do.
#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/ops/op_row.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

const std::vector<std::vector<Shape>> kScattered = {
    {{3, 4}, {5, 4}, {5, 4}}, {{3, 4}, {4, 5}, {2, 3}}, {{3}, {7}, {7}}, {{3, 2}, {0, 2}, {0, 2}}};
const std::vector<std::vector<Shape>> kSlices = {
    {{2, 3}, {2, 5}, {5}}, {{2, 4, 3}, {2, 5, 3}, {5}}, {{2, 3}, {2, 0}, {0}}};
constexpr ScatterReduce kReductions[] = {ScatterReduce::sum, ScatterReduce::prod,
                                         ScatterReduce::mean, ScatterReduce::amax,
                                         ScatterReduce::amin};

FIRN_OP_ROWS(put) {
  Row("scatter", [](const Args& x) { return scatter(x[0], 0, x[2], x[1]); })
      .args({real(), real(), index(3)})
      .shapes(kScattered)
      .accuracy(Accuracy::exact)
      .integers();
  Row("scatter last axis", [](const Args& x) { return scatter(x[0], -1, x[2], x[1]); })
      .args({real(), real(), index(3)})
      .shapes({{{2, 3}, {2, 5}, {2, 5}}, {{2, 4, 3}, {2, 4, 5}, {1, 3, 5}}})
      .accuracy(Accuracy::exact);
  Row("scatter into a scalar", [](const Args& x) { return scatter(x[0], 0, x[2], x[1]); })
      .args({real(), real(), index(1)})
      .shapes({{{}, {}, {}}, {{}, {3}, {2}}})
      .accuracy(Accuracy::exact);
  Row("gather from a scalar", [](const Args& x) { return gather(x[0], -1, x[1]); })
      .args({real(), index(1)})
      .shapes({{{}, {}}, {{1}, {}}, {{}, {3}}})
      .accuracy(Accuracy::sum, 3);
  Row("index_select from a scalar", [](const Args& x) { return index_select(x[0], 0, x[1]); })
      .args({real(), index(1)})
      .shapes({{{}, {}}, {{}, {1}}, {{1}, {}}})
      .accuracy(Accuracy::exact);
  Row("scatter of a number", [](const Args& x) { return scatter(x[0], 0, x[1], 0.5); })
      .args({real(), index(3)})
      .shapes({{{3, 4}, {5, 4}}, {{3}, {7}}})
      .accuracy(Accuracy::exact);
  Row("index_copy", [](const Args& x) { return index_copy(x[0], 1, x[2], x[1]); })
      .args({real(), real(), index(3)})
      .shapes(kSlices)
      .accuracy(Accuracy::exact)
      .integers();
  Row("index_fill", [](const Args& x) { return index_fill(x[0], 1, x[1], -2); })
      .args({real(), index(3)})
      .shapes({{{2, 3}, {5}}, {{2, 4, 3}, {5}}, {{2, 3}, {0}}})
      .accuracy(Accuracy::exact);
  Row("index_fill with a tensor", [](const Args& x) { return index_fill(x[0], 0, x[2], x[1]); })
      .args({real(), real(), index(3)})
      .shapes({{{3, 2}, {}, {2}}, {{}, {}, {0}}})
      .accuracy(Accuracy::sum, 6);
  Row("index_put",
      [](const Args& x) {
        return index_put(x[0], {x[2], x[3]}, x[1]);
      })
      .args({real(), real(), index(3), index(2)})
      .shapes({{{3, 2, 4}, {5, 4}, {5}, {5}}, {{3, 2}, {4, 1}, {4, 1}, {2}}})
      .accuracy(Accuracy::sum, 8);
  Row("index_put, apart",
      [](const Args& x) {
        return index_put(x[0], {x[2], Tensor(), x[3]}, x[1]);
      })
      .args({real(), real(), index(3), index(2)})
      .shapes({{{3, 4, 2}, {5, 4}, {5}, {5}}, {{3, 2, 2}, {2}, {4}, {1}}})
      .accuracy(Accuracy::sum, 8);
  Row("index_put, behind",
      [](const Args& x) {
        return index_put(x[0], {Tensor(), x[2]}, x[1], true);
      })
      .args({real(), real(), index(3)})
      .shapes({{{2, 3, 2}, {2, 5, 2}, {5}}, {{2, 3}, {2, 2}, {2, 2}}, {{4, 3}, {}, {2}}})
      .accuracy(Accuracy::sum, 8);
  Row("index_put with a mask", [](const Args& x) { return index_put(x[0], {x[2]}, x[1], true); })
      .args({real(), real(), mask()})
      .shapes({{{3, 4}, {}, {3}}, {{2, 3}, {1}, {2, 3}}})
      .accuracy(Accuracy::sum, 12);
  Row("index",
      [](const Args& x) {
        return firn::index(x[0], {x[1], x[2]});
      })
      .args({real(), index(3), index(2)})
      .shapes({{{3, 2, 4}, {5}, {5}}, {{3, 2}, {4, 1}, {2}}, {{3, 2, 2}, {0}, {1}}})
      .accuracy(Accuracy::sum, 8)
      .integers();
  Row("index, apart",
      [](const Args& x) {
        return firn::index(x[0], {x[1], Tensor(), x[2]});
      })
      .args({real(), index(3), index(2)})
      .shapes({{{3, 4, 2}, {5}, {5}}, {{3, 2, 2, 3}, {2, 4}, {1}}})
      .accuracy(Accuracy::sum, 8);
  Row("index, behind",
      [](const Args& x) {
        return firn::index(x[0], {Tensor(), x[1], -1});
      })
      .args({real(), index(3)})
      .shapes({{{2, 3, 2}, {5}}, {{2, 3, 4, 2}, {2, 2}}})
      .accuracy(Accuracy::sum, 8);
  Row("put", [](const Args& x) { return put(x[0], x[2], x[1]); })
      .args({real(), real(), index(6)})
      .shapes({{{2, 3}, {4}, {2, 2}}, {{6}, {}, {}}, {{3, 2}, {0}, {0}}})
      .accuracy(Accuracy::exact);
  Row("put, adding", [](const Args& x) { return put(x[0], x[2], x[1], true); })
      .args({real(), real(), index(6)})
      .shapes({{{2, 3}, {9}, {9}}})
      .accuracy(Accuracy::sum, 10);
  Row("take", [](const Args& x) { return take(x[0], x[1]); })
      .args({real(), index(6)})
      .shapes({{{2, 3}, {2, 4}}, {{6}, {}}, {{2, 3}, {0}}})
      .accuracy(Accuracy::sum, 8);
  Row("masked_scatter", [](const Args& x) { return masked_scatter(x[0], x[2], x[1]); })
      .args({real(), real(), mask()})
      .shapes({{{2, 3}, {2, 3}, {2, 3}}, {{3, 4}, {20}, {4}}, {{0}, {2}, {0}}})
      .accuracy(Accuracy::exact);
  Row("select_scatter", [](const Args& x) { return select_scatter(x[0], x[1], 1, -1); })
      .args({real(), real()})
      .shapes({{{2, 3}, {2}}, {{2, 3, 4}, {2, 4}}})
      .accuracy(Accuracy::exact);
  Row("slice_scatter", [](const Args& x) { return slice_scatter(x[0], x[1], 0, 1, -1, 2); })
      .args({real(), real()})
      .shapes({{{6, 2}, {2, 2}}, {{3}, {1}}, {{2, 3}, {0, 3}}})
      .accuracy(Accuracy::exact);
  Row("diagonal_scatter", [](const Args& x) { return diagonal_scatter(x[0], x[1], 1, 0, -1); })
      .args({real(), real()})
      .shapes({{{3, 4}, {3}}, {{3, 2, 3}, {2, 2}}})
      .accuracy(Accuracy::exact);
  for (const ScatterReduce how : kReductions) {
    for (const bool self : {true, false}) {
      const std::string name =
          "scatter_reduce " + std::string(to_string(how)) + (self ? "" : ", without x");
      Row row(name, [how, self](const Args& x) {
        return scatter_reduce(x[0], 0, x[2], x[1], how, self);
      });
      row.args({apart(), apart(-2, 2, 1. / 128), index(3)})
          .shapes(self ? kScattered : std::vector<std::vector<Shape>>{{{3, 2}, {5, 3}, {4, 2}}})
          .accuracy(Accuracy::sum, 8)
          .roundings(2)
          .cancels(64, 64);
      if (how == ScatterReduce::prod) row.first_derivative_only();
      if (how == ScatterReduce::amax || how == ScatterReduce::amin) row.integers();
    }
    Row row("index_reduce " + std::string(to_string(how)),
            [how](const Args& x) { return index_reduce(x[0], 1, x[2], x[1], how); });
    row.args({apart(), apart(-2, 2, 1. / 128), index(3)})
        .shapes(kSlices)
        .accuracy(Accuracy::sum, 8)
        .roundings(2)
        .cancels(64, 64);
    if (how == ScatterReduce::prod) row.first_derivative_only();
  }
  for (const bool right : {false, true}) {
    Row(right ? "searchsorted right" : "searchsorted",
        [right](const Args& x) { return searchsorted(sort(x[0]).values, x[1], right); })
        .args({whole_constant(), whole_constant()})
        .shapes({{{7}, {2, 3}}, {{2, 5}, {2, 4}}, {{5}, {}}, {{0}, {3}}, {{3}, {0}}})
        .accuracy(Accuracy::exact)
        .own_dtype()
        .integers();
  }
  Row("bucketize", [](const Args& x) { return bucketize(x[1], sort(x[0]).values); })
      .args({whole_constant(), whole_constant()})
      .shapes({{{7}, {2, 3}}})
      .accuracy(Accuracy::exact)
      .own_dtype();
}

TEST_CASE(
    "[S29] where indices meet, the last stays, with the same bits for any number of threads") {
  const std::int64_t n = on_slow_device() ? 700 : 30'000, places = 97;
  const Tensor src = make(Rng(1).uniforms(2 * n, -1, 1), {n, 2}, f32);
  const Tensor at = ((src + 1) * 48).to(i64);
  const std::vector<double> values = values_of(src), index = values_of(at);
  std::vector<double> last(2 * places, 0), most(2 * places, -9), product(2 * places, 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto to = static_cast<std::size_t>(index[i]) * 2 + i % 2;
    last[to] = values[i];
    most[to] = std::max(most[to], values[i]);
    product[to] =
        static_cast<double>(static_cast<float>(product[to]) * static_cast<float>(values[i]));
  }
  for (const int threads : {1, 7}) {
    const Threads scope(threads);
    CHECK(values_of(scatter(zeros({places, 2}), 0, at, src)) == last);
    CHECK(values_of(scatter_reduce(full({places, 2}, -9), 0, at, src, ScatterReduce::amax)) ==
          most);
    if (on_slow_device())  // few enough terms: no product is subnormal
      CHECK(values_of(scatter_reduce(ones({places, 2}), 0, at, src, ScatterReduce::prod)) ==
            product);
    const Tensor rows = select(at, 1, 0);
    expect_same("rows", values_of(slice(index_copy(zeros({places, 2}), 0, rows, src), 1, 0, 1)),
                values_of(scatter(zeros({places, 1}), 0, slice(at, 1, 0, 1), slice(src, 1, 0, 1))));
  }
}

TEST_CASE("the gradient goes to the element that stays") {
  Tensor x = make({1, 2, 3}, {3}, f64), src = make({10, 20, 30}, {3}, f64);
  x.set_requires_grad();
  src.set_requires_grad();
  const Tensor at = tensor<std::int64_t>({2, 0, 2}, {3});
  const Tensor weight = make({1, 2, 4}, {3}, f64);
  (scatter(x, 0, at, src) * weight).sum().backward();
  expect_same("x", values_of(x.grad()), {0, 2, 0});
  expect_same("src", values_of(src.grad()), {0, 1, 4});
}

TEST_CASE("the gradient of an extremum is shared by equals, and by those alone that take part") {
  for (const bool self : {true, false}) {
    Tensor x = make({5, 1}, {2}, f64), src = make({5, 5, 3}, {3}, f64);
    x.set_requires_grad();
    src.set_requires_grad();
    const Tensor at = tensor<std::int64_t>({0, 0, 0}, {3});
    scatter_reduce(x, 0, at, src, ScatterReduce::amax, self).sum().backward();
    const double share = self ? 1. / 3 : 1. / 2;
    expect_same("x", values_of(x.grad()), {self ? share : 0, 1});
    expect_same("src", values_of(src.grad()), {share, share, 0});
  }
}

TEST_CASE("the gradient of a product with zeros is that of the other factors") {
  Tensor x = make({2, 0, 0}, {3}, f64), src = make({0, 3, 4, 0}, {4}, f64);
  x.set_requires_grad();
  src.set_requires_grad();
  const Tensor at = tensor<std::int64_t>({0, 0, 1, 2}, {4});
  scatter_reduce(x, 0, at, src, ScatterReduce::prod).sum().backward();
  expect_same("x", values_of(x.grad()), {0, 4, 0});
  expect_same("src", values_of(src.grad()), {6, 0, 0, 0});
}

TEST_CASE("reductions of integers and of NaN, written out") {
  const Tensor x = tensor<std::int64_t>({1, 2, 3}, {3});
  const Tensor at = tensor<std::int64_t>({0, 0, 2}, {3}),
               src = tensor<std::int64_t>({5, 7, -3}, {3});
  const auto by = [&](ScatterReduce how, bool self) {
    return values_of(scatter_reduce(x, 0, at, src, how, self));
  };
  expect_same("sum", by(ScatterReduce::sum, true), {13, 2, 0});
  expect_same("prod", by(ScatterReduce::prod, false), {35, 2, -3});
  expect_same("amin", by(ScatterReduce::amin, false), {5, 2, -3});
  expect_same("amax", by(ScatterReduce::amax, true), {7, 2, 3});
  expect_same("scatter_add", values_of(scatter_add(x, 0, at, src)), {13, 2, 0});
  expect_same("wraps",
              values_of(scatter_add(full({1}, 200, u8), 0, zeros({1}, i64), full({1}, 100, u8))),
              {44});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor y = scatter_reduce(make({1, 2}, {2}, f64), 0, tensor<std::int64_t>({0, 0, 1}, {3}),
                                  make({nan, 5, 1}, {3}, f64), ScatterReduce::amax);
  CHECK(std::isnan(y[0].item()));
  CHECK(y[1].item() == 2);
}

TEST_CASE("index_put with masks, and masked_scatter, written out") {
  const Tensor x = make({1, 2, 3, 4, 5, 6}, {3, 2}, f64);
  expect_same("elements", values_of(index_put(x, {gt(x, 3)}, make({-1, -2, -3}, {3}, f64))),
              {1, 2, 3, -1, -2, -3});
  const Tensor rows = tensor<bool>({true, false, true}, {3});
  expect_same("rows", values_of(index_put(x, {rows}, make({10, 20}, {2}, f64), true)),
              {11, 22, 3, 4, 15, 26});
  expect_same(
      "a row and a list",
      values_of(index_put(x, {1, tensor<std::int64_t>({1, 0}, {2})}, make({10, 20}, {2}, f64))),
      {1, 2, 20, 10, 5, 6});
  expect_same("a number behind a whole axis", values_of(index_put(x, {{}, 1}, make({7}, {1}, f64))),
              {1, 7, 3, 7, 5, 7});
  expect_same("a mask and a number", values_of(index_put(x, {rows, 0}, make({10, 20}, {2}, f64))),
              {10, 2, 3, 4, 20, 6});
  const Tensor second = tensor<bool>({true, true}, {2});
  expect_same("two masks", values_of(index_put(x, {rows, second}, make({10, 20}, {2}, f64))),
              {10, 2, 3, 4, 5, 20});
  expect_same("bools", values_of(scatter(rows, 0, zeros({1}, i64), tensor<bool>({false}, {1}))),
              {0, 0, 1});
  expect_same("masked", values_of(masked_scatter(x, gt(x, 3), make({7, 8, 9, 0}, {4}, f64))),
              {1, 2, 3, 7, 8, 9});
}

TEST_CASE("index reads what index_put writes") {
  const Tensor x = reshape(arange(24, f64), {2, 3, 4}).set_requires_grad();
  const Tensor rows = tensor({1, 0, 1}), columns = tensor<std::int64_t>({3, 0, 3});
  const Tensor mask = tensor({true, false, true});
  const std::vector<IndexList> lists = {{rows, {}, columns},
                                        {{}, rows, columns},
                                        {rows},
                                        {-1, mask},
                                        {{}, mask, -2},
                                        {unsqueeze(rows, 1), tensor({2, 0, 2})},
                                        IndexList(std::vector<Index>{0, {}, 1}),
                                        IndexList(std::vector<Tensor>{rows, Tensor(), columns})};
  const std::vector<Shape> shapes = {{3, 3}, {2, 3},    {3, 3, 4}, {2, 4},
                                     {2, 2}, {3, 3, 4}, {3},       {3, 3}};
  for (std::size_t i = 0; i < lists.size(); ++i) {
    INFO(i);
    const Tensor at = firn::index(x, lists[i]);
    CHECK(at.shape() == shapes[i]);
    CHECK(equal(index_put(x.detach(), lists[i], at.detach()), x.detach()));
    CHECK(equal(grad({at}, {x}, {.initial_gradients = {ones_like(at)}})[0],
                index_put(zeros_like(x), lists[i], 1, true)));
  }
  expect_same("written out", values_of(firn::index(x, {rows, {}, columns})),
              {15, 19, 23, 0, 4, 8, 15, 19, 23});
  expect_same("a number", values_of(index_put(zeros({3}, i64), {-1}, 9)), {0, 0, 9});
  expect_same("stored", values_of(firn::index(arange(4, i8), {tensor({2, 2})})), {2, 2});
  CHECK(error_of([&] { return firn::index(x, {}); }).find("copy_()") == std::string::npos);
  CHECK(error_of([&] { return index_put(x, {}, 1); }).find("copy_()") != std::string::npos);
  CHECK(error_of([&] { return firn::index(x, {-3}); }).find("index -3") != std::string::npos);
  CHECK(error_of([&] { return firn::index(x, {rows.to(f64)}); }).starts_with("[index] "));
  CHECK(error_of([&] { return index_put(arange(3, u8), {0}, 300); }).find("300") !=
        std::string::npos);
  CHECK(error_of([&] { return index_put(x, {0}, ones({}, f32)); }).find("Autocast") ==
        std::string::npos);
}

TEST_CASE("searchsorted puts NaN last and takes -0 for 0") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor list = make({-1, 0, 2, nan}, {4}, f64), x = make({nan, -0., 3}, {3}, f64);
  expect_same("left", values_of(searchsorted(list, x)), {3, 1, 3});
  expect_same("right", values_of(searchsorted(list, x, true)), {4, 2, 3});
}

TEST_CASE("writing at positions refuses what does not fit") {
  const Tensor x = zeros({2, 3}), at = zeros({2, 3}, i64), list = zeros({2}, i64);
  const auto refused = [](auto&& call, const char* op, const char* what) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(op) != std::string::npos);
    CHECK(text.find(what) != std::string::npos);
  };
  refused([&] { return scatter(x, 0, at, zeros({1, 3})); }, "[scatter]", "at most as large");
  refused([&] { return scatter(at, 0, at, 0.5); }, "[scatter]", "0.5");
  refused([&] { return scatter_reduce(x.to(boolean), 0, at, x.to(boolean), ScatterReduce::sum); },
          "[scatter_reduce]", "bools");
  refused([&] { return scatter_reduce(at, 0, at, at, ScatterReduce::mean); }, "[scatter_reduce]",
          "floating");
  refused(
      [&] {
        return index_copy(x, 0, list, zeros({1, 3}));
      },
      "[index_copy]", "expected shape [2, 3]");
  refused([&] { return index_fill(x, 0, list, zeros({2})); }, "[index_fill]", "has axes");
  refused([&] { return index_put(x, {list}, zeros({4})); }, "[index_put]", "expected shape");
  refused(
      [&] {
        return index_put(x, {list}, zeros({1, 2, 3}));
      },
      "[index_put]", "expected shape [2, 3]");
  refused([&] { return index_put(x, {Tensor()}, x); }, "[index_put]", "no index");
  refused([&] { return index_put(x, {list, list, list}, x); }, "[index_put]", "for 3 axes");
  refused([&] { return index_put(x, {zeros({3}, boolean)}, zeros({2})); }, "[index_put]",
          "sizes of the axes");
  refused(
      [&] {
        return index_put(x, {0, ones({2}, boolean)}, zeros({2}));
      },
      "[index_put]", "from axis 1");
  refused([&] { return put(x, list, zeros({3})); }, "[put]", "one element");
  refused([&] { return masked_scatter(x, x, x); }, "[masked_scatter]", "the mask is bool");
  if (default_device().is_cpu())
    refused([&] { return masked_scatter(x, ones(x.shape(), boolean), zeros({2})); },
            "[masked_scatter]", "has 2 elements, and the mask holds");
  refused(
      [&] {
        return masked_scatter(x, ones({2, 3}, boolean), zeros({0}));
      },
      "[masked_scatter]", "is empty");
  refused([&] { return select_scatter(x, zeros({2}), 0, 0); }, "[select_scatter]",
          "expected shape [3]");
  refused([&] { return select_scatter(x, zeros({3}), 0, 7); }, "[select_scatter]",
          "index 7 on axis 0");
  refused([&] { return slice_scatter(x, zeros({3}), 0, 0, 2); }, "[slice_scatter]",
          "expected shape [2, 3]");
  refused([&] { return slice_scatter(x, x, 0, 0, 2, 0); }, "[slice_scatter]", "step 0");
  const Tensor stored = x.to(i8);
  refused([&] { return scatter(stored, 0, at, stored); }, "[scatter]", "does not compute with");
  refused([&] { return index_copy(stored, 0, list, stored); }, "[index_copy]", "i8");
  refused([&] { return index_fill(stored, 0, list, 1); }, "[index_fill]", "i8");
  refused([&] { return slice_scatter(stored, stored, 0, 0, 2); }, "[slice_scatter]", "i8");
  refused(
      [&] {
        return masked_scatter(stored, ones({2, 3}, boolean), stored);
      },
      "[masked_scatter]", "i8");
  refused([&] { kthvalue(stored, 1); }, "[kthvalue]", "i8");
  refused([&] { nonzero(stored); }, "[nonzero]", "i8");
  refused([&] { return diagonal_scatter(x, zeros({3})); }, "[diagonal_scatter]",
          "expected shape [2]");
  refused([&] { searchsorted(x, zeros({3, 3})); }, "[searchsorted]", "a line for each line");
  refused([&] { searchsorted(x, zeros({2, 3}, f64)); }, "[searchsorted]", "dtypes differ");
  refused([&] { bucketize(x, x); }, "[bucketize]", "no list");
  if (default_device().is_cpu()) {
    refused([&] { return scatter(x, 0, full({2, 3}, 7, i64), x); }, "[scatter]", "7");
    refused(
        [&] {
          return index_put(x, {list, full({2}, 3, i64)}, zeros({2}));
        },
        "[index_put]", "index 3");
    refused(
        [&] {
          return masked_scatter(x, ones({2, 3}, boolean), zeros({5}));
        },
        "[masked_scatter]", "5");
  }
}

}  // namespace
}  // namespace firn::testing
