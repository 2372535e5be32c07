// Backward passes whose seed is still to be computed: a loss does it in its own launch, for whoever
// keeps the sums.
#include <cstring>

#include "autograd/leaf.h"
#include "autograd/node.h"
#include "kernels/plan/pending_gradient.h"

using namespace firn;
using namespace firn::testing;

namespace {

/// A struct's bytes in the device's memory.
template <class S>
Tensor memory_of(const S& s) {
  const Tensor host = zeros({static_cast<std::int64_t>(sizeof s)}, u8, Device::cpu());
  std::memcpy(host.mutable_view().data, &s, sizeof s);
  return to_device(host, default_device());
}

math::LossSums sums_in(const Tensor& memory) {
  const Tensor host = to_device(memory, Device::cpu());
  math::LossSums s;
  std::memcpy(&s, host.view().data, sizeof s);
  return s;
}

/// Sums and a loss scale without an optimizer.
struct Source {
  Tensor sums = memory_of(math::LossSums{}), scaler = memory_of(math::ScalerState{.scale = 1024});
  Tensor ticket = zeros({64}, u8);

  kernels::PendingGradient pending(const Loss& loss, const Tensor& seed) const {
    return {.sums = sums.mutable_view(),
            .scaler = scaler.mutable_view(),
            .ticket = ticket.mutable_view(),
            .policy = {.scaled = 1},
            .gradient = seed.mutable_view(),
            .loss = loss.sum.view(),
            .weight = loss.weight.view()};
  }
};

}  // namespace

TEST_CASE("a loss computes a pending seed, counts its pass and uses the seed", "[autograd]") {
  for (const DType t : {f16, f32, f64}) {
    for (const std::int64_t rows : {std::int64_t{4}, std::int64_t{5000}}) {
      CAPTURE(to_string(t), rows);
      Tensor x = zeros({rows, 4}, t);
      x.set_requires_grad();
      const Loss loss = cross_entropy(x, zeros({rows}, i64));
      const Source source;
      const Tensor seed = full({}, -1, loss.sum.dtype());
      const kernels::PendingGradient pending = source.pending(loss, seed);
      REQUIRE(autograd::takes_pending_gradient(loss.sum));
      autograd::backward_from(loss.sum, seed, &pending, true);

      const double unit = rows == 4 ? 256 : 0.25;  // 1024 / the power of two nearest to the weight
      CHECK(seed.item() == unit);
      Values gradient;
      for (std::int64_t i = 0; i < 4 * rows; ++i)
        gradient.push_back(unit * (i % 4 == 0 ? -0.75 : 0.25));
      expect_close("the gradient", values_of(x.grad()), gradient, 1e-6);
      const math::LossSums s = sums_in(source.sums);
      CHECK(s.micro_steps == 1);
      CHECK(s.weight_sum == static_cast<double>(rows));
      CHECK(s.loss_sum == loss.sum.item());
      CHECK(s.unit == unit);
      CHECK(s.scale == 1024);

      // Lent for one pass only: the next one reads its seed, and counts nothing.
      x.set_grad({});
      backward(loss.sum, {.initial_gradient = seed});
      expect_close("the gradient again", values_of(x.grad()), gradient, 1e-6);
      CHECK(sums_in(source.sums).micro_steps == 1);
      CHECK_FALSE(autograd::takes_pending_gradient(loss.sum));  // its graph is gone
    }
  }
}

TEST_CASE("linear_cross_entropy computes a pending seed once, in the first of its chunks",
          "[autograd]") {
  for (const std::int64_t rows : {std::int64_t{4}, std::int64_t{5000}}) {
    Tensor x = zeros({rows, 3}), w = zeros({4, 3}), b = zeros({4});
    b.set_requires_grad();
    const Loss loss =
        linear_cross_entropy(x, w, zeros({rows}, i64), {},
                             {.bias = b, .chunk_rows = rows == 4 ? 1 : 1999, .chunk_classes = 3});
    const Source source;
    const Tensor seed = full({}, -1, loss.sum.dtype());
    const kernels::PendingGradient pending = source.pending(loss, seed);
    REQUIRE(autograd::takes_pending_gradient(loss.sum));
    autograd::backward_from(loss.sum, seed, &pending, false);
    const double unit = rows == 4 ? 256 : 0.25, n = static_cast<double>(rows);
    CHECK(seed.item() == unit);
    expect_close("the gradient", values_of(b.grad()),
                 {-0.75 * n * unit, 0.25 * n * unit, 0.25 * n * unit, 0.25 * n * unit},
                 1e-6 * n * unit);
    const math::LossSums s = sums_in(source.sums);
    CHECK(s.micro_steps == 1);
    CHECK(s.weight_sum == n);
    CHECK(s.unit == unit);
  }
}

TEST_CASE("outputs that take no pending seed say so", "[autograd]") {
  Tensor x = zeros({2, 3});
  x.set_requires_grad();
  const Tensor y = zeros({2}, i64);
  CHECK(autograd::takes_pending_gradient(cross_entropy(x, y).sum));
  CHECK(autograd::takes_pending_gradient(nll_loss(log_softmax(x), y).sum));
  CHECK_FALSE(autograd::takes_pending_gradient(cross_entropy(x.detach(), y).sum));
  CHECK_FALSE(autograd::takes_pending_gradient(sum(x)));
  CHECK_FALSE(autograd::takes_pending_gradient(mse_loss(x, zeros({2, 3})).sum));
  CHECK_FALSE(autograd::takes_pending_gradient(x));
  CHECK_FALSE(autograd::takes_pending_gradient(Tensor()));
  // No kernel runs for no rows.
  CHECK_FALSE(autograd::takes_pending_gradient(
      cross_entropy(zeros({0, 3}).set_requires_grad(), zeros({0}, i64)).sum));
  CHECK_FALSE(autograd::takes_pending_gradient(
      linear_cross_entropy(zeros({0, 3}), zeros({4, 3}).set_requires_grad(), zeros({0}, i64)).sum));
  // A hook reads the seed first.
  const Loss hooked = cross_entropy(x, y);
  add_hook(hooked.sum, [](const Tensor&) { return Tensor(); });
  CHECK_FALSE(autograd::takes_pending_gradient(hooked.sum));
}
