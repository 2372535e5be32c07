// Batches out of a set of bytes, on the default device, against a plain loop.
#include "kernels/batch.h"

#include "firn/runtime/stream.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

struct Set {
  std::int64_t n, pixels;
  std::vector<double> images, labels, order;
  Set(std::int64_t count, std::int64_t size) : n(count), pixels(size) {
    Rng rng(seed_of("set") + static_cast<std::uint64_t>(n + 1000 * size));
    for (std::int64_t i = 0; i < n * pixels; ++i)
      images.push_back(static_cast<double>(rng.below(256)));
    for (std::int64_t i = 0; i < n; ++i) labels.push_back(static_cast<double>(rng.below(10)));
    for (std::int64_t i = 0; i < n; ++i) order.push_back(static_cast<double>(rng.below(n)));
  }
};

struct Batch {
  std::vector<double> x, y;
};

/// What the contract says of the `count` samples from position `at` on.
Batch expected(const Set& set, std::int64_t at, std::int64_t count, float mean, float stddev,
               DType dtype) {
  Batch b;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row =
        static_cast<std::int64_t>(set.order[static_cast<std::size_t>((at + i) % set.n)]);
    b.y.push_back(set.labels[static_cast<std::size_t>(row)]);
    for (std::int64_t j = 0; j < set.pixels; ++j) {
      const double p = set.images[static_cast<std::size_t>(row * set.pixels + j)];
      if (dtype == f64) {
        b.x.push_back((p / 255 - static_cast<double>(mean)) / static_cast<double>(stddev));
      } else {
        b.x.push_back((static_cast<float>(p) / 255.f - mean) / stddev);
      }
    }
  }
  b.x = rounded(b.x, dtype);
  return b;
}

TEST_CASE("batches follow the order, normalised in every dtype, and move the position") {
  const DType dtype = GENERATE(f32, f16, bf16, f64);
  const DType label_dtype = GENERATE(u8, i32, i64);
  // 784 and 12: groups of pixels; 7: single ones; 1: as many rows as elements.
  for (const std::int64_t pixels : {784, 12, 7, 1}) {
    const Set set(37, pixels);
    const Tensor images = make(set.images, {set.n, pixels}, u8);
    const Tensor labels = make(set.labels, {set.n}, label_dtype);
    const Tensor order = make(set.order, {set.n}, i64);
    const Tensor cursor = make({5, 0, 0}, {3}, i64);
    std::int64_t at = 5, epoch = 0;
    for (const std::int64_t count : {1, 8, 24, 3, 16}) {  // past the end in the last but one
      const Tensor x = full({count, pixels}, 9, dtype), y = full({count}, 99, i64);
      const float mean = count == 8 ? 0.2860f : 0.f, stddev = count == 8 ? 0.3530f : 1.f;
      kernels::take_batch(images.view(), labels.view(), order.view(), order.view(),
                          cursor.mutable_view(), mean, stddev, math::Augment{}, x.mutable_view(),
                          y.mutable_view(), current_stream(x.device()));
      const Batch want = expected(set, at, count, mean, stddev, dtype);
      INFO(pixels << " pixels, " << count << " samples from " << at);
      expect_same("x", values_of(x), want.x);
      expect_same("y", values_of(y), want.y);
      epoch += (at + count) / set.n;
      at = (at + count) % set.n;
      expect_same("cursor", values_of(cursor),
                  {static_cast<double>(at), 0, static_cast<double>(epoch)});
    }
  }
}

TEST_CASE("a batch of images that do not lie at a multiple of four bytes") {
  const Set set(9, 8);
  const Tensor images = make(set.images, {9, 8}, u8, Layout::offset);
  const Tensor labels = make(set.labels, {9}, u8), order = make(set.order, {9}, i64);
  const Tensor cursor = zeros({3}, i64);
  const Tensor x = empty({6, 8}, f16), y = empty({6}, i64);
  kernels::take_batch(images.view(), labels.view(), order.view(), order.view(),
                      cursor.mutable_view(), 0, 1, math::Augment{}, x.mutable_view(),
                      y.mutable_view(), current_stream(x.device()));
  expect_same("x", values_of(x), expected(set, 0, 6, 0, 1, f16).x);
}

TEST_CASE("a batch of several blocks, and one of more samples than the set has") {
  const Set set(50, 784);
  const Tensor images = make(set.images, {50, 784}, u8), labels = make(set.labels, {50}, u8);
  const Tensor order = make(set.order, {50}, i64);
  for (const std::int64_t count : {64, 120}) {
    const Tensor cursor = make({3, 0, 4}, {3}, i64);
    const Tensor x = empty({count, 784}, f16), y = empty({count}, i64);
    kernels::take_batch(images.view(), labels.view(), order.view(), order.view(),
                        cursor.mutable_view(), 0, 1, math::Augment{}, x.mutable_view(),
                        y.mutable_view(), current_stream(x.device()));
    const Batch want = expected(set, 3, count, 0, 1, f16);
    expect_same("x", values_of(x), want.x);
    expect_same("y", values_of(y), want.y);
    expect_same("cursor", values_of(cursor),
                {static_cast<double>((3 + count) % 50), 0, count == 64 ? 5. : 6.});
  }
}

}  // namespace
}  // namespace firn::testing
