// Views: they share storage, count positions as Python does, and check their bounds.
#include "firn/runtime/storage.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;

namespace {

Tensor counting(const Shape& shape) { return reshape(arange(shape.product(), f32), shape); }
std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }
bool shares(const Tensor& a, const Tensor& b) { return a.storage()->data() == b.storage()->data(); }
bool holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("slice: a view with the elements that Python would take", "[tensor]") {
  const Tensor x = counting({6});
  struct {
    std::int64_t start, stop, step;
    std::vector<float> want;
  } const cases[] = {
      {0, 6, 1, {0, 1, 2, 3, 4, 5}},
      {1, 4, 1, {1, 2, 3}},
      {-2, 6, 1, {4, 5}},
      {0, -4, 1, {0, 1}},
      {0, 100, 2, {0, 2, 4}},
      {1, 100, 3, {1, 4}},
      {-100, 2, 1, {0, 1}},
      {4, 2, 1, {}},
      {6, 6, 1, {}},
      {100, 200, 1, {}},
      {5, 6, 7, {5}},
  };
  for (const auto& c : cases) {
    INFO(c.start << ":" << c.stop << ":" << c.step);
    const Tensor y = slice(x, 0, c.start, c.stop, c.step);
    CHECK(values(y) == c.want);
    CHECK(shares(x, y));
  }
}

TEST_CASE("slice: along every axis, and of a slice", "[tensor]") {
  const Tensor x = counting({3, 4});
  CHECK(values(slice(x, 1, 1, 3)) == std::vector<float>{1, 2, 5, 6, 9, 10});
  CHECK(values(slice(x, -1, 0, 4, 3)) == std::vector<float>{0, 3, 4, 7, 8, 11});
  const Tensor y = slice(slice(x, 0, 1, 3), 1, 0, 4, 2);
  CHECK(values(y) == std::vector<float>{4, 6, 8, 10});
  CHECK(y.strides() == Strides{4, 2});
  CHECK(y.storage_offset() == 4);
}

TEST_CASE("slice: a step that is not positive is refused", "[tensor]") {
  const Tensor x = counting({3, 4});
  CHECK(holds(error_of([&] { slice(x, 0, 0, 2, 0); }), "[slice]"));
  CHECK(holds(error_of([&] { slice(x, 0, 2, 0, -1); }), "[slice]"));
  CHECK(holds(error_of([&] { slice(x, 2, 0, 1); }), "axis 2"));
}

TEST_CASE("select and []: the axis vanishes, the bounds are checked", "[tensor]") {
  const Tensor x = counting({2, 3});
  CHECK(values(x[1]) == std::vector<float>{3, 4, 5});
  CHECK(x[-1].shape() == Shape{3});
  CHECK(values(select(x, 1, -2)) == std::vector<float>{1, 4});
  CHECK(x[1][2].item() == 5);
  CHECK(shares(x, x[1]));
  CHECK(holds(error_of([&] { x[2]; }), "2"));
  CHECK(holds(error_of([&] { x[-3]; }), "-3"));
  CHECK_THROWS_AS(x[0][0][0], Error);
}

