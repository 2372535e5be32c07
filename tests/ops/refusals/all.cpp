// What ops refuse: every message names the op and what it met.
#include <cmath>
#include <limits>

#include "refused.h"
#include "support/catch.h"
#include "support/golden.h"
#include "support/ops/op_row.h"
#include "support/values.h"

using namespace firn;
using firn::testing::make;
using firn::testing::refused;

TEST_CASE("refusals: operands of two dtypes", "[ops]") {
  const Tensor a = zeros({2}, f32), b = zeros({2}, f64);
  refused("add", {"[2] f32 cpu", "[2] f64 cpu"}, [&] { add(a, b); });
  refused("mul", {"f32", "f64"}, [&] { mul(a, b); });
  refused("maximum", {"f32", "f64"}, [&] { maximum(a, b); });
  refused("matmul", {"f32", "f64"}, [&] { matmul(a, b); });
  refused("eq", {"f32", "f64"}, [&] { eq(a, b); });
}

TEST_CASE("refusals: a number beyond the dtype of a mask", "[ops]") {
  const Tensor scores = zeros({3}, f16), mask = ones({3}, boolean);
  refused("where", {"-1000000000", "infinite as f16", "-INFINITY"},
          [&] { return where(mask, scores, -1e9); });
  refused("where", {"-1000000000", "-INFINITY"}, [&] { return where(mask, -1e9, scores); });
  refused("minimum", {"or INFINITY"}, [&] { minimum(scores, 1e9); });
  CHECK(where(mask, scores, -INFINITY).dtype() == f16);
}

TEST_CASE("refusals: shapes that do not broadcast", "[ops]") {
  refused("add", {"[2]", "[3]"}, [] { add(zeros({2}), zeros({3})); });
  refused("where", {"[2]", "[3]"},
          [] { return where(zeros({2}, boolean), zeros({3}), zeros({1})); });
  refused("lt", {"[4, 2]", "[3, 2]"}, [] { lt(zeros({4, 2}), zeros({3, 2})); });
}

TEST_CASE("refusals: integer operands of floating ops", "[ops]") {
  const Tensor n = zeros({2}, i64);
  refused("exp", {"[2] i64 cpu"}, [&] { exp(n); });
  refused("div", {"i64"}, [&] { div(n, n); });
  refused("pow", {"bool"}, [&] { pow(zeros({2}, boolean), zeros({2}, boolean)); });
  refused("pow", {"[2] i64 cpu", "-1"}, [&] { pow(n, -1); });
  refused("pow", {"[2] i64 cpu", "0.5", "cast"}, [&] { pow(n, 0.5); });
  refused("pow", {"u8", "300"}, [&] { pow(zeros({2}, u8), 300); });
  refused("softmax", {"i64"}, [&] { softmax(n); });
  refused("layer_norm", {"i64"}, [&] { layer_norm(n); });
}

TEST_CASE("refusals: matrices that do not fit", "[ops]") {
  refused("matmul", {"[2, 3]", "[4, 5]"}, [] { matmul(zeros({2, 3}), zeros({4, 5})); });
  refused("matmul", {"batch axes [2] and [3]", "a [2, 3, 4] f32 cpu", "b [3, 4, 5] f32 cpu"}, [] {
    matmul(zeros({2, 3, 4}), zeros({3, 4, 5}));
  });
  refused("matmul", {"[]"}, [] { matmul(zeros({}), zeros({3})); });
  refused("linear", {"[2, 3]", "[5, 4]"}, [] { linear(zeros({2, 3}), zeros({5, 4})); });
  refused("linear", {"[4]"}, [] { linear(zeros({2, 3}), zeros({5, 3}), zeros({4})); });
}

TEST_CASE("refusals: joins of shapes that do not agree", "[ops]") {
  refused("cat", {"[2, 3] f32 cpu", "[2, 4] f32 cpu"}, [] { cat({zeros({2, 3}), zeros({2, 4})}); });
  refused("stack", {"[2] f32 cpu", "[3] f32 cpu"}, [] { stack({zeros({2}), zeros({3})}); });
  refused("stack", {"[2] f32 cpu", "[2, 1] f32 cpu"}, [] { stack({zeros({2}), zeros({2, 1})}); });
  refused("stack", {"f32", "f64"}, [] { stack({zeros({2}), zeros({2}, f64)}); });
  refused("stack", {"axis 2"}, [] { stack({zeros({2}), zeros({2})}, 2); });
  refused("stack", {}, [] { stack({zeros({2}), Tensor()}); });
}

