// Ops that read and add at given positions, against loops over the definition.
#include "kernels/index.h"

#include <cmath>

#include "kernels/twins.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

std::vector<double> positions(std::int64_t n, std::int64_t bound, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<double> v(static_cast<std::size_t>(n));
  for (double& p : v) p = static_cast<double>(rng.below(bound));
  return v;
}

/// Small whole numbers: exact in every dtype, and so are sums of a few.
std::vector<double> whole_numbers(std::int64_t n, DType t) {
  return positions(n, t == boolean ? 2 : is_float8(t) ? 5 : 100, 77);
}

/// Calls fn(position in index, position in x) for a gather along `axis`.
template <class Fn>
void each_pair(const Shape& x, const Shape& index, int axis, const std::vector<double>& at,
               Fn&& fn) {
  Dims p = Dims::filled(index.size(), 0);
  for (std::size_t i = 0; i < at.size(); ++i) {
    std::int64_t from = 0;
    for (int a = 0; a < index.size(); ++a)
      from = from * x[a] + (a == axis ? static_cast<std::int64_t>(at[i]) : p[a]);
    fn(i, static_cast<std::size_t>(from));
    for (int a = index.size() - 1; a >= 0 && ++p[a] == index[a]; --a) p[a] = 0;
  }
}

const Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::stepped};

TEST_CASE("gather along every axis, in every dtype and layout") {
  for (const DType t : {f16, bf16, f32, f64, i32, i64, u8, boolean, i8, u16, u32, f8_e5m2}) {
    for (const Layout layout : kLayouts) {
      for (const Layout index_layout : kLayouts) {
        for (const DType it : {i64, i32}) {
          const Shape shape{5, 4, 33};
          for (int axis = 0; axis < 3; ++axis) {
            Shape picked{4, 4, 31};
            picked[axis] = 7;
            const auto x = whole_numbers(shape.product(), t);
            const auto at = positions(picked.product(), shape[axis], 5);
            std::vector<double> want(at.size());
            each_pair(shape, picked, axis, at,
                      [&](std::size_t i, std::size_t j) { want[i] = x[j]; });
            const Tensor y =
                gather(make(x, shape, t, layout), axis, make(at, picked, it, index_layout));
            CHECK(y.dtype() == t);
            expect_same("axis " + std::to_string(axis), values_of(y), want);
          }
        }
      }
    }
  }
}

TEST_CASE("the gradient of gather adds up what met, in f32, and is rounded once") {
  for (const DType t : {f16, f32, f64}) {
    for (const Layout layout : kLayouts) {
      for (const Shape& shape : {Shape{5, 4, 33}, Shape{3, 2, 600}}) {
        for (int axis = 0; axis < 3; ++axis) {
          Shape picked = shape;
          picked[axis] = 40;
          picked[(axis + 1) % 3] -= 1;
          const auto at = positions(picked.product(), shape[axis], 9);
          const auto seed = whole_numbers(picked.product(), t);
          std::vector<double> want(static_cast<std::size_t>(shape.product()), 0);
          each_pair(shape, picked, axis, at,
                    [&](std::size_t i, std::size_t j) { want[j] += 2 * seed[i]; });
          Tensor x = zeros(shape, t);
          x.set_requires_grad();
          const Tensor y = gather(x, axis, make(at, picked, i64, layout));
          const Tensor dy = make(seed, picked, t, layout);
          backward(y, {.initial_gradient = dy, .retain_graph = true});
          backward(y, {.initial_gradient = dy});
          // Whole numbers: the sums are exact in f32; f16 rounds each of the two passes.
          expect_close(to_string(shape) + " axis " + std::to_string(axis), values_of(x.grad()),
                       want, t == f16 ? 2 * epsilon_of(f16) * largest(want) : 0);
        }
      }
    }
  }
}

