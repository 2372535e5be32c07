// What an optimizer keeps: f32 sums of 16-bit gradients, memory that is had before the first step,
// and a state that continues a run.
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

// The state of one optimizer copied into another that has ended as many cycles on other weights.
TEST_CASE("a run continues to the bit from the state that an optimizer gathers") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    CAPTURE(to_string(dtype));
    const optim::StepOptions options{
        .clip_norm = 0.5,
        .loss_scale = LossScale::dynamic({.init = 64, .growth_interval = 2}),
        .ema = 0.9};
    const optim::AdamWOptions adamw{.lr = optim::cosine(0.05, 20)};
    const Mlp net(6, 5, 3, dtype), other(6, 5, 3, dtype, 99);
    optim::AdamW first(net.parameters(), adamw, options);
    optim::AdamW second(other.parameters(), adamw, options);
    const auto data = [&](int i) {
      Rng rows(static_cast<std::uint64_t>(i));
      return make(rows.uniforms(8 * 6, -1, 1), {8, 6}, dtype);
    };
    const Tensor y = make({0, 1, 2, 0, 1, 2, 0, 1}, {8}, i64);
    const auto run = [&](const Mlp& model, optim::Optimizer& opt, int from, int to) {
      for (int i = from; i < to; ++i) {
        opt.backward(cross_entropy(model(data(i)), y));
        REQUIRE(opt.step());
      }
    };
    run(net, first, 0, 5);
    run(other, second, 0, 5);
    REQUIRE(!(bits_of_training(first) == bits_of_training(second)));
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
    run(net, first, 5, 10);
    run(other, second, 5, 10);
    CHECK(bits_of_training(first) == bits_of_training(second));
    CHECK(first.loss_scale() == 64 * 32);
    CHECK(second.loss_scale() == first.loss_scale());
    CHECK(second.lr() == first.lr());
  }
}

}  // namespace
}  // namespace firn::testing
