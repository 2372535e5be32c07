// Adding at positions, and positions that values decide.
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/ops/op_row.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

FIRN_OP_ROWS(scattered) {
  Row("scatter_add axis 0", [](const Args& x) { return scatter_add(x[0], 0, x[2], x[1]); })
      .args({real(), real(), index(3)})
      .shapes({{{3, 4}, {5, 4}, {5, 4}},
               {{3, 4}, {4, 5}, {2, 3}},
               {{3}, {7}, {7}},
               {{3, 2}, {0, 2}, {0, 2}},
               {{5, 33}, {65, 33}, {65, 33}}})
      .accuracy(Accuracy::sum, 66);
  Row("scatter_add last axis", [](const Args& x) { return scatter_add(x[0], -1, x[2], x[1]); })
      .args({real(), real(), index(3)})
      .shapes({{{2, 3}, {2, 5}, {2, 5}}, {{2, 4, 3}, {2, 4, 5}, {1, 3, 5}}})
      .accuracy(Accuracy::sum, 6);
  Row("index_add", [](const Args& x) { return index_add(x[0], 1, x[2], x[1], 0.5); })
      .args({real(), real(), index(3)})
      .shapes({{{2, 3}, {2, 5}, {5}}, {{2, 4, 3}, {2, 5, 3}, {5}}, {{2, 3}, {2, 0}, {0}}})
      .accuracy(Accuracy::sum, 6);
  Row("take_along", [](const Args& x) { return take_along(x[0], x[1], 0); })
      .args({real(), index(3)})
      .shapes({{{3, 4}, {5, 1}}, {{3, 1}, {2, 4}}, {{3}, {7}}, {{3, 2, 1}, {4, 1, 3}}})
      .accuracy(Accuracy::sum);
  Row("kthvalue", [](const Args& x) { return kthvalue(x[0], 2, -1).values; })
      .args({apart()})
      .shapes({{{3, 4}}, {{2}}, {{2, 3, 5}}, {{0, 3}}})
      .accuracy(Accuracy::exact);
}

TEST_CASE("scatter_add and index_add, written out") {
  const Tensor x = make({1, 2, 3, 4, 5, 6}, {3, 2}, f64);
  const Tensor src = make({10, 20, 30, 40, 50, 60}, {3, 2}, f64);
  const Tensor at = tensor<std::int64_t>({0, 2, 0, 0, 2, 2}, {3, 2});
  expect_same("scatter_add", values_of(scatter_add(x, 0, at, src)), {41, 42, 3, 4, 55, 86});
  expect_same("x stays", values_of(x), {1, 2, 3, 4, 5, 6});
  const Tensor rows = tensor<std::int64_t>({2, 2}, {2});
  expect_same("index_add", values_of(index_add(x, 0, rows, slice(src, 0, 0, 2), -1)),
              {1, 2, 3, 4, 5 - 40, 6 - 60});
  const Sorted second = kthvalue(make({3, 1, 2, 5, 5, 4}, {2, 3}, f64), 3, 1, true);
  CHECK(second.values.shape() == Shape{2, 1});
  expect_same("values", values_of(second.values), {3, 5});
  expect_same("indices", values_of(second.indices), {0, 1});
  expect_same("take_along", values_of(take_along(x, tensor<std::int64_t>({2, 0}, {2, 1}), 0)),
              {5, 6, 1, 2});
}

