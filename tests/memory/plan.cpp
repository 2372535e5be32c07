// Plans of steps: the peak of the step itself, to the byte, and nothing is changed by planning.
#include "firn/memory/plan.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "firn/runtime/kernel_support.h"
#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::values_of;

namespace {

struct Net : nn::Module {
  nn::Conv2d conv{3, 8, 3};
  nn::BatchNorm2d norm{8};
  nn::Dropout drop{0.25};
  nn::Linear up{8 * 36, 64}, head{64, 10};
  FIRN_MEMBERS(conv, norm, drop, up, head)
  Tensor forward(const Tensor& x) override {
    Tensor y = relu(norm(conv(x)));
    y = up(drop(flatten(y, 1)));
    return head(y + gelu(y));
  }
};

/// A training of which one step can be planned and made.
struct Training {
  struct Seeded {
    Seeded() { manual_seed(7); }
  } seeded;  ///< before the weights are drawn
  Net net;
  std::optional<optim::AdamW> opt;
  Tensor x, labels;
  explicit Training(DType dtype, optim::StepOptions options = {}) {
    net.to(default_device());
    net.to(dtype);
    opt.emplace(net.parameters(), optim::AdamWOptions{}, options);
    x = randn({12, 3, 8, 8}).to(dtype);
    labels = zeros({12}, i64);
  }
  void step() {
    opt->backward(cross_entropy(net(x), labels));
    opt->step();
  }
  std::vector<std::vector<double>> everything() {
    std::vector<std::vector<double>> all;
    for (const auto& s : opt->state()) all.push_back(values_of(s.tensor));
    for (const auto& b : net.named_buffers()) all.push_back(values_of(b.tensor));
    const RandomKey key = default_generator().get();
    all.push_back({static_cast<double>(key.seed), static_cast<double>(key.offset)});
    return all;
  }
};

/// The peak of `step`, run for real.
MemoryStats measured(const std::function<void()>& step) {
  reset_peak_memory();
  step();
  return memory_stats();
}

}  // namespace

TEST_CASE("[S38] a planned peak is that of the step, to the byte and by owner", "[memory]") {
  for (const DType dtype : {f32, f16, bf16}) {
    for (const bool warm : {false, true}) {
      Training t(dtype);
      if (warm) t.step();
      const MemoryPlan plan = plan_memory([&] { t.step(); });
      const MemoryStats real = measured([&] { t.step(); });
      INFO(to_string(dtype) << (warm ? ", warm" : ", the first step") << ": planned " << plan.peak
                            << ", measured " << real.total.peak);
      CHECK(plan.peak == real.total.peak);
      CHECK(plan.report.stats.at_peak == real.at_peak);
      CHECK(plan.report.stats.allocations == real.allocations);
      CHECK(plan.report.stats.reserved_peak == real.reserved_peak);
      CHECK(plan.report.stats.total.current == real.total.current);
      CHECK(plan.report.peak_op == memory_report().peak_op);
    }
  }
}

TEST_CASE("[S38] a plan changes nothing, and the run goes on to the bit", "[memory]") {
  for (const DType dtype : {f32, f16}) {
    const auto run = [&](bool planned) {
      Training t(dtype, {.accumulate = 2, .clip_norm = 1, .ema = 0.9});
      for (int i = 0; i < 5; ++i) {
        if (planned) {
          const auto before = t.everything();
          const auto bytes = memory_stats().total.current;
          plan_memory([&] {
            t.step();
            t.step();
            t.opt->zero_grad();
          });
          CHECK((t.everything() == before));
          CHECK(memory_stats().total.current == bytes);
        }
        t.step();
      }
      return t.everything();
    };
    const auto planned = run(true), plain = run(false);
    REQUIRE(planned.size() == plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i, to_string(dtype), plain[i].size());
      CHECK((planned[i] == plain[i]));
    }
  }
}

TEST_CASE("a plan leaves gradients of leaves without an optimizer alone", "[memory]") {
  const Tensor w = ones({3}).set_requires_grad();
  plan_memory([&] { sum(w * w).backward(); });
  CHECK_FALSE(w.grad().defined());
  sum(w * w).backward();
  const auto before = values_of(w.grad());
  plan_memory([&] { sum(w * w).backward(); });
  CHECK(values_of(w.grad()) == before);
  sum(w).backward();
  CHECK(values_of(w.grad()) == std::vector<double>{3, 3, 3});
}

