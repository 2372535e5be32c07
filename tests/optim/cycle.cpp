// The cycle of a step, rule by rule: what is accumulated, when a step is skipped, what a skip
// leaves alone. The tag of a case is the rule's id in docs/semantics.md.
#include <cmath>
#include <limits>

#include "firn/runtime/storage.h"
#include "optim/problem.h"
#include "runtime/memory/fail_allocation.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("[S01] only applied steps are counted, and Adam's t with them") {
  Tensor w = parameter({1}, {1}, f64);
  optim::Adam opt({w}, {.lr = 0.1, .eps = 0.5});
  opt.backward(objective(w, {kInf}));
  CHECK(opt.step().applied_steps() == 0);
  opt.backward(objective(w, {1}));
  opt.backward(objective(w, {3}));  // a second micro-step of the same cycle
  const optim::StepReport report = opt.step();
  CHECK(report.applied_steps() == 1);
  CHECK(report.skipped_steps() == 1);
  CHECK(values_of(state_of(opt, "update_counts")) == std::vector<double>{1});
  CHECK(w.item() == Approx(1 - 0.1 * 2 / 2.5));  // the first step of Adam, on the mean gradient 2
}

// A two-layer classifier; the loss carries the weights of its classes.
struct Net {
  Tensor w1, b1, w2;
  explicit Net(DType dtype) {
    Rng rng(3);
    w1 = parameter(rng.uniforms(7 * 5, -0.5, 0.5), {7, 5}, dtype);
    b1 = parameter(rng.uniforms(7, -0.5, 0.5), {7}, dtype);
    w2 = parameter(rng.uniforms(4 * 7, -0.5, 0.5), {4, 7}, dtype);
  }
  std::vector<Tensor> parameters() const { return {w1, b1, w2}; }
  Tensor operator()(const Tensor& x) const { return linear(tanh(linear(x, w1, b1)), w2); }
};

struct Batch {
  Tensor x, y, class_weights;
  explicit Batch(DType dtype) {
    Rng rng(11);
    x = make(rng.uniforms(64 * 5, -1, 1), {64, 5}, dtype);
    std::vector<double> labels;
    for (int i = 0; i < 64; ++i)
      labels.push_back(rng.below(5) == 0 ? -100.0 : double(rng.below(4)));
    y = make(labels, {64}, i64);
    class_weights = make({0.5, 2, 1, 0.25}, {4}, dtype);
  }
};