TEST_CASE("nonzero and masked_select, written out") {
  const Tensor x = make({0, 1, 0, 2, 0, 3}, {2, 3}, f64);
  const Tensor at = nonzero(x);
  CHECK(at.shape() == Shape{3, 2});
  CHECK(at.dtype() == i64);
  expect_same("nonzero", values_of(at), {0, 1, 1, 0, 1, 2});
  CHECK(nonzero(zeros({2, 3})).shape() == Shape{0, 2});
  CHECK(nonzero(zeros({}, f32)).shape() == Shape{0, 0});
  CHECK(nonzero(ones({}, f32)).shape() == Shape{1, 0});
  CHECK(nonzero(zeros({0, 3})).shape() == Shape{0, 2});
  Tensor y = make({1, 2, 3, 4, 5, 6}, {2, 3}, f64);
  y.set_requires_grad();
  const Tensor taken = masked_select(y, gt(x, 0));
  expect_same("taken", values_of(taken), {2, 4, 6});
  sum(taken * taken).backward();
  expect_same("gradient", values_of(y.grad()), {0, 4, 0, 8, 0, 12});
  // Transposed operands and a broadcast mask.
  expect_same(
      "columns",
      values_of(masked_select(transpose(y.detach(), 0, 1), tensor<bool>({false, true}, {2}))),
      {4, 5, 6});
}

TEST_CASE("[S29] scatter_add has the same bits for any number of threads, in 16 bits too") {
  for (const DType t : {f16, bf16, f32}) {
    const std::int64_t n = on_slow_device() ? 500 : 20'000;
    const Tensor src = make(Rng(1).uniforms(2 * n, -1, 1), {n, 2}, t);
    const Tensor at = (src.to(f32) * 9 + 9).to(i64);
    const auto run = [&](int threads) {
      const Threads scope(threads);
      return values_of(scatter_add(zeros({20, 2}, t), 0, at, src));
    };
    CHECK(run(1) == run(7));
    // Sums of 16-bit numbers are rounded once: within half an ulp of the exact one.
    const Tensor wide = scatter_add(zeros({20, 2}, f64), 0, at, src.to(f64));
    const auto got = values_of(scatter_add(zeros({20, 2}, t), 0, at, src)),
               want = values_of(wide.to(t));
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK(std::abs(got[i] - want[i]) <= (t == f32 ? 1e-4 : 1e-2) * std::abs(want[i]) + 1e-6);
  }
}

TEST_CASE("operations at positions refuse what does not fit") {
  const Tensor x = zeros({2, 3}), at = zeros({2, 3}, i64);
  const auto refused = [](auto&& call, const char* op, const char* what) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(op) != std::string::npos);
    CHECK(text.find(what) != std::string::npos);
  };
  refused(
      [&] {
        return scatter_add(x, 0, at, zeros({1, 3}));
      },
      "[scatter_add]", "at most as large");
  refused(
      [&] {
        return scatter_add(x, 0, zeros({2, 4}, i64), zeros({2, 4}));
      },
      "[scatter_add]", "at most as large");
  refused(
      [&] {
        return scatter_add(x, 0, at, zeros({2, 3}, f64));
      },
      "[scatter_add]", "dtypes differ");
  refused([&] { return scatter_add(x.to(boolean), 0, at, x.to(boolean)); }, "[scatter_add]",
          "bools");
  refused([&] { return scatter_add(x, 0, x, x); }, "[scatter_add]", "an index is");
  refused([&] { return index_add(x, 0, at, x); }, "[index_add]", "the index is 1-D");
  refused([&] { return index_add(x, 0, zeros({3}, i64), x); }, "[index_add]",
          "expected shape [3, 3]");
  refused([&] { take_along(x, zeros({2}, i64), 0); }, "[take_along]", "number of axes");
  refused([&] { take_along(x, zeros({2, 2}, i64), 0); }, "[take_along]", "does not broadcast");
  refused([&] { kthvalue(x, 0); }, "[kthvalue]", "k is 0");
  refused([&] { kthvalue(x, 4); }, "[kthvalue]", "k is 4");
  CHECK(kthvalue(full({}, 3), 1).values.item() == 3);
  refused([&] { masked_select(x, x); }, "[masked_select]", "the mask is bool");
  // A bad index is found before anything is written.
  if (default_device().is_cpu())
    refused([&] { return scatter_add(x, 0, full({2, 3}, 7, i64), x); }, "[scatter_add]", "7");
}

}  // namespace
}  // namespace firn::testing
