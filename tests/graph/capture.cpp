// Recording work and replaying it: results, memory, what is refused, and what failures leave
// behind.
#include <algorithm>
#include <optional>
#include <thread>

#include "firn/firn.h"
#include "firn/runtime/graph.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/storage.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::expect_same;
using firn::testing::values_of;
using graph::Graph;

namespace {

std::vector<double> repeated(double value, std::size_t n) { return std::vector<double>(n, value); }

}  // namespace

TEST_CASE("graph: records, runs once, and replays on new data", "[graph]") {
  const Tensor x = full({1000}, 1, f32);
  Tensor y;
  int runs = 0;
  Graph g = Graph::capture(default_device(), [&] {
    ++runs;
    y = exp(x * 2.0) + 1;
  });
  CHECK(runs == 1);
  CHECK(values_of(y) == values_of(exp(x * 2.0) + 1));
  const auto waits = host_waits();
  fill_(x, 0.5);
  g.replay();
  CHECK(host_waits() == waits);
  CHECK(values_of(y) == values_of(exp(x * 2.0) + 1));
  if (default_device().is_cuda()) {
    CHECK(runs == 1);
    CHECK(g.nodes() == 3);
    CHECK(g.names().size() == 3);
    CHECK(g.names()[1] == "exp");
    CHECK(g.summary().find("3 nodes (3 kernels): ") == 0);
  } else {
    CHECK(runs == 2);
    CHECK(g.nodes() == 0);
    CHECK(g.summary() == "run each time, on the CPU");
  }
  Graph moved = std::move(g);
  fill_(x, 0);
  moved.replay();
  CHECK(values_of(y) == repeated(2, 1000));
  Graph none;
  CHECK(error_of([&] { none.replay(); }).find("this graph is empty") != std::string::npos);
  CHECK(error_of([&] { g.replay(); }).find("moved from") !=
        std::string::npos);  // NOLINT: that is the point
  CHECK(none.nodes() == 0);
  CHECK(none.summary() == "empty");
}

TEST_CASE("graph: its memory serves nobody else while it lives", "[graph][gpu]") {
  const Device d = default_device();
  const Tensor x = full({5000}, 1, f32);
  (void)values_of(x * 2.0 + 1);  // its blocks may be taken over
  Tensor y;
  const void* first = nullptr;
  const void* second = nullptr;
  auto g = std::make_optional(Graph::capture(d, [&] {
    {
      const Tensor t = x * 2.0;
      first = t.storage()->data();
      y = t + 1;
    }
    const Tensor again = x * 4.0;  // where t was
    second = again.storage()->data();
    y = y + again;
  }));
  CHECK(first == second);
  // Whoever asks for blocks of that size now gets others.
  std::vector<Tensor> others;
  for (int i = 0; i < 6; ++i) {
    others.push_back(full({5000}, -1, f32));
    CHECK(others.back().storage()->data() != first);
    CHECK(others.back().storage()->data() != y.storage()->data());
  }
  fill_(x, 2);
  g->replay();
  CHECK(values_of(y) == repeated(13, 5000));
  for (const Tensor& o : others) CHECK(values_of(o) == repeated(-1, 5000));

  release_cached_memory(d);  // not what the graph holds
  fill_(x, 3);
  g->replay();
  CHECK(values_of(y) == repeated(19, 5000));

  // A tensor that outlives the graph keeps its memory; the rest can be had again.
  const auto before = memory_stats(d);
  g.reset();
  CHECK(memory_stats(d).total.current == before.total.current);
  CHECK(values_of(y) == repeated(19, 5000));
  const Tensor reused = full({5000}, 0, f32), reused_too = full({5000}, 0, f32);
  CHECK(memory_stats(d).system_allocations == before.system_allocations);
  CHECK(values_of(y) == repeated(19, 5000));
  y = Tensor();
  release_cached_memory(d);
  CHECK(memory_stats(d).reserved == memory_stats(d).total.current);
}