TEST_CASE("a plan writes nothing that was there, and costs no memory", "[memory]") {
  const Tensor a = ones({64, 64});
  const MemoryPlan plan = plan_memory([&] {
    Tensor b = a;
    mul_(b, 2.0);
    fill_(b, 7);
    const Tensor huge = zeros({1 << 20, 1 << 14});  // 64 GiB
    const Tensor copy = huge + 1.0;
  });
  CHECK(plan.peak >= std::size_t{128} << 30);
  CHECK(values_of(a) == std::vector<double>(64 * 64, 1));
}

TEST_CASE("a plan within a plan, of nothing, or of a step that throws", "[memory]") {
  CHECK(error_of([] { plan_memory({}); }).find("the step is empty") != std::string::npos);
  CHECK(error_of([] { plan_memory([] { plan_memory([] {}); }); }).find("planning a step already") !=
        std::string::npos);
  const Tensor w = ones({2}).set_requires_grad();
  CHECK_THROWS_WITH(plan_memory([&] {
                      sum(w * 2.0).backward();
                      throw Error("mine", "stops");
                    }),
                    test::contains("stops"));
  CHECK_FALSE(w.grad().defined());
  CHECK_FALSE(runtime::dry_run());
  CHECK(plan_memory([] {}).peak == memory_stats().total.current);
  nn::Linear layer(2, 2);
  CHECK_THROWS_WITH(plan_memory([&] { layer.to(f16); }), test::contains("Module::to"));
  CHECK_THROWS_WITH(plan_memory([&] { optim::SGD opt(layer.parameters()); }),
                    test::contains("plan"));
  CHECK(layer.weight.dtype() == f32);
}

/// Makes a model, converts it, makes its optimizer, and trains.
void whole_program(DType dtype) {
  Net net;
  if (dtype != f32) net.to(dtype);
  Net copy = nn::clone(net);
  optim::AdamW opt(net.parameters(), {}, {.ema = 0.9});
  optim::Muon muon(copy.named_parameters(), {});
  for (int i = 0; i < 2; ++i) {
    opt.backward(cross_entropy(net(zeros({4, 3, 8, 8}, dtype)), zeros({4}, i64)));
    opt.step();
    muon.backward(cross_entropy(copy(zeros({4, 3, 8, 8}, dtype)), zeros({4}, i64)));
    muon.step();
  }
}

TEST_CASE("a plan may make a model, convert it and make its optimizer", "[memory]") {
  for (const DType dtype : {f32, bf16, f16}) {
    CAPTURE(dtype);
    const MemoryStats before = memory_stats();
    const std::size_t planned = plan_memory([&] { whole_program(dtype); }).peak;
    CHECK(memory_stats().total.current == before.total.current);
    CHECK(memory_stats().total.peak == before.total.peak);
    release_cached_memory();
    reset_peak_memory();
    whole_program(dtype);
    CHECK(memory_stats().total.peak == planned);
  }
}

TEST_CASE("a plan refuses to move or convert a model that was made before it", "[memory]") {
  nn::Linear layer(4, 2);
  const Tensor view = arange(8, f32).slice(0, 0, 4).set_requires_grad();
  const auto refused = [](auto&& step) { return error_of([&] { plan_memory(step); }); };
  CHECK_THAT(refused([&] { optim::SGD(layer.parameters(), {.lr = 1}); }),
             test::contains("[SGD] parameter 0") && test::contains("before the plan"));
  CHECK_THAT(refused([&] { optim::SGD({view}, {.lr = 1}); }), test::contains("before the plan"));
  CHECK_THAT(refused([&] {
               nn::Linear made(4, 2);
               optim::SGD({made.weight, layer.weight}, {.lr = 1});
             }),
             test::contains("parameter 1"));
  CHECK_THAT(refused([&] { layer.to(bf16); }), test::contains("weight was made before the plan"));
  optim::SGD opt({layer.weight, layer.bias, view}, {.lr = 1});
  CHECK(values_of(view) == std::vector<double>{0, 1, 2, 3});
}

TEST_CASE("memory that outlives its plan reads as zeros", "[memory]") {
  Tensor kept;
  plan_memory([&] { kept = ones({1000}, Device::cpu()); });
  CHECK(values_of(kept) == std::vector<double>(1000, 0));
}

