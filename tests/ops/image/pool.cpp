// Rows: pooling and resizing of images, in both memory formats.
#include <functional>
#include <string>

#include "support/catch.h"
#include "support/ops/op_row.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Shapes = std::vector<std::vector<Shape>>;
using Fn = std::function<Tensor(const Tensor&)>;

/// A row, and the same on tensors with axis 1 fastest in memory (3 axes or 4).
void add_rows(const std::string& name, const Fn& fn, const Arg& arg, Accuracy accuracy,
              double terms, bool smooth, const Shapes& shapes, bool golden = true) {
  for (const bool last : {false, true}) {
    Row row(last ? name + " channels-last" : name,
            [fn, last](const Args& x) { return fn(last ? channels_last(x[0]) : x[0]); });
    Shapes fitting;
    for (const auto& s : shapes)
      if (!last || s[0].size() >= 3) fitting.push_back(s);
    row.args({arg}).shapes(fitting).accuracy(accuracy, terms);
    if (golden && !last) row.golden();
    if (!smooth) row.kinks();
  }
}

struct Form {
  const char* name;
  Size2 window;
  Pool2dOptions options;
  Shapes shapes;
};

// Shapes: images whose size the windows divide and do not, one image without a batch, channels
// around a vector's width, more channels or a wider row than one span, nothing at all.
const std::vector<Form>& forms() {
  static const std::vector<Form> list = {
      {"2",
       2,
       {},
       {{{2, 3, 4, 6}},
        {{1, 1, 2, 2}},
        {{2, 2, 5, 7}},
        {{3, 5, 4}},
        {{0, 2, 4, 4}},
        {{2, 0, 4, 4}},
        {{2, 65, 6, 5}},
        {{1, 300, 4, 3}},
        {{1, 2, 3, 600}}}},
      {"3 stride 2 padding 1",
       3,
       {.stride = 2, .padding = 1},
       {{{2, 2, 7, 6}}, {{3, 5, 5}}, {{1, 33, 5, 4}}, {{2, 1, 4, 530}}}},
      {"3 stride 1 padding 1",
       3,
       {.stride = 1, .padding = 1},
       {{{2, 2, 5, 4}}, {{1, 17, 5, 3}}, {{1, 270, 3, 3}}}},
      {"2 by 3 ceil", {2, 3}, {.stride = 2, .ceil_mode = true}, {{{2, 2, 5, 6}}, {{1, 3, 4, 4}}}},
      {"4 by 2 stride 3 by 2 padding 2 by 1 ceil",
       {4, 2},
       {.stride = {3, 2}, .padding = {2, 1}, .ceil_mode = true},
       {{{1, 2, 6, 5}}, {{2, 3, 5, 4}}}},
      {"2 stride 3", 2, {.stride = 3}, {{{2, 2, 6, 7}}, {{1, 3, 5, 5}}}},
      {"5", 5, {.stride = 2, .padding = 2}, {{{1, 2, 6, 5}}, {{1, 19, 5, 4}}}},
  };
  return list;
}

FIRN_OP_ROWS(pooling) {
  for (const Form& f : forms()) {
    add_rows(
        std::string("max_pool2d ") + f.name,
        [f](const Tensor& x) { return max_pool2d(x, f.window, f.options); }, apart(),
        Accuracy::exact, 1, true, f.shapes);
    for (const bool count : {true, false}) {
      Pool2dOptions options = f.options;
      options.count_padding = count;
      const bool same = count || options.padding == Size2(0);
      if (same && !count) continue;
      add_rows(
          std::string("avg_pool2d ") + f.name + (count ? "" : " without padding"),
          [window = f.window, options](const Tensor& x) { return avg_pool2d(x, window, options); },
          real(), Accuracy::sum, static_cast<double>(f.window.h * f.window.w), true, f.shapes);
    }
  }
  add_rows("max_pool2d 3 dilation 2 by 1",
           [](const Tensor& x) {
             return max_pool2d(x, 3, {.stride = 1, .padding = 1, .dilation = {2, 1}});
           },
           apart(), Accuracy::exact, 1, true, {{{2, 2, 6, 4}}, {{1, 18, 5, 3}}});
  add_rows("max_pool2d 2 dilation 3 stride 2 ceil",
           [](const Tensor& x) {
             return max_pool2d(x, 2, {.stride = 2, .dilation = 3, .ceil_mode = true});
           },
           apart(), Accuracy::exact, 1, true, {{{1, 2, 8, 7}}});
  add_rows("max_pool2d with ties", [](const Tensor& x) { return max_pool2d(x, 3, {.stride = 2}); },
           whole(), Accuracy::exact, 1, false, {{{2, 3, 7, 7}}, {{1, 40, 5, 5}}});
}

