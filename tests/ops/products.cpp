// einsum() and the products made of matmul(): rows, equations drawn by a seed beside plain loops,
// plans, and what is refused.
#include <algorithm>
#include <map>
#include <set>

#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/ops/op_row.h"
#include "support/values.h"

namespace firn::testing {
namespace {

/// A row of an equation: sums of up to `terms` products, `roundings` of them after each other.
void equation(const char* text, std::vector<std::vector<Shape>> shapes, double terms = 4,
              int roundings = 1) {
  Row row(std::string("einsum ") + text, [text](const Args& x) { return einsum(text, x); });
  row.args(std::vector<Arg>(shapes[0].size(), real()));
  row.shapes(std::move(shapes)).accuracy(Accuracy::sum, terms).roundings(roundings);
}

void product(const char* name, OpFn op, std::vector<std::vector<Shape>> shapes, double terms,
             int roundings = 1) {
  Row row(name, std::move(op));
  row.args(std::vector<Arg>(shapes[0].size(), real()));
  row.shapes(std::move(shapes)).accuracy(Accuracy::sum, terms).roundings(roundings);
}

FIRN_OP_ROWS(einsum) {
  equation("ij->ji", {{{2, 3}}, {{0, 2}}});
  equation("ii", {{{3, 3}}, {{1, 1}}, {{0, 0}}});
  equation("iij->ji", {{{3, 3, 2}}});
  equation("...i->i", {{{2, 3}}, {{4}}, {{2, 2, 3}}}, 4);
  equation("ij,jk", {{{2, 3}, {3, 4}}, {{0, 3}, {3, 4}}, {{2, 0}, {0, 4}}, {{5, 33}, {33, 7}}}, 33);
  equation("ij,jk->ki", {{{2, 3}, {3, 4}}, {{1, 3}, {3, 1}}}, 3);
  equation("bij,bjk->bik",
           {{{2, 3, 4}, {2, 4, 2}}, {{0, 3, 4}, {0, 4, 2}}, {{1, 3, 4}, {2, 4, 2}}});
  equation("bhid,bhjd->bhij", {{{2, 2, 3, 4}, {2, 2, 2, 4}}});
  equation("bihd,bjhd->bhij", {{{2, 3, 2, 4}, {2, 2, 2, 4}}});
  equation("i,i", {{{4}, {4}}, {{1}, {4}}, {{0}, {0}}}, 4, 2);
  equation("i,j->ij", {{{3}, {4}}, {{1}, {2}}, {{0}, {2}}});
  equation("bi,bi->b", {{{3, 4}, {3, 4}}, {{3, 4}, {1, 4}}, {{0, 4}, {0, 4}}, {{2, 0}, {2, 0}}});
  equation("bij,jbi->ib", {{{2, 3, 4}, {4, 2, 3}}});
  equation("ij,kl->", {{{2, 3}, {2, 2}}}, 12, 3);
  equation("a...b,b...->...a", {{{3, 2, 2, 4}, {4, 2}}, {{2, 4}, {4}}});
  equation("ij,jk,kl->il", {{{2, 3}, {3, 4}, {4, 2}}, {{2, 1}, {3, 4}, {1, 2}}}, 12, 2);
  equation("bi,oij,bj->bo", {{{3, 2}, {4, 2, 3}, {3, 3}}}, 6, 2);
}

FIRN_OP_ROWS(products) {
  product(
      "tensordot", [](const Args& x) { return tensordot(x[0], x[1]); },
      {{{2, 3, 4}, {3, 4, 2}}, {{3, 4}, {3, 4}}, {{2, 0, 3}, {0, 3, 2}}}, 12);
  product(
      "tensordot of no axes", [](const Args& x) { return tensordot(x[0], x[1], 0); },
      {{{2}, {3, 2}}, {{}, {3}}}, 1);
  product(
      "tensordot of axes",
      [](const Args& x) {
        return tensordot(x[0], x[1], {0, -1}, {2, 0});
      },
      {{{3, 2, 4}, {4, 2, 3}}, {{1, 2, 4}, {1, 2, 3}}}, 12, 2);
  product(
      "outer", [](const Args& x) { return outer(x[0], x[1]); }, {{{3}, {4}}, {{1}, {0}}}, 1);
  product(
      "dot", [](const Args& x) { return dot(x[0], x[1]); }, {{{4}, {4}}, {{0}, {0}}}, 4);
  product(
      "vecdot", [](const Args& x) { return vecdot(x[0], x[1]); },
      {{{3, 4}, {3, 4}}, {{4}, {2, 3, 4}}, {{0, 4}, {4}}}, 4);
  product(
      "vecdot along an axis", [](const Args& x) { return vecdot(x[0], x[1], 0); },
      {{{4, 3}, {4, 3}}, {{4, 1}, {1, 3}}}, 4, 2);
  product(
      "bmm", [](const Args& x) { return bmm(x[0], x[1]); },
      {{{2, 3, 4}, {2, 4, 2}}, {{0, 3, 4}, {0, 4, 2}}}, 4);
  product(
      "addmm", [](const Args& x) { return addmm(x[0], x[1], x[2], {.beta = 0.5, .alpha = -2}); },
      {{{2, 3}, {2, 4}, {4, 3}}, {{3}, {2, 4}, {4, 3}}, {{}, {2, 0}, {0, 3}}}, 5, 4);
  product(
      "baddbmm", [](const Args& x) { return baddbmm(x[0], x[1], x[2]); },
      {{{2, 2, 3}, {2, 2, 4}, {2, 4, 3}}, {{2, 1, 3}, {2, 2, 4}, {2, 4, 3}}}, 5, 2);
  product(
      "bilinear", [](const Args& x) { return bilinear(x[0], x[1], x[2], x[3]); },
      {{{3, 2}, {3, 4}, {2, 2, 4}, {2}},
       {{2}, {3}, {4, 2, 3}, {4}},
       {{0, 2}, {0, 1}, {2, 2, 1}, {2}}},
      9, 2);
  product(
      "bilinear without bias", [](const Args& x) { return bilinear(x[0], x[1], x[2]); },
      {{{2, 2, 2}, {2, 2, 3}, {1, 2, 3}}}, 6, 2);
}

// ---- Equations drawn by a seed ----

/// One drawn call: the text, and the letters of each operand and of the result with those of "..."
/// written out.
struct Drawn {
  std::string text;
  std::vector<std::string> operands;
  std::string result;
  std::map<char, std::int64_t> sizes;
  std::vector<Shape> shapes;
};

/// Letters of operands are among a to d, X and Y; "..." stands for "VW" or its end.
Drawn draw(Rng& rng) {
  Drawn d;
  const std::string letters = "abcdXY";
  for (const char c : letters + "VW") d.sizes[c] = rng.below(12) == 0 ? 0 : 1 + rng.below(3);
  const auto count = static_cast<int>(1 + rng.below(10) / 3);  // 1 to 4
  bool dotted = false;
  std::string used;
  for (int k = 0; k < count; ++k) {
    std::string own, text;
    const auto named = rng.below(4);
    const auto dots = rng.below(3) == 0 ? 1 + rng.below(3) : 0;  // 1: of no axes
    const auto at = rng.below(named + 1);
    for (std::int64_t i = 0; i <= named; ++i) {
      if (dots > 0 && i == at) {
        dotted = true;
        text += rng.below(2) == 0 ? "..." : " ...";
        own += std::string("VW").substr(static_cast<std::size_t>(3 - dots));
      }
      if (i == named) break;
      const char c = letters[static_cast<std::size_t>(rng.below(6))];
      text += c;
      own += c;
      used += c;
    }
    Shape shape;
    std::map<char, std::int64_t> here;  // an operand has one size for a letter, at times 1
    for (const char c : own) {
      if (!here.contains(c)) here[c] = rng.below(6) == 0 ? 1 : d.sizes[c];
      shape.push_back(here[c]);
    }
    d.text += (k > 0 ? "," : "") + text;
    d.operands.push_back(own);
    d.shapes.push_back(shape);
  }
  std::string dots;  // the axes of the longest "..."
  for (const std::string& own : d.operands)
    for (const char* tail : {"VW", "W"})
      if (dots.empty() && own.find(tail) != std::string::npos) dots = tail;
  for (const std::string& own : d.operands)
    if (own.find('V') != std::string::npos) dots = "VW";
  const std::set<char> distinct(used.begin(), used.end());
  if (rng.below(4) == 0) {  // implicit: sorted, capitals first
    d.result = dots;
    for (const char c : distinct)
      if (std::count(used.begin(), used.end(), c) == 1) d.result += c;
  } else {
    std::string rest(distinct.begin(), distinct.end());
    for (std::size_t i = rest.size(); i > 1; --i)
      std::swap(rest[i - 1],
                rest[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(i)))]);
    rest.resize(static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(rest.size()) + 1)));
    d.text += rng.below(2) == 0 ? "->" : " -> ";
    if (dotted && rng.below(3) > 0) {
      d.text += "...";
      d.result = dots;
    }
    d.text += rest;
    d.result += rest;
  }
  // A letter is as large as in the largest operand, and 0 wins over 1.
  for (auto& [c, size] : d.sizes) {
    bool whole = false;
    for (std::size_t k = 0; k < d.operands.size(); ++k)
      for (std::size_t i = 0; i < d.operands[k].size(); ++i)
        whole =
            whole || (d.operands[k][i] == c && d.shapes[k][static_cast<std::int64_t>(i)] == size);
    if (!whole) size = 1;
  }
  return d;
}

