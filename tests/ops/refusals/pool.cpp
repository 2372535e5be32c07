// What pooling and resizing refuse: every message names the op and the numbers it met.
#include "refused.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::refused;

TEST_CASE("refusals: what are no images", "[ops]") {
  refused("max_pool2d", {"[n, c, h, w]", "[4, 4] f32"}, [] { max_pool2d(zeros({4, 4}), 2); });
  refused("avg_pool2d", {"[1, 2, 3, 4, 5] f32"}, [] { avg_pool2d(zeros({1, 2, 3, 4, 5}), 2); });
  refused("max_pool1d", {"[n, c, l]", "[2, 2, 2, 2] f32"}, [] {
    max_pool1d(zeros({2, 2, 2, 2}), 2);
  });
  refused("global_avg_pool2d", {"[3] f32"}, [] { global_avg_pool2d(zeros({3})); });
  refused("upsample2d", {"[3, 4] f32"}, [] { upsample2d(zeros({3, 4}), {2, 2}); });
  refused("max_pool2d", {"i64"}, [] { max_pool2d(zeros({1, 1, 4, 4}, i64), 2); });
  refused("adaptive_max_pool2d", {}, [] { adaptive_max_pool2d(Tensor(), 2); });
}

TEST_CASE("refusals: images without positions", "[ops]") {
  refused("max_pool2d", {"[1, 1, 0, 4] f32", "no positions"}, [] {
    max_pool2d(zeros({1, 1, 0, 4}), 1);
  });
  refused("adaptive_avg_pool2d", {"[1, 1, 4, 0] f32"}, [] {
    adaptive_avg_pool2d(zeros({1, 1, 4, 0}), 1);
  });
  refused("global_avg_pool2d", {"[1, 0, 0] f32"}, [] { global_avg_pool2d(zeros({1, 0, 0})); });
  refused("upsample2d", {"[1, 1, 0, 0] f32"}, [] { upsample2d(zeros({1, 1, 0, 0}), {2, 2}); });
  refused("avg_pool1d", {"[2, 3, 0] f32"}, [] { avg_pool1d(zeros({2, 3, 0}), 1); });
}

TEST_CASE("refusals: windows that are not positive", "[ops]") {
  const Tensor x = zeros({1, 1, 8, 8});
  refused("max_pool2d", {"height", "window 0"}, [&] { max_pool2d(x, {0, 2}); });
  refused("avg_pool2d", {"width", "window -3"}, [&] { avg_pool2d(x, {2, -3}); });
  refused("max_pool2d", {"stride -1"}, [&] { max_pool2d(x, 2, {.stride = {2, -1}}); });
  refused("max_pool2d", {"dilation 0"}, [&] { max_pool2d(x, 2, {.dilation = 0}); });
  refused("max_pool1d", {"width", "window 0"}, [] { max_pool1d(zeros({1, 1, 8}), 0); });
  refused("adaptive_max_pool2d", {"0 x 3"}, [&] { adaptive_max_pool2d(x, {0, 3}); });
  refused("adaptive_avg_pool2d", {"2 x -1"}, [&] { adaptive_avg_pool2d(x, {2, -1}); });
  refused("upsample2d", {"4 x 0"}, [&] { upsample2d(x, {4, 0}); });
}

TEST_CASE("refusals: padding of more than half a window", "[ops]") {
  const Tensor x = zeros({1, 1, 8, 8});
  refused("max_pool2d", {"height", "padding 2", "half of the window, 1"},
          [&] { max_pool2d(x, 3, {.padding = 2}); });
  refused("avg_pool2d", {"width", "padding 1"}, [&] { avg_pool2d(x, 1, {.padding = {0, 1}}); });
  refused("avg_pool1d", {"padding -1"}, [] { avg_pool1d(zeros({1, 1, 8}), 2, {.padding = -1}); });
}

TEST_CASE("refusals: a window larger than the padded image", "[ops]") {
  const Tensor x = zeros({1, 1, 4, 9});
  refused("max_pool2d", {"height", "5 positions", "image of 4", "0 of padding"},
          [&] { max_pool2d(x, 5); });
  refused("max_pool2d", {"3 positions, 2 apart", "image of 4"}, [&] {
    max_pool2d(x, 3, {.dilation = {2, 1}});
  });
  refused("avg_pool1d", {"width", "7 positions", "image of 4", "1 of padding"}, [] {
    avg_pool1d(zeros({1, 1, 4}), 7, {.padding = 1});
  });
  // Numbers of which products would overflow.
  const std::int64_t huge = std::int64_t{1} << 62;
  refused("max_pool2d", {"height"}, [&] { max_pool2d(x, huge); });
  refused("max_pool2d", {"height"}, [&] { max_pool2d(x, 3, {.dilation = huge}); });
  // With ceil_mode a window that begins inside may hang over, but it must begin.
  CHECK(max_pool2d(x, {5, 2}, {.stride = 2, .ceil_mode = true}).shape() == Shape{1, 1, 1, 5});
  refused("max_pool2d", {"6 positions"}, [&] {
    max_pool2d(x, {6, 2}, {.stride = 2, .ceil_mode = true});
  });
}

TEST_CASE("refusals: gaps in windows of means", "[ops]") {
  refused("avg_pool2d", {"1 x 2"}, [] {
    avg_pool2d(zeros({1, 1, 8, 8}), 2, {.dilation = {1, 2}});
  });
  refused("avg_pool1d", {"dilation"}, [] { avg_pool1d(zeros({1, 1, 8}), 2, {.dilation = 2}); });
}

TEST_CASE("refusals: results that no memory holds name the op that was called", "[ops]") {
  const Tensor x = zeros({1, 1, 8, 8});
  const std::int64_t huge = std::int64_t{1} << 30;
  refused("upsample2d", {"too many elements"}, [&] { upsample2d(x, {huge, huge}); });
  refused("adaptive_avg_pool2d", {"too many elements"}, [&] {
    adaptive_avg_pool2d(x, {huge, huge});
  });
  refused("bincount", {"too many elements"}, [] {
    bincount(tensor({1, 2}).to(i64), {.min_length = std::int64_t{1} << 60});
  });
  refused("diag_embed", {"too many elements"}, [] { diag_embed(zeros({8}), 1 << 30); });
  refused("conv_transpose3d", {"too many elements"}, [] {
    conv_transpose3d(zeros({1, 1, 2, 2, 2}), zeros({1, 1, 1, 1, 1}), {}, {.stride = 1 << 28});
  });
  refused("local_response_norm", {"size"}, [&] { local_response_norm(x, std::int64_t{1} << 40); });
}
