// Reports of memory: bytes by owner, module and operation, now and at the peak, and timelines.
#include "firn/memory/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "memory/sums.h"
#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using firn::testing::adds_up;

namespace {

struct Block : nn::Module {
  nn::Linear up{64, 256}, down{256, 64};
  FIRN_MEMBERS(up, down)
  Tensor forward(const Tensor& x) override { return x + down(gelu(up(x))); }
};
struct Net : nn::Module {
  std::vector<Block> blocks = std::vector<Block>(2);
  nn::Linear head{64, 10};
  FIRN_MEMBERS(blocks, head)
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (Block& b : blocks) y = b(y);
    return head(y);
  }
};

std::size_t part(const MemoryReport& r, const std::string& path, Owner owner) {
  for (const auto& m : r.modules)
    if (m.path == path) return m.now[static_cast<std::size_t>(owner)];
  return 0;
}

}  // namespace

TEST_CASE("memory_report: activations count for the module whose call made them", "[memory]") {
  Net net;
  net.to(default_device());
  const Tensor x = zeros({32, 64}, TensorOptions{.device = default_device()});
  const MemoryReport before = memory_report();
  const Tensor y = net(x);
  const MemoryReport after = memory_report();
  CHECK(adds_up(after));
  // gelu keeps its input, down() keeps gelu's result: both are made in the block.
  for (const char* block : {"Net.blocks.0", "Net.blocks.1"}) {
    INFO(block);
    CHECK(part(after, block, Owner::activations) > part(before, block, Owner::activations));
    CHECK(part(after, block + std::string(".up"), Owner::activations) >= 32 * 256 * 4);
  }
  CHECK(part(after, "Net.head", Owner::activations) >= 32 * 10 * 4);
  const auto& largest = after.largest;
  REQUIRE(largest.size() == 5);
  CHECK(std::is_sorted(largest.begin(), largest.end(),
                       [](const auto& a, const auto& b) { return a.bytes > b.bytes; }));
}

TEST_CASE("memory_report: a backward pass allocates for the module that it goes back through",
          "[memory]") {
  Net net;
  net.to(default_device());
  const Tensor x = zeros({32, 64}, TensorOptions{.device = default_device()});
  const Tensor loss = sum(net(x));
  const MemoryTimeline timeline;
  loss.backward();
  bool found = false;
  for (const auto& b : timeline.blocks())
    found = found || (b.born > 0 && b.owner == Owner::gradients &&
                      b.module == "Net.blocks.1.down" && b.bytes >= 32 * 256 * 4);
  CHECK(found);
}

TEST_CASE("memory_report: the peak has its operation and its owners", "[memory]") {
  reset_peak_memory();
  const auto before = memory_stats().total.current;
  {
    const Tensor a = zeros({300, 300}), b = zeros({300, 300});
    const Tensor c = exp(a);  // the third is the peak
    CHECK(memory_report().peak_op == "exp");
  }
  { const Tensor small = zeros({10}); }
  const MemoryReport r = memory_report();
  CHECK(r.peak_op == "exp");
  CHECK(r.stats.total.current == before);
  CHECK(r.stats.total.peak >= before + 3 * 360'000);
  CHECK(adds_up(r));
  reset_peak_memory();
  CHECK(memory_stats().total.peak == before);
  CHECK(adds_up(memory_report()));
}

TEST_CASE("memory_report: asked, rounded, cached and reserved bytes", "[memory]") {
  const Tensor a = empty({1001}, u8);
  const MemoryReport r = memory_report();
  CHECK(r.requested <= r.stats.total.current);
  CHECK(r.rounding() == r.stats.total.current - r.requested);
  CHECK(r.cached() + r.stats.total.current == r.stats.reserved);
  CHECK(r.stats.reserved_peak >= r.stats.reserved);
}

TEST_CASE("memory_report: a table and JSON with the same numbers", "[memory]") {
  Net net;
  const Tensor y = net(zeros({8, 64}));
  const MemoryReport r = memory_report();
  const auto json = nlohmann::json::parse(r.json());
  CHECK(json["total"] == r.stats.total.current);
  CHECK(json["peak"] == r.stats.total.peak);
  CHECK(json["owners"]["now"]["weights"] == r.stats.of(Owner::weights).current);
  CHECK(json["modules"].size() == r.modules.size());
  CHECK(json["largest"][0]["bytes"] == r.largest[0].bytes);
  const std::string table = r.table();
  CHECK(table.find("Net.blocks.1.up") != std::string::npos);
  CHECK(table.find("activations") != std::string::npos);
  CHECK(table.find(bytes_to_string(r.stats.total.peak)) != std::string::npos);
}

TEST_CASE("memory_report: modules that are copied, moved or called alone keep their names right",
          "[memory]") {
  Net net;
  const Tensor x = zeros({4, 64});
  const auto made_in = [&](auto&& call) {
    const MemoryTimeline timeline;
    const Tensor y = call();
    std::vector<std::string> names;
    for (const auto& b : timeline.blocks())
      if (b.born > 0) names.push_back(b.module);
    return names;
  };
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  CHECK(has(made_in([&] { return net(x); }), "Net.blocks.0.up"));
  CHECK(has(made_in([&] { return net.blocks[0](x); }), "Block.up"));
  CHECK(has(made_in([&] { return net(x); }), "Net.blocks.0.up"));
  net.blocks.erase(net.blocks.begin());
  const auto shorter = made_in([&] { return net(x); });
  CHECK(has(shorter, "Net.blocks.0.up"));
  CHECK_FALSE(has(shorter, "Net.blocks.1.up"));
  Net moved = std::move(net);
  CHECK(has(made_in([&] { return moved(x); }), "Net.head"));
  CHECK_FALSE(has(made_in([&] { return exp(x); }), "Net.head"));
}

TEST_CASE("memory timeline: blocks, their times, and the totals after each event", "[memory]") {
  const Tensor before = zeros({100});
  MemoryTimeline timeline;
  const auto began = memory_stats().total.current;
  {
    const Tensor a = zeros({1000});
    const Tensor b = exp(a);
  }
  const Tensor c = zeros({10});
  const auto totals = timeline.totals();
  REQUIRE(totals.size() == 6);  // a, b, b's end, a's end, c
  CHECK(totals[0] == began);
  CHECK(totals[4] == began);
  CHECK(totals[5] == memory_stats().total.current);
  CHECK(totals[2] >= began + 2 * 4000);
  int exps = 0;
  for (const auto& b : timeline.blocks()) {
    if (b.op != "exp") continue;
    ++exps;
    CHECK(b.born == 2);
    CHECK(b.died == 3);
  }
  CHECK(exps == 1);
  CHECK_THROWS_WITH(MemoryTimeline(), test::contains("has a timeline already"));
  CHECK(nlohmann::json::parse(timeline.json())["blocks"].size() == timeline.blocks().size());
}

TEST_CASE("OutOfMemory says who has the memory", "[memory][host]") {
  Net net;
  const Tensor y = net(zeros({256, 64}));
  try {
    const FailAllocation fail(0);
    exp(y);
    FAIL("nothing was thrown");
  } catch (const OutOfMemory& e) {
    const std::string text = e.what();
    INFO(text);
    CHECK(text.find("in use: activations") != std::string::npos);
    CHECK(text.find("weights") != std::string::npos);
    CHECK(text.find("by module: Net.blocks.") != std::string::npos);
    CHECK(text.find("largest: 256 KiB activations of ") != std::string::npos);
  }
}
