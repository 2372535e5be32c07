// The kernels of normalisation by channel against long double: every dtype, order in memory and
// kind of cell, on the default device.
#include "kernels/channel_norm.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using kernels::NormCells;
using Values = std::vector<double>;

Stream stream() { return current_stream(default_device()); }

// ---- Tensors [n, c, l] in several orders ----

enum class Order { row_major, channels_last, column_major, stepped, odd_address };
constexpr Order kOrders[] = {Order::row_major, Order::channels_last, Order::column_major,
                             Order::stepped, Order::odd_address};
const char* name_of(Order o) {
  constexpr const char* names[] = {"row-major", "channels-last", "column-major", "stepped",
                                   "odd address"};
  return names[static_cast<int>(o)];
}

Tensor place(const Values& values, const Shape& shape, DType dtype, Order order) {
  switch (order) {
    case Order::row_major:
      return make(values, shape, dtype);
    case Order::channels_last: {
      const std::int64_t n = shape[0], c = shape[1], l = shape[2];
      Values turned(values.size());
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t k = 0; k < c; ++k)
          for (std::int64_t p = 0; p < l; ++p)
            turned[static_cast<std::size_t>((i * l + p) * c + k)] =
                values[static_cast<std::size_t>((i * c + k) * l + p)];
      return make(turned, {n, l, c}, dtype).transpose(1, 2);
    }
    case Order::column_major:
      return make(values, shape, dtype, Layout::transposed);
    case Order::stepped:
      return make(values, shape, dtype, Layout::stepped);
    default:
      return make(values, shape, dtype, Layout::offset);
  }
}

struct Case {
  std::int64_t n, c, l;
  NormCells cells;
  DType dtype = f32;
  Order order = Order::row_major;

  Shape shape() const { return {n, c, l}; }
  std::int64_t sections() const { return cells.per_sample ? n : 1; }
  std::int64_t cell_count() const { return sections() * cells.groups; }
  double cell_size() const {
    return static_cast<double>(n * c * l) / static_cast<double>(cell_count());
  }
  std::size_t cell(std::int64_t i, std::int64_t k) const {
    return static_cast<std::size_t>((cells.per_sample ? i * cells.groups : 0) +
                                    k / (c / cells.groups));
  }
  std::size_t channel(std::int64_t i, std::int64_t k) const {
    return static_cast<std::size_t>((cells.per_sample ? i * c : 0) + k);
  }
  std::string name() const {
    return to_string(shape()) + " " + to_string(dtype) + " " + name_of(order) + ", " +
           std::to_string(cells.groups) + (cells.per_sample ? " groups a sample" : " groups");
  }
  /// fn(index in row-major order, sample, channel)
  template <class Fn>
  void each(Fn&& fn) const {
    std::size_t at = 0;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < c; ++k)
        for (std::int64_t p = 0; p < l; ++p) fn(at++, i, k);
  }
};

/// Widths of tiles and packs and their tails; channels and positions in several pieces; one
/// element.
void for_each_case(const std::function<void(Case)>& check) {
  struct Size {
    std::int64_t n, c, l, groups;
  };
  const Size sizes[] = {{1, 1, 1, 1},    {3, 2, 1, 1},  {5, 16, 1, 4},   {7, 3, 5, 3},
                        {2, 8, 36, 2},   {4, 33, 9, 3}, {2, 132, 17, 4}, {3, 4, 1030, 2},
                        {1, 2, 9000, 1}, {70, 6, 3, 2}, {2, 260, 4, 13}, {1, 64, 144, 32}};
  for (const Size& s : sizes) {
    for (const DType t : {f32, f64, f16, bf16}) {
      for (const Order o : kOrders) {
        if (t != f32 && o != Order::row_major && o != Order::channels_last) continue;
        check({s.n, s.c, s.l, {s.c, false}, t, o});
        check({s.n, s.c, s.l, {s.groups, true}, t, o});
        if (s.groups != s.c) check({s.n, s.c, s.l, {s.c, true}, t, o});
      }
    }
  }
}

// ---- What the kernels should compute ----

struct Moments {
  Values mean, var;
};

