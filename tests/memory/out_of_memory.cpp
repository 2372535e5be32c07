// S22, S37: memory that runs out in a cycle.
#include <optional>

#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::values_of;

namespace {

struct Net : nn::Module {
  nn::Linear a{6, 16}, b{16, 3};
  nn::Dropout drop{0.2};
  FIRN_MEMBERS(a, b, drop)
  Tensor forward(const Tensor& x) override { return b(drop(gelu(a(x)))); }
};
struct NormNet : nn::Module {
  nn::Linear a{6, 16}, b{16, 3};
  nn::BatchNorm1d norm{16};
  FIRN_MEMBERS(a, b, norm)
  Tensor forward(const Tensor& x) override { return b(norm(a(x))); }
};

template <class Model>
struct Training {
  struct Seeded {
    Seeded() { manual_seed(3); }
  } seeded;  ///< before the weights are drawn
  Model net;
  std::optional<optim::Adam> opt;
  Tensor x, y;
  explicit Training(optim::StepOptions options = {}) {
    net.to(default_device());
    opt.emplace(net.parameters(), optim::AdamOptions{}, options);
    x = randn({24, 6});
    y = randn({24, 3});
  }
  Loss loss(std::int64_t first, std::int64_t last) {
    return mse_loss(net(x.slice(0, first, last)), y.slice(0, first, last));
  }
  optim::StepReport batch(const optim::MicroBatch& size) {
    return opt->run_batch(24, size, [this](auto first, auto last) { return loss(first, last); });
  }
  std::vector<std::vector<double>> state() {
    std::vector<std::vector<double>> all;
    for (const auto& s : opt->state()) all.push_back(values_of(s.tensor));
    for (const auto& b : net.named_buffers()) all.push_back(values_of(b.tensor));
    all.push_back({static_cast<double>(default_generator().get().offset)});
    return all;
  }
};

}  // namespace

TEST_CASE(
    "[S22] oom_transaction: memory that runs out halves the micro-batch and runs the cycle again") {
  for (std::uint64_t k = 0;; ++k) {
    CAPTURE(k);
    Training<Net> t;
    std::optional<FailAllocation> fail(std::in_place, k);
    const optim::StepReport report = t.batch({.size = 24});
    fail.reset();
    CHECK(report.applied());
    CHECK(report.weight() == 72);
    Training<Net> same;
    same.batch({.size = report.micro_batch()});
    CHECK((t.state() == same.state()));
    if (report.memory_retries() == 0) {
      CHECK(k > 10);
      CHECK(report.micro_batch() == 24);
      break;
    }
    CHECK(report.memory_retries() == 1);
    CHECK(report.micro_batch() == 12);
    const std::string text = to_string(report);
    CHECK(text.starts_with("step 1 applied: weight 72"));
    CHECK(text.ends_with("; memory ran out 1 time, micro-batches of 12"));
    // A size that worked is kept.
    CHECK(t.batch({.size = 24}).micro_batch() == 12);
    CHECK(t.batch({.size = 24}).memory_retries() == 0);
    CHECK(t.batch({.size = 8}).micro_batch() == 8);
    CHECK(t.opt->last_report().micro_batch() == 8);
    t.opt->backward(t.loss(0, 24));
    CHECK(t.opt->step().micro_batch() == 0);  // the cycle of no batch
    CHECK(t.opt->last_report().micro_batch() == 0);
  }
}

TEST_CASE("[S37] oom_transaction: a cycle that cannot be run leaves all as before") {
  Training<Net> t;
  t.batch({.size = 24});
  const auto before = t.state();
  for (const std::uint64_t k : {0, 3, 11}) {
    CAPTURE(k);
    const FailAllocation fail(k, true);
    CHECK_THROWS_AS(t.batch({.size = 24}), OutOfMemory);
  }
  CHECK((t.state() == before));
  // No smaller size has worked, so none is kept.
  const optim::StepReport report = t.batch({.size = 24});
  CHECK(report.applied());
  CHECK(report.micro_batch() == 24);
}

TEST_CASE("[S37] oom_transaction: a layer that normalises by micro-batch refuses, by name") {
  Training<NormNet> t;
  const auto before = t.state();
  {
    const FailAllocation fail(6);
    const auto text = error_of([&] { t.batch({.size = 24}); });
    INFO(text);
    CHECK(text.find("norm (BatchNorm1d) normalises the samples of a micro-batch together") !=
          std::string::npos);
  }
  CHECK((t.state() == before));
  {
    const FailAllocation fail(6);
    CHECK(t.batch({.size = 24, .split_statistics = true}).micro_batch() == 12);
  }
  const FailAllocation fail(6);
  CHECK_THROWS_AS(t.batch({.size = 24, .halve_on_out_of_memory = false}), OutOfMemory);
}

TEST_CASE(
    "[S37] oom_transaction: a loop by hand has the state before the micro-step, or drops the "
    "cycle") {
  for (const bool keeps : {true, false}) {
    CAPTURE(keeps);
    const auto options = optim::StepOptions{.accumulate = 3, .keep_accumulator = keeps};
    for (std::uint64_t k = 0;; ++k) {
      CAPTURE(k);
      Training<Net> t(options);
      t.opt->backward(t.loss(0, 8));
      t.opt->step();
      const auto before = t.state();
      const Loss loss = t.loss(8, 16);
      std::string text;
      try {
        const FailAllocation fail(k);
        t.opt->backward(loss, {.retain_graph = true});
      } catch (const OutOfMemory& e) {
        text = e.what();
      }
      if (text.empty()) {
        CHECK(k > 2);
        break;
      }
      if (k == 0) {  // the seed's memory: nothing had begun
        CHECK(t.opt->cycle_position() == 1);
      } else if (keeps) {
        CHECK(text.find("the cycle is as it was before this backward()") != std::string::npos);
        auto now = t.state();
        now.back() = before.back();  // the forward pass of the micro-step drew numbers
        CHECK((now == before));
        CHECK(t.opt->cycle_position() == 1);
      } else {
        CHECK(text.find("the cycle was dropped, with 1 backward passes before this one") !=
              std::string::npos);
        CHECK(t.opt->cycle_position() == 0);
      }
    }
  }
}

TEST_CASE("[S22] oom_transaction: sizes that are planned stay within their budget") {
  Training<Net> whole;
  const auto peak_of = [](const optim::MicroBatch& size) {
    Training<Net> t;
    reset_peak_memory();
    t.batch(size);
    return memory_stats().total.peak;
  };
  std::size_t last = 0;
  for (const std::int64_t size : {1, 2, 4, 8, 24}) {
    const std::size_t peak = peak_of({.size = size});
    Training<Net> t;
    reset_peak_memory();
    const auto report = t.batch(optim::MicroBatch::within(peak));
    CHECK(report.micro_batch() >= size);
    CHECK(memory_stats().total.peak <= peak);
    CHECK(memory_stats().total.peak >= last);
    last = memory_stats().total.peak;
  }
  Training<Net> t;
  const auto before = t.state();
  const auto text = error_of([&] { t.batch(optim::MicroBatch::within(1000)); });
  INFO(text);
  CHECK(text.find("micro-batches of one sample have a peak of") != std::string::npos);
  CHECK(text.find("plan_within()") != std::string::npos);
  CHECK(text.find("smaller batch") == std::string::npos);  // there is none
  CHECK((t.state() == before));
  CHECK(error_of([&] { t.batch({}); }).find("has no limit of memory") != std::string::npos);
  CHECK(error_of([&] { t.batch({.size = -1}); }).find("-1") != std::string::npos);
}