TEST_CASE("refusals: more than 8 axes", "[ops]") {
  const Tensor x = zeros({1, 2, 1, 1, 1, 1, 1, 1});
  refused("unsqueeze", {"9 axes", "[1, 2, 1, 1, 1, 1, 1, 1] f32 cpu"}, [&] { unsqueeze(x, 0); });
  refused("stack", {"9 axes", "[1, 2, 1, 1, 1, 1, 1, 1]"}, [&] { stack({x, x}); });
  refused("embedding", {"9 axes", "[3, 4] f32 cpu", "[1, 2, 1, 1, 1, 1, 1, 1] i64 cpu"}, [&] {
    embedding(zeros({3, 4}), x.to(i64));
  });
  refused("one_hot", {"9 axes", "i64"}, [&] { one_hot(x.to(i64), 3); });
  refused("shape", {"more than 8 axes", "9", "[1, 2, 3, 4, 5, 6, 7, 8]"}, [] {
    zeros({1, 2, 3, 4, 5, 6, 7, 8, 9});
  });
  CHECK(embedding(zeros({3}), x.to(i64)).shape() == x.shape());
}

TEST_CASE("refusals: axes that do not exist or repeat", "[ops]") {
  const Tensor x = zeros({2, 3});
  refused("sum", {"axis 2", "2 axes"}, [&] { sum(x, {2}); });
  refused("mean", {"repeated"}, [&] { mean(x, {0, -2}); });
  refused("softmax", {"axis -3"}, [&] { softmax(x, -3); });
  refused("argmax", {"axis 5"}, [&] { argmax(x, 5); });
  refused("unsqueeze", {"axis"}, [&] { unsqueeze(x, 4); });
  refused("split", {"axis 3"}, [&] { split(x, 1, 3); });
  refused("squeeze", {"[2, 3]"}, [&] { squeeze(x, 0); });
}

TEST_CASE("refusals: what cannot be sorted or counted", "[ops]") {
  const Tensor x = zeros({2, 3});
  refused("sort", {"axis 2"}, [&] { sort(x, 2); });
  refused("sort", {"axis 1"}, [] { sort(zeros({}), 1); });
  refused("sort", {}, [] { sort(Tensor()); });
  refused("argsort", {"axis -3"}, [&] { argsort(x, -3); });
  refused("topk", {"k = 4", "[2, 3] f32 cpu", "axis 1"}, [&] { topk(x, 4); });
  refused("topk", {"k = -1"}, [&] { topk(x, -1, 0); });
  refused("topk", {"k = 2"}, [] { topk(zeros({}), 2); });
  const Tensor list = tensor({std::int64_t{1}, std::int64_t{3}});
  refused("bincount", {"f32"}, [] { bincount(zeros({2})); });
  refused("bincount", {"bool"}, [] { bincount(zeros({2}, boolean)); });
  refused("bincount", {"[2, 1] i64 cpu", "flatten"}, [&] { bincount(list.unsqueeze(1)); });
  refused("bincount", {"-2"}, [&] { bincount(list - 3.0); });
  refused("bincount", {"min_length = -1"}, [&] { bincount(list, {.min_length = -1}); });
  refused("bincount", {"weights [3] f32 cpu", "[2] i64 cpu"},
          [&] { bincount(list, {.weights = zeros({3})}); });
  refused("bincount", {"9223372036854775807"},
          [] { bincount(tensor({std::numeric_limits<std::int64_t>::max()})); });
}

TEST_CASE("refusals: indices outside their axis", "[ops]") {
  const Tensor table = zeros({4, 3});
  refused("embedding", {"4"}, [&] { embedding(table, tensor({std::int64_t{4}})); });
  refused("embedding", {"-1"}, [&] { embedding(table, tensor({std::int64_t{-1}})); });
  refused("embedding", {"f32"}, [&] { embedding(table, zeros({2})); });
  refused("index_select", {"3"}, [&] { index_select(table, 1, tensor({std::int64_t{3}})); });
  refused("gather", {"7"}, [&] { gather(table, 0, full({1, 1}, 7, i64)); });
  refused("gather", {"[2]"}, [&] { gather(table, 0, zeros({2}, i64)); });
  refused("one_hot", {"5"}, [] { one_hot(tensor({std::int64_t{5}}), 5); });
}

TEST_CASE("refusals: a bad index changes nothing in backward buffers", "[ops]") {
  Tensor table = make({1, 2, 3, 4}, {2, 2});
  table.set_requires_grad();
  refused("embedding", {"2"}, [&] {
    embedding(table, tensor({std::int64_t{0}, std::int64_t{2}}));
  });
  CHECK_FALSE(table.grad().defined());
  sum(embedding(table, tensor({std::int64_t{1}}))).backward();
  CHECK(testing::values_of(table.grad()) == std::vector<double>{0, 0, 1, 1});
}