Moments moments_of(const Case& c, const Values& x) {
  std::vector<long double> sum(static_cast<std::size_t>(c.cell_count())), squares(sum.size());
  c.each([&](std::size_t at, std::int64_t i, std::int64_t k) { sum[c.cell(i, k)] += x[at]; });
  for (long double& s : sum) s /= c.cell_size();
  c.each([&](std::size_t at, std::int64_t i, std::int64_t k) {
    const long double d = x[at] - sum[c.cell(i, k)];
    squares[c.cell(i, k)] += d * d;
  });
  Moments m;
  for (std::size_t j = 0; j < sum.size(); ++j) {
    m.mean.push_back(static_cast<double>(sum[j]));
    m.var.push_back(static_cast<double>(squares[j] / c.cell_size()));
  }
  return m;
}

struct Gradients {
  Values sums;   // [sections, c, 2]
  Values sizes;  // of the sums: what their terms' magnitudes add up to
  Values dx, dx_constant;
};

constexpr double kEps = 1e-3;

Gradients gradients_of(const Case& c, const Values& dy, const Values& x, const Moments& m,
                       const Values& w, double count) {
  Gradients g;
  const auto pairs = static_cast<std::size_t>(c.sections() * c.c * 2);
  std::vector<long double> sums(pairs), a(m.mean.size()), b(m.mean.size());
  g.sizes.resize(pairs);
  const auto rstd = [&](std::size_t cell) { return 1 / std::sqrt(m.var[cell] + kEps); };
  c.each([&](std::size_t at, std::int64_t i, std::int64_t k) {
    const std::size_t to = c.channel(i, k) * 2, cell = c.cell(i, k);
    const double xhat = (x[at] - m.mean[cell]) * rstd(cell);
    sums[to] += dy[at];
    sums[to + 1] += static_cast<long double>(dy[at]) * xhat;
    g.sizes[to] += std::abs(dy[at]);
    g.sizes[to + 1] += std::abs(dy[at]) * (std::abs(xhat) + 1);
    a[cell] += dy[at] * w[static_cast<std::size_t>(k)];
    b[cell] += static_cast<long double>(dy[at]) * w[static_cast<std::size_t>(k)] * xhat;
  });
  for (const long double s : sums) g.sums.push_back(static_cast<double>(s));
  c.each([&](std::size_t at, std::int64_t i, std::int64_t k) {
    const std::size_t cell = c.cell(i, k);
    const double r = rstd(cell), xhat = (x[at] - m.mean[cell]) * r;
    const double own = dy[at] * w[static_cast<std::size_t>(k)];
    const double of_cell = static_cast<double>(a[cell] + xhat * b[cell]) / count;
    g.dx.push_back(r * (own - of_cell));
    g.dx_constant.push_back(r * own);
  });
  return g;
}

/// One case's operands, as rounded to its dtype.
struct Operands {
  Values x, dy, w, b, before;
  Moments m;

  explicit Operands(const Case& c, double offset = 1) {
    Rng rng(seed_of(c.name()));
    const std::int64_t count = c.n * c.c * c.l;
    x = rounded(rng.uniforms(count, offset - 2, offset + 2), c.dtype);
    dy = rounded(rng.uniforms(count, -1, 1), c.dtype);
    w = rounded(rng.uniforms(c.c, 0.5, 1.5), c.dtype);
    b = rounded(rng.uniforms(c.c, -1, 1), c.dtype);
    before = rounded(rng.uniforms(count, -1, 1), c.dtype);
    m = moments_of(c, x);
    for (Values* v : {&m.mean, &m.var}) *v = rounded(*v, compute_dtype(c.dtype));
  }
};

Tensor statistic(const Values& values, const Case& c) {
  return make(values, {static_cast<std::int64_t>(values.size())}, compute_dtype(c.dtype));
}

// ---- The tests ----

TEST_CASE("moments of every dtype, order and kind of cell") {
  for_each_case([](const Case& c) {
    const Operands in(c);
    const Moments want = moments_of(c, in.x);
    const double u = epsilon_of(compute_dtype(c.dtype));
    const Tensor mean = statistic(Values(want.mean.size(), 7), c);
    const Tensor var = statistic(Values(want.mean.size(), 7), c);
    kernels::channel_moments(place(in.x, c.shape(), c.dtype, c.order).view(), c.cells,
                             mean.mutable_view(), var.mutable_view(), stream());
    expect_close("mean, " + c.name(), values_of(mean), want.mean, 8 * u);
    Values bound;
    for (const double v : want.var) bound.push_back(16 * u * v + 64 * u * u);
    expect_close("var, " + c.name(), values_of(var), want.var, bound);
  });
}