TEST_CASE("graph: memory from outside that is released while recording is kept for it",
          "[graph][gpu]") {
  const Device d = default_device();
  Tensor input = full({7000}, 4, f32), y;
  const void* place = input.storage()->data();
  auto g = std::make_optional(Graph::capture(d, [&] {
    y = input + 1;
    input = Tensor();
  }));
  {
    const Tensor other = full({7000}, -5, f32);
    CHECK(other.storage()->data() != place);
  }
  g->replay();
  CHECK(values_of(y) == repeated(5, 7000));
  g.reset();
  std::vector<Tensor> all;
  bool found = false;
  const auto before = memory_stats(d).system_allocations;
  while (memory_stats(d).system_allocations == before && !found) {
    all.push_back(empty({7000}));
    found = all.back().storage()->data() == place;
  }
  CHECK(found);
}

TEST_CASE("graph: cached memory is not freed during a capture", "[graph][gpu]") {
  const Device d = default_device();
  const Tensor x = full({100}, 2, f32);
  release_cached_memory(d);
  { const Tensor cached = full({70000}, 1, f32); }
  const std::size_t reserved = memory_stats(d).reserved;
  Tensor y;
  Graph g = Graph::capture(d, [&] {
    y = x + 1;
    release_cached_memory(d);
    std::thread([&] { release_cached_memory(d); }).join();
    CHECK(memory_stats(d).reserved >= reserved);
    y = y * 2;
  });
  g.replay();
  CHECK(values_of(y) == repeated(6, 100));
  release_cached_memory(d);
  CHECK(memory_stats(d).reserved < reserved);
}

TEST_CASE("graph: two graphs keep each other's results", "[graph][gpu]") {
  const Device d = default_device();
  const Tensor x = full({100}, 2, f32);
  Tensor a, b;
  auto first = std::make_optional(Graph::capture(d, [&] { a = x * 3.0; }));
  auto second = std::make_optional(Graph::capture(d, [&] {
    b = a + 1;
    a = Tensor();  // a block of the first graph, released while recording the second
  }));
  fill_(x, 5);
  first->replay();
  second->replay();
  CHECK(values_of(b) == repeated(16, 100));
  SECTION("the first goes first") { first.reset(); }
  SECTION("the second goes first") { second.reset(); }
  const Tensor junk = full({100}, -1, f32), more = full({100}, -1, f32);
  if (second) {
    second->replay();
    CHECK(values_of(b) == repeated(16, 100));
  }
  first.reset();
  second.reset();
  b = Tensor();
  release_cached_memory(d);
  CHECK(memory_stats(d).reserved == memory_stats(d).total.current);
}

TEST_CASE("graph: what cannot be recorded is refused by name, and nothing is broken by it",
          "[graph][gpu]") {
  const Device d = default_device();
  const Tensor x = full({10}, 2, f32);
  std::vector<float> host(10, 1);
  struct {
    const char* name;
    std::function<void()> work;
    const char* message;
  } const cases[] = {
      {"item", [&] { (x * 2.0)[3].item(); }, "[copy] cannot be part of a captured graph on cuda:"},
      {"values", [&] { values_of(x); }, "cannot be part of a captured graph"},
      {"upload", [&] { tensor<float>(host, {10}); }, "the host's memory may have changed"},
      {"synchronize", [&] { synchronize(d); }, "[synchronize] cannot be part"},
      {"stream", [&] { synchronize(current_stream(d)); }, "[synchronize] cannot be part"},
      {"nested", [&] { Graph::capture(d, [] {}); }, "capturing a graph already, on cuda:"},
      {"user", [] { throw Error("mine", "stop"); }, "[mine] stop"},
  };
  for (const auto& c : cases) {
    INFO(c.name);
    Tensor y;
    const std::string e = error_of([&] {
      Graph::capture(d, [&] {
        y = x + 1;
        c.work();
      });
    });
    INFO(e);
    CHECK(e.find(c.message) != std::string::npos);
    CHECK_FALSE(runtime::capturing(d));
    y = x + 1;
    CHECK(values_of(y) == repeated(3, 10));
    Graph g = Graph::capture(d, [&] { y = x * 7.0; });
    CHECK(values_of(y) == repeated(14, 10));
    const auto nested = error_of([&] { Graph::capture(d, [&] { g.replay(); }); });
    CHECK(nested.find("cannot be replayed inside a capture") != std::string::npos);
  }
  const auto none = error_of([] { Graph::capture(Device::cuda(100), [] {}); });
  CHECK(none.find("cuda:100 does not exist") != std::string::npos);
}