TEST_CASE("a plan goes beyond a limit, and RollbackPoints around it stay right", "[memory]") {
  Training t(f32);
  t.step();
  RollbackPoint start;
  const auto before = t.everything();
  set_memory_limit(memory_stats().reserved);
  const MemoryPlan plan = plan_memory([&] {
    const Tensor x = zeros({100 << 20});
    t.step();
  });
  set_memory_limit(0);
  CHECK(plan.peak > std::size_t{400} << 20);
  t.opt->backward(cross_entropy(t.net(t.x), t.labels));
  start.roll_back();
  CHECK((t.everything() == before));
}

TEST_CASE("[S38] a RollbackPoint is of the plan that it was made in, or of none", "[memory]") {
  Training t(f32);
  t.step();
  std::optional<RollbackPoint> start, inner;
  start.emplace();
  const auto before = t.everything();
  t.opt->backward(cross_entropy(t.net(t.x), t.labels));
  const auto in_cycle = t.everything();
  CHECK_THAT(error_of([&] { plan_memory([&] { start->roll_back(); }); }),
             test::contains("made outside of the plan cannot be rolled back in it; hint: "));
  CHECK((t.everything() == in_cycle));
  plan_memory([&] {
    inner.emplace();
    t.step();
  });
  CHECK_THAT(error_of([&] { inner->roll_back(); }),
             test::contains("made in a plan cannot be rolled back after it; hint: "));
  CHECK((t.everything() == in_cycle));
  inner.reset();
  start->roll_back();
  CHECK((t.everything() == before));
  plan_memory([&] { start.reset(); });  // it is told of no later change
  t.step();
  start.emplace();
  const auto then = t.everything();
  t.opt->backward(cross_entropy(t.net(t.x), t.labels));
  start->roll_back();
  CHECK((t.everything() == then));
}

TEST_CASE("[S38] a plan neither runs, captures nor replays a graph::Step", "[memory]") {
  const auto train = [](bool planned) {
    Training t(f32, {.accumulate = 2});
    graph::Step step(*t.opt, [&t] { t.step(); });
    for (int i = 0; i < 8; ++i) {
      if (planned) {
        const auto before = t.everything();
        const MemoryPlan plan = plan_memory([&] { step(); });
        CHECK((t.everything() == before));
        if (step.graph(step.variant())) CHECK(plan.peak == memory_stats().total.current);
      }
      step();
    }
    return t.everything();
  };
  CHECK((train(true) == train(false)));
  if (default_device().is_cpu()) return;
  CHECK_THAT(error_of([] {
               plan_memory([] { graph::Graph::capture(default_device(), [] { zeros({4}); }); });
             }),
             test::contains("nothing can be captured in a plan"));
}

TEST_CASE("[S38] a plan saves and loads no file", "[memory]") {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("firn-plan-" + std::to_string(getpid()));
  struct Gone {
    const std::string& path;
    ~Gone() { std::filesystem::remove_all(path); }
  } const gone{folder};
  std::filesystem::create_directory(folder);
  const std::string run = folder + "/run";
  Training t(f32);
  t.step();
  io::save_run(run, {t.net, *t.opt});
  const auto before = t.everything();
  io::Checkpoints checkpoints(folder + "/all", {.async = true});
  const auto refused = [](const std::function<void()>& work) {
    return error_of([&] { plan_memory(work); }).find("computes nothing that could be") !=
           std::string::npos;
  };
  CHECK(refused([&] { io::save_run(run, {t.net, *t.opt}); }));
  CHECK(refused([&] { io::save_safetensors(run, io::state_of(t.net)); }));
  CHECK(refused([&] { io::load_run(run, {t.net, *t.opt}); }));
  CHECK(refused([&] { checkpoints.save(1, {t.net, *t.opt}); }));
  t.step();
  io::load_run(run, {t.net, *t.opt});  // the file is whole
  CHECK((t.everything() == before));
  checkpoints.save(1, {t.net, *t.opt});
  checkpoints.wait();
}

namespace {

struct LoadedBlock : nn::Module {
  nn::Linear a{4, 4};
  FIRN_MEMBERS(a)
  Tensor forward(const Tensor& x) override { return x + a(x); }
};
struct LoadedNet : nn::Module {
  std::vector<LoadedBlock> blocks = std::vector<LoadedBlock>(2);
  nn::Linear out{4, 2};
  FIRN_MEMBERS(blocks, out)
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (LoadedBlock& b : blocks) h = b(h);
    return out(h);
  }
};

enum class Way { plain, plan, run_batch, plan_within, checkpoint_within };

