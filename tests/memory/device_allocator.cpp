// The allocator of a CUDA device: accounts, memory that runs out, calls that fail.
#include "firn/firn.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/storage.h"
#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::values_of;

namespace {
constexpr std::size_t kMiB = std::size_t{1} << 20;
}

TEST_CASE("device memory: bytes are counted for their owner, with peaks", "[memory][gpu]") {
  const Device d = default_device();
  reset_peak_memory(d);
  const auto before = memory_stats(d), host = memory_stats(Device::cpu());
  {
    const OwnerScope scope(Owner::optimizer);
    const Tensor m = empty({1024, 1024});
    const runtime::Workspace scratch(kMiB, current_stream(d));
    CHECK(scratch.bytes() == kMiB);
    CHECK(reinterpret_cast<std::uintptr_t>(scratch.data()) % 256 == 0);
    const auto inside = memory_stats(d);
    CHECK(inside.of(Owner::optimizer).current == before.of(Owner::optimizer).current + 4 * kMiB);
    CHECK(inside.of(Owner::workspace).current == before.of(Owner::workspace).current + kMiB);
    CHECK(inside.total.current == before.total.current + 5 * kMiB);
    CHECK(inside.allocations == before.allocations + 2);
  }
  const auto after = memory_stats(d);
  CHECK(after.total.current == before.total.current);
  CHECK(after.total.peak == before.total.current + 5 * kMiB);
  CHECK(memory_stats(Device::cpu()).total.current == host.total.current);
}

TEST_CASE("device memory: a loop that makes the same tensors asks the device once",
          "[memory][gpu]") {
  const Device d = default_device();
  const auto step = [] {
    const Tensor a = zeros({1000}), b = zeros({1000}), c = empty({513, 1025});
    return sum(a + b).numel() + c.numel();
  };
  step();
  const auto before = memory_stats(d);
  const auto waits = host_waits();
  for (int i = 0; i < 50; ++i) step();
  CHECK(memory_stats(d).system_allocations == before.system_allocations);
  CHECK(memory_stats(d).reserved == before.reserved);
  CHECK(host_waits() == waits);
}

TEST_CASE("device memory: cached blocks are given back on request", "[memory][gpu]") {
  const Device d = default_device();
  { const Tensor a = zeros({3, 1024, 1024}); }
  const auto held = memory_stats(d);
  CHECK(held.reserved >= held.total.current + 12 * kMiB);
  const auto waits = host_waits();
  release_cached_memory(d);
  CHECK(host_waits() > waits);  // its work was not done
  const auto s = memory_stats(d);
  CHECK(s.reserved == s.total.current);
  const Tensor again = zeros({3, 1024, 1024});
  CHECK(memory_stats(d).system_allocations == s.system_allocations + 1);
}

TEST_CASE("device memory: a failing allocation leaves a training step to be done again",
          "[memory][gpu]") {
  manual_seed(7);
  const Tensor x = randn({8, 6}), w = randn({6, 5}).set_requires_grad();
  const auto loss = [&] { return sum(square(tanh(matmul(x, w)))); };
  loss().backward();
  const auto want = values_of(w.grad());
  std::uint64_t k = 0;
  for (;; ++k) {
    REQUIRE(k < 200);
    w.set_grad({});
    bool failed = false;
    try {
      const FailAllocation fail(k);
      loss().backward();
    } catch (const OutOfMemory& e) {
      failed = true;
      CHECK(std::string(e.what()).find("injected failure") != std::string::npos);
    }
    if (!failed) break;
    w.set_grad({});
    loss().backward();
    CHECK(values_of(w.grad()) == want);
  }
  CHECK(k > 3);
}

#ifdef FIRN_HAS_CUSIM
using firn::testing::DeviceMemory;
using firn::testing::FailCall;
using firn::testing::LazyStreams;