// The parameters after `steps` steps of AdamW, each on the same 64 rows in micro-batches of the
// sizes `split`.
std::vector<double> train(DType dtype, const std::vector<std::int64_t>& sizes, int steps) {
  const Net net(dtype);
  const Batch batch(dtype);
  optim::AdamW opt(net.parameters(), {.lr = 0.02, .weight_decay = 0.1});
  for (int s = 0; s < steps; ++s) {
    std::int64_t at = 0;
    for (const std::int64_t n : sizes) {
      opt.backward(cross_entropy(net(batch.x.slice(0, at, at + n)), batch.y.slice(0, at, at + n),
                                 {.ignore_index = -100, .class_weights = batch.class_weights}));
      at += n;
    }
    REQUIRE(at == 64);
    REQUIRE(opt.step());
  }
  std::vector<double> out;
  for (const Tensor& p : net.parameters())
    for (const double v : values_of(p)) out.push_back(v);
  return out;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

TEST_CASE("[S02][S29] sums over micro-batches, divided once: any split gives the same step",
          "[once]") {
  const std::vector<double> whole = train(f64, {64}, 5);
  CHECK(distance(train(f64, {16, 16, 16, 16}, 5), whole) <= 1e-12);
  CHECK(distance(train(f64, {5, 11, 48}, 5), whole) <= 1e-12);
  CHECK(distance(train(f32, {5, 11, 48}, 5), train(f32, {64}, 5)) <= 1e-5);
  CHECK(distance(train(f32, {64}, 5), whole) <= 1e-5);

  Rng rng(5);
  for (int i = 0; i < 50; ++i) {
    std::vector<std::int64_t> sizes;
    for (std::int64_t left = 64; left > 0; left -= sizes.back())
      sizes.push_back(1 + rng.below(std::min<std::int64_t>(left, 20)));
    CHECK(distance(train(f64, sizes, 2), train(f64, {64}, 2)) <= 1e-12);
  }
}

TEST_CASE("[S29] the same split gives the same bits, for one thread and for two") {
  const int threads = num_threads();
  std::vector<Bits> runs;
  for (const int n : {1, 2, 2}) {
    set_num_threads(n);
    Rng rng(1);
    Tensor big = parameter(rng.uniforms(300'001, -1, 1), {300'001});
    Tensor small = parameter(rng.uniforms(7, -1, 1), {7});
    optim::AdamW opt({big, small}, {.lr = 0.1}, {.clip_norm = 1});
    for (int step = 0; step < 3; ++step) {
      const auto gradient = rng.uniforms(300'001, -1, 1);
      opt.backward(objective(big, gradient) + objective(small, {0.5}), 3);
      REQUIRE(opt.step());
    }
    runs.push_back(bits_of_training(opt) + bits_of(state_of(opt, "step_state")));
  }
  set_num_threads(threads);
  CHECK(runs[0] == runs[1]);
  CHECK(runs[1] == runs[2]);
}

TEST_CASE("[S03] the weight is the loss's own denominator") {
  const Net net(f64);
  const Batch batch(f64);
  optim::SGD opt(net.parameters(), {});
  const Loss loss = cross_entropy(net(batch.x), batch.y,
                                  {.ignore_index = -100, .class_weights = batch.class_weights});
  double expected = 0;
  for (const double label : values_of(batch.y))
    if (label >= 0) expected += values_of(batch.class_weights)[static_cast<std::size_t>(label)];
  opt.backward(loss);
  CHECK(opt.step().weight() == Approx(expected));
}

TEST_CASE("[S03] total weight 0 means no step") {
  const Net net(f32);
  optim::AdamW opt(net.parameters(), {});
  opt.backward(cross_entropy(net(ones({2, 5})), full({2}, -100, i64)));
  const Bits before = bits_of_training(opt);
  const optim::StepReport report = opt.step();
  CHECK(report.status() == optim::StepStatus::skipped_empty);
  CHECK(!report);
  CHECK(bits_of_training(opt) == before);
  CHECK(gradients_are_zero(opt));
  CHECK(to_string(report) == "skipped: the losses' weights add up to 0");

  CHECK(bits_of_training(opt) == before);
}

TEST_CASE("[S07] a sum that is finite but overflows when it is averaged is not applied") {
  Tensor w = parameter({1, 2}, {2});
  optim::SGD opt({w}, {});
  opt.backward(objective(w, {1, 1e30}), 1e-10);
  const optim::StepReport report = opt.step();
  CHECK(report.status() == optim::StepStatus::skipped_non_finite);
  CHECK(values_of(w) == std::vector<double>{1, 2});
  // The quotient would be 1e29, but f32 takes the divisor for 0.
  CHECK_THROWS_AS(opt.backward(objective(w, {1e-10, 1e-10}), 1e-39), Error);
  opt.backward(objective(w, {1, 1e30}), 1e-5);
  CHECK(opt.step());
}

TEST_CASE("[S07] f32 gradients whose squares overflow f32 are finite") {
  Tensor w = parameter({0, 0}, {2});
  optim::SGD opt({w}, {.lr = 1}, {.clip_norm = 1});
  opt.backward(objective(w, {3e30, 4e30}));
  const optim::StepReport report = opt.step();
  CHECK(report.applied());
  CHECK(report.norm() == Approx(5e30));
  CHECK(values_of(w)[1] == Approx(-0.8));
}

TEST_CASE("[S08] average, then clip, then update, and the norm is the one before clipping") {
  Tensor w = parameter({0}, {1}, f64), v = parameter({0, 0}, {2}, f32);
  optim::SGD opt({w, v}, {.lr = 1}, {.clip_norm = 0.5});
  opt.backward(objective(w, {6}), 2);
  opt.backward(sum(cast(v, f64) * make({6, 0}, {2})), 1);
  const optim::StepReport report = opt.step();  // mean gradient (2, 2, 0)
  CHECK(report.norm() == Approx(std::sqrt(8.0)));
  CHECK(report.weight() == 3);
  CHECK(w.item() == Approx(-0.5 / std::sqrt(2.0)).epsilon(1e-6));
  CHECK(values_of(v)[0] == Approx(-0.5 / std::sqrt(2.0)).epsilon(1e-6));

  opt.backward(objective(w, {0.25}));  // below the limit: as it is
  const double before = w.item();
  CHECK(opt.step().norm() == 0.25);
  CHECK(w.item() == before - 0.25);
}

TEST_CASE("[S09] a step with a gradient that is not finite changes no bit but the gradients") {
  for (const DType dtype : {f16, bf16, f32, f64})
    for (const double bad : {kInf, -kInf, kNaN})
      for (std::size_t i = 0; i < 3; ++i)
        for (const int micro_step : {0, 1}) {
          CAPTURE(to_string(dtype), bad, i, micro_step);
          std::vector<Tensor> p;
          for (int k = 0; k < 3; ++k)
            p.push_back(parameter(Rng(9).uniforms(40, -1, 1), {40}, dtype));
          optim::AdamW opt(p, {.lr = 0.1},
                           {.clip_norm = 1, .loss_scale = optim::LossScale::none()});
          const auto run = [&](double special) {
            for (int m = 0; m < 2; ++m)
              for (std::size_t k = 0; k < 3; ++k) {
                std::vector<double> g(40, 0.5);
                if (k == i && m == micro_step) g[39] = special;
                opt.backward(objective(p[k], g));
              }
            return opt.step();
          };
          REQUIRE(run(0.25));
          const Bits before = bits_of_training(opt);
          const optim::StepReport report = run(bad);
          CHECK(report.status() == optim::StepStatus::skipped_non_finite);
          CHECK(report.culprit() == static_cast<std::int64_t>(i));
          CHECK(report.applied_steps() == 1);
          CHECK(bits_of_training(opt) == before);
          CHECK(gradients_are_zero(opt));
          CHECK(opt.lr() == 0.1);
          CHECK(run(0.25).applied_steps() == 2);
        }
}

TEST_CASE("[S10] a step says what it did") {
  Tensor w = parameter({0}, {1});
  optim::SGD opt({w}, {.lr = 0.5});
  opt.backward(objective(w, {3}), 4);
  const optim::StepReport first = opt.step();
  CHECK(first.applied());
  opt.backward(objective(w, {kNaN}));
  const optim::StepReport second = opt.step();
  CHECK(first.norm() == 0.75);  // has been read: on a device it could not be any more
  CHECK(first.weight() == 4);
  CHECK(first.lr() == 0.5);
  CHECK(first.culprit() == -1);
  CHECK(to_string(first) == "step 1 applied: weight 4, norm 0.75, lr 0.5");
  CHECK(second.skipped());
  CHECK(to_string(second) == "skipped: the loss is not finite, nor the gradient of parameter 0");
}

TEST_CASE("a skipped step says the loss scale if the gradient is not finite") {
  Tensor w = parameter({0}, {1});
  optim::SGD opt({w}, {.lr = 0.5}, {.loss_scale = optim::LossScale::fixed(1024)});
  opt.backward(sum(sqrt(w)));  // 0, with an infinite derivative
  CHECK(to_string(opt.step()) ==
        "skipped: the gradient of parameter 0 is not finite, loss scale 1024");
}

TEST_CASE("a report has all digits of a loss scale") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 0.5}, {.loss_scale = optim::LossScale::fixed(16777216)});
  opt.backward(sum(w));
  CHECK(to_string(opt.step()).ends_with(", loss scale 16777216"));
}

