// The caching allocator: alignment, reuse, accounting, and what happens when memory ends.
#include <cstdint>
#include <utility>

#include "firn/runtime/kernel_support.h"
#include "firn/runtime/storage.h"
#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;

namespace {
constexpr std::size_t kMiB = std::size_t{1} << 20;
}

TEST_CASE("allocator: every block is 64-byte aligned", "[memory]") {
  for (std::size_t bytes : {0, 1, 63, 64, 65, 100, 4096, 4097, 1 << 20, (1 << 21) + 1, 5 << 20}) {
    const auto s = Storage::allocate(bytes, Device::cpu());
    INFO(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(s->data()) % 64 == 0);
    CHECK(s->bytes() == bytes);
  }
}

TEST_CASE("allocator: a loop that makes the same tensors asks the system once", "[memory]") {
  const auto step = [] {
    const Tensor a = empty({1000}), b = empty({1000}), c = empty({513, 1025});
    return a.numel() + b.numel() + c.numel();
  };
  step();
  const auto before = memory_stats();
  for (int i = 0; i < 100; ++i) step();
  const auto after = memory_stats();
  CHECK(after.system_allocations == before.system_allocations);
  CHECK(after.reserved == before.reserved);
  CHECK(after.allocations == before.allocations + 300);
  CHECK(after.total.current == before.total.current);
}

TEST_CASE("allocator: a slightly smaller request reuses a block", "[memory]") {
#ifdef FIRN_EXACT_BLOCKS
  if (default_device().is_cuda()) return;  // the simulator's check mode rounds no request up
#endif
  { const Tensor a = empty({64, 1000}); }
  const auto before = memory_stats();
  { const Tensor a = empty({63, 1000}); }  // the last, shorter batch of an epoch
  CHECK(memory_stats().system_allocations == before.system_allocations);
}

TEST_CASE("allocator: bytes are counted for their owner, with peaks", "[memory]") {
  reset_peak_memory();
  const auto before = memory_stats();
  {
    const OwnerScope scope(Owner::weights);
    CHECK(OwnerScope::current() == Owner::weights);
    const Tensor w = empty({1024, 1024});
    CHECK(w.storage()->owner() == Owner::weights);
    const auto inside = memory_stats();
    CHECK(inside.of(Owner::weights).current == before.of(Owner::weights).current + 4 * kMiB);
    CHECK(inside.total.current == before.total.current + 4 * kMiB);
    {
      const OwnerScope data(Owner::data);
      const Tensor d = empty({1024, 512});
      CHECK(memory_stats().of(Owner::data).current == before.of(Owner::data).current + 2 * kMiB);
    }
    CHECK(OwnerScope::current() == Owner::weights);
  }
  CHECK(OwnerScope::current() == Owner::activations);
  const auto after = memory_stats();
  CHECK(after.of(Owner::weights).current == before.of(Owner::weights).current);
  CHECK(after.of(Owner::weights).peak == before.of(Owner::weights).current + 4 * kMiB);
  CHECK(after.of(Owner::data).peak == before.of(Owner::data).current + 2 * kMiB);
  CHECK(after.total.peak == before.total.current + 6 * kMiB);
  reset_peak_memory();
  CHECK(memory_stats().total.peak == memory_stats().total.current);
}

TEST_CASE("allocator: owners have names", "[memory]") {
  CHECK(std::string(to_string(Owner::weights)) == "weights");
  CHECK(std::string(to_string(Owner::activations)) == "activations");
  CHECK(std::string(to_string(Owner::data)) == "data");
}

TEST_CASE("allocator: cached blocks are given back on request", "[memory]") {
  { const Tensor a = empty({3, 1024, 1024}); }
  CHECK(memory_stats().reserved >= 12 * kMiB);
  release_cached_memory();
  const auto s = memory_stats();
  CHECK(s.reserved == s.total.current);
  const Tensor again = zeros({3, 1024, 1024});
  CHECK(memory_stats().system_allocations == s.system_allocations + 1);
}

TEST_CASE("allocator: more than there is throws OutOfMemory with the figures", "[memory]") {
  const auto before = memory_stats();
  try {
    empty({1ll << 50}, u8);
    FAIL("a pebibyte was allocated");
  } catch (const OutOfMemory& e) {
    CHECK(e.requested_bytes() == std::size_t{1} << 50);
    CHECK(std::string(e.what()).find("1125899906842624 bytes on " + to_string(default_device())) !=
          std::string::npos);
    CHECK(e.hint().find("smaller batch") != std::string::npos);
  }
  CHECK(memory_stats().total.current == before.total.current);
}

TEST_CASE("allocator: sizes that rounding up would wrap throw OutOfMemory", "[memory]") {
  const Device d = default_device();
  const auto before = memory_stats();
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX - (std::size_t{1} << 31) + 1,
                                  SIZE_MAX / 2 + 2, SIZE_MAX / 2}) {
    CAPTURE(bytes);
    CHECK_THROWS_AS(Storage::allocate(bytes, d), OutOfMemory);
    CHECK_THROWS_AS(Storage::allocate(bytes, Device::cpu()), OutOfMemory);
    CHECK_THROWS_AS(runtime::Workspace(bytes, current_stream(d)), OutOfMemory);
    CHECK_THROWS_AS(PinnedMemory(bytes), OutOfMemory);
  }
  CHECK(memory_stats().total.current == before.total.current);
  CHECK(ones({3}).to_vector<float>() == std::vector<float>(3, 1));  // the allocator still works
}