TEST_CASE("index_select along every axis, and its gradient") {
  for (const DType t : {f32, f16, f64}) {
    for (const Layout layout : kLayouts) {
      const Shape shape{6, 5, 40};
      for (int axis = 0; axis < 3; ++axis) {
        Shape picked = shape;
        picked[axis] = 9;
        const auto list = positions(9, shape[axis], 3);
        std::int64_t inner = 1;
        for (int a = axis + 1; a < 3; ++a) inner *= shape[a];
        std::vector<double> at(static_cast<std::size_t>(picked.product()));
        for (std::size_t i = 0; i < at.size(); ++i)
          at[i] = list[static_cast<std::size_t>(static_cast<std::int64_t>(i) / inner % 9)];
        const auto x = whole_numbers(shape.product(), t);
        const auto seed = whole_numbers(picked.product(), t);
        std::vector<double> want(at.size()), grad(x.size(), 0);
        each_pair(shape, picked, axis, at, [&](std::size_t i, std::size_t j) {
          want[i] = x[j];
          grad[j] += seed[i];
        });
        Tensor tx = make(x, shape, t, layout);
        tx.set_requires_grad();
        const Tensor y = index_select(tx, axis - 3, make(list, {9}, i32, Layout::stepped));
        expect_same("values", values_of(y), want);
        backward(y, {.initial_gradient = make(seed, picked, t, layout)});
        expect_same("gradient", values_of(tx.grad()), grad);
      }
    }
  }
}

TEST_CASE("embedding takes rows for an index of any shape, and adds their gradients") {
  for (const DType t : {f32, f16, f64}) {
    for (const std::int64_t d : {1, 3, 64, 511, 513, 1025}) {
      for (const Layout layout : kLayouts) {
        const auto x = whole_numbers(11 * d, t);
        const auto list = positions(3 * 8, 11, 21);
        Tensor table = make(x, {11, d}, t, layout);
        table.set_requires_grad();
        const Tensor y = embedding(table, make(list, {3, 8}, i64, layout));
        CHECK(y.shape() == (Shape{3, 8, d}));
        std::vector<double> want(static_cast<std::size_t>(24 * d)), grad(x.size(), 0);
        const auto seed = whole_numbers(24 * d, t);
        for (std::int64_t i = 0; i < 24 * d; ++i) {
          const auto from = static_cast<std::size_t>(
              static_cast<std::int64_t>(list[static_cast<std::size_t>(i / d)]) * d + i % d);
          want[static_cast<std::size_t>(i)] = x[from];
          grad[from] += seed[static_cast<std::size_t>(i)];
        }
        expect_same("values", values_of(y), want);
        backward(y, {.initial_gradient = make(seed, {3, 8, d}, t, layout)});
        expect_same("gradient", values_of(table.grad()), grad);
      }
    }
  }
  const Tensor cube = make(whole_numbers(24, f32), {4, 2, 3}, f32);
  CHECK(embedding(cube, tensor<std::int64_t>({3, 0})).shape() == (Shape{2, 2, 3}));
  CHECK(embedding(cube, zeros({0}, i64)).shape() == (Shape{0, 2, 3}));
}

TEST_CASE("rows are added in f32 and rounded once, into a sink of another dtype too") {
  const std::int64_t m = 5000;
  const Tensor dy = full({m, 2}, 0.25, f16);
  const Tensor index = zeros({m}, i64);
  const Tensor narrow = ones({3, 2}, f16);
  kernels::add_rows("test", dy.view(), index.view(), narrow.mutable_view(), 1,
                    current_stream(default_device()));
  expect_same("f16 sink", values_of(narrow), {1251, 1251, 1, 1, 1, 1});
  const Tensor wide = full({3, 2}, std::nan(""), f32);
  kernels::add_rows("test", dy.view(), index.view(), wide.mutable_view(), 0,
                    current_stream(default_device()));
  expect_same("f32 sink", values_of(wide), {1250, 1250, 0, 0, 0, 0});
}

TEST_CASE("a long sum into one place does not drift") {
  const std::int64_t m = 65537;
  const double term = rounded({0.1}, f32)[0];
  for (const std::int64_t d : {1, 3}) {
    Tensor table = zeros({2, d});
    table.set_requires_grad();
    backward(embedding(table, zeros({m}, i64)), {.initial_gradient = full({m, d}, term)});
    backward(gather(table, 0, zeros({m, d}, i32)), {.initial_gradient = full({m, d}, term)});
    const double want = 2 * term * static_cast<double>(m);
    for (std::int64_t c = 0; c < d; ++c)
      CHECK(std::abs(values_of(table.grad())[static_cast<std::size_t>(c)] - want) < 2e-7 * want);
  }
}

