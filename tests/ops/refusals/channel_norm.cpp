// What the norms by channel refuse, with the numbers; and what they accept that looks odd.
#include <cmath>

#include "refused.h"
#include "support/catch.h"
#include "support/golden.h"
#include "support/values.h"

using namespace firn;
using firn::testing::make;
using firn::testing::refused;

TEST_CASE("norms by channel refuse ranks other than 2 to 5, and integers", "[ops]") {
  refused("batch_norm", {"[3] f32", "1 axes"}, [] { batch_norm(zeros({3})); });
  refused("group_norm", {"[1, 1, 1, 1, 1, 1] f32", "6 axes"}, [] {
    group_norm(zeros({1, 1, 1, 1, 1, 1}), 1);
  });
  refused("instance_norm", {"[2, 3] i64"}, [] { instance_norm(zeros({2, 3}, i64)); });
  refused("batch_norm", {}, [] { batch_norm(Tensor()); });
}

TEST_CASE("norms by channel refuse parameters of the wrong size or dtype", "[ops]") {
  const Tensor x = zeros({2, 6, 4});
  refused("batch_norm", {"weight", "[5] f32", "[2, 6, 4] f32", "[6]"},
          [&] { batch_norm(x, zeros({5})); });
  refused("group_norm", {"bias", "[6, 1] f32", "[6]"}, [&] {
    group_norm(x, 2, {}, zeros({6, 1}));
  });
  refused("instance_norm", {"weight", "[6] f16", "[2, 6, 4] f32"},
          [&] { instance_norm(x, zeros({6}, f16)); });
  refused("batch_norm", {"bias", "[6] f64"}, [&] { batch_norm(x, {}, zeros({6}, f64)); });
}

TEST_CASE("group_norm refuses groups that do not divide the channels", "[ops]") {
  const Tensor x = zeros({2, 6, 4});
  refused("group_norm", {"6 channels", "[2, 6, 4] f32", "4 groups"}, [&] { group_norm(x, 4); });
  refused("group_norm", {"6 channels", "0 groups"}, [&] { group_norm(x, 0); });
  refused("group_norm", {"-2 groups"}, [&] { group_norm(x, -2); });
  refused("group_norm", {"12 groups"}, [&] { group_norm(x, 12); });
}

TEST_CASE("batch_norm refuses channels without values, and a negative eps", "[ops]") {
  refused("batch_norm", {"[0, 3, 2] f32", "3 channels"}, [] { batch_norm(zeros({0, 3, 2})); });
  refused("batch_norm", {"[2, 3, 0] f32"}, [] { batch_norm(zeros({2, 3, 0})); });
  refused("batch_norm", {"eps = -0.1"}, [] { batch_norm(zeros({2, 3}), {}, {}, -0.1); });
  refused("group_norm", {"eps = -1"}, [] { group_norm(zeros({2, 3}), 1, {}, {}, -1); });
  refused("instance_norm", {"eps = nan"}, [] {
    instance_norm(zeros({2, 3}), {}, {}, std::nan(""));
  });
}

TEST_CASE("batch_norm refuses given moments of another size or dtype, or none", "[ops]") {
  const Tensor x = zeros({2, 3}, f16);
  const auto given = [&](const Tensor& mean, const Tensor& var) {
    return [=] { batch_norm(x, {}, {}, Moments{mean, var}); };
  };
  refused("batch_norm", {"mean", "[4] f32", "[2, 3] f16"}, given(zeros({4}), zeros({3})));
  refused("batch_norm", {"var", "[3] f16", "f32"}, given(zeros({3}), zeros({3}, f16)));
  refused("batch_norm", {"mean", "[3] f64"}, given(zeros({3}, f64), zeros({3}, f64)));
  refused("batch_norm", {}, given(Tensor(), zeros({3})));
}

TEST_CASE("a channel of one value is its bias, empty samples and channels stay empty", "[ops]") {
  const Tensor y = batch_norm(make({5, -7}, {1, 2}), {}, make({0.5, 2}, {2}));
  testing::expect_same("one value", testing::values_of(y), {0.5, 2});
  CHECK(batch_norm(zeros({4, 0, 3})).shape() == Shape{4, 0, 3});
  CHECK(group_norm(zeros({0, 4, 3}), 2).shape() == Shape{0, 4, 3});
  const Tensor w = ones({4}).set_requires_grad(), none = instance_norm(zeros({2, 4, 0}), w);
  CHECK(none.shape() == Shape{2, 4, 0});
  none.sum().backward();
  CHECK(testing::values_of(w.grad()) == std::vector<double>(4, 0));
}

TEST_CASE("norms by channel keep the memory format and hand out f32 moments", "[ops]") {
  testing::Rng rng(2);
  const Tensor plain = make(rng.uniforms(2 * 3 * 4 * 5, -1, 3), {2, 3, 4, 5}, f16);
  Tensor x = channels_last(plain);
  x.set_requires_grad();
  Moments moments;
  const Tensor y = batch_norm(x, {}, {}, 1e-5, &moments);
  CHECK(y.is_channels_last());
  CHECK(y.dtype() == f16);
  CHECK(batch_norm(plain).is_contiguous());
  CHECK(batch_norm(x, {}, {}, moments).is_channels_last());
  CHECK(group_norm(x, 3).is_channels_last());
  CHECK(moments.mean.dtype() == f32);
  CHECK(moments.var.shape() == Shape{3});
  CHECK_FALSE(moments.var.requires_grad());
  // A gradient in another order than x.
  backward(y, {.initial_gradient = transpose(ones({2, 3, 5, 4}, f16), 2, 3)});
  CHECK(x.grad().is_channels_last());
  // What was normalised by its own moments, as given, is the same.
  testing::expect_same("given", testing::values_of(batch_norm(x, {}, {}, moments)),
                       testing::values_of(y));
  const Autocast guard(f16);
  CHECK(batch_norm(x, ones({3}), zeros({3})).dtype() == f16);
  CHECK(batch_norm(plain.to(f32)).dtype() == f32);
}

TEST_CASE("f32 parameters beside 16-bit x get f32 gradients", "[ops]") {
  const Tensor x = make({1, 2, 3, 6}, {4, 1}, bf16);
  Tensor w = make({1.5}, {1}, f32), b = make({0.25}, {1}, f32);
  w.set_requires_grad();
  b.set_requires_grad();
  const Tensor y = batch_norm(x, w, b, 0);
  backward(y, {.initial_gradient = make({1, 0, 0, 2}, {4, 1}, bf16)});
  CHECK(w.grad().dtype() == f32);
  const double s = std::sqrt(3.5);  // mean 3, variance (4 + 1 + 0 + 9) / 4
  testing::expect_close("dweight", testing::values_of(w.grad()), {(-2 + 2 * 3) / s}, 1e-6);
  testing::expect_close("dbias", testing::values_of(b.grad()), {3}, 0);
}