/// The result and the gradients of all operands for `seed`, by one loop over all letters.
struct Looped {
  std::vector<double> result;
  std::vector<std::vector<double>> gradients;
};

Looped looped(const Drawn& d, const std::vector<std::vector<double>>& values, Rng& rng,
              std::vector<double>& seed) {
  std::string letters;
  for (const std::string& own : d.operands)
    for (const char c : own)
      if (letters.find(c) == std::string::npos) letters += c;
  Looped out;
  std::int64_t elements = 1, turns = 1;
  for (const char c : d.result) elements *= d.sizes.at(c);
  for (const char c : letters) turns *= d.sizes.at(c);
  out.result.resize(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) seed.push_back(rng.uniform(-1, 1));
  for (const auto& v : values) out.gradients.emplace_back(v.size());
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    std::map<char, std::int64_t> at;
    std::int64_t rest = turn;
    for (const char c : letters) at[c] = rest % d.sizes.at(c), rest /= d.sizes.at(c);
    std::vector<std::size_t> places;
    for (std::size_t k = 0; k < d.operands.size(); ++k) {
      std::int64_t place = 0;
      for (std::size_t i = 0; i < d.operands[k].size(); ++i) {
        const std::int64_t n = d.shapes[k][static_cast<std::int64_t>(i)];
        place = place * n + (n == 1 ? 0 : at[d.operands[k][i]]);
      }
      places.push_back(static_cast<std::size_t>(place));
    }
    std::int64_t to = 0;
    for (const char c : d.result) to = to * d.sizes.at(c) + at[c];
    double whole = 1;
    for (std::size_t k = 0; k < values.size(); ++k) whole *= values[k][places[k]];
    out.result[static_cast<std::size_t>(to)] += whole;
    for (std::size_t k = 0; k < values.size(); ++k) {
      double others = seed[static_cast<std::size_t>(to)];
      for (std::size_t j = 0; j < values.size(); ++j)
        if (j != k) others *= values[j][places[j]];
      out.gradients[k][places[k]] += others;
    }
  }
  return out;
}