TEST_CASE("transpose and permute: views with swapped strides", "[tensor]") {
  const Tensor x = counting({2, 3});
  const Tensor y = transpose(x, 0, 1);
  CHECK(y.shape() == Shape{3, 2});
  CHECK(y.strides() == Strides{1, 3});
  CHECK(values(y) == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK_FALSE(y.is_contiguous());
  CHECK(shares(x, y));
  CHECK(permute(counting({2, 3, 4}), {2, 0, 1}).shape() == Shape{4, 2, 3});
  CHECK(permute(counting({2, 3, 4}), {-1, 0, 1}).shape() == Shape{4, 2, 3});
  CHECK(holds(error_of([&] { permute(x, {0}); }), "[permute]"));
  CHECK(holds(error_of([&] { permute(x, {0, 0}); }), "[permute]"));
}

TEST_CASE("reshape: a view where strides allow, else a copy", "[tensor]") {
  const Tensor x = counting({2, 6});
  CHECK(shares(x, reshape(x, {3, 4})));
  CHECK(reshape(x, {-1, 2}).shape() == Shape{6, 2});
  CHECK(reshape(x, {2, 1, 6, 1}).shape() == Shape{2, 1, 6, 1});
  const Tensor t = transpose(x, 0, 1);
  CHECK_FALSE(shares(x, reshape(t, {12})));
  CHECK(values(reshape(t, {12})) == values(t));
  const Tensor rows = slice(x, 0, 0, 2, 1), part = slice(x, 1, 0, 4);
  CHECK(shares(x, reshape(rows, {12})));
  CHECK(shares(x, reshape(part, {2, 2, 2})));  // splits an axis of a strided view
  CHECK_FALSE(shares(x, reshape(part, {8})));
  CHECK(values(reshape(part, {8})) == std::vector<float>{0, 1, 2, 3, 6, 7, 8, 9});
}

TEST_CASE("reshape: sizes that do not fit are refused", "[tensor]") {
  const Tensor x = counting({2, 6});
  CHECK(holds(error_of([&] { reshape(x, {5, 2}); }), "[reshape]"));
  CHECK(holds(error_of([&] { reshape(x, {-1, 5}); }), "[reshape]"));
  CHECK(holds(error_of([&] { reshape(x, {-1, -1}); }), "[reshape]"));
  CHECK(holds(error_of([&] { reshape(x, {-2, 6}); }), "[reshape]"));
  CHECK(reshape(empty({0, 3}), {3, 0}).shape() == Shape{3, 0});
}

TEST_CASE("flatten, squeeze and unsqueeze", "[tensor]") {
  const Tensor x = counting({2, 1, 3, 4});
  CHECK(flatten(x).shape() == Shape{24});
  CHECK(flatten(x, 1).shape() == Shape{2, 12});
  CHECK(flatten(x, 1, 2).shape() == Shape{2, 3, 4});
  CHECK(squeeze(x, 1).shape() == Shape{2, 3, 4});
  CHECK(unsqueeze(x, -1).shape() == Shape{2, 1, 3, 4, 1});
  CHECK(unsqueeze(x, 0).shape() == Shape{1, 2, 1, 3, 4});
  CHECK(shares(x, unsqueeze(x, 2)));
}

TEST_CASE("expand: repeats without a copy", "[tensor]") {
  const Tensor x = counting({3, 1});
  const Tensor y = expand(x, {2, 3, 4});
  CHECK(y.strides()[0] == 0);
  CHECK(y.strides()[2] == 0);
  CHECK(shares(x, y));
  CHECK(values(y[1][2]) == std::vector<float>{2, 2, 2, 2});
  CHECK(expand(x, {-1, 4}).shape() == Shape{3, 4});
  CHECK(holds(error_of([&] { expand(x, {2, 4}); }), "[expand]"));
  CHECK(holds(error_of([&] { expand(x, {3}); }), "[expand]"));
}

TEST_CASE("split: pieces share storage and cover the axis", "[tensor]") {
  const Tensor x = counting({5, 2});
  const auto parts = split(x, 2);
  REQUIRE(parts.size() == 3);
  CHECK(parts[2].shape() == Shape{1, 2});
  CHECK(values(parts[1]) == std::vector<float>{4, 5, 6, 7});
  CHECK(shares(x, parts[1]));
  const std::vector<std::int64_t> wrong = {2, 2};
  CHECK(holds(error_of([&] { split(x, wrong, 0); }), "[split]"));
  CHECK(holds(error_of([&] { split(x, 0, 0); }), "[split]"));
}

TEST_CASE("split: an axis of size 0 gives one empty piece", "[tensor]") {
  const std::vector<Tensor> parts = split(zeros({2, 0, 3}), 4, 1);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].shape() == Shape{2, 0, 3});
}

TEST_CASE("views without elements are taken at any position, and pass gradients", "[tensor]") {
  struct View {
    const char* name;
    Tensor (*of)(const Tensor&);
    Shape from, to;
  };
  const View views[] = {
      {"slice", [](const Tensor& x) { return x.slice(1, 1, 3); }, {0, 3}, {0, 2}},
      {"slice in steps", [](const Tensor& x) { return x.slice(1, 1, 5, 3); }, {0, 5}, {0, 2}},
      {"last piece", [](const Tensor& x) { return split(x, 4, -1)[2]; }, {0, 5, 12}, {0, 5, 4}},
      {"piece of sizes",
       [](const Tensor& x) {
         return split(x, {1, 2}, 1)[1];
       },
       {0, 3},
       {0, 2}},
      {"select", [](const Tensor& x) { return x.select(0, 3); }, {4, 0}, {0}},
      {"empty slice at the end", [](const Tensor& x) { return x.slice(0, 4, 4); }, {4, 2}, {0, 2}},
      {"slice of an empty slice",
       [](const Tensor& x) { return x.slice(0, 4, 4).slice(1, 1, 2); },
       {4, 2},
       {0, 1}},
      {"slice of a transposed one",
       [](const Tensor& x) { return x.transpose(0, 1).slice(0, 2, 3); },
       {0, 3},
       {1, 0}},
  };
  for (const View& v : views) {
    CAPTURE(v.name);
    const Tensor x = zeros(v.from).set_requires_grad();
    const Tensor y = v.of(x);
    CHECK(y.shape() == v.to);
    CHECK(shares(x, y));
    CHECK(y.storage_offset() <= x.numel());
    (sum(y * 2.0) + sum(x)).backward();
    CHECK(x.grad().shape() == v.from);
    CHECK(x.grad().to_vector<float>() == std::vector<float>(x.grad().numel(), 1.f));
  }
}