TEST_CASE("mean and variance keep six digits where the mean is a hundred deviations") {
  for (const Order order : {Order::row_major, Order::channels_last}) {
    const Case c{64, 3, 24 * 24, {3, false}, f32, order};
    Rng rng(5);
    Values x = rng.uniforms(64 * 3 * 24 * 24, -std::sqrt(3.0), std::sqrt(3.0));
    c.each([&](std::size_t at, std::int64_t, std::int64_t k) {
      x[at] += k == 0 ? 100 : k == 1 ? -100 : 10000;  // the last with what f32 has left of it
    });
    x = rounded(x, f32);
    const Moments want = moments_of(c, x);
    const Tensor mean = empty({3}), var = empty({3});
    kernels::channel_moments(place(x, c.shape(), f32, order).view(), c.cells, mean.mutable_view(),
                             var.mutable_view(), stream());
    const Values got_mean = values_of(mean), got_var = values_of(var);
    for (std::size_t k = 0; k < 3; ++k) {
      INFO(name_of(order) << ", channel " << k);
      CHECK(std::abs(got_mean[k] / want.mean[k] - 1) < 1e-7);
      CHECK(std::abs(got_var[k] / want.var[k] - 1) < 1e-6);
    }
  }
}

TEST_CASE("a jump within a channel, and equal values, have their variance") {
  for (const Order order : {Order::row_major, Order::channels_last}) {
    const Case c{2, 2, 20000, {2, false}, f32, order};
    Values x;
    c.each([&](std::size_t, std::int64_t i, std::int64_t k) {
      x.push_back(k == 0 ? 1000.1 : i == 0 ? 1e4 : -1e4);
    });
    x = rounded(x, f32);
    const Moments want = moments_of(c, x);
    const Tensor mean = empty({2}), var = empty({2});
    kernels::channel_moments(place(x, c.shape(), f32, order).view(), c.cells, mean.mutable_view(),
                             var.mutable_view(), stream());
    expect_close("mean", values_of(mean), want.mean, {0, 1e-3});
    expect_close("var", values_of(var), want.var, {1e-20, 16});
  }
}

TEST_CASE("normalisation of every dtype, order and kind of cell") {
  for_each_case([](const Case& c) {
    const Operands in(c);
    const double u = epsilon_of(compute_dtype(c.dtype));
    for (const bool affine : {true, false}) {
      Values want(in.x.size());
      c.each([&](std::size_t at, std::int64_t i, std::int64_t k) {
        const std::size_t cell = c.cell(i, k), ch = static_cast<std::size_t>(k);
        const double h = (in.x[at] - in.m.mean[cell]) / std::sqrt(in.m.var[cell] + kEps);
        want[at] = affine ? h * in.w[ch] + in.b[ch] : h;
      });
      // The result in an order of its own.
      const Order to = c.order == Order::stepped ? Order::column_major : c.order;
      const Tensor y = place(Values(in.x.size(), 7), c.shape(), c.dtype, to);
      const Tensor mean = statistic(in.m.mean, c), var = statistic(in.m.var, c);
      const Tensor x = place(in.x, c.shape(), c.dtype, c.order);
      const Tensor w = make(in.w, {c.c}, c.dtype), b = statistic(in.b, c);
      kernels::channel_normalize(x.view(), c.cells, mean.view(), var.view(),
                                 affine ? w.view() : ConstView{}, affine ? b.view() : ConstView{},
                                 kEps, y.mutable_view(), stream());
      Values bound;
      for (const double v : want)
        bound.push_back(2 * epsilon_of(c.dtype) * std::abs(v) + 32 * u +
                        (c.dtype == f16 ? 0x1p-24 : 0));
      expect_close("y, " + c.name(), values_of(y), want, bound);
    }
  });
}