TEST_CASE("einsum of drawn equations equals plain loops, with gradients") {
  Rng rng(20);
  const int count = 60 / fewer(5);
  int several = 0;
  for (int number = 0; number < count; ++number) {
    const Drawn d = draw(rng);
    std::string said = d.text;
    std::vector<std::vector<double>> values;
    std::vector<Tensor> operands;
    for (const Shape& shape : d.shapes) {
      said += " " + to_string(shape);
      values.push_back(rng.uniforms(shape.product(), -1, 1));
      const Layout layout = rng.below(2) == 0 ? Layout::contiguous : Layout::transposed;
      operands.push_back(make(values.back(), shape, f64, layout).set_requires_grad());
    }
    INFO(number << ": " << said);
    std::vector<double> seed;
    const Looped want = looped(d, values, rng, seed);
    const Tensor y = einsum(d.text, operands);
    Shape shape;
    for (const char c : d.result) shape.push_back(d.sizes.at(c));
    REQUIRE(y.shape() == shape);
    // At most 3^6 products of four numbers below 1, in any order.
    const double bound = 1e-13 * static_cast<double>(1 + want.result.size());
    expect_close("result of " + said, values_of(y), want.result, bound);
    sum(y * make(seed, shape)).backward();
    for (std::size_t k = 0; k < operands.size(); ++k)
      expect_close("gradient of " + said, values_of(operands[k].grad()), want.gradients[k], 1e-12);
    several += operands.size() > 1;
  }
  CHECK(2 * several > count);
}