TEST_CASE("few rows of a long table, in any order") {
  const std::vector<double> list{90000, 7, 90000, 3, 7, 99999};
  const Tensor dy = make({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {6, 2}, f32);
  const Tensor grad = zeros({100000, 2});
  const Tensor index = make(list, {6}, i32);
  kernels::add_rows("test", dy.view(), index.view(), grad.mutable_view(), 1,
                    current_stream(default_device()));
  expect_same("7", values_of(grad.slice(0, 7, 8)), {12, 14});
  expect_same("90000", values_of(grad.slice(0, 90000, 90001)), {6, 8});
  CHECK(sum(grad).item() == 78);
}

TEST_CASE("the bits of added rows do not depend on the number of threads", "[host]") {
  for (const DType t : {f32, f16}) {
    for (const std::int64_t d : {5, 64, 700}) {
      Rng rng(31);
      const Tensor dy = make(rng.uniforms(2000 * d, -1, 1), {2000, d}, t);
      const Tensor list = make(positions(2000, 40, 2), {2000}, i64);
      const Tensor full_index = make(positions(2000 * d, 40, 4), {2000, d}, i64);
      const Tensor tall_index = make(positions(2000 * d, 40, 4), {d, 2000}, i64);
      std::vector<double> first;
      for (const int n : {1, 2, 3}) {
        const Threads threads(n);
        Tensor x = zeros({40, d}, t);
        x.set_requires_grad();
        backward(embedding(x, list), {.initial_gradient = dy});
        backward(gather(x, 0, full_index), {.initial_gradient = dy});
        Tensor z = zeros({d, 40}, t);
        z.set_requires_grad();
        backward(gather(z, 1, tall_index), {.initial_gradient = dy.transpose(0, 1)});
        auto all = values_of(x.grad());
        for (const double v : values_of(z.grad())) all.push_back(v);
        if (n == 1) first = all;
        expect_same("threads " + std::to_string(n), all, first);
      }
    }
  }
}

TEST_CASE("lists of runs and of progressions are read, added and put as by a loop") {
  const std::vector<std::vector<double>> lists = {
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19},  // a run
      {19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
      {2, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 10, 9, 3, 4},  // reflected
      {3, 6, 9, 12},
      {17, 10, 3},
      {5, 5, 5},
      {7}};
  for (const DType t : {f32, bf16, f64}) {
    for (const DType of_index : {i64, i32}) {
      for (const auto& list : lists) {
        for (const Shape& shape : {Shape{20}, Shape{3, 20}, Shape{20, 3}, Shape{2, 20, 5}}) {
          const int axis = shape[0] == 20 ? 0 : 1;
          const auto m = static_cast<std::int64_t>(list.size());
          const Tensor index = make(list, {m}, of_index);
          Shape own = Dims::filled(shape.size(), 1), taken = shape;
          own[axis] = taken[axis] = m;
          const Tensor x = cast(reshape(arange(shape.product(), f32), shape), t);
          const Tensor dy = cast(reshape(remainder(arange(taken.product(), f32), 7), taken), t);
          Tensor y = zeros(taken, t), grad = zeros(shape, t), last = clone(x);
          for (std::int64_t j = 0; j < m; ++j) {
            const auto from = static_cast<std::int64_t>(list[static_cast<std::size_t>(j)]);
            const Tensor term = slice(dy, axis, j, j + 1);
            slice(y, axis, j, j + 1).copy_(slice(x, axis, from, from + 1));
            Tensor place = slice(grad, axis, from, from + 1);
            place.copy_(place + term);
            slice(last, axis, from, from + 1).copy_(term);
          }
          const std::string what = to_string(t) + std::string(" ") + to_string(shape) +
                                   " list of " + std::to_string(m) + " from " +
                                   std::to_string(list[0]);
          Tensor leaf = x.detach();
          leaf.set_requires_grad();
          const Tensor all = expand(reshape(index, own), taken);
          expect_same("select " + what, values_of(index_select(leaf, axis, index)), values_of(y));
          backward(index_select(leaf, axis, index), {.initial_gradient = dy});
          expect_same("gradient " + what, values_of(leaf.grad()), values_of(grad));
          backward(gather(leaf, axis, contiguous(all)), {.initial_gradient = dy});
          expect_same("twice " + what, values_of(leaf.grad()), values_of(grad + grad));
          expect_same("put " + what, values_of(scatter(x, axis, contiguous(all), dy)),
                      values_of(last));
        }
      }
    }
  }
}

TEST_CASE("one_hot") {
  for (const DType t : {f32, f16, f64, i64, i32, u8, boolean}) {
    for (const DType it : {i64, i32}) {
      const Tensor y = one_hot(make({2, 0, 1, 2}, {2, 2}, it, Layout::transposed), 3, t);
      CHECK(y.shape() == (Shape{2, 2, 3}));
      CHECK(y.dtype() == t);
      expect_same(to_string(t), values_of(y), {0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1});
    }
  }
  CHECK(one_hot(zeros({0}, i64), 4).shape() == (Shape{0, 4}));
}

TEST_CASE("a bad index is named with position and bound, and nothing is written", "[host]") {
  const Tensor table = make(whole_numbers(30, f32), {10, 3}, f32);
  for (const double bad : {-1.0, 10.0, 1e9}) {
    std::vector<double> list(2000, 4);
    list[1234] = bad;
    const Tensor index = make(list, {2000}, i64);
    const std::string message = error_of([&] { embedding(table, index); });
    CHECK(message.find("[embedding] index " + std::to_string(static_cast<std::int64_t>(bad))) == 0);
    CHECK(message.find("[1234]") != std::string::npos);
    CHECK(message.find("[0, 10)") != std::string::npos);
    CHECK(error_of([&] { index_select(table, 0, index); }).find("[index_select]") == 0);
    CHECK(error_of([&] { one_hot(index, 10); }).find("[one_hot]") == 0);

    const Tensor grad = ones({10, 3});
    const Tensor dy = ones({2000, 3});
    error_of([&] {
      kernels::add_rows("test", dy.view(), index.view(), grad.mutable_view(), 0,
                        current_stream(default_device()));
    });
    expect_same("untouched", values_of(grad), std::vector<double>(30, 1.0));
  }
  const Tensor grid = make({0, 1, 2, 3, 0, 1}, {2, 3}, i64);
  CHECK(error_of([&] {
          gather(zeros({2, 3}), 1, grid);
        }).find("index 3 at position [1, 0]") != std::string::npos);
  const Tensor list = make({0, 1, 9}, {3}, i64).to(Device::cpu());
  for (const int axis : {0, 1})
    CHECK(error_of([&] {
            index_select(zeros({4, 4}, Device::cpu()), axis, list);
          }).find("index 9 at position [2] ") != std::string::npos);
}

TEST_CASE("a long list added to a short one has the sums of a loop, for any number of threads",
          "[host]") {
  constexpr std::int64_t kTerms = 100'003, kBound = 700;
  for (const DType t : {f32, f16, f64}) {
    std::vector<double> terms(kTerms), at(kTerms), sums(kBound, 1.0);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      terms[i] = static_cast<double>(i * 37 % 16) / 16 - 0.5;  // sums are exact in f64
      at[i] = static_cast<double>(i * i % kBound);
      sums[static_cast<std::size_t>(at[i])] += terms[i];
    }
    const Tensor index = make(at, {kTerms}, i64), src = make(terms, {kTerms}, t);
    const Tensor expected = make(sums, {kBound}, t);
    for (const int threads : {1, 3}) {
      const NumThreadsScope scope(threads);
      INFO(to_string(t) << ", " << threads << " threads");
      CHECK(values_of(scatter_add(ones({kBound}, t), 0, index, src)) == values_of(expected));
    }
  }
}

