// Reports on plans, limits and ranks, each as the short program that shows it: public headers
// alone.
#include <sys/resource.h>
#include <unistd.h>

#include <cfenv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>

#include "data/files.h"
#include "firn/dist/distribute.h"
#include "firn/dist/local.h"
#include "firn/firn.h"
#include "firn/memory/plan.h"
#include "firn/nn/checkpoint.h"
#include "firn/optim/gathered_weights.h"
#include "firn/train/plan_within.h"
#include "support/in_child.h"
#include "support/thread_check.h"
#include "support/values.h"

using namespace firn;
using firn::test::TempFolder;

namespace {

constexpr std::size_t kPlenty = std::size_t{1} << 30;

struct Block : nn::Module {
  nn::Linear a{4, 4};
  FIRN_MEMBERS(a)
  Tensor forward(const Tensor& x) override { return x + a(x); }
};

struct Net : nn::Module {
  std::vector<Block> blocks = std::vector<Block>(2);
  nn::Linear out{4, 2};
  FIRN_MEMBERS(blocks, out)
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (auto& b : blocks) h = b(h);
    return out(h);
  }
};

/// The first weight after weights of 0.25 were written, a plan was made and a step with a rate of
/// 0 was taken. `way` chooses the plan.
template <class Optimizer>
double weight_after(int way, DType dtype) {
  Net net;
  net.to(dtype);
  optim::StepOptions options;
  if (dtype == f16) options.loss_scale = optim::LossScale::fixed(1);
  Optimizer opt(net.parameters(), {.lr = 0.0}, options);
  {
    const NoGrad guard;
    fill_(net.out.weight, 0.25);
  }
  const Tensor x = ones({8, 4}, dtype), y = zeros({8, 2}, dtype);
  const auto loss = [&](std::int64_t a, std::int64_t b) {
    return mse_loss(net(x.slice(0, a, b)), y.slice(0, a, b));
  };
  const auto step = [&] {
    opt.backward(loss(0, 8));
    opt.step();
  };
  if (way == 0) plan_memory(step);
  if (way == 1) opt.run_batch(8, optim::MicroBatch::within(kPlenty), loss);
  if (way == 2) optim::plan_within(kPlenty, opt, net, 8, loss);
  if (way == 3) nn::checkpoint_within(net, kPlenty, step);
  step();
  return net.out.weight.to(f64)[0][0].item();
}

}  // namespace

TEST_CASE(
    "plan_loses_loaded_weights: a step after a plan goes on from the weights that are there") {
  for (const DType dtype : {f32, bf16, f16})
    for (int way = 0; way < 4; ++way) CHECK(weight_after<optim::SGD>(way, dtype) == 0.25);
  for (const DType dtype : {f32, bf16})
    for (int way = 0; way < 4; ++way)
      CHECK(weight_after<optim::ScheduleFreeAdamW>(way, dtype) == 0.25);
}

TEST_CASE("plan_loses_weights_zero3: the same with ranks, for each stage of ZeRO") {
  for (const DType dtype : {f32, bf16})
    for (int zero = 0; zero < 4; ++zero)
      dist::run_local(2, [&](const dist::Group& group) {
        nn::Linear net(4, 2);
        net.to(dtype);
        optim::SGD opt(net.parameters(), {.lr = 0.0});
        dist::distribute(opt, group, {.zero = zero});
        const Tensor x = ones({8, 4}, dtype), y = zeros({8}, i64);
        const auto step = [&] {
          opt.run_batch(8, 2, [&](std::int64_t a, std::int64_t b) {
            return cross_entropy(net(x.slice(0, a, b)), y.slice(0, a, b));
          });
        };
        step();
        {
          const NoGrad guard;
          fill_(net.weight, 0.25);
        }
        plan_memory(step);
        step();
        const optim::GatheredWeights whole(opt);
        THREAD_CHECK(net.weight.to(f64)[0][0].item() == 0.25);
      });
}