// ---- What is computed ----

double flops_of(const std::function<void()>& call) {
  Profile profile;
  call();
  profile.stop();
  double flops = 0;
  for (const ProfileRow& r : profile.rows()) flops += r.flops;
  return flops;
}

int copies_in(const std::function<void()>& call) {
  Profile profile;
  call();
  profile.stop();
  std::int64_t copies = 0;
  for (const ProfileRow& r : profile.rows(ProfileBy::kernel))
    if (r.name.find("copy") != std::string::npos) copies += r.calls;
  return static_cast<int>(copies);
}

TEST_CASE("einsum copies no operand that matmul takes as it is") {
  const Tensor a = rand({2, 3, 4}), b = rand({2, 4, 5}), q = rand({2, 3, 4, 5});
  CHECK(copies_in([&] { einsum("bij,bjk->bik", {a, b}); }) == 0);
  CHECK(copies_in([&] { einsum("bij,bjk->bki", {a, b}); }) == 0);
  CHECK(copies_in([&] { einsum("bij,bkj->bik", {a, a}); }) == 0);
  CHECK(copies_in([&] { einsum("bij,jk->bik", {a, transpose(rand({6, 4}), 0, 1)}); }) == 0);
  CHECK(copies_in([&] { einsum("bhid,bhjd->bhij", {q, q}); }) == 0);
  CHECK(copies_in([&] { einsum("bhid,bhid->", {q, q}); }) == 0);
  CHECK(copies_in([&] { tensordot(q, q, {2, 3}, {2, 3}); }) == 0);
  CHECK(copies_in([&] { einsum("abcd->badc", {q}); }) == 0);
  // Batches that are not one axis are made one.
  CHECK(copies_in([&] { einsum("bihd,bjhd->bhij", {q, q}); }) == 2);
}

TEST_CASE("einsum contracts the cheapest pair first") {
  const Tensor wide = rand({2, 30}), square = rand({30, 30}), thin = rand({30, 1});
  // (square thin) then wide: 30 30 and 2 30 products. From the left it would be 2 30 30 more.
  const auto chain = [&] { einsum("ij,jk,kl->il", {wide, square, thin}); };
  CHECK(flops_of(chain) == 2.0 * (30 * 30 + 2 * 30));
  const auto moved = [&] { einsum("kl,ij,jk->il", {thin, wide, square}); };
  CHECK(flops_of(moved) == 2.0 * (30 * 30 + 2 * 30));
  // Sums over letters of one operand come first.
  CHECK(flops_of([&] { einsum("ij,jk->j", {wide, square}); }) == 0);
}