TEST_CASE("index ops refuse operands that do not fit") {
  const Tensor x = zeros({4, 3});
  const Tensor floats = zeros({2}, f32);
  CHECK(error_of([&] { embedding(x, floats); }).find("[embedding]") == 0);
  CHECK(error_of([&] {
          index_select(x, 0, zeros({2, 2}, i64));
        }).find("[2, 2] i64") != std::string::npos);
  CHECK(error_of([&] { index_select(x, 2, zeros({2}, i64)); }).find("[index_select]") == 0);
  CHECK(error_of([&] { gather(x, 0, zeros({2}, i64)); }).find("[gather]") == 0);
  CHECK(error_of([&] { gather(x, 0, zeros({2, 4}, i64)); }).find("[gather]") == 0);
  CHECK(error_of([&] { one_hot(zeros({2}, i64), 0); }).find("[one_hot]") == 0);
  CHECK(gather(x, 0, zeros({9, 2}, i64)).shape() == (Shape{9, 2}));
}

// ---- A CUDA device against the CPU, to the bit ----

constexpr DType kFloating[] = {f16, bf16, f32, f64};

TEST_CASE("rows taken on a device are the CPU's", "[gpu]") {
  if (!has_device()) return;
  for (const DType t : {f16, bf16, f32, f64, i32, i64, u8, boolean}) {
    for (const std::int64_t d : {1, 3, 8, 64, 96}) {
      for (const std::int64_t m : {0, 1, 37}) {
        for (const std::int64_t offset : {0, 1}) {
          const Twins table(t, whole_numbers(11 * (d + 2) + 1, t));
          const Twins list(offset ? i32 : i64, positions(2 * m + 1, 11, 3));
          const Twins out(t, std::vector<double>(static_cast<std::size_t>(m * d + 1), 1.0));
          const Strides from{d + 2 * offset, 1};
          kernels::take_rows("test", table.host({11, d}, from, offset), list.host({m}, {2}),
                             out.host({m, d}, {d, 1}, offset), Stream{});
          kernels::take_rows("test", table.device({11, d}, from, offset), list.device({m}, {2}),
                             out.device({m, d}, {d, 1}, offset), device_stream());
          out.expect_same(fmt::format("{} d {} m {} from {}", to_string(t), d, m, offset));
        }
      }
    }
  }
}

