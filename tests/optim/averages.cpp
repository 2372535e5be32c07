// Moving averages of weights, 16-bit weights without masters, and a look at gradients.
#include <bit>
#include <cmath>
#include <memory>
#include <optional>

#include "firn/runtime/storage.h"
#include "kernels/math/rounding.h"
#include "optim/problem.h"

namespace firn::testing {
namespace {

constexpr double kInf = HUGE_VAL;

TEST_CASE("[S01] the average of the weights counts applied steps") {
  for (const DType dtype : {f64, f32, bf16}) {
    CAPTURE(to_string(dtype));
    Tensor w = parameter({1}, {1}, dtype), idle = parameter({2}, {1}, dtype);
    optim::SGD opt({w, idle}, {.lr = 0.5}, {.accumulate = 2, .ema = 0.75});
    CHECK(optim::ema(opt).size() == 2);
    CHECK(optim::ema(opt)[0].dtype() == compute_dtype(dtype));
    double average = 1, weight = 1;
    for (int step = 0; step < 5; ++step) {
      opt.backward(objective(w, {1}));
      CHECK(opt.step().accumulating());
      CHECK(optim::ema(opt)[0].item() == Approx(average).epsilon(1e-6));
      opt.backward(objective(w, {1}));
      REQUIRE(opt.step());
      weight -= 0.5;
      average += 0.25 * (weight - average);
      CHECK(optim::ema(opt)[0].item() == Approx(average).epsilon(1e-6));
      CHECK(optim::ema(opt)[1].item() == 2);
    }
  }
}

TEST_CASE("[S01] a parameter without a gradient goes on being averaged") {
  Tensor w = parameter({0}, {1}, f64), v = parameter({0}, {1}, f64);
  optim::SGD opt({w, v}, {.lr = 1}, {.ema = 0.5});
  opt.backward(objective(w, {1}) + objective(v, {1}));
  REQUIRE(opt.step());
  opt.backward(objective(w, {1}));
  REQUIRE(opt.step());
  CHECK(v.item() == -1);
  CHECK(optim::ema(opt)[1].item() == -0.75);
}

TEST_CASE("[S09] a skipped step leaves averages and 16-bit weights without masters alone") {
  for (const DType dtype : {f16, bf16, f32}) {
    Tensor w = parameter({1, 2}, {2}, dtype);
    optim::AdamW opt({w}, {.lr = 0.1},
                     {.loss_scale = optim::LossScale::dynamic({.init = 8}),
                      .ema = 0.5,
                      .stochastic_rounding = dtype != f32});
    opt.backward(objective(w, {1}));
    REQUIRE(opt.step());
    const Bits before = bits_of_training(opt);
    opt.backward(objective(w, {1, kInf}));
    CHECK(opt.step().skipped());
    CHECK(bits_of_training(opt) == before);
  }
}

TEST_CASE("averages can stand in for the weights, which come back to the bit") {
  for (const DType dtype : {f16, f32}) {
    Tensor w = parameter(Rng(1).uniforms(50, -1, 1), {50}, dtype);
    optim::AdamW opt({w}, {.lr = 0.1}, {.loss_scale = optim::LossScale::none(), .ema = 0.9});
    for (int i = 0; i < 3; ++i) {
      opt.backward(objective(w, {0.5}));
      REQUIRE(opt.step());
    }
    const Bits before = bits_of_training(opt);
    {
      const optim::AveragedWeights guard(opt);
      CHECK(values_of(w) == rounded(values_of(optim::ema(opt)[0]), dtype));
      CHECK(error_of([&] { opt.step(); }).find("AveragedWeights") != std::string::npos);
      CHECK(error_of([&] { opt.backward(objective(w, {1})); }).find("AveragedWeights") !=
            std::string::npos);
      CHECK(error_of([&] { opt.state(); }) ==
            "[AdamW] the weights are their moving averages at the moment; hint: end the scope of "
            "AveragedWeights first");
    }
    CHECK(bits_of_training(opt) == before);
    opt.backward(objective(w, {0.5}));
    CHECK(opt.step());
  }
  Tensor w = parameter({1}, {1});
  optim::SGD plain({w}, {});
  CHECK(error_of([&] { optim::ema(plain); }).find("StepOptions::ema") != std::string::npos);
  CHECK(error_of([&] { optim::SGD({parameter({1}, {1})}, {}, {.ema = 1}); }).find("ema is 1") !=
        std::string::npos);
}

TEST_CASE("a scope of averages may end within a plan, and a plan may leave one behind") {
  for (const DType dtype : {bf16, f32}) {
    CAPTURE(to_string(dtype));
    Tensor w = parameter(Rng(1).uniforms(50, -1, 1), {50}, dtype);
    optim::AdamW opt({w}, {.lr = 0.1}, {.ema = 0.9});
    const auto pass = [&] { opt.backward(objective(w, {0.5})); };
    pass();
    REQUIRE(opt.step());
    const Bits before = bits_of_training(opt);
    const auto report_before = to_string(opt.last_report());
    for (const bool trains : {false, true}) {  // the plan goes on with the optimizer
      CAPTURE(trains);
      auto averages = std::make_unique<optim::AveragedWeights>(opt);
      plan_memory([&] {
        CHECK(error_of(pass).find("AveragedWeights") != std::string::npos);
        averages.reset();
        if (!trains) return;
        pass();
        opt.step();
        const optim::AveragedWeights inner(opt);
      });
      CHECK(bits_of_training(opt) == before);
      CHECK(to_string(opt.last_report()) == report_before);
      plan_memory([&] { averages = std::make_unique<optim::AveragedWeights>(opt); });
      CHECK(bits_of_training(opt) == before);
    }
    pass();  // masters are still those of the training, not those of rounded weights
    REQUIRE(opt.step());
    const Bits after = bits_of_training(opt);

    Tensor again = parameter(Rng(1).uniforms(50, -1, 1), {50}, dtype);
    optim::AdamW reference({again}, {.lr = 0.1}, {.ema = 0.9});
    for (int i = 0; i < 2; ++i) {
      reference.backward(objective(again, {0.5}));
      REQUIRE(reference.step());
    }
    CHECK(bits_of_training(reference) == after);
  }
  // Weights that the plan writes are not written, and those of an optimizer that is gone come back.
  Tensor w = parameter({1}, {1});
  std::optional<optim::SGD> opt(std::in_place, {w}, optim::SGDOptions{.lr = 1},
                                optim::StepOptions{.ema = 0.5});
  opt->backward(objective(w, {1}));
  REQUIRE(opt->step());
  auto averages = std::make_unique<optim::AveragedWeights>(*opt);
  CHECK(w.item() == 0.5);
  opt.reset();
  plan_memory([&] {
    const NoGrad guard;
    fill_(w, 3);
    averages.reset();
  });
  CHECK(w.item() == 0);
}

TEST_CASE("[S28] loaded weights begin their average anew") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {}, {.ema = 0.5});
  {
    const NoGrad guard;
    fill_(w, 3);
  }
  opt.refresh_masters();
  CHECK(optim::ema(opt)[0].item() == 3);
}

