// Trainings in which memory runs out again and again, or is too small from the start.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using firn::testing::Rng;
using firn::testing::values_of;

namespace {

struct Block : nn::Module {
  nn::Linear up{8, 32}, down{32, 8};
  FIRN_MEMBERS(up, down)
  Tensor forward(const Tensor& x) override { return x + down(gelu(up(x))); }
};

struct Net : nn::Module {
  std::vector<Block> blocks{3};
  nn::Linear head{8, 4};
  FIRN_MEMBERS(blocks, head)
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (Block& b : blocks) h = b(h);
    return head(h);
  }
};

constexpr std::int64_t kSamples = 24;

struct Training {
  struct Seeded {
    Seeded() { manual_seed(3); }
  } seeded;
  Net net;
  optim::AdamW opt{net.parameters(), {.lr = 1e-2}};
  Tensor x = randn({kSamples, 8}), y = argmax(randn({kSamples, 4}), 1);

  Loss loss(std::int64_t first, std::int64_t last) {
    return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
  }
  optim::StepReport step(std::int64_t size) {
    return opt.run_batch(kSamples, {.size = size},
                         [this](auto first, auto last) { return loss(first, last); });
  }
  double final_loss() {
    const NoGrad guard;
    return loss(0, kSamples).item();
  }
};

}  // namespace

TEST_CASE("oom_transaction: 500 failures in a training change its loss by rounding alone",
          "[long]") {
  const std::size_t before = memory_stats().total.current;
  double clean = 0;
  {
    Training t;
    for (int i = 0; i < 500; ++i) t.step(kSamples);
    clean = t.final_loss();
  }
  {
    Training t;
    Rng rng(5);
    int failures = 0, retries = 0;
    for (int i = 0; i < 500; ++i) {
      // Another size each time, so that a halved one is not kept.
      const std::int64_t size = kSamples - i % 2;
      for (bool done = false; !done;) {
        try {
          const FailAllocation fail(static_cast<std::uint64_t>(rng.below(40)));
          retries += static_cast<int>(t.step(size).memory_retries());
          done = true;
        } catch (const OutOfMemory&) {  // outside of what is repeated: all is as before
          ++failures;
        }
      }
    }
    CAPTURE(failures, retries);
    CHECK(failures + retries >= 400);
    CHECK(t.opt.last_report().applied());
    const double loss = t.final_loss();
    CHECK(std::abs(loss - clean) <= 1e-4 * std::abs(clean) + 1e-6);
  }
  CHECK(memory_stats().total.current == before);
}

TEST_CASE("oom_transaction: at 64 limits a training ends, or says why not", "[long]") {
  const auto train = [] {
    Training t;
    nn::checkpoint_blocks(t.net);
    for (int i = 0; i < 3; ++i) t.step(kSamples);
    return t.final_loss();
  };
  release_cached_memory();
  reset_peak_memory();
  const std::size_t low = memory_stats().reserved;
  train();
  const std::size_t high = memory_stats().reserved_peak;
  const double clean = train();
  int ended = 0, refused = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    release_cached_memory();
    const std::size_t limit = low + (high - low + 4096) * (i + 1) / 60;
    set_memory_limit(limit);
    try {
      const double loss = train();
      CHECK(loss == Approx(clean));
      ++ended;
    } catch (const OutOfMemory& e) {
      CHECK_THAT(e.what(), test::contains("limit"));
      CHECK(e.requested_bytes() > 0);
      ++refused;
    }
    CHECK(memory_stats().reserved <= limit);
    set_memory_limit(0);
  }
  CAPTURE(low, high);
  CHECK(ended >= 5);
  CHECK(refused >= 5);
  CHECK(train() == Approx(clean));
}

TEST_CASE("oom_transaction: an error says what would fit", "[host]") {
  constexpr std::int64_t kMany = 8192;
  Training t;
  const Tensor x = randn({kMany, 8}), y = zeros({kMany}, i64);
  const auto run = [&](std::int64_t size) {
    t.opt.run_batch(kMany, size, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(t.net(x.slice(0, first, last)), y.slice(0, first, last));
    });
  };
  run(16);
  release_cached_memory();
  const std::size_t whole = plan_memory([&] { run(kMany); }).report.stats.reserved_peak,
                    part = plan_memory([&] { run(kMany / 8); }).report.stats.reserved_peak;
  REQUIRE(whole > part + (1 << 20));
  set_memory_limit((whole + part) / 2);
  std::string text;
  try {
    run(kMany);
  } catch (const OutOfMemory& e) {
    text = e.what();
  }
  set_memory_limit(0);
  CHECK_THAT(text, test::contains("micro-batches of") && test::contains("would fit") &&
                       test::contains("optim::plan_within()"));
}

TEST_CASE("oom_transaction: no smaller batch is advised where there is none", "[host]") {
  Training t;
  t.step(kSamples);
  const auto text_of = [&](const auto& call) -> std::string {
    release_cached_memory();
    set_memory_limit(memory_stats().reserved + 1);
    std::string text = "nothing was thrown";
    try {
      call();
    } catch (const OutOfMemory& e) {
      text = e.what();
    }
    set_memory_limit(0);
    return text;
  };
  const auto one = [&](std::int64_t first, std::int64_t last) {
    randn({1 << 20});
    return t.loss(first, last);
  };
  for (const std::string& text :
       {text_of([&] { t.opt.run_batch(1, 1, one); }),
        text_of([&] { t.opt.run_batch(1, {.size = 1}, one); }),
        text_of([&] { t.opt.run_batch(kSamples, {.size = 1}, one); }),
        text_of([&] { t.opt.run_batch(1, {.size = 1, .halve_on_out_of_memory = false}, one); })}) {
    INFO(text);
    CHECK(text.find("smaller batch") == std::string::npos);
    CHECK(text.find("optim::plan_within()") != std::string::npos);
    CHECK(text.find("DistributeOptions::zero") != std::string::npos);
  }
  std::string text;
  try {
    nn::checkpoint_within(t.net, 1000, [&] { t.step(kSamples); });
  } catch (const OutOfMemory& e) {
    text = e.what();
  }
  CHECK_THAT(text,
             test::contains("give a larger budget") && !test::contains("use a smaller batch"));
}
