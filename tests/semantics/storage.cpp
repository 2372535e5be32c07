// What an optimizer keeps: f32 sums of 16-bit gradients, memory that is had before the first step,
// and a state that continues a run.
#include "runtime/memory/fail_allocation.h"
#include "semantics/mlp.h"

namespace firn::testing {
namespace {

using optim::LossScale;

TEST_CASE("[S18] a product's weight gradients add up in f32, where 16 bits would lose them") {
  for (const DType dtype : {f16, bf16})
    for (const LossScale& scale :
         {LossScale::none(), LossScale::fixed(512), LossScale::fixed(0.125)}) {
      CAPTURE(to_string(dtype));
      Tensor w = parameter(std::vector<double>(6, 0), {2, 3}, dtype);
      optim::SGD opt({w}, {.lr = 1}, {.loss_scale = scale});
      const auto micro_step = [&](double input) {
        const Tensor x = full({1, 3}, input, dtype);
        opt.backward(sum(cast(linear(x, w), f32)), 0.5);
      };
      micro_step(1);
      for (int i = 0; i < 255; ++i) micro_step(0x1p-12);  // 1 + 2^-12 is 1 in f16 and in bf16
      REQUIRE(opt.step().weight() == 128);
      CHECK(values_of(state_of(opt, "parameters.0.master")) ==
            std::vector<double>(6, -(1 + 255 * 0x1p-12) / 128));
    }
}

TEST_CASE("[S21] no step allocates, whatever the options") {
  for (const DType dtype : {f16, bf16, f32})
    for (const optim::StepOptions& options :
         {optim::StepOptions{.accumulate = 2,
         .clip_norm = 1,
         .clip_value = 1,
         .loss_scale = LossScale::dynamic({.growth_interval = 1}),
         .ema = 0.5},
          optim::StepOptions{.loss_scale = LossScale::dynamic({.calibrate = true})}}) {
      CAPTURE(to_string(dtype));
      const Mlp net(6, 5, 3, dtype);
      optim::AdamW opt(net.parameters(), {.lr = 0.01}, options);
      int applied = 0;
      for (int i = 0; i < 6; ++i) {
        opt.backward(cross_entropy(net(ones({4, 6}, dtype)), zeros({4}, i64)));
        const FailAllocation fail(0, true);
        applied += opt.step().applied() ? 1 : 0;
      }
      const FailAllocation fail(0, true);
      opt.flush();
      CHECK(applied == (opt.cycle_length() == 2 ? 3 : 6));
    }
}

// The state of one optimizer copied, in the middle of a cycle, into a fresh one on other weights.
TEST_CASE("[S23] a run continues to the bit from the state that was gathered in mid-cycle") {
  for (const DType dtype : {f16, bf16, f32, f64})
    for (const int done : {0, 7, 12, 14}) {
      CAPTURE(to_string(dtype), done);
      const optim::StepOptions options{
          .accumulate = {{0, 3}, {2, 2}},
          .clip_norm = 0.5,
          .loss_scale = LossScale::dynamic({.init = 64, .growth_interval = 2}),
          .ema = 0.9};
      const optim::AdamWOptions adamw{.lr = optim::cosine(0.05, 20)};
      const Mlp net(6, 5, 3, dtype), other(6, 5, 3, dtype, 99);
      optim::AdamW first(net.parameters(), adamw, options);
      optim::AdamW second(other.parameters(), adamw, options);
      first.set_epoch(1);
      const auto run = [](const Mlp& model, optim::Optimizer& opt, int from, int to) {
        int applied = 0;
        for (int i = from; i < to; ++i) {
          if (i == 16) opt.set_epoch(2);
          Rng rng(static_cast<std::uint64_t>(i));
          const std::int64_t n = 1 + rng.below(8);
          const Tensor x = make(rng.uniforms(n * 6, -1, 1), {n, 6}, model.w1.dtype());
          const Tensor y = make(std::vector<double>(static_cast<std::size_t>(n), 1), {n}, i64);
          // The first of three micro-steps alone reaches the first layer.
          const Tensor hidden = tanh(linear(x, model.w1, model.b1));
          opt.backward(
              cross_entropy(linear(i % 3 == 0 ? hidden : hidden.detach(), model.w2, model.b2), y));
          applied += opt.step().applied() ? 1 : 0;
        }
        return applied;
      };
      run(net, first, 0, done);
      const auto from = first.state(), to = second.state();
      REQUIRE(from.size() == to.size());
      {
        const NoGrad guard;
        for (std::size_t i = 0; i < from.size(); ++i) {
          REQUIRE(from[i].name == to[i].name);
          copy_(to[i].tensor, from[i].tensor);
        }
      }
      CHECK(second.loss_scale() == first.loss_scale());
      CHECK(second.lr() == first.lr());
      CHECK(second.cycle_length() == first.cycle_length());
      const int applied = run(net, first, done, 24);
      CHECK(applied > 2);
      CHECK(run(other, second, done, 24) == applied);
      CHECK(bits_of_training(first) == bits_of_training(second));
      CHECK(second.loss_scale() == first.loss_scale());
      CHECK(second.lr() == first.lr());
      CHECK(to_string(second.flush()) == to_string(first.flush()));
    }
}

TEST_CASE("[S23] a cycle that came with a state can be dropped, and replaces one under way") {
  const auto make_optimizer = [](const Tensor& w, const Tensor& b) {
    return optim::SGD({w, b}, {.lr = 1, .momentum = 0.5}, {.accumulate = 2});
  };
  const auto copied = [](const optim::Optimizer& from, const optim::Optimizer& to) {
    const NoGrad guard;
    const auto source = from.state(), target = to.state();
    for (std::size_t i = 0; i < source.size(); ++i) copy_(target[i].tensor, source[i].tensor);
  };
  Tensor w = parameter({1}, {1}, f64), b = parameter({2}, {1}, f64);
  optim::SGD opt = make_optimizer(w, b);
  opt.backward(objective(w, {4}));  // only w, half a cycle
  opt.step();

  for (const bool drop : {false, true}) {
    CAPTURE(drop);
    Tensor v = parameter({5}, {1}, f64), c = parameter({6}, {1}, f64);
    optim::SGD other = make_optimizer(v, c);
    other.backward(objective(c, {8}));
    copied(opt, other);
    if (drop) {
      CHECK(other.flush(optim::Partial::drop).micro_steps() == 0);
      CHECK(gradients_are_zero(other));
      other.backward(objective(v, {2}));
      CHECK(other.step().accumulating());
      other.backward(objective(v, {2}));
      CHECK(other.step().weight() == 2);
      CHECK(v.item() == -1);
    } else {
      CHECK(other.flush().weight() == 1);
      CHECK(v.item() == -3);
    }
    CHECK(c.item() == 2);
    CHECK(values_of(state_of(other, "update_counts")) == std::vector<double>{1, 0});
  }
}

}  // namespace
}  // namespace firn::testing