// ---- Stochastic rounding ----

float value_of(std::uint16_t bits, DType dtype) {
  return dtype == f16 ? float(half::from_bits(bits)) : float(bfloat16::from_bits(bits));
}

TEST_CASE("stochastic rounding hits both neighbours with the right frequency") {
  for (const DType dtype : {f16, bf16})
    for (const float x : {1.0001F, -3.1415927F, 0.3F, 0x1.8p-15F, 3.3e-6F, -0x1.3p-24F, 0x1p-26F,
                          65503.F, 1e-39F, 0.F, 2.F}) {
      CAPTURE(to_string(dtype), x);
      if (dtype == f16 && x != 0 && std::abs(x) < 0x1p-40F) continue;  // up too rarely to count
      const auto bits = std::bit_cast<std::uint32_t>(x);
      const auto round = [&](std::uint32_t word) {
        return value_of(dtype == f16 ? math::round_stochastic_f16(bits, word)
                                     : math::round_stochastic_bf16(bits, word),
                        dtype);
      };
      const double low = round(0xffffffffu), high = round(0);  // whichever way they lie
      double mean = 0;
      const int n = 1 << 16;
      for (int i = 0; i < n; ++i) {
        const double v = round(static_cast<std::uint32_t>(i) << 16 | 0x8000u);
        REQUIRE((v == low || v == high));
        mean += v / n;
      }
      const double gap = std::abs(high - low);
      CHECK(std::abs(mean - double(x)) <= gap * 0x1p-12);
      if (gap > 0) {
        CHECK(std::min(low, high) <= double(x));
        CHECK(double(x) <= std::max(low, high));
      } else {
        CHECK(low == double(x));
      }
    }
  for (const std::uint32_t word : {0u, 0xffffffffu}) {
    const auto f16_of = [&](float x) {
      return value_of(math::round_stochastic_f16(std::bit_cast<std::uint32_t>(x), word), f16);
    };
    const auto bf16_of = [&](float x) {
      return value_of(math::round_stochastic_bf16(std::bit_cast<std::uint32_t>(x), word), bf16);
    };
    CHECK(f16_of(65504) == 65504);
    CHECK(f16_of(65510) == 65504);
    CHECK(std::isinf(f16_of(70000)));
    CHECK(f16_of(-HUGE_VALF) == -HUGE_VALF);
    CHECK(std::isnan(f16_of(std::nanf(""))));
    CHECK(bf16_of(HUGE_VALF) == HUGE_VALF);
    CHECK(std::isnan(bf16_of(std::nanf(""))));
    CHECK(bf16_of(-0x1.fep127F) == -0x1.fep127F);
  }
}