TEST_CASE("plan_side_effects: calls within a plan change nothing") {
  nn::Linear net(2, 2);
  const Tensor x = ones({1, 2});
  backward(sum(net(x)));
  plan_memory([&] {
    net.zero_grad();
    backward(sum(net(x)));
    net.weight.set_grad({});
  });
  CHECK(net.weight.grad().defined());
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = {{0, 1}, {2, 4}}});
  plan_memory([&] {
    opt.set_epoch(3);
    opt.set_lr(0.5);
  });
  CHECK(opt.cycle_length() == 1);
  CHECK(opt.lr() == 0.1);
}

TEST_CASE("fpe_min: elementwise functions of harmless numbers trap nothing") {
#if defined(__x86_64__) && defined(__GLIBC__)
  const std::string said = testing::in_child([]() -> std::string {
    set_num_threads(1);
    feenableexcept(FE_INVALID | FE_DIVBYZERO);
    for (const DType t : {f32, f64})
      for (const int n : {16, 7, 8, 15, 32, 33}) {
        const Tensor x = full({n}, 3, t), y = full({n}, 2, t);
        x / y, fmod(x, y), x / 2.0, reciprocal(x), rsqrt(x), pow(x, y);
      }
    return "done";
  });
  CHECK(said == "done");
#endif
}

#if !defined(__SANITIZE_ADDRESS__)  // which needs terabytes of address space
TEST_CASE("plans_under_ulimit_v: a plan takes no address space of its own") {
  const std::string said = testing::in_child([]() -> std::string {
    const std::size_t limit = std::size_t{2} << 30;
    const rlimit space{limit, limit};
    if (::setrlimit(RLIMIT_AS, &space) != 0) return "no limit could be set";
    nn::MLP net({6, 8, 3});
    const Tensor x = randn({8, 6}), y = zeros({8}, i64);
    plan_memory([&] { net(x); });
    optim::Muon opt(net.parameters());
    opt.backward(cross_entropy(net(x), y));
    opt.step();
    return "done";
  });
  CHECK(said == "done");
}

TEST_CASE("gemm_limit_crash: a first product that finds no memory says so") {
  for (std::size_t more = 0; more < std::size_t{24} << 20; more += std::size_t{2} << 20) {
    const std::string said = testing::in_child([&]() -> std::string {
      const NoGrad guard;
      set_num_threads(1);
      const Tensor x = randn({4, 3}), w = randn({5, 3});
      std::size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const std::size_t limit = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + more;
      const rlimit space{limit, limit};
      if (::setrlimit(RLIMIT_AS, &space) != 0) return "no limit could be set";
      try {
        linear(x, w);
      } catch (const OutOfMemory&) {
        return "no memory";
      }
      return "fits";
    });
    CAPTURE(more);
    CHECK((said == "fits" || said == "no memory"));
  }
}
#endif

TEST_CASE("ranks_bad_alloc: a bad_alloc in one rank's loss leaves the group whole") {
  for (const int zero : {0, 1, 2, 3})
    for (const bool exact : {false, true})
      dist::run_local(2, [&](const dist::Group& group) {
        nn::Linear net(4, 2);
        optim::StepOptions options;
        if (exact) options.exact = {.chunk = 2};
        optim::SGD opt(net.parameters(), {.lr = 0.1}, options);
        dist::distribute(opt, group, {.zero = zero});
        const Tensor x = ones({8, 4}), y = zeros({8}, i64);
        bool fails = group.rank() == 1;
        const auto loss = [&](std::int64_t a, std::int64_t b) {
          if (fails) throw std::bad_alloc();
          return cross_entropy(net(x.slice(0, a, b)), y.slice(0, a, b));
        };
        THREAD_CHECK_THROWS_AS(opt.run_batch(8, 2, loss), std::exception);
        fails = false;
        THREAD_CHECK(opt.run_batch(8, 2, loss).applied());
      });
}

TEST_CASE("shards_leftover: a save removes what killed saves have left") {
  const TempFolder folder;
  const std::string place = folder.path().string();
  const nn::Linear net(64, 64);
  const auto save = [&] {
    io::save_safetensors_shards(place, io::state_of(net), {}, {.max_bytes = 9000});
  };
  save();
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    if (child == 0)
      for (;;) save();
    ::usleep(static_cast<useconds_t>(10000 + 3000 * i));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  save();
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(place)) ++files;
  CHECK(files == 3);
}