FIRN_OP_ROWS(adaptive_pooling) {
  struct Case {
    const char* name;
    Size2 out;
    Shapes shapes;
    bool golden = true;
  };
  for (const Case& c : std::vector<Case>{
           {"3 by 2",
            {3, 2},
            {{{2, 2, 7, 5}}, {{3, 4, 3}}, {{1, 70, 4, 4}}, {{2, 3, 3, 2}}, {{1, 2, 2, 700}}}},
           {"2 by 300",
            {2, 300},
            {{{1, 2, 3, 4}}, {{1, 2, 3, 401}}, {{1, 1, 2, 600}}, {{1, 17, 2, 310}}},
            false},
           {"5 by 4 larger than the image", {5, 4}, {{{2, 2, 3, 3}}, {{1, 20, 2, 4}}}},
           {"1", 1, {{{2, 3, 5, 4}}, {{3, 2, 3}}, {{2, 64, 6, 6}}, {{0, 3, 2, 2}}}}}) {
    add_rows(
        std::string("adaptive_max_pool2d ") + c.name,
        [out = c.out](const Tensor& x) { return adaptive_max_pool2d(x, out); }, apart(),
        Accuracy::exact, 1, true, c.shapes, c.golden);
    add_rows(
        std::string("adaptive_avg_pool2d ") + c.name,
        [out = c.out](const Tensor& x) { return adaptive_avg_pool2d(x, out); }, real(),
        Accuracy::sum, 36, true, c.shapes, c.golden);
  }
  add_rows("global_avg_pool2d", [](const Tensor& x) { return global_avg_pool2d(x); }, real(),
           Accuracy::sum, 900, true,
           {{{2, 3, 5, 4}}, {{3, 2, 3}}, {{2, 40, 30, 30}}, {{0, 3, 2, 2}}, {{2, 0, 2, 2}}});
}

FIRN_OP_ROWS(pooling_1d) {
  struct Case {
    const char* name;
    std::int64_t window;
    Pool2dOptions options;
    bool dilated;
  };
  // What the height says is not looked at.
  for (const Case& c :
       std::vector<Case>{{"3", 3, {}, false},
                         {"4 stride 3 padding 2 ceil",
                          4,
                          {.stride = {7, 3}, .padding = {9, 2}, .ceil_mode = true},
                          false},
                         {"2 dilation 3", 2, {.stride = 1, .dilation = {5, 3}}, true}}) {
    const Shapes shapes = {{{2, 3, 9}}, {{3, 7}}, {{1, 20, 8}}, {{2, 1, 530}}};
    add_rows(
        std::string("max_pool1d ") + c.name,
        [c](const Tensor& x) { return max_pool1d(x, c.window, c.options); }, apart(),
        Accuracy::exact, 1, true, shapes);
    if (c.dilated) continue;
    add_rows(
        std::string("avg_pool1d ") + c.name,
        [c](const Tensor& x) { return avg_pool1d(x, c.window, c.options); }, real(), Accuracy::sum,
        4, true, shapes);
  }
}

FIRN_OP_ROWS(upsampling) {
  struct Case {
    const char* name;
    Size2 out;
    Shapes shapes;
    bool golden = true;
  };
  for (const Case& c : std::vector<Case>{
           {"up to 8 by 6",
            {8, 6},
            {{{2, 2, 4, 3}}, {{3, 5, 4}}, {{1, 20, 3, 5}}, {{0, 2, 2, 2}}, {{1, 270, 1, 1}}}},
           {"up to 7 by 10", {7, 10}, {{{1, 2, 3, 4}}, {{2, 1, 6, 9}}, {{1, 18, 1, 2}}}},
           {"down to 3 by 2", {3, 2}, {{{2, 2, 6, 7}}, {{3, 4, 5}}, {{1, 20, 7, 4}}}},
           {"to 3 by 530", {3, 530}, {{{1, 2, 5, 3}}, {{1, 1, 2, 700}}}, false}}) {
    add_rows(
        std::string("upsample2d nearest ") + c.name,
        [out = c.out](const Tensor& x) { return upsample2d(x, out); }, real(), Accuracy::sum, 1,
        true, c.shapes, c.golden);
    add_rows(
        std::string("upsample2d bilinear ") + c.name,
        [out = c.out](const Tensor& x) { return upsample2d(x, out, Upsampling::bilinear); }, real(),
        Accuracy::sum, 4, true, c.shapes, c.golden);
  }
}