/// A weight is written to 0.25, and a step of learning rate 0 leaves it alone. Returns it.
template <class Optimizer>
double weight_after_step(DType dtype, Way way) {
  manual_seed(1);
  LoadedNet net;
  net.to(dtype);
  optim::StepOptions options;
  if (dtype == f16) options.loss_scale = optim::LossScale::fixed(1);
  Optimizer opt(net.parameters(), {.lr = 0.0}, options);
  {
    const NoGrad guard;
    fill_(net.out.weight, 0.25);
  }
  const Tensor x = ones({8, 4}, dtype), y = zeros({8, 2}, dtype);
  const auto loss = [&](std::int64_t first, std::int64_t last) {
    return mse_loss(net(x.slice(0, first, last)), y.slice(0, first, last));
  };
  const auto step = [&] {
    opt.backward(loss(0, 8));
    opt.step();
  };
  constexpr std::size_t kMuch = std::size_t{1} << 30;
  if (way == Way::plan) plan_memory(step);
  if (way == Way::plan_within) optim::plan_within(kMuch, opt, net, 8, loss);
  if (way == Way::checkpoint_within) nn::checkpoint_within(net, kMuch, step);
  if (way == Way::run_batch)
    opt.run_batch(8, optim::MicroBatch::within(kMuch), loss);
  else
    step();
  CHECK(opt.last_report().applied());
  return net.out.weight.to(f64)[0][0].item();
}

}  // namespace

TEST_CASE("[S28][S38] weights that were written before a plan are those of the next step",
          "[memory]") {
  for (const Way way :
       {Way::plain, Way::plan, Way::run_batch, Way::plan_within, Way::checkpoint_within}) {
    for (const DType dtype : {f32, bf16, f16}) {
      CAPTURE(static_cast<int>(way), to_string(dtype));
      CHECK(weight_after_step<optim::SGD>(dtype, way) == 0.25);
      if (dtype != f16) CHECK(weight_after_step<optim::ScheduleFreeAdamW>(dtype, way) == 0.25);
    }
  }
}

TEST_CASE("[S38] a graph from before a plan runs backward after it", "[memory]") {
  Training t(f32);
  const Loss loss = cross_entropy(t.net(t.x), t.labels);
  plan_memory([&] { t.step(); });  // which would write the weights that the graph has saved
  t.opt->backward(loss);
  CHECK(t.opt->step().applied());
}

TEST_CASE("[S38] a hook that a plan has added moves no bit afterwards", "[memory]") {
  for (const DType t : {f32, f16, bf16}) {
    const auto gradient = [t](bool plans) {
      manual_seed(1);
      nn::Linear net(8, 4);
      net.to(t);
      optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 3});
      const Tensor x = randn({12, 8}).to(t), y = zeros({12}, i64);
      if (plans) plan_memory([&] { add_hook(net.weight, [](const Tensor& g) { return g; }); });
      for (int i = 0; i < 12; i += 4)
        opt.backward(cross_entropy(net(x.slice(0, i, i + 4)), y.slice(0, i, i + 4)));
      return values_of(net.weight.grad());
    };
    CAPTURE(t);
    CHECK(gradient(true) == gradient(false));
  }
}

TEST_CASE("[S38] what a plan sets is set within it alone", "[memory]") {
  Tensor w = ones({2}).set_requires_grad();
  optim::SGD opt({w}, {.lr = 0.1}, {.accumulate = {{0, 1}, {2, 4}}});
  const std::string described = optim::describe(opt);
  plan_memory([&] {
    opt.set_epoch(3);
    CHECK(opt.cycle_length() == 4);
    opt.set_lr(0.5);
    CHECK(optim::describe(opt) != described);
  });
  CHECK(opt.cycle_length() == 1);
  CHECK(opt.lr() == 0.1);
  CHECK(optim::describe(opt) == described);
  nn::Linear layer(2, 2);
  backward(sum(layer(ones({1, 2}))));
  plan_memory([&] {
    layer.zero_grad();
    CHECK_FALSE(layer.weight.grad().defined());
    backward(sum(layer(ones({1, 2}))));
  });
  CHECK(values_of(layer.weight.grad()) == std::vector<double>{1, 1, 1, 1});
  // A write within the plan is one for its graphs.
  CHECK_THROWS_WITH(plan_memory([&] {
                      const Tensor y = sum(square(layer.weight));
                      const NoGrad guard;
                      fill_(layer.weight, 3);
                      backward(y);
                    }),
                    test::contains("in place"));
}
