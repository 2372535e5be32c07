// Sorting and counting against plain loops over the definitions, on every device.
#include "kernels/sort.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/index.h"
#include "kernels/twins.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Whether a comes before b in ascending order: NaN last.
bool before(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

/// Positions of the first k elements of each line along `axis`, by a stable sort.
std::vector<double> first_of(const std::vector<double>& x, const Shape& shape, int axis,
                             std::int64_t k, bool descending) {
  const std::int64_t length = shape[axis];
  std::int64_t inner = 1;
  for (int a = axis + 1; a < shape.size(); ++a) inner *= shape[a];
  const std::int64_t outer = length == 0 ? 0 : shape.product() / length / inner;
  std::vector<double> out(static_cast<std::size_t>(outer * k * inner));
  std::vector<std::int64_t> order(static_cast<std::size_t>(length));
  for (std::int64_t line = 0; line < outer * inner; ++line) {
    const std::int64_t o = line / inner, i = line % inner;
    const auto value = [&](std::int64_t j) {
      return x[static_cast<std::size_t>((o * length + j) * inner + i)];
    };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return descending ? before(value(b), value(a)) : before(value(a), value(b));
    });
    for (std::int64_t j = 0; j < k; ++j)
      out[static_cast<std::size_t>((o * k + j) * inner + i)] =
          static_cast<double>(order[static_cast<std::size_t>(j)]);
  }
  return out;
}

/// Values that often meet, with all that is special.
std::vector<double> with_ties(std::int64_t n, DType t, std::uint64_t seed) {
  Rng rng(seed);
  const double special[] = {0.0, -0.0, kNaN, kInfinity, -kInfinity, 1.5, -1.5};
  std::vector<double> v(static_cast<std::size_t>(n));
  for (double& x : v) {
    const std::int64_t which = rng.below(20);
    x = is_floating(t) && which < 7 ? special[which] : static_cast<double>(rng.below(60));
    if (t == i32 || t == i64) x -= 30;
    if (t == boolean) x = which < 9 ? 1 : 0;
  }
  return v;
}

const DType kAll[] = {f16, bf16, f32, f64, i32, i64, u8, boolean};

void check(const std::string& what, const Tensor& x, const std::vector<double>& values, int axis,
           std::int64_t k, bool descending) {
  const auto want = first_of(values, x.shape(), axis, k, descending);
  const Sorted got =
      descending || k < x.shape()[axis] ? topk(x, k, axis, {.largest = descending}) : sort(x, axis);
  expect_same(what, values_of(got.indices), want);
  expect_same(what + " values", values_of(got.values), values_of(gather(x, axis, got.indices)));
}

TEST_CASE("sorted positions along every axis, in every dtype and layout") {
  for (const DType t : kAll) {
    for (const Layout layout :
         {Layout::contiguous, Layout::transposed, Layout::stepped, Layout::offset}) {
      const Shape shape{5, 33, 4};
      const auto values = with_ties(shape.product(), t, 3);
      const Tensor x = make(values, shape, t, layout);
      for (int axis = 0; axis < 3; ++axis) {
        for (const bool descending : {false, true}) {
          for (const std::int64_t k : {std::int64_t{0}, std::int64_t{3}, shape[axis]}) {
            check(std::string(to_string(t)) + " " + to_string(layout) + " axis " +
                      std::to_string(axis) + " k " + std::to_string(k),
                  x, values, axis, k, descending);
          }
        }
      }
    }
  }
}

void check_lines(const Shape& shape, int axis, std::int64_t k,
                 std::initializer_list<DType> dtypes) {
  for (const DType t : dtypes) {
    const auto values = with_ties(shape.product(), t, 11);
    const Tensor x = make(values, shape, t);
    for (const bool descending : {false, true})
      check(to_string(shape) + " " + to_string(t), x, values, axis, k, descending);
  }
}

TEST_CASE("long lines are sorted by digits on a device") {
  check_lines({3, 700}, 1, 700, {f32, f16, i64, f64, u8});
  check_lines({700, 3}, 0, 700, {f32, f16, i64, f64, u8});
  check_lines({300, 513}, 1, 2, {f32});
}