TEST_CASE("device memory: when it runs out, cached blocks are given back first", "[memory][gpu]") {
  const Device d = default_device();
  release_cached_memory(d);
  const auto before = memory_stats(d);
  const DeviceMemory limit(before.reserved + 10 * kMiB);
  const LazyStreams lazy;
  const Tensor kept = full({256 * 1024}, 3, f32);  // 1 MiB
  { const Tensor cached = full({6 * 256 * 1024}, 4, f32); }
  CHECK(memory_stats(d).reserved == before.reserved + 7 * kMiB);
  const Tensor large = full({8 * 256 * 1024}, 5, f32);  // fits only without the cached block
  CHECK(memory_stats(d).reserved == before.reserved + 9 * kMiB);
  const auto allocated = memory_stats(d).allocations;
  try {
    empty({2 * 256 * 1024});
    FAIL("12 MiB fit into 10");
  } catch (const OutOfMemory& e) {
    CHECK(e.requested_bytes() == 2 * kMiB);
    CHECK(std::string(e.what()).find("no memory left: 2097152 bytes on " + to_string(d)) !=
          std::string::npos);
  }
  CHECK(memory_stats(d).allocations == allocated);
  CHECK(empty({256 * 1024}).defined());
  CHECK(sum(kept).item() == 3 * 256 * 1024);
  CHECK(large[7].item() == 5);
}

TEST_CASE("device memory: a model trains, or says that memory is short, at any size of it",
          "[memory][gpu]") {
  const Device d = default_device();
  const auto run = [] {
    manual_seed(3);
    const Tensor x = randn({64, 100}), w = randn({100, 200}).set_requires_grad();
    const Tensor loss = sum(square(relu(matmul(x, w))));
    loss.backward();
    return values_of(w.grad());
  };
  const auto want = run();
  int short_of_memory = 0;
  for (std::size_t limit = 0; limit < 64; ++limit) {
    release_cached_memory(d);
    const auto held = memory_stats(d);
    {
      const DeviceMemory memory(held.reserved + limit * 8 * 1024);
      try {
        const auto got = run();
        CHECK(got == want);
      } catch (const OutOfMemory&) {
        ++short_of_memory;
      }
    }
    CHECK(memory_stats(d).total.current == held.total.current);
  }
  CHECK(short_of_memory > 10);
  CHECK(short_of_memory < 64);
  CHECK(run() == want);
}

TEST_CASE("device memory: any call of CUDA that fails is named, and the work can be done again",
          "[memory][gpu]") {
  const Device d = default_device();
  const auto run = [&] {
    manual_seed(5);
    const Tensor x = rand({50, 40}), y = dropout(x, 0.5, true);
    const SideStream side(d);
    Event ready;
    ready.record(current_stream(d));
    Tensor z;
    {
      const StreamScope scope(side);
      ready.block(side);
      z = softmax(y + x, 1);
    }
    x.storage()->record_use(side);
    y.storage()->record_use(side);
    Event done;
    done.record(side);
    done.block(current_stream(d));
    const PinnedMemory pinned(64);
    const Tensor s = sum(z, {0});
    copy_bytes_async(const_cast<void*>(pinned.data()), Device::cpu(), s.storage()->data(), d, 64);
    synchronize(current_stream(d));
    release_cached_memory(d);
    auto got = values_of(s);
    got.push_back(static_cast<const float*>(pinned.data())[15]);
    return got;
  };
  const auto want = run();
  std::uint64_t k = 0;
  int failed = 0;
  for (;; ++k) {
    REQUIRE(k < 2000);
    bool happened = false;
    try {
      const FailCall fail(k);
      try {
        const auto got = run();
        CHECK(got == want);  // a call whose failure does no harm
        happened = fail.happened();
      } catch (...) {
        happened = true;
        throw;
      }
    } catch (const Error& e) {
      ++failed;
      const std::string what = e.what();
      INFO(k << ": " << what);
      CHECK(
          ((what.find("cuda") != std::string::npos && what.find("failed: ") != std::string::npos) ||
           what.find("launch failed: ") != std::string::npos ||
           dynamic_cast<const OutOfMemory*>(&e) != nullptr));
    }
    if (!happened) break;
    CHECK(run() == want);
  }
  CHECK(k > 40);
  CHECK(failed > 20);
}
#endif