TEST_CASE("graph: side streams make branches, which have to come back", "[graph][gpu]") {
  const Device d = default_device();
  const Tensor x = full({400}, 1, f32);
  Tensor left, right, both;
  const SideStream side(d);
  const auto work = [&](bool join) {
    return [&, join] {
      Event fork, joined;
      fork.record(current_stream(d));
      {
        const StreamScope scope(side);
        fork.block(side);
        right = x * 3.0;
        right = right + 1;
        joined.record(side);
      }
      left = x * 2.0;
      if (join) joined.block(current_stream(d));
      both = left + (join ? right : left);
      right.storage()->record_use(current_stream(d));
    };
  };
  const auto e = error_of([&] { Graph::capture(d, work(false)); });
  INFO(e);
  CHECK(e.find("does not wait for") != std::string::npos);
  Graph g = Graph::capture(d, work(true));
  CHECK(values_of(both) == repeated(6, 400));
#ifdef FIRN_HAS_CUSIM
  const firn::testing::LazyStreams lazy;
#endif
  for (int i = 0; i < 50; ++i) {
    fill_(x, i);
    g.replay();
    CHECK(values_of(both) == repeated(5 * i + 1, 400));
  }
}

TEST_CASE("graph: side streams made by the work go back to their pool", "[graph][gpu]") {
  const Device d = default_device();
  const Tensor x = full({64}, 3, f32);
  std::vector<void*> seen;
  for (int i = 0; i < 4; ++i) {
    Tensor y;
    Graph g = Graph::capture(d, [&] {
      const SideStream side(d);
      const SideStream other(d);
      CHECK(other.get().handle != side.get().handle);
      if (std::find(seen.begin(), seen.end(), side.get().handle) == seen.end())
        seen.push_back(side.get().handle);
      Event fork, joined;
      fork.record(current_stream(d));
      {
        const StreamScope scope(side);
        fork.block(side);
        y = x + 1;
        joined.record(side);
      }
      joined.block(current_stream(d));
    });
    g.replay();
    CHECK(values_of(y) == repeated(4, 64));
  }
  CHECK(seen.size() <= 3);
}

TEST_CASE("graph: other threads work on the device while one records", "[graph][gpu]") {
  const Device d = default_device();
  const Tensor x = full({100}, 1, f32);
  Tensor y, other;
  std::vector<double> seen;
  Graph g = Graph::capture(d, [&] {
    y = x + 1;
    std::thread([&] {
      other = full({100}, 3, f32, d) * 2.0;  // not recorded
      seen = values_of(other);
    }).join();
    y = y * 2.0;
  });
  CHECK(seen == repeated(6, 100));
  CHECK(g.nodes() == 2);
  CHECK(values_of(y) == repeated(4, 100));
}

TEST_CASE("graph: replays on another stream are ordered with it and with each other",
          "[graph][gpu]") {
  const Device d = default_device();
  Tensor x = full({100}, 0, f32);
  const SideStream side(d);
  const Graph* replayed = nullptr;
  Graph g = Graph::capture(d, [&] { add_(x, full({100}, 1, f32)); });
  replayed = &g;
  CHECK(replayed->nodes() > 0);
#ifdef FIRN_HAS_CUSIM
  const firn::testing::LazyStreams lazy;
#endif
  synchronize(d);
  for (int i = 0; i < 20; ++i) {
    const StreamScope scope(i % 2 ? side.get() : current_stream(d));
    g.replay();
  }
  CHECK(values_of(x) == repeated(21, 100));
}

TEST_CASE("graph: what the host does beside the work is done at every replay", "[graph][gpu]") {
  const Device d = default_device();
  std::vector<int> done;
  const Tensor x = full({4}, 0, f32);
  runtime::on_replay(d, [&] { done.push_back(0); });  // no recording: nothing
  Graph g = Graph::capture(d, [&] {
    runtime::on_replay(d, [&] { done.push_back(1); });
    fill_(x, 1);
    runtime::on_replay(Device::cpu(), [&] { done.push_back(9); });
    runtime::on_replay(d, [&] { done.push_back(2); });
  });
  CHECK(done.empty());
  g.replay();
  CHECK(done == std::vector<int>{1, 2});
  g.replay();
  CHECK(done == std::vector<int>{1, 2, 1, 2});
}