TEST_CASE("pooling: the memory format of images is kept, and gradients come in it", "[ops]") {
  const auto both = [](const char* what, const Fn& fn) {
    INFO(what);
    Rng rng(3);
    const auto values = rng.uniforms(2 * 5 * 6 * 7, -1, 1);
    std::vector<std::vector<double>> results;
    for (const bool last : {false, true}) {
      Tensor x = make(values, {2, 5, 6, 7}, f32);
      if (last) x = channels_last(x);
      x = x.detach().set_requires_grad();
      const Tensor y = fn(x);
      CHECK(y.is_contiguous() == !last);
      CHECK(y.is_channels_last() == last);
      backward(y, {.initial_gradient = ones(y.shape())});
      CHECK(x.grad().is_channels_last() == last);
      results.push_back(values_of(y));
      results.push_back(values_of(x.grad()));
    }
    expect_close("values", results[2], results[0], 1e-6);
    expect_close("gradients", results[3], results[1], 1e-6);
  };
  both("max_pool2d", [](const Tensor& x) { return max_pool2d(x, 2); });
  both("avg_pool2d", [](const Tensor& x) { return avg_pool2d(x, 3, {.stride = 1}); });
  both("adaptive_max_pool2d", [](const Tensor& x) { return adaptive_max_pool2d(x, 4); });
  both("adaptive_avg_pool2d", [](const Tensor& x) { return adaptive_avg_pool2d(x, 4); });
  both("nearest", [](const Tensor& x) { return upsample2d(x, {9, 4}); });
  both("bilinear", [](const Tensor& x) { return upsample2d(x, {4, 9}, Upsampling::bilinear); });
  // Rows of a channels-last batch are channels-last too.
  const Tensor rows = channels_last(make(std::vector<double>(2 * 3 * 8, 1.0), {2, 3, 8}, f32));
  CHECK(max_pool1d(rows, 2).is_channels_last());
  CHECK_FALSE(max_pool1d(rows, 2).is_contiguous());
}

TEST_CASE("pooling: NaN wins, and takes the gradient of its windows", "[ops]") {
  const double nan = std::nan("");
  Tensor x = make({1, nan, 3, 4, 9, 6, nan, 8, 0}, {1, 1, 3, 3}, f32).set_requires_grad();
  const Tensor y = max_pool2d(x, 2, {.stride = 1});
  const auto got = values_of(y);
  CHECK(std::isnan(got[0]));
  CHECK(std::isnan(got[1]));
  CHECK(std::isnan(got[2]));
  CHECK(got[3] == 9);
  backward(y, {.initial_gradient = make({1, 2, 4, 8}, {1, 1, 2, 2}, f32)});
  expect_same("gradient", values_of(x.grad()), {0, 3, 0, 0, 8, 0, 4, 0, 0});
}

TEST_CASE("pooling: a window of gaps that meets no pixel is -infinity and gives nothing", "[ops]") {
  // Padding 1 and taps 5 apart: the first window has its taps at -1 and 4, in an image of 4.
  Tensor x = make({1, 2, 3, 4}, {1, 1, 1, 4}, f32).set_requires_grad();
  const Tensor y = max_pool2d(x, {1, 2}, {.stride = 1, .padding = {0, 1}, .dilation = {1, 5}});
  REQUIRE(y.shape() == Shape{1, 1, 1, 1});
  CHECK(y.item() == -std::numeric_limits<double>::infinity());
  sum(y).backward();
  expect_same("gradient", values_of(x.grad()), {0, 0, 0, 0});
}

TEST_CASE("pooling: autocast leaves the dtype as it is", "[ops]") {
  const Autocast guard(f16);
  for (const DType t : {f32, f16, bf16, f64}) {
    const Tensor x = ones({1, 2, 4, 4}, t);
    for (const Tensor& y :
         {max_pool2d(x, 2), avg_pool2d(x, 2), adaptive_max_pool2d(x, 3), adaptive_avg_pool2d(x, 3),
          global_avg_pool2d(x), max_pool1d(x[0], 2), avg_pool1d(x[0], 2), upsample2d(x, {3, 3})})
      CHECK(y.dtype() == t);
  }
}

TEST_CASE("pooling: f16 means are summed in f32", "[ops]") {
  // 1200 times 60: the sum is beyond f16's largest number.
  const Tensor x = full({1, 1, 30, 40}, 60, f16);
  CHECK(global_avg_pool2d(x).item() == 60);
  CHECK(adaptive_avg_pool2d(x, 1).item() == 60);
  CHECK(avg_pool2d(x, {30, 40}).item() == 60);
  CHECK(avg_pool2d(x, 2).dtype() == f16);
}

}  // namespace
}  // namespace firn::testing