TEST_CASE("longer lines are sorted in pieces on the CPU", "[long]") {
  check_lines({140'001}, 0, 140'001, {f32, i64});
  check_lines({140'001}, 0, 10, {f32});
  check_lines({2, 70'000}, 1, 69'000, {f32, i64});
}

TEST_CASE("numbers that are near each other, subnormal or extreme are told apart") {
  const double f = std::ldexp(1, -149), d = std::ldexp(1, -1074), h = std::ldexp(1, -24);
  const auto sorted = [](const std::vector<double>& values, DType t) {
    const auto n = static_cast<std::int64_t>(values.size());
    return values_of(sort(make(values, {n}, t)).indices);
  };
  expect_same("f32", sorted({2 * f, f, -f, 0, -2 * f}, f32), {4, 2, 3, 1, 0});
  expect_same("f64", sorted({2 * d, d, -d, 0, -2 * d}, f64), {4, 2, 3, 1, 0});
  expect_same("f16", sorted({2 * h, h, -h, 0, 65504, -65504}, f16), {5, 2, 3, 1, 0, 4});
  const std::int64_t big = std::int64_t{1} << 53;
  const Tensor near = tensor({big + 1, big, std::numeric_limits<std::int64_t>::min(),
                              std::numeric_limits<std::int64_t>::max(), big + 2});
  expect_same("i64", values_of(sort(near).indices), {2, 1, 0, 4, 3});
  // NaNs of either sign and any bits are equal, and above infinity.
  const std::uint32_t bits[] = {0xffc00000, 0x7f800000, 0x7fc00001, 0x7f800001, 0xff800000};
  std::vector<float> nans(5);
  std::memcpy(nans.data(), bits, sizeof(bits));
  expect_same("NaN", values_of(sort(tensor(nans, {5})).indices), {4, 1, 0, 2, 3});
  expect_same("NaN, descending",
              values_of(sort(tensor(nans, {5}), 0, {.descending = true}).indices), {0, 2, 3, 1, 4});
}

TEST_CASE("sorted the same with any number of threads", "[host]") {
  const Tensor x = make(with_ties(300'000, f32, 5), {300'000}, f32, Layout::contiguous, Device());
  const Tensor list = make(with_ties(300'000, u8, 5), {300'000}, i64, Layout::contiguous, Device());
  std::vector<double> first, counts;
  for (const int threads : {1, 2, 3, 5}) {
    const NumThreadsScope scope(threads);
    const auto order = values_of(argsort(x)), counted = values_of(bincount(list));
    if (first.empty()) first = order, counts = counted;
    expect_same("sort", order, first);
    expect_same("bincount", counted, counts);
  }
}

TEST_CASE("topk that is not sorted keeps the order of positions, and its gradient fits") {
  const auto values = std::vector<double>{3, 9, -1, 9, 4, 8, 8, 8};
  Tensor x = make(values, {8}, f64);
  x.set_requires_grad();
  const Sorted top = topk(x, 4, 0, {.sorted = false});
  expect_same("indices", values_of(top.indices), {1, 3, 5, 6});
  CHECK_FALSE(top.indices.requires_grad());
  backward(top.values, {.initial_gradient = make({1, 2, 3, 4}, {4}, f64)});
  expect_same("gradient", values_of(x.grad()), {0, 1, 0, 2, 0, 3, 4, 0});
}

TEST_CASE("an expanded line, a scalar, and the gradient of a view") {
  const Tensor one = expand(make({2.5}, {1}, f32), {600});
  std::vector<double> counted(600);
  std::iota(counted.begin(), counted.end(), 0);
  expect_same("expanded", values_of(sort(one, 0, {.descending = true}).indices), counted);
  const Sorted scalar = topk(make({7}, {}, f64), 1);
  CHECK(scalar.values.shape() == Shape{});
  CHECK(scalar.indices.item() == 0);
  CHECK(topk(make({7}, {}, f64), 0).values.shape() == Shape{0});
  Tensor x = make({4, 1, 3, 2, 6, 5}, {2, 3}, f64);
  x.set_requires_grad();
  backward(sort(transpose(x, 0, 1), 0).values,
           {.initial_gradient = make({1, 2, 3, 4, 5, 6}, {3, 2}, f64)});
  expect_same("gradient", values_of(x.grad()), {5, 1, 3, 2, 6, 4});
}

TEST_CASE("counts of integers, of any strides, on every device") {
  for (const DType t : {i64, i32, u8}) {
    for (const std::int64_t places : {1, 7, 200}) {
      for (const std::int64_t n : {0, 1, 1000, 200'000}) {
        if (n > 1000 && (places != 7 || t != i64)) continue;
        Rng rng(8);
        std::vector<double> values(static_cast<std::size_t>(n));
        for (double& v : values) v = static_cast<double>(rng.below(places));
        std::vector<double> want(static_cast<std::size_t>(
            n == 0 ? 0 : 1 + *std::max_element(values.begin(), values.end())));
        for (const double v : values) ++want[static_cast<std::size_t>(v)];
        for (const Layout layout : {Layout::contiguous, Layout::stepped})
          expect_same("counts", values_of(bincount(make(values, {n}, t, layout))), want);
        want.resize(std::max<std::size_t>(want.size(), 300));
        const Tensor long_one = bincount(make(values, {n}, t), {.min_length = 300});
        CHECK(long_one.dtype() == i64);
        expect_same("min_length", values_of(long_one), want);
      }
    }
  }
  // More places than a block of a device counts in its own memory.
  expect_same("far", values_of(slice(bincount(make({9000, 2, 9000}, {3}, i64)), 0, 8999, 9001)),
              {0, 2});
  const Tensor weighted =
      bincount(make({1, 1, 0}, {3}, i32), {.weights = make({2, 3, 4}, {3}, i64), .min_length = 3});
  CHECK(weighted.dtype() == f64);
  expect_same("integer weights", values_of(weighted), {4, 5, 0});
  CHECK(bincount(make({1}, {1}, i64), {.weights = make({2}, {1}, f16)}).dtype() == f16);
}

TEST_CASE("bins of any widths are found, at their edges and beside them") {
  manual_seed(7);
  const DType t = GENERATE(f32, f64);
  const double tiny = t == f32 ? 1e-37 : 1e-307, huge = t == f32 ? 1.7e38 : 8e307;
  const Tensor even = arange(0, 101, 1, t) * 0.03 - 1;
  for (const Tensor& edges :
       {even, sort(randn({90}, {.dtype = t})).values, exp(even * 20), even * tiny, even * huge,
        tensor(std::vector<double>{-1, 0, 0, 0, 0.5, 0.5, 7}).to(t),
        tensor(std::vector<double>{3, 3}).to(t), tensor(std::vector<double>{-2, 5}).to(t)}) {
    const std::vector<double> list = values_of(edges);
    std::vector<double> x = {kNaN, kInfinity, -kInfinity, 0, -0.0};
    for (const double e : list) {
      const auto f = static_cast<float>(e);
      x.push_back(e);
      for (const double to : {-kInfinity, kInfinity})
        x.push_back(t == f32 ? std::nextafter(f, static_cast<float>(to)) : std::nextafter(e, to));
      x.push_back(e + (list.back() - e) * 0.37);
    }
    std::erase_if(x, [&](double v) { return v != 0 && std::abs(v) < tiny * 1e-1; });
    const auto n = static_cast<std::int64_t>(x.size()), bins = edges.numel() - 1;
    const Tensor numbers = make(x, {n}, t), places = make(std::vector<double>(x.size()), {n}, i64);
    kernels::find_bins(numbers.view(), edges.view(), places.mutable_view(),
                       current_stream(places.device()));
    std::vector<double> want;
    for (const double v : values_of(numbers)) {
      const auto above = std::upper_bound(list.begin(), list.end(), v) - list.begin();
      const bool outside = !(v >= list.front() && v <= list.back());
      want.push_back(static_cast<double>(outside ? bins : std::min<std::int64_t>(above, bins) - 1));
    }
    expect_same("bins", values_of(places), want);
  }
}

TEST_CASE("a device leaves a bad index out of its counts and says so", "[gpu]") {
  if (!has_device()) return;
  for (const std::int64_t places : {10, 5000}) {
    std::vector<double> at(1000, 4);
    at[123] = static_cast<double>(places);
    const Twins list(i64, at), out(i64, std::vector<double>(5000, 1.0));
    kernels::count("test", list.device({1000}), out.device({places}), device_stream());
    const std::string message = error_of([&] { synchronize(Device::cuda()); });
    CHECK(message.find("[test] index " + std::to_string(places)) == 0);
    CHECK(message.find("123") != std::string::npos);
    const auto counts = out.device_values();
    CHECK(counts[4] == 999);
    CHECK(counts[3] == 0);
  }
}

}  // namespace
}  // namespace firn::testing
