// Augmentation: the distribution of what is drawn, and the kernel against plain loops.
#include "kernels/math/image/augment.h"

#include <map>
#include <utility>

#include "firn/runtime/stream.h"
#include "kernels/batch.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using math::Augment;
using math::Placement;

constexpr std::int64_t kDraws = 40'000;

Augment small(int padding, double flip, double erase) {
  return {.planes = 1,
          .height = 28,
          .width = 24,
          .padding = padding,
          .flip = math::chance(flip),
          .erase = math::chance(erase),
          .least_area = 0.02f,
          .most_area = 0.4f,
          .least_aspect = 0.3f,
          .most_aspect = 1 / 0.3f,
          .seed = seed_of("augment")};
}

/// Within five standard deviations of what a share of `p` of `n` draws comes to.
bool near(double count, double p, double n = kDraws) {
  return std::abs(count - n * p) <= 5 * std::sqrt(n * p * (1 - p));
}

TEST_CASE("augment: every place of a crop is drawn, all as often, and mirrors apart from them",
          "[host]") {
  const Augment a = small(2, 0.3, 0);
  std::map<std::pair<int, int>, int> places;
  int flips = 0, flips_in_corner = 0;
  for (std::int64_t i = 0; i < kDraws; ++i) {
    const Placement p = math::placement(a, 3, i);
    ++places[{p.top, p.left}];
    flips += p.flipped ? 1 : 0;
    flips_in_corner += p.flipped && p.top == -2 && p.left == -2 ? 1 : 0;
    REQUIRE(p.rows == 0);
  }
  CHECK(places.size() == 25);
  double chi_square = 0;
  for (const auto& [place, count] : places) {
    CHECK(std::abs(place.first) <= 2);
    CHECK(std::abs(place.second) <= 2);
    const double expected = kDraws / 25.0;
    chi_square += (count - expected) * (count - expected) / expected;
  }
  CHECK(chi_square < 61);  // 24 degrees of freedom: exceeded once in 20,000 draws
  CHECK(near(flips, 0.3));
  CHECK(near(flips_in_corner, 0.3 / 25));
}

TEST_CASE("augment: probabilities 0 and 1 are exact, and a mirror image's is the image", "[host]") {
  const Augment never = small(0, 0, 0), always = small(0, 1, 1);
  for (std::int64_t i = 0; i < 2000; ++i) {
    const Placement p = math::placement(never, 0, i), q = math::placement(always, 0, i);
    REQUIRE((!p.flipped && p.rows == 0 && p.top == 0 && p.left == 0));
    REQUIRE((q.flipped && q.rows > 0));
  }
  CHECK(math::chance(1) == std::uint64_t{1} << 32);
  CHECK(math::chance(0) == 0);
  const Placement p{.flipped = true};
  for (int row = 0; row < 28; ++row) {
    for (int column = 0; column < 24; ++column) {
      const int once = p.source(row, column, 28, 24);
      REQUIRE(p.source(once / 24, once % 24, 28, 24) == row * 24 + column);
      REQUIRE(once == row * 24 + 23 - column);
    }
  }
}

TEST_CASE("augment: erased rectangles lie inside, and have areas and aspects of their ranges",
          "[host]") {
  const Augment a = small(0, 0, 0.25);
  int erased = 0, top = 0, bottom = 0, left = 0, right = 0;
  double least = 1, most = 0, mean = 0;
  for (std::int64_t i = 0; i < kDraws; ++i) {
    const Placement p = math::placement(a, 0, i);
    if (p.rows == 0) continue;
    ++erased;
    REQUIRE((p.first_row >= 0 && p.first_row + p.rows <= 28));
    REQUIRE((p.first_column >= 0 && p.first_column + p.columns <= 24));
    // Sides are rounded, by half a pixel at most.
    const double pixels = 28 * 24;
    REQUIRE((p.rows + 0.5) * (p.columns + 0.5) >= 0.02 * pixels);
    REQUIRE((p.rows - 0.5) * (p.columns - 0.5) <= 0.4 * pixels);
    REQUIRE((p.rows + 0.5) / (p.columns - 0.5) >= 0.3);
    REQUIRE((p.rows - 0.5) / (p.columns + 0.5) <= 1 / 0.3);
    const double area = p.rows * p.columns / pixels;
    least = std::min(least, area);
    most = std::max(most, area);
    mean += area;
    top += p.first_row == 0 ? 1 : 0;
    bottom += p.first_row + p.rows == 28 ? 1 : 0;
    left += p.first_column == 0 ? 1 : 0;
    right += p.first_column + p.columns == 24 ? 1 : 0;
  }
  CHECK(near(erased, 0.25));  // some rectangle of ten fits
  CHECK(least < 0.025);
  CHECK(most > 0.38);
  // Large ones fit less often.
  CHECK(mean / erased > 0.15);
  CHECK(mean / erased < 0.21);
  // Neither side is preferred: the difference of two shares of some 0.08.
  CHECK(std::abs(top - bottom) < 5 * std::sqrt(top + bottom));
  CHECK(std::abs(left - right) < 5 * std::sqrt(left + right));
  CHECK(std::min({top, bottom, left, right}) > 100);
}

