// Operations that move elements: rows, and their values written out.
#include <cmath>
#include <limits>
#include <numeric>

#include "support/catch.h"
#include "support/ops/op_row.h"
#include "support/values.h"

namespace firn::testing {
namespace {

void moves(const char* name, OpFn op, std::vector<std::vector<Shape>> shapes,
           Accuracy accuracy = Accuracy::exact) {
  Row row(name, std::move(op));
  row.args(std::vector<Arg>(shapes[0].size(), real()));
  row.shapes(std::move(shapes)).accuracy(accuracy).integers();
}

FIRN_OP_ROWS(rearranged) {
  moves("narrow", [](const Args& x) { return narrow(x[0], 1, -3, 2); }, {{{2, 5}}, {{3, 4, 2}}});
  moves("chunk",
        [](const Args& x) {
          const auto p = chunk(x[0], 3, 0);
          return cat({p[2], p[0], p[1]}, 0);
        },
        {{{5, 3}}, {{9}}, {{7, 2, 2}}});
  moves("movedim", [](const Args& x) { return movedim(x[0], 0, -1); },
        {{{2, 3, 4}}, {{5}}, {{0, 3}}});
  moves("diagonal", [](const Args& x) { return diagonal(x[0], 1); },
        {{{3, 4}}, {{4, 3}}, {{1, 1}}, {{2, 3, 5}}, {{33, 65}}});
  moves("diagonal of the last axes", [](const Args& x) { return diagonal(x[0], -1, -2, -1); },
        {{{3, 4}}, {{2, 4, 3}}, {{3, 1, 5}}});
  moves(
      "meshgrid",
      [](const Args& x) {
        const auto g = meshgrid({x[0], x[1]});
        return stack({g[0], g[1]});
      },
      {{{3}, {4}}, {{1}, {}}, {{0}, {2}}}, Accuracy::sum);
  moves("flip",
        [](const Args& x) {
          return flip(x[0], {0, -1});
        },
        {{{3, 4}}, {{0, 2}}, {{2, 3, 4}}, {{33, 65}}});
  moves("flip one axis", [](const Args& x) { return flip(x[0], 0); }, {{{5}}, {{2, 3}}});
  moves("roll", [](const Args& x) { return roll(x[0], -4, 1); }, {{{2, 3}}, {{3, 0}}, {{2, 7, 2}}});
  moves("roll all", [](const Args& x) { return roll(x[0], 2); }, {{{2, 3}}, {{}}, {{7}}});
  moves("rot90", [](const Args& x) { return rot90(x[0], -1); }, {{{2, 3}}, {{4, 1, 2}}});
  moves(
      "repeat",
      [](const Args& x) {
        return repeat(x[0], {2, 1, 3});
      },
      {{{2, 3}}, {{}}, {{4, 1, 5}}, {{0, 2}}}, Accuracy::sum);
  moves(
      "tile", [](const Args& x) { return tile(x[0], {3}); }, {{{2, 3}}, {{4}}, {{2, 1, 5}}},
      Accuracy::sum);
  moves(
      "repeat_interleave", [](const Args& x) { return repeat_interleave(x[0], 3, 0); },
      {{{2, 3}}, {{4}}, {{0, 2}}}, Accuracy::sum);
  moves(
      "repeat_interleave by slice",
      [](const Args& x) {
        const std::vector<std::int64_t> counts = {2, 0, 3};
        return repeat_interleave(x[0], counts, -1);
      },
      {{{2, 3}}, {{3}}, {{2, 2, 3}}}, Accuracy::sum);
  moves("tril", [](const Args& x) { return tril(x[0]); },
        {{{3, 4}}, {{2, 4, 3}}, {{0, 2}}, {{33, 65}}});
  moves("triu moved", [](const Args& x) { return triu(x[0], -1); }, {{{3, 4}}, {{2, 4, 3}}});
  moves("diag of a list", [](const Args& x) { return diag(x[0], -2); }, {{{3}}, {{1}}, {{0}}});
  moves("diag of a matrix", [](const Args& x) { return diag(x[0]); }, {{{3, 4}}, {{4, 3}}});
}

/// 0, 1, 2 ... with this shape.
Tensor counted(const Shape& shape, DType t = f64) {
  std::int64_t n = 1;
  for (const std::int64_t v : shape) n *= v;
  return reshape(arange(n, t), shape);
}

void check(const char* name, const Tensor& got, const Shape& shape,
           const std::vector<double>& values) {
  INFO(name);
  CHECK(got.shape() == shape);
  expect_same(name, values_of(got), values);
}

TEST_CASE("views of parts, written out") {
  const Tensor x = counted({3, 4});
  check("narrow", narrow(x, 1, 1, 2), {3, 2}, {1, 2, 5, 6, 9, 10});
  check("narrow from the end", narrow(x, 0, -1, 1), {1, 4}, {8, 9, 10, 11});
  check("narrow of nothing", narrow(x, 0, 3, 0), {0, 4}, {});
  CHECK(narrow(x, 0, 1, 2).storage() == x.storage());
  const auto pieces = chunk(counted({7}), 4);
  REQUIRE(pieces.size() == 4);
  check("last chunk", pieces[3], {1}, {6});
  CHECK(chunk(counted({6}), 4).size() == 3);  // pieces of 2, as in PyTorch
  CHECK(chunk(counted({0, 2}), 3).size() == 3);
  check("movedim", movedim(counted({2, 3, 1}), 1, 0), {3, 2, 1}, {0, 3, 1, 4, 2, 5});
  CHECK(movedim(counted({2, 3, 4, 5}), {0, 1}, {-1, 0}).shape() == Shape{3, 4, 5, 2});
  CHECK(movedim(x, {}, {}).shape() == x.shape());
  check("diagonal", diagonal(x), {3}, {0, 5, 10});
  check("diagonal 2", diagonal(x, 2), {2}, {2, 7});
  check("diagonal -1", diagonal(x, -1), {2}, {4, 9});
  check("diagonal at the corner", diagonal(x, 4), {0}, {});
  check("diagonal beyond", diagonal(x, std::numeric_limits<std::int64_t>::min()), {0}, {});
  check("diagonal of axes", diagonal(counted({2, 2, 3}), 1, 0, 2), {2, 2}, {1, 8, 4, 11});
  CHECK(diagonal(x).storage() == x.storage());
  const auto grid = meshgrid({counted({2}), counted({3})});
  check("grid 0", grid[0], {2, 3}, {0, 0, 0, 1, 1, 1});
  check("grid 1", grid[1], {2, 3}, {0, 1, 2, 0, 1, 2});
  check("broadcast_to", broadcast_to(counted({2, 1}), {2, 2}), {2, 2}, {0, 0, 1, 1});
}

TEST_CASE("rearranged copies, written out") {
  const Tensor x = counted({2, 3});
  check("flip", flip(x, {0, 1}), {2, 3}, {5, 4, 3, 2, 1, 0});
  check("flip 1", flip(x, 1), {2, 3}, {2, 1, 0, 5, 4, 3});
  check("flip nothing", flip(x, {}), {2, 3}, {0, 1, 2, 3, 4, 5});
  check("roll", roll(x, 1, 1), {2, 3}, {2, 0, 1, 5, 3, 4});
  check("roll far", roll(x, -7, 1), {2, 3}, {1, 2, 0, 4, 5, 3});
  check("roll all", roll(x, 2), {2, 3}, {4, 5, 0, 1, 2, 3});
  check("roll least", roll(x, std::numeric_limits<std::int64_t>::min(), 1), {2, 3},
        {2, 0, 1, 5, 3, 4});
  check("rot90", rot90(x), {3, 2}, {2, 5, 1, 4, 0, 3});
  check("rot90 twice", rot90(x, 2), {2, 3}, {5, 4, 3, 2, 1, 0});
  check("rot90 back", rot90(x, 3), {3, 2}, {3, 0, 4, 1, 5, 2});
  check("repeat", repeat(counted({2}), {2, 2}), {2, 4}, {0, 1, 0, 1, 0, 1, 0, 1});
  check("repeat of nothing", repeat(x, {0, 2}), {0, 6}, {});
  check("tile", tile(x, {2}), {2, 6}, {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  check("repeat_interleave", repeat_interleave(counted({2}), 3, 0), {6}, {0, 0, 0, 1, 1, 1});
  const std::vector<std::int64_t> counts = {0, 2};
  check("by slice", repeat_interleave(x, counts, 0), {2, 3}, {3, 4, 5, 3, 4, 5});
  const Tensor m = counted({3, 3}) + 1;
  check("tril", tril(m), {3, 3}, {1, 0, 0, 4, 5, 0, 7, 8, 9});
  check("tril -1", tril(m, -1), {3, 3}, {0, 0, 0, 4, 0, 0, 7, 8, 0});
  check("triu", triu(m), {3, 3}, {1, 2, 3, 0, 5, 6, 0, 0, 9});
  check("triu 2", triu(m, 2), {3, 3}, {0, 0, 3, 0, 0, 0, 0, 0, 0});
  const std::int64_t far = std::numeric_limits<std::int64_t>::max();
  check("tril far", tril(m, far), {3, 3}, values_of(m));
  check("triu far", triu(m, far), {3, 3}, std::vector<double>(9, 0));
  check("tril of NaN", tril(full({2, 2}, std::nan(""), f64), -2), {2, 2}, {0, 0, 0, 0});
  check("diag", diag(counted({2}) + 1, 1), {3, 3}, {0, 1, 0, 0, 0, 2, 0, 0, 0});
  check("diag of a matrix", diag(m, -1), {2}, {4, 8});
  // A copy is a copy even if nothing moves.
  for (const Tensor& same :
       {roll(x, 0, 0), flip(x, {}), rot90(x, 4), tile(x, {1}), repeat_interleave(x, 1, 0)}) {
    CHECK(same.storage() != x.storage());
    expect_same("same", values_of(same), values_of(x));
  }
}

TEST_CASE("linspace includes both ends exactly") {
  for (const DType t : {f16, f32, f64}) {
    const Tensor x = linspace(-0.3, 0.7, 11, {.dtype = t});
    const auto v = values_of(x);
    CHECK(v.front() == full({}, -0.3, t).item());
    CHECK(v.back() == full({}, 0.7, t).item());
    for (std::size_t i = 0; i < v.size(); ++i)
      CHECK(v[i] == Approx(-0.3 + 0.1 * static_cast<double>(i)).margin(t == f16 ? 1e-3 : 1e-6));
  }
  CHECK(linspace(0, 1, 0).numel() == 0);
  expect_same("one", values_of(linspace(3, 9, 1)), {3});
  expect_same("wide", values_of(linspace(-1.7e308, 1.7e308, 3, {.dtype = f64})),
              {-1.7e308, 0, 1.7e308});
  CHECK(error_of([] { linspace(0, HUGE_VAL, 3); }).find("from 0 to inf") != std::string::npos);
  expect_same("down", values_of(linspace(1, 0, 5, {.dtype = f64})), {1, 0.75, 0.5, 0.25, 0});
  CHECK(error_of([] { linspace(0, 1, -1); }).find("count is -1") != std::string::npos);
  CHECK(error_of([] { linspace(0, 1e9, 3, {.dtype = f16}); }).find("infinite as f16") !=
        std::string::npos);
}

TEST_CASE("rearrangements refuse what does not fit", "[host]") {
  const Tensor x = zeros({2, 3});
  const auto refused = [](auto&& call, const char* op, const char* what) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(op) != std::string::npos);
    CHECK(text.find(what) != std::string::npos);
  };
  refused([&] { narrow(x, 0, 1, 2); }, "[narrow]", "start 1 and length 2");
  refused([&] { narrow(x, 0, 0, std::numeric_limits<std::int64_t>::max()); }, "[narrow]", "length");
  refused([&] { narrow(x, 2, 0, 1); }, "[narrow]", "axis");
  refused([&] { chunk(x, 0); }, "[chunk]", "0 chunks");
  refused([&] { movedim(x, {0, 1}, {0}); }, "[movedim]", "axes [0, 1] to [0]");
  refused([&] { movedim(x, {0, -2}, {0, 1}); }, "[movedim]", "");
  refused([&] { diagonal(x, 0, 1, -1); }, "[diagonal]", "both are axis 1");
  refused([&] { diagonal(zeros({2})); }, "[diagonal]", "axis");
  refused([&] { meshgrid({x}); }, "[meshgrid]", "more than one axis");
  refused([&] { meshgrid(std::span<const Tensor>()); }, "[meshgrid]", "no tensors");
  refused([&] { flip(x, {0, 0}); }, "[flip]", "");
  refused([&] { roll(x, 1, 5); }, "[roll]", "axis");
  refused([&] { rot90(x, 1, 0, 0); }, "[rot90]", "both are axis 0");
  refused([&] { repeat(x, {2}); }, "[repeat]", "1 counts");
  refused([&] { repeat(x, {2, -1}); }, "[repeat]", "counts");
  refused([&] { repeat(x, {std::int64_t{1} << 62, 8}); }, "[repeat]", "");
  refused([&] { repeat_interleave(x, -1, 0); }, "[repeat_interleave]", "count is -1");
  const std::vector<std::int64_t> three = {1, 1, 1};
  refused([&] { repeat_interleave(x, three, 0); }, "[repeat_interleave]", "3 counts");
  refused([&] { tril(zeros({3})); }, "[tril]", "has no matrices");
  refused([&] { diag(zeros({2, 2, 2})); }, "[diag]", "neither a list nor a matrix");
  refused([&] { diag(zeros({2}), std::numeric_limits<std::int64_t>::max()); }, "[diag]", "");
  refused([&] { broadcast_to(x, {-1, 3}); }, "[broadcast_to]", "shape");
}

}  // namespace
}  // namespace firn::testing