TEST_CASE("refusals: targets of losses", "[ops]") {
  const Tensor x = zeros({2, 3});
  refused("cross_entropy", {"3"}, [&] {
    cross_entropy(x, tensor({std::int64_t{0}, std::int64_t{3}}));
  });
  refused("cross_entropy", {"[3]"}, [&] { cross_entropy(x, zeros({3}, i64)); });
  refused("cross_entropy", {"f32"}, [&] { cross_entropy(x, zeros({2})); });
  refused("cross_entropy", {"1"}, [&] {
    cross_entropy(x, zeros({2}, i64), {.label_smoothing = 1.0, .class_weights = {}});
  });
  refused("cross_entropy", {"[4]"},
          [&] { cross_entropy(x, zeros({2}, i64), {.class_weights = ones({4})}); });
  refused("mse_loss", {"[2, 3]", "[3]"}, [&] { mse_loss(x, zeros({3})); });
}

TEST_CASE("refusals: dropout probabilities", "[ops]") {
  refused("dropout", {"1"}, [] { dropout(zeros({2}), 1.0); });
  refused("dropout", {"-0.1"}, [] { dropout(zeros({2}), -0.1); });
}

TEST_CASE("dropout: keeps the mean, zeroes the fraction, and is off in evaluation", "[ops]") {
  Generator g(3);
  const Tensor x = ones({100'000});
  const Tensor y = dropout(x, 0.25, true, g);
  std::int64_t zero = 0;
  for (double v : testing::values_of(y)) {
    zero += v == 0;
    if (v != 0) REQUIRE(v == static_cast<float>(1 / 0.75));
  }
  // 100,000 draws: the standard deviation of the fraction is 0.0014; five of them.
  CHECK(std::abs(static_cast<double>(zero) / 1e5 - 0.25) < 0.007);
  CHECK(testing::address_of(dropout(x, 0.25, false, g)) == testing::address_of(x));
  const Tensor again = dropout(x, 0.25, true, g);
  CHECK(testing::values_of(again) != testing::values_of(y));  // the stream has moved on
}

TEST_CASE("dropout: the gradient uses the mask of the forward pass", "[ops]") {
  Generator g(3);
  Tensor x = ones({1025}, f64);
  x.set_requires_grad();
  const Tensor y = dropout(x, 0.5, true, g);
  g.reserve(1000);  // what is drawn in between does not matter
  sum(y).backward();
  CHECK(testing::values_of(x.grad()) == testing::values_of(y));
}

TEST_CASE("norms: a tensor of one axis is one row", "[ops]") {
  const std::vector<double> v = {0.1, -2, 3, 0.5};
  const Tensor x = make(v, {4}), row = make(v, {1, 4});
  CHECK(testing::values_of(layer_norm(x)) == testing::values_of(layer_norm(row)));
  CHECK(testing::values_of(rms_norm(x)) == testing::values_of(rms_norm(row)));
  CHECK(layer_norm(x).shape() == Shape{4});
  // A constant row: the variance is 0, and eps keeps the result finite.
  CHECK(testing::values_of(layer_norm(full({3}, 5, f64))) == std::vector<double>{0, 0, 0});
}

TEST_CASE("goldens: every record belongs to a row", "[ops]") {
  for (const auto& [name, golden] : testing::op_goldens()) {
    INFO(name);
    bool found = false;
    for (const auto& row : testing::rows()) found |= row.name == name && row.golden;
    CHECK(found);
  }
  CHECK(testing::op_goldens().size() >= 100);
}

TEST_CASE("indices: i32 and i64 give the same", "[ops]") {
  const Tensor x = make({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor wide = tensor({std::int64_t{2}, std::int64_t{0}}), narrow = wide.to(i32);
  using testing::values_of;
  CHECK(values_of(embedding(x, wide)) == values_of(embedding(x, narrow)));
  CHECK(values_of(index_select(x, 0, wide)) == values_of(index_select(x, 0, narrow)));
  CHECK(values_of(one_hot(wide, 3)) == values_of(one_hot(narrow, 3)));
  const Tensor logits = make({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(cross_entropy(logits, wide).item() == cross_entropy(logits, narrow).item());
  CHECK(cross_entropy(logits, wide).item() == cross_entropy(logits, wide.to(u8)).item());
}