TEST_CASE("products, written out") {
  const Tensor a = tensor<double>({1, 2, 3, 4, 5, 6}, {2, 3}), b = a + 10;
  expect_same("trace", values_of(einsum("ii", {tensor<double>({1, 2, 3, 4}, {2, 2})})), {5});
  expect_same("sums", values_of(einsum("ij->j", {a})), {5, 7, 9});
  expect_same("i64", values_of(einsum("ij->", {a.to(i32)})), {21});
  CHECK(einsum("ij->", {a.to(i32)}).dtype() == i64);
  expect_same("rows", values_of(einsum("ij,kj->ki", {a, b})), {74, 182, 92, 227});
  expect_same("scalars", values_of(einsum(",->", {tensor(2.0), tensor(3.0)})), {6});
  expect_same("scalar", values_of(einsum("", {tensor(2.0)})), {2});
  CHECK(einsum("ij,k", {a, a[0]}).shape() == Shape{2, 3, 3});
  CHECK(einsum("ba", {a}).shape() == Shape{3, 2});
  CHECK(einsum("aB", {a}).shape() == Shape{3, 2});
  CHECK(einsum("ij->ji", {a}).storage() == a.storage());
  CHECK(einsum("...->...", {a}).storage() == a.storage());
  expect_same("dot", values_of(dot(a[0], a[1])), {32});
  expect_same("outer", values_of(outer(a[0], b[0].slice(0, 0, 2))), {11, 12, 22, 24, 33, 36});
  expect_same("outer of integers", values_of(outer(arange(2), arange(3))), {0, 0, 0, 0, 1, 2});
  expect_same("vecdot", values_of(vecdot(a, b, 0)), {67, 99, 135});
  expect_same("tensordot", values_of(tensordot(a, a, 2)), {91});
  expect_same("tensordot repeats", values_of(tensordot(tensor<double>({2}, {1}), a[0], 1)), {12});
  const Tensor unread = full({2, 2}, NAN, f64);
  expect_same("beta 0", values_of(addmm(unread, a, transpose(a, 0, 1), {.beta = 0})),
              {14, 32, 32, 77});
  expect_same("bilinear",
              values_of(bilinear(a[0].slice(0, 0, 2), b[0].slice(0, 0, 1),
                                 tensor<double>({1, 10, 100, 1000}, {2, 2, 1}),
                                 tensor<double>({1, 2}, {2}))),
              {232, 23102});
}

TEST_CASE("products under autocast run in its dtype") {
  const Tensor a = rand({2, 3}), b = rand({3, 4}).to(bf16), c = rand({4}), x = rand({2, 3});
  const Autocast autocast(bf16);
  CHECK(einsum("ij,jk", {a, b}).dtype() == bf16);
  CHECK(einsum("ij,jk,k", {a, b, c}).dtype() == bf16);
  CHECK(einsum("i,j->ij", {c, c}).dtype() == f32);  // as mul()
  CHECK(tensordot(a, b, 1).dtype() == bf16);
  CHECK(vecdot(a, x).dtype() == bf16);
  CHECK(addmm(c, a, b).dtype() == bf16);
  CHECK(bilinear(a, x, rand({2, 3, 3}), rand({2})).dtype() == bf16);
  const Tensor w = rand({3, 4}).set_requires_grad();
  sum(einsum("ij,jk->ik", {a, w})).backward();
  CHECK(w.grad().dtype() == f32);
  CHECK(einsum("ij,ij", {a.to(f64), a.to(f64)}).dtype() == f64);
}

TEST_CASE("linear algebra of a device is refused, with the way out", "[gpu]") {
  const Tensor x = eye(2);
  for (const std::string& text :
       {error_of([&] { linalg::det(x); }), error_of([&] { linalg::solve(x, x); }),
        error_of([&] { linalg::svd(x); }), error_of([&] { linalg::lstsq(x, x); })}) {
    INFO(text);
    CHECK(text.find("linear algebra is on the CPU") != std::string::npos);
    CHECK(text.find("Device::cpu()") != std::string::npos);
  }
  CHECK(linalg::det(x.to(Device::cpu())).item() == 1);
}