TEST_CASE("16-bit weights without masters keep small updates on average") {
  for (const DType dtype : {f16, bf16}) {
    const std::int64_t n = 4096;
    Tensor w = parameter(std::vector<double>(n, 1.0), {n}, dtype);
    optim::SGD opt({w}, {.lr = 1e-5},
                   {.loss_scale = optim::LossScale::none(), .stochastic_rounding = true});
    for (const optim::NamedState& s : opt.state()) CHECK(!s.name.ends_with(".master"));
    for (int step = 0; step < 100;
         ++step) {  // each update is far below half a unit in the last place
      opt.backward(objective(w, {1}));
      REQUIRE(opt.step());
    }
    double mean = 0;
    for (const double v : values_of(w)) mean += v / double(n);
    CHECK(mean == Approx(1 - 1e-3).margin(2e-4));
  }
}

TEST_CASE("[S29] stochastic rounding gives the same bits for any number of threads") {
  const int threads = num_threads();
  std::vector<Bits> runs;
  for (const int n : {1, 2, 2}) {
    set_num_threads(n);
    Tensor w = parameter(Rng(1).uniforms(100'003, -1, 1), {100'003}, bf16);
    optim::AdamW opt({w}, {.lr = 1e-3}, {.ema = 0.9, .stochastic_rounding = true});
    for (int step = 0; step < 2; ++step) {
      opt.backward(objective(w, {0.5}));
      REQUIRE(opt.step());
    }
    runs.push_back(bits_of_training(opt));
  }
  set_num_threads(threads);
  CHECK(runs[0] == runs[1]);
  CHECK(runs[1] == runs[2]);
}

// ---- Health ----

TEST_CASE("[S10] the health of gradients: zeros, what f16 would lose, and headroom") {
  Tensor w = parameter({1, 1, 1, 1, 1, 1, 1, 1}, {8}), idle = parameter({1}, {1});
  optim::SGD opt({w, idle}, {}, {.loss_scale = optim::LossScale::fixed(1024)});
  opt.backward(objective(w, {0, 0, 4, 4e-5, 1e-8, 1e-9, -2, kInf}), 2);
  const std::vector<optim::GradientHealth> health = optim::gradient_health(opt);
  REQUIRE(health.size() == 2);
  const optim::GradientHealth& h = health[0];
  CHECK(h.received);
  CHECK(h.zeros == 2 / 8.0);
  CHECK(h.subnormal == 1 / 8.0);  // 2e-5
  CHECK(h.flushed == 2 / 8.0);    // 5e-9 and 5e-10 are below 2^-25
  CHECK(h.non_finite == 1 / 8.0);
  CHECK(h.largest == 2);
  CHECK(h.headroom_bits == Approx(std::log2(65504.0 / 2048)));
  CHECK(!health[1].received);
  CHECK(optim::gradient_health(opt, bf16)[0].flushed == 0);
  CHECK(error_of([&] { optim::gradient_health(opt, f32); }).find("f16 or bf16") !=
        std::string::npos);
}

}  // namespace
}  // namespace firn::testing
