// Steps of optimizers and of batch norm by shapes alone: kernels write no arena, moment or buffer.
#include <memory>

#include "firn/runtime/storage.h"
#include "support/catch.h"
#include "support/dry_run.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using optim::Optimizer;

std::unique_ptr<Optimizer> make_optimizer(int which, const std::vector<Tensor>& p) {
  const optim::StepOptions step{.clip_norm = 1.0};
  switch (which) {
    case 0:
      return std::make_unique<optim::SGD>(p, optim::SGDOptions{.lr = 0.1, .momentum = 0.9}, step);
    case 1:
      return std::make_unique<optim::AdamW>(p, optim::AdamWOptions{}, step);
    case 2:
      return std::make_unique<optim::LAMB>(p, optim::LAMBOptions{}, step);
    case 3:
      return std::make_unique<optim::Lion>(p, optim::LionOptions{}, step);
    case 4:
      return std::make_unique<optim::RMSprop>(p, optim::RMSpropOptions{}, step);
    case 5:
      return std::make_unique<optim::Muon>(p, optim::MuonOptions{}, step);
    case 6:
      return std::make_unique<optim::Adafactor>(p, optim::AdafactorOptions{}, step);
    case 7:
      return std::make_unique<optim::Custom>(
          p,
          optim::CustomOptions{.states = {{"square"}},
                               .update = [](const optim::CustomInput& in) -> optim::CustomUpdate {
                                 const Tensor s = in.states[0] + square(in.gradient);
                                 return {in.weight - in.lr * in.gradient / sqrt(s + 1.0), {s}};
                               }},
          step);
    case 8:
      return std::make_unique<optim::Adam>(p, optim::AdamOptions{.amsgrad = true}, step);
    case 9:
      return std::make_unique<optim::NAdam>(p, optim::NAdamOptions{}, step);
    case 10:
      return std::make_unique<optim::Rprop>(p, optim::RpropOptions{}, step);
    default:
      return std::make_unique<optim::Adagrad>(p, optim::AdagradOptions{}, step);
  }
}

/// Every tensor that the kernels of a step may write. The host counts in "cycle".
std::vector<Tensor> arenas_of(const Optimizer& opt) {
  std::vector<Tensor> out = opt.parameters();
  for (const optim::NamedState& s : opt.state())
    if (s.name != "cycle") out.push_back(s.tensor);
  return out;
}

/// What the step of a dry run reports has no meaning, and may be refused.
void step_by_shapes(Optimizer& opt) {
  try {
    opt.step();
  } catch (const Error& e) {
    CHECK(std::string(e.what()).starts_with("[StepReport]"));
  }
}

TEST_CASE("a step in a dry run writes no arena of an optimizer") {
  const int which = GENERATE(range(0, 12));
  const DType dtype = GENERATE(f32, f16, bf16, f64);
  CAPTURE(which, to_string(dtype));
  Generator g(3);
  std::vector<Tensor> p;
  for (const Shape& shape : {Shape{40, 30}, Shape{40}, Shape{7, 40}})
    p.push_back(randn(shape, {.generator = &g}).to(dtype).set_requires_grad());
  const auto opt = make_optimizer(which, p);
  const Tensor x = randn({16, 30}, {.generator = &g}).to(dtype);
  const Tensor target = zeros({16}, i64);
  const auto pass = [&] {
    opt->backward(cross_entropy(mlp(x, {p[0], p[2]}, {p[1], Tensor()}, Activation::relu), target));
  };
  pass();
  opt->step();  // arenas hold gradients and moments
  synchronize(default_device());
  const Kept before(arenas_of(*opt));
  {
    const DryRun dry;
    pass();
    step_by_shapes(*opt);
  }
  CHECK(before.changed() == 0);
}

TEST_CASE("a plan of an exact batch that fails leaves no memory without bytes to the next batch") {
  const auto train = [](bool plans) {
    manual_seed(4);
    nn::MLP net({6, 20, 3});
    optim::AdamW opt(net.parameters(), {}, {.exact = {.chunk = 2}});
    const Tensor x = randn({16, 6}), y = zeros({16}, i64);
    const auto batch = [&](std::int64_t fails_at) {
      opt.run_batch(16, 4, [&](std::int64_t first, std::int64_t last) {
        if (first == fails_at) throw std::runtime_error("no more rows");
        return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
      });
    };
    for (const std::int64_t fails_at : {0, 6, 14, 16}) {
      if (plans && fails_at < 16)
        CHECK_THROWS_WITH(plan_memory([&] { batch(fails_at); }), "no more rows");
      else if (plans)
        CHECK(plan_memory([&] { batch(fails_at); }).peak > 0);
      batch(16);
    }
    // Sums that a plan left behind would not be counted.
    std::vector<double> out{static_cast<double>(memory_stats().of(Owner::gradients).current)};
    for (const Tensor& p : opt.parameters())
      for (const double v : values_of(p)) out.push_back(v);
    return out;
  };
  CHECK(train(true) == train(false));
}

TEST_CASE("batch norm in a dry run writes no statistics") {
  Generator g(3);
  nn::BatchNorm2d norm(6);
  const Tensor x = randn({4, 6, 5, 5}, {.generator = &g});
  norm(x);
  std::vector<Tensor> buffers;
  for (const nn::NamedTensor& b : norm.named_buffers()) buffers.push_back(b.tensor);
  REQUIRE(buffers.size() >= 3);
  CHECK(check_dry_run("batch norm", [&] { return std::vector<Tensor>{norm(x)}; }, {x}) == 1);
  const Kept before(buffers);
  {
    const DryRun dry;
    norm(x);
  }
  CHECK(before.changed() == 0);
}

}  // namespace
}  // namespace firn::testing