void check_gradients(const Case& c) {
  const Operands in(c);
  const DType compute = compute_dtype(c.dtype);
  const double u = epsilon_of(compute), count = c.cell_size() + 3;  // as if more had been there
  const Gradients want = gradients_of(c, in.dy, in.x, in.m, in.w, count);
  const Order dy_order = c.order == Order::stepped ? Order::row_major : c.order;
  const Tensor x = place(in.x, c.shape(), c.dtype, c.order);
  const Tensor dy = place(in.dy, c.shape(), c.dtype, dy_order);
  const Tensor mean = statistic(in.m.mean, c), var = statistic(in.m.var, c);
  const Tensor w = make(in.w, {c.c}, c.dtype);
  const Tensor sums = make(Values(want.sums.size(), 7), {c.sections(), c.c, 2}, compute);
  kernels::channel_gradient_sums(dy.view(), x.view(), c.cells, mean.view(), var.view(), kEps,
                                 sums.mutable_view(), stream());
  Values bound;
  for (const double s : want.sizes) bound.push_back(8 * u * s + 1e-300);
  expect_close("sums, " + c.name(), values_of(sums), want.sums, bound);

  // Sinks of either dtype, in an order of their own, that hold something or not.
  for (const DType t : {c.dtype, compute}) {
    for (const bool through : {true, false}) {
      const float beta = through ? 1 : 0;
      const Order to = c.order == Order::stepped ? Order::column_major : c.order;
      const Tensor dx = place(in.before, c.shape(), t, to);
      kernels::channel_data_gradient(dy.view(), x.view(), c.cells, mean.view(), var.view(),
                                     w.view(), kEps, through ? sums.view() : ConstView{}, count,
                                     dx.mutable_view(), beta, stream());
      Values sum = through ? want.dx : want.dx_constant, limit;
      const double top = largest(want.dx_constant) + largest(want.dx) + 1;
      for (std::size_t i = 0; i < sum.size(); ++i) {
        if (through) sum[i] += in.before[i];
        limit.push_back(2 * epsilon_of(t) * std::abs(sum[i]) +
                        (32 + std::sqrt(c.cell_size())) * u * top + (t == f16 ? 0x1p-24 : 0));
      }
      expect_close("dx, " + c.name(), values_of(dx), sum, limit);
    }
  }
}

TEST_CASE("gradients of every dtype, order and kind of cell", "[once]") {
  for_each_case(check_gradients);
}

TEST_CASE("gradients of channels so large that many tasks or blocks share one") {
  for (const Order order : {Order::row_major, Order::channels_last}) {
    for (const bool per_sample : {false, true})
      check_gradients(
          {per_sample ? 1 : 64, 3, per_sample ? 36864 : 576, {3, per_sample}, f32, order});
  }
}

TEST_CASE("parameter gradients: sums over the samples, in sinks of either dtype") {
  Rng rng(3);
  for (const DType compute : {f32, f64}) {
    for (const std::int64_t c : {1, 5, 300}) {
      const std::int64_t samples = c == 5 ? 70 : 3;
      const Values sums = rounded(rng.uniforms(samples * c * 2, -1, 1), compute);
      Values dw(static_cast<std::size_t>(c)), db(dw.size());
      for (std::size_t i = 0; i < sums.size(); i += 2) {
        db[i / 2 % dw.size()] += sums[i];
        dw[i / 2 % dw.size()] += sums[i + 1];
      }
      const Tensor in = make(sums, {samples, c, 2}, compute);
      const double u = epsilon_of(compute) * 64;
      const Tensor weight = make(Values(dw.size(), 0.5), {c}, compute);
      const Tensor bias = make(Values(dw.size(), 7), {c}, compute, Layout::stepped);
      kernels::channel_parameter_gradients(in.view(), weight.mutable_view(), 1, bias.mutable_view(),
                                           0, stream());
      for (double& v : dw) v += 0.5;
      expect_close("dweight", values_of(weight), dw, u);
      expect_close("dbias", values_of(bias), db, u);
      if (compute == f64) continue;
      const Tensor half = make(Values(dw.size(), 0.5), {c}, f16);
      kernels::channel_parameter_gradients(in.view(), half.mutable_view(), 1, View{}, 0, stream());
      expect_close("f16 dweight", values_of(half), dw, 2 * epsilon_of(f16) * (largest(dw) + 1));
      // Weight and bias may be one tensor.
      const Tensor both = make(Values(dw.size(), 0.0), {c}, f32);
      kernels::channel_parameter_gradients(in.view(), both.mutable_view(), 0, both.mutable_view(),
                                           1, stream());
      Values sum = db;
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += dw[k] - 0.5;
      expect_close("both", values_of(both), sum, 2 * u);
    }
  }
}