TEST_CASE("augment: rectangles that never fit are not erased", "[host]") {
  Augment a = small(0, 0, 1);
  a.least_area = a.most_area = 1;
  a.least_aspect = 3;
  for (std::int64_t i = 0; i < 100; ++i) CHECK(math::placement(a, 0, i).rows == 0);
  a.least_area = a.most_area = 1e-6f;  // less than half a pixel wide and high
  for (std::int64_t i = 0; i < 100; ++i) CHECK(math::placement(a, 0, i).rows == 0);
  a.least_area = a.most_area = 0.2f;
  a.least_aspect = a.most_aspect = 1e-38f;
  CHECK(math::placement(a, 0, 0).rows == 0);
}

TEST_CASE("augment: other images, epochs and seeds are other draws", "[host]") {
  const Augment a = small(8, 0.5, 0);
  Augment other = a;
  ++other.seed;
  int next = 0, epoch = 0, seed = 0;
  for (std::int64_t i = 0; i < 5000; ++i) {
    const Placement p = math::placement(a, 7, i);
    const auto same = [&](const Placement& q) {
      return p.top == q.top && p.left == q.left && p.flipped == q.flipped ? 1 : 0;
    };
    REQUIRE(same(math::placement(a, 7, i)) == 1);
    next += same(math::placement(a, 7, i + 1));
    epoch += same(math::placement(a, 8, i));
    seed += same(math::placement(other, 7, i));
  }
  const double by_chance = 1.0 / (17 * 17 * 2);
  CHECK(near(next, by_chance, 5000));
  CHECK(near(epoch, by_chance, 5000));
  CHECK(near(seed, by_chance, 5000));
}

TEST_CASE("batches are augmented as drawn for their ids, in every dtype, past the end") {
  const DType dtype = GENERATE(f32, f16, bf16, f64);
  constexpr std::int64_t n = 23;
  // Groups of pixels, of one row and across rows, and single ones; one plane and three.
  for (const Shape& shape :
       {Shape{n, 1, 8, 12}, Shape{n, 3, 4, 6}, Shape{n, 1, 5, 7}, Shape{n, 3, 3, 3}}) {
    const auto planes = shape[1], height = shape[2], width = shape[3];
    const std::int64_t pixels = planes * height * width;
    Rng rng(seed_of("pixels") + static_cast<std::uint64_t>(pixels));
    std::vector<double> bytes, classes, order;
    for (std::int64_t i = 0; i < n * pixels; ++i)
      bytes.push_back(static_cast<double>(rng.below(256)));
    for (std::int64_t i = 0; i < n; ++i) classes.push_back(static_cast<double>(rng.below(10)));
    for (std::int64_t i = 0; i < n; ++i) order.push_back(static_cast<double>(rng.below(n)));
    const Tensor images = make(bytes, shape, u8), labels = make(classes, {n}, u8);
    std::vector<double> numbers;  // far apart, and some beyond 32 bits
    for (std::int64_t i = 0; i < n; ++i)
      numbers.push_back(static_cast<double>(i * i * 1'000'003 * (1 + i % 5 * 100)));
    const Tensor rows = make(order, {n}, i64), ids = make(numbers, {n}, i64),
                 cursor = make({4, 0, 6}, {3}, i64);
    Augment a = small(2, 0.5, 0.5);
    a.planes = static_cast<int>(planes);
    a.height = static_cast<int>(height);
    a.width = static_cast<int>(width);

    std::int64_t at = 4, epoch = 6;
    for (const std::int64_t count : {1, 9, 30}) {
      const float mean = 0.2860f, stddev = 0.3530f;
      const Tensor x = full({count, pixels}, 9, dtype), y = full({count}, 99, i64);
      kernels::take_batch(images.view(), labels.view(), rows.view(), ids.view(),
                          cursor.mutable_view(), mean, stddev, a, x.mutable_view(),
                          y.mutable_view(), current_stream(x.device()));
      std::vector<double> want, want_y;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t p = (at + i) % n;
        const auto row = static_cast<std::int64_t>(order[static_cast<std::size_t>(p)]);
        const Placement d =
            math::placement(a, epoch + (at + i) / n,
                            static_cast<std::int64_t>(numbers[static_cast<std::size_t>(p)]));
        want_y.push_back(classes[static_cast<std::size_t>(row)]);
        for (std::int64_t plane = 0; plane < planes; ++plane) {
          for (std::int64_t r = 0; r < height; ++r) {
            for (std::int64_t c = 0; c < width; ++c) {
              const std::int64_t from_row = r + d.top;
              const std::int64_t from_column = (d.flipped ? width - 1 - c : c) + d.left;
              const bool inside =
                  from_row >= 0 && from_row < height && from_column >= 0 && from_column < width;
              const std::int64_t source =
                  row * pixels + (plane * height + from_row) * width + from_column;
              const double pixel = inside ? bytes[static_cast<std::size_t>(source)] : 0;
              const bool erased = r >= d.first_row && r < d.first_row + d.rows &&
                                  c >= d.first_column && c < d.first_column + d.columns;
              if (erased) {
                want.push_back(0);
              } else if (dtype == f64) {
                want.push_back((pixel / 255 - static_cast<double>(mean)) /
                               static_cast<double>(stddev));
              } else {
                want.push_back((static_cast<float>(pixel) / 255.f - mean) / stddev);
              }
            }
          }
        }
      }
      INFO(to_string(shape) << ", " << count << " samples from " << at);
      expect_same("x", values_of(x), rounded(want, dtype));
      expect_same("y", values_of(y), want_y);
      epoch += (at + count) / n;
      at = (at + count) % n;
      expect_same("cursor", values_of(cursor),
                  {static_cast<double>(at), 0, static_cast<double>(epoch)});
    }
  }
}

}  // namespace
}  // namespace firn::testing