TEST_CASE("[S10] the first of several culprits is named, whatever arena it is in") {
  Tensor a = parameter({1, 1}, {2}, f64), b = parameter({1}, {1}), c = parameter({1}, {1}, f64);
  optim::SGD opt({a, b, c}, {});
  const auto culprit = [&](double ga, double gb, double gc) {
    opt.backward(objective(a, {1, ga}));
    opt.backward(objective(b, {gb}));
    opt.backward(objective(c, {gc}));
    return opt.step().culprit();
  };
  CHECK(culprit(kInf, kNaN, kInf) == 0);
  CHECK(culprit(1, kNaN, kInf) == 1);
  CHECK(culprit(1, 1, -kInf) == 2);
  CHECK(culprit(1, 1, 1) == -1);
}

TEST_CASE("[S10] a weight that is not finite is told apart from a gradient") {
  for (const double weight : {kNaN, kInf}) {
    Tensor w = parameter({0}, {1});
    optim::SGD opt({w}, {.lr = 0.5});
    opt.backward(Loss{objective(w, {3}), make({weight}, {}, f32)});
    const optim::StepReport report = opt.step();
    CHECK(report.status() == optim::StepStatus::skipped_non_finite);
    CHECK(report.culprit() == -1);
    CHECK(w.item() == 0);
    opt.backward(Loss{objective(w, {3}), make({1}, {}, f32)});
    CHECK(opt.step());
  }
}

