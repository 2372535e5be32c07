// What a process makes once, at its first use, where every allocation fails once. Each case has a
// process of its own in ctest.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alloc_sweep/bytes.h"
#include "alloc_sweep/failing.h"
#include "alloc_sweep/sweep.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

/// Waits until a child of fork() has ended. A lock that was registered twice would keep it forever:
/// then the alarm ends this process.
void fork_once() {
  alarm(20);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
}

/// A call on two threads. fork() works afterwards, whatever has failed.
class FirstUse final : public Work {
 public:
  using Call = std::function<Tensor(const Tensor& x)>;
  FirstUse(const Shape& shape, Call call) : call_(std::move(call)) {
    const Threads one(1);
    Generator g(3);
    x_ = randn(shape, {.generator = &g});
  }
  void run() override {
    const Threads two(2);
    y_ = call_(x_);
  }
  std::string kept() override { return bytes_of(x_); }
  std::string made() override {
    fork_once();
    return bytes_of(y_);
  }

 private:
  Call call_;
  Tensor x_, y_;
};

MakeWork first_use(const Shape& shape, const FirstUse::Call& call) {
  return [=]() -> std::unique_ptr<Work> { return std::make_unique<FirstUse>(shape, call); };
}

TEST_CASE("alloc_sweep: the first fork() of a process needs no memory", "[host]") {
  pid_t child = -1;
  {
    const FailingHeap none(0, {.sticky = true});
    child = fork();
    if (child == 0) _exit(0);
  }
  REQUIRE(child > 0);
  CHECK(waitpid(child, nullptr, 0) == child);
}

TEST_CASE("alloc_sweep: the first kernel on several threads", "[host]") {
  const auto square = first_use({1 << 10, 1 << 7}, [](const Tensor& x) { return x * x; });
  CHECK(sweep_first_use(square) > 0);
}

TEST_CASE("alloc_sweep: the first product of a process", "[host]") {
  const auto product = first_use({96, 96}, [](const Tensor& x) { return matmul(x, x); });
  CHECK(sweep_first_use(product) > 0);
}

TEST_CASE("alloc_sweep: the first convolution of a process", "[host]") {
  const auto conv = first_use({8, 16, 10, 10}, [](const Tensor& x) {
    return conv2d(x, full({16, 16, 3, 3}, 0.5), {}, {.padding = 1});
  });
  CHECK(sweep_first_use(conv) > 0);
}

TEST_CASE("alloc_sweep: the first warning of a process", "[host]") {
  const auto warned = first_use({4, 4}, [](const Tensor& x) {
    try {
      set_warning_handler([](const std::string&) {});
      warn("matmul", "a text that is too long to be kept without memory of the heap");
    } catch (const std::bad_alloc&) {  // whoever warns turns it into an error of its own
      throw OutOfMemory("a warning", 0);
    }
    return x;
  });
  CHECK(sweep_first_use(warned) > 0);
}

/// The plan of a step that sets what a plan puts back.
class Plan final : public Work {
 public:
  Plan() {
    Generator g(3);
    x_ = randn({24, 6}, {.generator = &g});
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < 24; ++i) labels.push_back(i % 4);
    y_ = tensor<std::int64_t>(labels, {24});
    loader_.emplace(data::TensorDataset({x_, y_}),
                    data::LoaderOptions{.batch = 8, .device = Device::cpu()});
  }
  void run() override {
    plan_ = plan_memory([this] {
      opt_.set_lr(0.5);
      net_.eval();
      net_.train();
      for (const auto& batch : loader_->epoch(1)) {
        opt_.backward(cross_entropy(net_(batch.fields[0]), batch.fields[1]));
        opt_.step();
      }
      net_.eval();
    });
  }
  std::string kept() override {
    std::string all = std::to_string(opt_.lr());
    for (const Tensor& p : opt_.parameters()) all += bytes_of(p);
    for (const optim::NamedState& s : opt_.state()) all += s.name + bytes_of(s.tensor);
    for (const nn::NamedTensor& b : net_.named_buffers()) all += b.name + bytes_of(b.tensor);
    for (const nn::NamedModule& m : net_.named_modules()) all += m.module->training() ? "t" : "e";
    const data::LoaderPosition p = loader_->position();
    return all + std::to_string(p.epoch) + "/" + std::to_string(p.sample);
  }
  std::string made() override { return kept() + std::to_string(plan_.peak); }

 private:
  Tensor x_, y_;
  nn::Sequential net_{nn::Linear(6, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, 4)};
  optim::AdamW opt_{net_.parameters(), {.lr = 0.01}, {.clip_norm = 1}};
  std::optional<data::Loader> loader_;
  MemoryPlan plan_;
};

TEST_CASE("alloc_sweep: the plan of a step", "[host]") {
  const Threads one(1);
  const auto plan = []() -> std::unique_ptr<Work> {
    manual_seed(1);
    return std::make_unique<Plan>();
  };
  CHECK(sweep(plan, Fails::heap) > 50);
  CHECK(sweep(plan, Fails::heap_for_good, 3) > 20);
}

}  // namespace
}  // namespace firn::testing