/// One gather and its gradient: shapes of x and of the index, the axis, and strides. An empty list
/// stands for row-major strides.
struct Gathering {
  Shape x, index;
  int axis;
  Strides x_strides, index_strides, out_strides;
  std::int64_t bound = 0;  ///< indices are below; 0: the size of the axis
};

void compare_gathering(const Gathering& g, DType t, DType sink, DType it, float beta) {
  const auto or_contiguous = [](const Strides& s, const Shape& shape) {
    return s.empty() && !shape.empty() ? contiguous_strides(shape) : s;
  };
  const auto elements = [](const Shape& shape, const Strides& strides) {
    std::int64_t n = 1;
    for (int i = 0; i < shape.size(); ++i) n += (shape[i] - 1) * strides[i];
    return shape.product() == 0 ? 0 : n;
  };
  const Strides xs = or_contiguous(g.x_strides, g.x), is = or_contiguous(g.index_strides, g.index);
  const Strides os = or_contiguous(g.out_strides, g.index);
  const std::int64_t bound = g.bound ? g.bound : g.x[g.axis];
  Rng rng(seed_of(to_string(g.x)));
  const Twins x(t, rng.uniforms(elements(g.x, xs), -2, 2));
  const Twins at(it, positions(elements(g.index, is), bound, 9));
  const auto count = static_cast<std::size_t>(elements(g.index, os));
  const Twins out(t, std::vector<double>(count, 9.0));
  const std::string what =
      fmt::format("x {} {}, index {} {}, axis {}, {} to {}, beta {}", to_string(g.x), to_string(xs),
                  to_string(g.index), to_string(is), g.axis, to_string(t), to_string(sink), beta);
  kernels::gather("test", x.host(g.x, xs), at.host(g.index, is), out.host(g.index, os), g.axis,
                  Stream{});
  kernels::gather("test", x.device(g.x, xs), at.device(g.index, is), out.device(g.index, os),
                  g.axis, device_stream());
  out.expect_same("gather " + what);

  const Twins dy(t, rng.uniforms(static_cast<std::int64_t>(count), -2, 2));
  const Twins grad(sink, rng.uniforms(elements(g.x, xs), -2, 2));
  kernels::gather_backward("test", dy.host(g.index, os), at.host(g.index, is), grad.host(g.x, xs),
                           g.axis, beta, Stream{});
  kernels::gather_backward("test", dy.device(g.index, os), at.device(g.index, is),
                           grad.device(g.x, xs), g.axis, beta, device_stream());
  grad.expect_same("gather_backward " + what);
}