TEST_CASE("storage: a part must lie inside its block", "[memory]") {
  const auto block = Storage::allocate(64, Device::cpu());
  struct Part {
    std::size_t offset, bytes;
  };
  for (const Part& p : {Part{SIZE_MAX, 10}, Part{32, SIZE_MAX - 10}, Part{32, 33}, Part{65, 0}}) {
    CAPTURE(p.offset, p.bytes);
    const std::string said = error_of([&] { Storage::part_of(block, p.offset, p.bytes); });
    CHECK(said.find("[Storage::part_of]") == 0);
  }
  CHECK(error_of([&] { Storage::part_of({}, 0, 0); }).find("null") != std::string::npos);
  CHECK(Storage::part_of(block, 32, 32)->bytes() == 32);
  CHECK(Storage::part_of(block, 64, 0)->bytes() == 0);

  const auto small = Storage::allocate(40, Device::cpu());
  void* const place = small->data();
  CHECK(error_of([&] {
          small->move_into(block, 32);
        }).find("[Storage::move_into] 40 bytes from byte 32 on of a block of 64 bytes") == 0);
  CHECK(small->data() == place);
}

TEST_CASE("fault injection: the k-th allocation fails, the next one works", "[memory]") {
  const FailAllocation fail(2);
  CHECK_NOTHROW(empty({8}));
  CHECK_NOTHROW(empty({8}));
  CHECK_THROWS_AS(empty({8}), OutOfMemory);
  CHECK_NOTHROW(empty({8}));
}

TEST_CASE("fault injection: a sticky failure stays until its scope ends", "[memory]") {
  {
    const FailAllocation fail(0, true);
    CHECK_THROWS_AS(empty({8}), OutOfMemory);
    CHECK_THROWS_AS(empty({8}), OutOfMemory);
  }
  CHECK_NOTHROW(empty({8}));
}

TEST_CASE("fault injection: an op that runs out of memory leaves its operands as they were",
          "[memory]") {
  using firn::testing::make;
  using firn::testing::values_of;
  const std::vector<double> values = {1, -2, 3, -4, 5, -6};
  struct {
    const char* name;
    std::function<Tensor(Tensor&)> op;
  } const ops[] = {
      {"add", [](Tensor& x) { return x + x; }},
      {"exp", [](Tensor& x) { return exp(x); }},
      {"sum", [](Tensor& x) { return sum(x, {0}); }},
      {"softmax", [](Tensor& x) { return softmax(x, 0); }},
      {"matmul", [](Tensor& x) { return matmul(x, transpose(x, 0, 1)); }},
      {"cat",
       [](Tensor& x) {
         return cat({x, x}, 1);
       }},
      {"reshape", [](Tensor& x) { return reshape(transpose(x, 0, 1), {6}); }},
      {"exp_", [](Tensor& x) { return exp_(x); }},
      {"var", [](Tensor& x) { return var(x, {1}); }},
  };
  for (const auto& c : ops) {
    INFO(c.name);
    for (std::uint64_t k = 0; k < 20; ++k) {
      Tensor x = make(values, {2, 3});
      const auto before = memory_stats().total.current;
      const auto version = x.storage()->version();
      bool failed = false;
      try {
        const FailAllocation fail(k);
        c.op(x);
      } catch (const OutOfMemory&) {
        failed = true;
      }
      if (!failed) break;  // the op needs no more than k allocations
      REQUIRE(k < 19);
      CHECK(values_of(x) == values);
      CHECK(x.storage()->version() == version);
      CHECK(memory_stats().total.current == before);
    }
  }
}

TEST_CASE("fault injection: a backward pass that fails can be done again", "[memory]") {
  using firn::testing::values_of;
  const auto loss_of = [](const Tensor& x, const Tensor& w) {
    return sum(square(tanh(matmul(x, w))));
  };
  const std::vector<double> values = {0.1, -0.2, 0.3, -0.4};
  Tensor x = firn::testing::make(values, {2, 2}), w = firn::testing::make(values, {2, 2});
  w.set_requires_grad();
  loss_of(x, w).backward();
  const auto want = values_of(w.grad());
  for (std::uint64_t k = 0;; ++k) {
    REQUIRE(k < 200);
    w.set_grad({});
    bool failed = false;
    try {
      const Tensor loss = loss_of(x, w);
      const FailAllocation fail(k);
      loss.backward();
    } catch (const OutOfMemory&) {
      failed = true;
    }
    if (!failed) break;
    w.set_grad({});
    loss_of(x, w).backward();
    CHECK(values_of(w.grad()) == want);
  }
}

TEST_CASE("storage: versions count writes and remember the writer", "[memory]") {
  Tensor x = zeros({4});
  CHECK(x.storage()->version() == 0);
  add_(x, 1);
  CHECK(x.storage()->version() == 1);
  CHECK(std::string(x.storage()->last_writer()) == "add_");
  Tensor y = x;
  exp_(y);
  CHECK(x.storage()->version() == 2);
  CHECK(std::string(x.storage()->last_writer()) == "exp_");
}

TEST_CASE("storage: borrowed memory is neither counted nor freed", "[memory]") {
  alignas(64) float mine[16] = {};
  const auto before = memory_stats();
  {
    const auto s = Storage::borrow(mine, sizeof mine, Device::cpu());
    CHECK(s->data() == mine);
    CHECK(s->bytes() == 64);
  }
  CHECK(memory_stats().total.current == before.total.current);
  CHECK(mine[0] == 0);
}