TEST_CASE("products refuse what does not fit", "[host]") {
  const auto refused = [](auto&& call, const char* op, const char* what) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(op) != std::string::npos);
    CHECK(text.find(what) != std::string::npos);
  };
  const Tensor a = zeros({2, 3}), b = zeros({4, 5}), v = zeros({3});
  const auto of = [&](const char* text, std::vector<Tensor> operands, const char* what) {
    refused([&] { einsum(text, operands); }, "[einsum]", what);
  };
  of("ij,jk->ik", {a, b},
     "\"ij,jk->ik\": j has size 3 in operand 0, [2, 3] f32 cpu, and 4 in operand 1");
  of("...i,...i", {zeros({2, 3, 4}), zeros({3, 2, 4})}, "... has size");
  of("ii", {a}, "i is twice in operand 0, with sizes 2 and 3");
  of("ii", {zeros({1, 3})}, "sizes 1 and 3");
  of("ij", {a, a}, "has 1 operands, and 2 are given");
  of("ij,", {a}, "has 2 operands");
  of("i", {a}, "operand 0, \"i\", names 1 axes of [2, 3]");
  of("ijk...", {a}, "operand 0, \"ijk...\", names 3 axes");
  of("ij->ii", {a}, "i twice after the arrow");
  of("ij->ik", {a}, "no operand has k");
  of("i.j", {a}, "another dot");
  of("......", {a}, "another dot");
  of("i1", {a}, "a '1' among");
  of("ij->i,j", {a}, "a ',' among");
  of("i-j", {a}, "a '-' among");
  of("ij", {Tensor()}, "undefined");
  of("ij,ij", {a, a.to(f64)}, "dtypes differ");
  of("ij,ij", {a.to(i64), a.to(i64)}, "floating");
  refused([&] { einsum("", std::span<const Tensor>()); }, "[einsum]", "no operands");
  const Tensor six = zeros({2, 2, 2, 2, 2, 2});
  of("abcdef,ghijkl", {six, six}, "the result would have 12 axes");
  // Sums come first, so that no product is too large.
  CHECK(einsum("abcdef,ghijkl,mnopqr->a", {six, six, six}).shape() == Shape{2});
  refused([&] { tensordot(a, b); }, "[tensordot]", "axis 0 of a [2, 3] f32 cpu and axis 0 of b");
  refused([&] { tensordot(a, v, 2); }, "[tensordot]", "2 axes of");
  refused([&] { tensordot(a, b, -1); }, "[tensordot]", "-1 axes");
  refused([&] { tensordot(a, a, {0, 0}, {0, 1}); }, "[tensordot]", "");
  refused([&] { tensordot(a, a, {0}, {0, 1}); }, "[tensordot]", "axes [0] of");
  refused([&] { tensordot(a, a, {2}, {0}); }, "[tensordot]", "axis");
  refused([&] { tensordot(six, six, 0); }, "[tensordot]", "12 axes");
  refused([&] { outer(a, v); }, "[outer]", "has 2 axes, not 1");
  refused([&] { dot(v, zeros({1})); }, "[dot]", "[3] f32 cpu and [1]");
  refused([&] { vecdot(a, v, 2); }, "[vecdot]", "axis");
  refused([&] { vecdot(a, zeros({2})); }, "[vecdot]", "");
  refused([&] { bmm(a, a); }, "[bmm]", "has 2 axes, not 3");
  refused([&] { bmm(zeros({2, 3, 4}), zeros({1, 4, 2})); }, "[bmm]", "batches differ");
  refused([&] { bmm(zeros({2, 3, 4}), zeros({2, 3, 2})); }, "[bmm]", "inner sizes differ");
  refused([&] { addmm(v, v, a); }, "[addmm]", "has 1 axes, not 2");
  refused([&] { addmm(zeros({2}), a, zeros({3, 4})); }, "[addmm]", "c [2] f32 cpu to shape [2, 4]");
  refused([&] { addmm(zeros({2, 2, 4}), a, zeros({3, 4})); }, "[addmm]", "to shape [2, 4]");
  refused([&] { addmm(zeros({4}, f64), a, zeros({3, 4})); }, "[addmm]", "dtypes differ");
  refused([&] { baddbmm(v, a, a); }, "[baddbmm]", "has 2 axes, not 3");
  refused([&] { bilinear(a, a, zeros({2, 3, 4})); }, "[bilinear]", "x2 [2, 3]");
  refused([&] { bilinear(a, v, zeros({2, 3, 3})); }, "[bilinear]", "leading");
  refused([&] { bilinear(a, a, zeros({3, 3})); }, "[bilinear]", "has 2 axes, not 3");
}

}  // namespace
}  // namespace firn::testing