TEST_CASE("gathers and their gradients on a device are the CPU's", "[gpu]") {
  if (!has_device()) return;
  const Gathering cases[] = {
      {{5}, {9}, 0, {}, {}, {}},
      {{1}, {1}, 0, {}, {}, {}},
      {{5, 4, 33}, {4, 4, 31}, 1, {}, {}, {}},
      {{5, 4, 33}, {7, 4, 31}, 0, {}, {}, {}},
      {{5, 4, 33}, {5, 3, 40}, 2, {}, {}, {}},
      {{5, 4, 33}, {5, 4, 9}, 2, {1, 5, 20}, {1, 5, 20}, {}},
      {{5, 4, 33}, {5, 4, 9}, 2, {300, 70, 2}, {1, 5, 20}, {72, 18, 2}},
      {{6, 10, 32}, {6, 80, 32}, 1, {}, {0, 1, 0}, {}},   // whole slices by one list
      {{6, 10, 32}, {6, 80, 32}, 1, {}, {80, 1, 0}, {}},  // by one for each line
      {{6, 10, 30}, {6, 80, 30}, 1, {}, {0, 1, 0}, {}},
      {{10, 6}, {200, 6}, 0, {}, {1, 0}, {}, 2},  // many terms in one place
      {{10, 6}, {6, 200}, 1, {1, 10}, {0, 1}, {1, 6}, 3},
      {{300, 50}, {300, 1}, 1, {}, {}, {}},  // one index a line, as labels
      {{10, 6}, {0, 6}, 0, {}, {}, {}},
  };
  for (const Gathering& g : cases) {
    if (g.axis == 1 && g.x.size() == 2 && g.x[0] == 10) continue;
    for (const DType t : kFloating) {
      for (const float beta : {0.f, 1.f}) compare_gathering(g, t, t, i64, beta);
    }
    compare_gathering(g, f16, f32, i32, 1);
    compare_gathering(g, f32, bf16, i32, 0);
  }
}

TEST_CASE("long lists into many rows on a device: sorted, and added in order", "[gpu]") {
  if (!has_device()) return;
  struct {
    std::int64_t rows, list, d, used;
  } const cases[] = {
      {5000, 9000, 40, 5000},  // two digits, three blocks, four columns at a time
      {5000, 9000, 33, 200},   // more than 64 terms in a place; one column at a time
      {70000, 4097, 60, 70000},
      {3000, 6000, 4, 1},  // all of one row
  };
  for (const auto& c : cases) {
    const Gathering g{{c.rows, c.d}, {c.list, c.d}, 0, {}, {1, 0}, {}, c.used};
    compare_gathering(g, f32, f32, i64, 1);
    compare_gathering(g, f16, f32, i32, 0);
    if (c.d != 40) continue;
    compare_gathering(g, bf16, bf16, i64, 1);
    compare_gathering(g, f64, f64, i64, 1);
  }
  // Every line with a list of its own, and lines of lists.
  compare_gathering({{30, 4000}, {30, 300}, 1, {}, {}, {}}, f32, f32, i64, 1);
  compare_gathering({{30, 4000}, {30, 300}, 1, {}, {}, {}}, f16, f16, i64, 0);
  compare_gathering({{7, 2000, 8}, {7, 300, 8}, 1, {}, {300, 1, 0}, {}}, f32, f32, i64, 1);
  compare_gathering({{4, 3000, 8}, {4, 300, 8}, 1, {}, {0, 1, 0}, {}}, f16, f32, i64, 1);
}

TEST_CASE("one_hot on a device is the CPU's", "[gpu]") {
  if (!has_device()) return;
  for (const DType t : {f16, bf16, f32, f64, i32, i64, u8, boolean}) {
    for (const std::int64_t m : {0, 1, 33}) {
      const Twins list(i64, positions(2 * m + 1, 7, 3));
      const Twins out(t, std::vector<double>(static_cast<std::size_t>(8 * m + 1), 1.0));
      kernels::one_hot("test", list.host({m}, {2}), out.host({m, 7}, {8, 1}), Stream{});
      kernels::one_hot("test", list.device({m}, {2}), out.device({m, 7}, {8, 1}), device_stream());
      out.expect_same(fmt::format("{} m {}", to_string(t), m));
    }
  }
}