TEST_CASE("graph: what the host did is undone where the work does not run", "[graph][gpu]") {
  const Device d = default_device();
  const Tensor x = full({4}, 0, f32);
  std::string log;
  bool refuse = false;
  const auto work = [&] {
    runtime::on_replay(d, [&] { log += "a"; });
    runtime::on_abandon(d, [&] { log += "A"; });
    fill_(x, 1);
    runtime::on_replay(d, [&] {
      if (refuse) throw Error("test", "not now");
      log += "b";
    });
    runtime::on_abandon(d, [&] { log += "B"; });
  };
  work();  // no recording: nothing
  CHECK(log.empty());
  CHECK(error_of([&] {
          Graph::capture(d, [&] {
            work();
            throw Error("test", "stop");
          });
        }) == "[test] stop");
  CHECK(log == "BA");
  log.clear();
  {
    Graph g = Graph::capture(d, work);
    CHECK(log.empty());
    g.replay();
    CHECK(log == "ab");
    refuse = true;
    log.clear();
    CHECK(error_of([&] { g.replay(); }) == "[test] not now");
    CHECK(log == "aA");
    refuse = false;
#ifdef FIRN_HAS_CUSIM
    log.clear();
    {
      const testing::FailCall fail(1);
      CHECK(error_of([&] { g.replay(); }).find("cudaGraphLaunch failed") != std::string::npos);
    }
    CHECK(log == "abBA");
#endif
    log.clear();
    g.replay();
    CHECK(log == "ab");
  }
  CHECK(log == "ab");
}

TEST_CASE("graph: a capture that never runs leaves the gradients of leaves as they were",
          "[graph][gpu]") {
  const Device d = default_device();
  Tensor fresh = full({3}, 2, f32).set_requires_grad();
  Tensor summed = full({3}, 2, f32).set_requires_grad();
  Tensor shared = full({3}, 2, f32).set_requires_grad();
  const auto work = [&] { (fresh * summed * shared).sum().backward(); };
  const auto refused = [&] {
    CHECK(error_of([&] {
            Graph::capture(d, [&] {
              work();
              throw Error("test", "stop");
            });
          }) == "[test] stop");
  };
  for (Tensor* t : {&summed, &shared}) t->set_grad(full({3}, 7, f32));
  const Tensor holder = shared.grad();  // the next contribution goes to a copy
  refused();
  CHECK_FALSE(fresh.grad().defined());
  for (const Tensor& t : {summed, shared}) expect_same("as it was", values_of(t.grad()), {7, 7, 7});

  // Once it has run, an abandoned replay takes nothing away.
  Graph g = Graph::capture(d, [&] {
    work();
    runtime::on_replay(d, [] { throw Error("test", "not now"); });
  });
  expect_same("computed", values_of(fresh.grad()), {4, 4, 4});
  CHECK(error_of([&] { g.replay(); }) == "[test] not now");
  expect_same("kept", values_of(fresh.grad()), {4, 4, 4});
  expect_same("kept", values_of(shared.grad()), {11, 11, 11});
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("graph: any call of CUDA that fails while recording or replaying is named",
          "[graph][gpu]") {
  const Device d = default_device();
  const Tensor x = full({300}, 1, f32);
  Generator generator(3);
  const auto run = [&] {
    generator.set({3, 0});
    Tensor y;
    Graph g = Graph::capture(d, [&] { y = dropout(x + 1, 0.5, true, generator) * 2.0; });
    g.replay();
    return values_of(y);
  };
  const auto want = run();
  std::uint64_t k = 0;
  int failed = 0;
  for (;; ++k) {
    REQUIRE(k < 1000);
    release_cached_memory(d);
    bool happened = true;
    {
      const firn::testing::FailCall fail(k);
      try {
        const auto got = run();
        CHECK(got == want);
        happened = fail.happened();
      } catch (const Error& e) {
        ++failed;
        const std::string what = e.what();
        INFO(k << ": " << what);
        CHECK((what.find("failed: ") != std::string::npos ||
               what.find("cannot be made to wait") != std::string::npos ||
               dynamic_cast<const OutOfMemory*>(&e) != nullptr));
      }
    }
    CHECK_FALSE(runtime::capturing(d));
    if (!happened) break;
    CHECK(run() == want);
  }
  CHECK(failed > 15);
}
#endif