TEST_CASE("pad: an empty tensor gets its border, and its gradient is empty", "[tensor]") {
  const Tensor x = zeros({0, 2}).set_requires_grad();
  const Tensor y = pad(x, {1, 3}, {1, 0}, 7);
  CHECK(y.to_vector<float>() == std::vector<float>(10, 7.f));
  sum(y).backward();
  CHECK(x.grad().shape() == Shape{0, 2});
}

TEST_CASE("cat and stack: shapes and dtypes must agree", "[tensor]") {
  const Tensor x = counting({2, 3});
  CHECK(holds(error_of([&] { cat({x, counting({2, 4})}, 0); }), "[cat]"));
  CHECK(holds(error_of([&] { cat({x, x.to(f64)}, 0); }), "[cat]"));
  CHECK(holds(error_of([&] { cat(std::span<const Tensor>{}, 0); }), "[cat]"));
  CHECK(holds(error_of([&] { stack({x, counting({3, 2})}, 0); }), "shapes must agree"));
  CHECK(cat({x}, 0).shape() == Shape{2, 3});
}

TEST_CASE("views: writing to one writes to all, and bumps one version", "[tensor]") {
  const Tensor x = counting({2, 3});
  const Tensor column = select(x, 1, 0);
  const auto version = x.storage()->version();
  fill_(column, -1);
  CHECK(values(x) == std::vector<float>{-1, 1, 2, -1, 4, 5});
  CHECK(x.storage()->version() == version + 1);
  CHECK(std::string(x.storage()->last_writer()) == "fill_");
  copy_(x[0], tensor({7.f}));
  CHECK(values(x) == std::vector<float>{7, 7, 7, -1, 4, 5});
  zero_(transpose(x, 0, 1));
  CHECK(values(x) == std::vector<float>(6, 0.f));
}

TEST_CASE("views: an expanded one cannot be written", "[tensor]") {
  Tensor x = expand(counting({3, 1}), {3, 4});
  CHECK(holds(error_of([&] { fill_(x, 1); }), "expanded"));
  CHECK(holds(error_of([&] { exp_(x); }), "[exp_]"));
  CHECK(holds(error_of([&] { copy_(x, counting({3, 4})); }), "expanded"));
}

TEST_CASE("copy_: casts, broadcasts, and refuses what does not fit", "[tensor]") {
  const Tensor x = zeros({2, 3}, f16);
  copy_(x, tensor({1.0, 2.0, 1.0 / 3}));
  CHECK(x.to_vector<double>()[5] == static_cast<float>(half(1.f / 3)));
  CHECK(holds(error_of([&] { copy_(x, zeros({3, 3})); }), "[copy_]"));
  CHECK(holds(error_of([&] { copy_(zeros({3}), zeros({2, 3})); }), "[copy_]"));
}

TEST_CASE("cast: rounding, truncation and truth", "[tensor]") {
  const Tensor x = tensor({-2.7, 0.0, 0.4, 300.0});
  CHECK(cast(x, i32).to_vector<std::int32_t>() == std::vector<std::int32_t>{-2, 0, 0, 300});
  CHECK(cast(x, boolean).to_vector<bool>() == std::vector<bool>{true, false, true, true});
  CHECK(cast(x, f16).to_vector<double>()[0] == static_cast<float>(half(-2.7f)));
  CHECK(cast(cast(x, boolean), f32).to_vector<float>() == std::vector<float>{1, 0, 1, 1});
  CHECK(cast(tensor({70000.f}), f16).item() == INFINITY);
  CHECK(cast(x, f64).storage()->data() == x.storage()->data());  // x itself
  for (DType from : firn::testing::kAllDTypes)
    for (DType to : firn::testing::kAllDTypes) {
      INFO(to_string(from) << " to " << to_string(to));
      CHECK(cast(firn::testing::make({0, 1, 1}, {3}, from), to).to_vector<double>() ==
            std::vector<double>{0, 1, 1});
    }
}