TEST_CASE("a device notes a bad index, leaves its element out and goes on", "[gpu]") {
  if (!has_device()) return;
  const Device cuda = Device::cuda();
  const Twins table(f32, whole_numbers(30, f32)), ones(f32, std::vector<double>(6000, 1.0));
  for (const double bad : {-1.0, 10.0, 1e9}) {
    std::vector<double> at(2000, 4);
    at[1234] = bad;
    const Twins list(i64, at), out(f32, std::vector<double>(6000, 0.0));
    const auto fault = [&](auto&& work) {
      work();
      const std::string message = error_of([&] { synchronize(cuda); });
      INFO(message);
      CHECK(message.find("[test] index " + std::to_string(static_cast<std::int64_t>(bad))) == 0);
      CHECK(message.find("1234") != std::string::npos);
      CHECK(message.find("[0, 10)") != std::string::npos);
      synchronize(cuda);  // told once
    };
    fault([&] {
      kernels::take_rows("test", table.device({10, 3}), list.device({2000}), out.device({2000, 3}),
                         device_stream());
    });
    std::vector<double> want;
    const std::vector<double> row = table.host_values();
    for (int i = 0; i < 2000; ++i) {
      for (std::size_t c = 0; c < 3; ++c) want.push_back(i == 1234 ? std::nan("") : row[12 + c]);
    }
    expect_same("taken", out.device_values(), want);

    const Twins grad(f32, std::vector<double>(30, 5.0));
    fault([&] {
      kernels::add_rows("test", ones.device({2000, 3}), list.device({2000}), grad.device({10, 3}),
                        0, device_stream());
    });
    want.assign(30, 0);
    for (std::size_t c = 0; c < 3; ++c) want[12 + c] = 1999;
    expect_same("added", grad.device_values(), want);
    // The same by way of the sort.
    const Twins long_grad(f32, std::vector<double>(9000 * 3, 5.0));
    at[1234] = bad == 10 ? 9000 : bad;
    const Twins long_list(i64, at);
    kernels::add_rows("test", ones.device({2000, 3}), long_list.device({2000}),
                      long_grad.device({9000, 3}), 0, device_stream());
    CHECK(error_of([&] { synchronize(cuda); }).find("[0, 9000)") != std::string::npos);
    want.resize(9000 * 3, 0);
    expect_same("sorted and added", long_grad.device_values(), want);

    const Twins hot(f32, std::vector<double>(20000, 5.0));
    fault([&] {
      kernels::one_hot("test", list.device({2000}), hot.device({2000, 10}), device_stream());
    });
    const std::vector<double> encoded = hot.device_values();
    CHECK(std::isnan(encoded[12340]));
    CHECK(encoded[12354] == 1);
  }
}

TEST_CASE("a bad index is noted where there is one class, too", "[gpu]") {
  if (!has_device()) return;
  const Twins list(i64, {0, 1, 0}), out(f32, std::vector<double>(3, 5.0));
  kernels::one_hot("test", list.device({3}), out.device({3, 1}), device_stream());
  const std::string message = error_of([&] { synchronize(Device::cuda()); });
  CHECK(message.find("[test] index 1 at position 1 ") == 0);
}

TEST_CASE("a bad index is named by its row-major position, wherever it lies in memory", "[gpu]") {
  if (!has_device()) return;
  const Twins x(f32, whole_numbers(30, f32)), out(f32, std::vector<double>(24, 0.0));
  for (const std::size_t memory : {0, 7, 13, 23}) {
    std::vector<double> at(24, 2);
    at[memory] = 77;
    const Twins list(i32, at);
    // Element (i, j, k) at i + 2 k + 8 j of the memory, and at 12 i + 4 j + k of the row-major
    // order.
    const std::size_t position = memory % 2 * 12 + memory / 8 * 4 + memory / 2 % 4;
    kernels::gather("test", x.device({2, 3, 5}), list.device({2, 3, 4}, {1, 8, 2}),
                    out.device({2, 3, 4}), 2, device_stream());
    const std::string message = error_of([&] { synchronize(Device::cuda()); });
    INFO(message);
    CHECK(message.find(fmt::format("[test] index 77 at position {} ", position)) == 0);
  }
}

}  // namespace
}  // namespace firn::testing
