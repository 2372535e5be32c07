// Scratch memory of chunks: a slot for each thread, in which blocks do not overlap.
#include "kernels/cpu/device/scratch.h"

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "firn/memory.h"
#include "support/catch.h"
#include "support/threads.h"

using namespace firn;
using kernels::cpu::kParallelWork;
using kernels::cpu::parallel_for_with_scratch;
using kernels::cpu::scratch_of;
using kernels::cpu::ScratchMemory;
using kernels::cpu::Slot;
using kernels::cpu::slot_bytes;
using kernels::cpu::Workspace;
using testing::Threads;

namespace {

/// Fills a block with a number of its own, and throws if another chunk wrote there. Does nothing in
/// a dry run.
void use(const View& v, std::int64_t number) {
  if (runtime::dry_run()) return;
  auto* const x = v.as<std::int64_t>();
  for (std::int64_t i = 0; i < v.numel(); ++i) x[i] = number;
  std::this_thread::yield();
  for (std::int64_t i = 0; i < v.numel(); ++i)
    if (x[i] != number) throw std::logic_error("another chunk's memory");
}

std::size_t workspace_peak() { return memory_stats(Device::cpu()).of(Owner::workspace).peak; }
std::size_t workspace_now() { return memory_stats(Device::cpu()).of(Owner::workspace).current; }

}  // namespace

TEST_CASE("chunks that run at once have memory of their own", "[host][threads]") {
  const Threads threads(GENERATE(1, 2, 3, 8));
  const std::uint64_t before = Slot::overflows();
  constexpr std::int64_t kNumbers = 100;
  const std::int64_t bytes = 2 * slot_bytes(8 * kNumbers);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> runs{0};
    const std::int64_t chunks = 1 + round % 37;
    parallel_for_with_scratch(bytes, chunks, kParallelWork, [&](std::int64_t i) {
      for (int again = 0; again < 2; ++again) {  // the second time the same memory serves
        const Workspace a({kNumbers}, DType::i64), b({kNumbers}, DType::i64);
        if (reinterpret_cast<std::uintptr_t>(a.view().data) % 64 != 0)
          throw std::logic_error("not aligned");
        use(a.view(), 2 * i);
        use(b.view(), 2 * i + 1);
        if (*a.view().as<std::int64_t>() != 2 * i) throw std::logic_error("b is a");
      }
      ++runs;
    });
    REQUIRE(runs == chunks);
  }
  CHECK(Slot::overflows() == before);
  CHECK(workspace_now() == 0);
}

TEST_CASE("the calling thread allocates the slots of all threads at once", "[host][threads]") {
  constexpr std::int64_t kBytes = 1 << 16;
  const auto peak = [&](std::int64_t chunks, std::int64_t work) {
    reset_peak_memory(Device::cpu());
    const std::uint64_t before = memory_stats(Device::cpu()).allocations;
    parallel_for_with_scratch(kBytes, chunks, work,
                              [&](std::int64_t) { const ScratchMemory all(kBytes); });
    CHECK(memory_stats(Device::cpu()).allocations == before + 1);
    return workspace_peak();
  };
  const Threads threads(4);
  CHECK(peak(10, kParallelWork) == 4 * kBytes);
  CHECK(peak(3, kParallelWork) == 3 * kBytes);
  CHECK(peak(1, kParallelWork) == kBytes);
  CHECK(peak(10, kParallelWork - 1) == kBytes);
}

TEST_CASE("nested chunks take their memory from the outer slot", "[host][threads]") {
  const Threads threads(GENERATE(1, 3));
  const std::uint64_t before = Slot::overflows();
  const auto inner = [](std::int64_t number) {
    const Workspace own({10}, DType::i64);
    parallel_for_with_scratch(slot_bytes(80), 5, kParallelWork, [&](std::int64_t i) {
      const Workspace more({10}, DType::i64);
      use(more.view(), 100 * number + i);
    });
    use(own.view(), number);
  };
  const std::int64_t bytes = scratch_of([&] { inner(0); });
  CHECK(bytes == 2 * slot_bytes(80));
  const std::uint64_t allocations = memory_stats(Device::cpu()).allocations;
  parallel_for_with_scratch(bytes, 40, kParallelWork, inner);
  CHECK(memory_stats(Device::cpu()).allocations == allocations + 1);
  CHECK(Slot::overflows() == before);
}

TEST_CASE("a slot that is too small is noticed, and memory comes from the allocator",
          "[host][threads]") {
  const std::uint64_t before = Slot::overflows();
  parallel_for_with_scratch(64, 1, 0, [](std::int64_t) {
    const Workspace large({100}, DType::i64);
    use(large.view(), 5);
  });
  CHECK(Slot::overflows() == before + 1);
  CHECK(workspace_now() == 0);
}

TEST_CASE("scratch memory moves", "[host][threads]") {
  const Threads threads(1);
  parallel_for_with_scratch(3 * 64, 1, 0, [](std::int64_t) {
    Workspace a({8}, DType::i64);
    use(a.view(), 1);
    Workspace b({8}, DType::i64);
    use(b.view(), 2);
    a = std::move(b);
    CHECK(*a.view().as<std::int64_t>() == 2);
    const Workspace c({8}, DType::i64);
    use(c.view(), 3);
    CHECK(*a.view().as<std::int64_t>() == 2);
  });
  CHECK(workspace_now() == 0);
}

TEST_CASE("an exception of a chunk releases the slots", "[host][threads]") {
  const Threads threads(GENERATE(1, 4));
  CHECK_THROWS_AS(parallel_for_with_scratch(64, 20, kParallelWork,
                                            [](std::int64_t i) {
                                              const Workspace own({8}, DType::i64);
                                              if (i == 7) throw std::runtime_error("chunk");
                                            }),
                  std::runtime_error);
  CHECK(workspace_now() == 0);
  const Workspace outside({8}, DType::i64);  // from the allocator again
  CHECK(workspace_now() == 64);
}