TEST_CASE("no elements: the sums are zero") {
  const Tensor none = empty({0, 3, 4}), stat = make({1, 1, 1}, {3}, f32);
  const Tensor sums = make(Values(6, 7), {1, 3, 2}, f32);
  kernels::channel_gradient_sums(none.view(), none.view(), NormCells{3, false}, stat.view(),
                                 stat.view(), kEps, sums.mutable_view(), stream());
  expect_same("sums", values_of(sums), Values(6, 0));
  kernels::channel_normalize(none.view(), NormCells{3, false}, stat.view(), stat.view(),
                             ConstView{}, ConstView{}, kEps, none.mutable_view(), stream());
  kernels::channel_data_gradient(none.view(), none.view(), NormCells{3, false}, stat.view(),
                                 stat.view(), ConstView{}, kEps, sums.view(), 1,
                                 none.mutable_view(), 0, stream());
}

/// All results of one case, one after the other.
Values all_results(const Case& c) {
  const Operands in(c);
  const Tensor x = place(in.x, c.shape(), c.dtype, c.order);
  const Tensor dy = place(in.dy, c.shape(), c.dtype, c.order);
  const Tensor dx = place(in.before, c.shape(), c.dtype, c.order);
  const Tensor y = place(in.before, c.shape(), c.dtype, c.order);
  const Tensor mean = statistic(in.m.mean, c), var = statistic(in.m.var, c);
  const Tensor w = make(in.w, {c.c}, c.dtype), dw = statistic(Values(in.w.size()), c);
  const Tensor sums = make(Values(static_cast<std::size_t>(c.sections() * c.c * 2)),
                           {c.sections(), c.c, 2}, compute_dtype(c.dtype));
  kernels::channel_moments(x.view(), c.cells, mean.mutable_view(), var.mutable_view(), stream());
  kernels::channel_normalize(x.view(), c.cells, mean.view(), var.view(), w.view(), ConstView{},
                             kEps, y.mutable_view(), stream());
  kernels::channel_gradient_sums(dy.view(), x.view(), c.cells, mean.view(), var.view(), kEps,
                                 sums.mutable_view(), stream());
  kernels::channel_parameter_gradients(sums.view(), dw.mutable_view(), 0, View{}, 0, stream());
  kernels::channel_data_gradient(dy.view(), x.view(), c.cells, mean.view(), var.view(), w.view(),
                                 kEps, sums.view(), c.cell_size(), dx.mutable_view(), 1, stream());
  Values all;
  for (const Tensor& t : {mean, var, y, sums, dw, dx}) {
    const Values v = values_of(t);
    all.insert(all.end(), v.begin(), v.end());
  }
  return all;
}

TEST_CASE("norms by channel have the same bits for 1 to 7 threads", "[host]") {
  for (const Order o : {Order::row_major, Order::channels_last}) {
    for (const Case& c :
         {Case{33, 65, 100, {65, false}, f32, o}, Case{5, 12, 4000, {3, true}, f32, o}}) {
      const auto run = [&](int threads) {
        const Threads scope(threads);
        return all_results(c);
      };
      const Values want = run(1);
      for (const int threads : {2, 3, 7}) expect_same(c.name(), run(threads), want);
    }
  }
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("norms by channel have the same bits in every order of threads and blocks") {
  if (default_device().is_cpu()) return;
  for (const Order o : {Order::row_major, Order::channels_last, Order::stepped}) {
    for (const Case& c : {Case{9, 20, 40, {20, false}, f32, o}, Case{3, 12, 100, {3, true}, f16, o},
                          Case{2, 3, 5000, {3, false}, f32, o}}) {
      expect_same_in_every_order([&] { return all_results(c); });
    }
  }
}
#endif

}  // namespace
}  // namespace firn::testing