TEST_CASE("[S17] a parameter without gradient is not touched") {
  Tensor used = parameter({1, 2}, {2}), frozen = parameter({3, 4, 5}, {3});
  optim::AdamW opt({frozen, used}, {.lr = 0.1, .weight_decay = 0.5});
  const auto bits = [&] {
    return bits_of(frozen) + bits_of(state_of(opt, "parameters.0.first_moment")) +
           bits_of(state_of(opt, "parameters.0.second_moment"));
  };
  opt.backward(objective(used, {1}) + objective(frozen, {1}));
  REQUIRE(opt.step());
  const Bits before = bits();
  for (int i = 0; i < 3; ++i) {
    opt.backward(objective(used, {1}));
    REQUIRE(opt.step());
  }
  CHECK(bits() == before);
  CHECK(values_of(state_of(opt, "update_counts")) == std::vector<double>{1, 4});

  opt.backward(objective(used, {1}) + objective(frozen, {0}));  // a zero gradient is a gradient
  REQUIRE(opt.step());
  CHECK(bits() != before);
}

TEST_CASE("[S18] gradients of f16 and bf16 parameters add up in f32") {
  for (const DType dtype : {f16, bf16}) {
    Tensor w = parameter({1}, {1}, dtype);
    optim::SGD opt({w}, {.lr = 1}, {.loss_scale = optim::LossScale::none()});
    opt.backward(objective(w, {1}));
    for (int i = 0; i < 64; ++i) opt.backward(objective(w, {0x1p-13}), 0);
    CHECK(values_of(state_of(opt, "parameters.0.gradient")) == std::vector<double>{1 + 0x1p-7});
    REQUIRE(opt.step());
    CHECK(values_of(state_of(opt, "parameters.0.master")) == std::vector<double>{-0x1p-7});
  }
}

TEST_CASE("f16 and bf16 parameters follow f32 masters, which keep small updates") {
  for (const DType dtype : {f16, bf16}) {
    Tensor w = parameter({1, -1}, {2}, dtype);
    optim::SGD opt({w}, {.lr = 1e-4}, {.loss_scale = optim::LossScale::none()});
    for (int i = 0; i < 200; ++i) {
      opt.backward(objective(w, {1, -1}));
      REQUIRE(opt.step());
    }
    const auto master = values_of(state_of(opt, "parameters.0.master"));
    CHECK(master[0] == Approx(0.98).epsilon(1e-5));
    CHECK(values_of(w) == rounded(master, dtype));
  }
}

TEST_CASE("[S28] masters are taken anew from weights that were loaded") {
  Tensor w = parameter({1}, {1}, f16);
  optim::SGD opt({w}, {.lr = 1}, {.loss_scale = optim::LossScale::none()});
  {
    const NoGrad guard;
    fill_(w, 3);
  }
  opt.refresh_masters();
  opt.backward(objective(w, {0.5}));
  REQUIRE(opt.step());
  CHECK(w.item() == 2.5);
}

TEST_CASE("[S21] a step needs no memory, and an optimizer that cannot be had changes nothing") {
  Tensor a = parameter({1, 2}, {2}), b = parameter({3}, {1}, f16);
  int refused = 0;
  for (std::uint64_t k = 0;; ++k) {
    const Ref<Storage> storage = a.storage();
    try {
      const FailAllocation fail(k);
      const optim::AdamW opt({a, b}, {}, {.ema = 0.5});
      break;
    } catch (const OutOfMemory&) {
      ++refused;
      CHECK(values_of(a) == std::vector<double>{1, 2});
      CHECK(values_of(b) == std::vector<double>{3});
      CHECK(a.storage() == storage);
    }
  }
  CHECK(refused > 10);

  optim::AdamW opt({a, b}, {}, {.loss_scale = optim::LossScale::fixed(4), .ema = 0.5});
  for (int i = 0; i < 2; ++i) {
    opt.backward(objective(a, {1}) + objective(b, {1}));
    const FailAllocation fail(0, true);
    CHECK(opt.step());
  }
}

}  // namespace
}  // namespace firn::testing
