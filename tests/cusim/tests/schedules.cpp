// Random orders show what depends on the order, and nothing else does.
#include <cstring>
#include <set>

#include "device.h"
#include "kernels.h"

namespace {

std::uint32_t bits_of(const std::vector<float>& values) {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (float v : values) {
    std::uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    hash = (hash ^ bits) * 16777619u;
  }
  return hash;
}

constexpr int kCount = 20000, kBlocks = 40;

struct Sums {
  std::uint32_t atomic, partial, last_block;
};

Sums sums(std::uint64_t seed) {
  const Fresh fresh;
  cusim::config().threads = cusim::config().blocks = cusim::Order::random;
  cusim::config().seed = seed;
  cusim::reset();
  std::vector<float> values(kCount);
  for (int i = 0; i < kCount; ++i) values[std::size_t(i)] = 1.f / float(i + 1);
  float* const x = on_device(values);
  float* const out = on_device(std::vector<float>{0});
  float* const partial = on_device(std::vector<float>(2 * kBlocks));
  auto* const ticket = on_device(std::vector<unsigned>{0});
  Sums result{};
  REQUIRE(kernels::sum_atomic(x, out, kCount) == cudaSuccess);
  result.atomic = bits_of(on_host(out, 1));
  REQUIRE(kernels::sum_partial(x, partial, kCount, kBlocks) == cudaSuccess);
  result.partial = bits_of(on_host(partial, kBlocks));
  REQUIRE(kernels::sum_last_block(x, partial, ticket, out, kCount, kBlocks) == cudaSuccess);
  result.last_block = bits_of(on_host(out, 1));
  CHECK(on_host(ticket, 1)[0] == 0);
  return result;
}

}  // namespace

TEST_CASE("sums in a fixed order do not depend on the schedule, atomic ones do") {
  std::set<std::uint32_t> atomic, partial, last_block;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Sums s = sums(seed);
    atomic.insert(s.atomic);
    partial.insert(s.partial);
    last_block.insert(s.last_block);
  }
  CHECK(atomic.size() > 1);
  CHECK(partial.size() == 1);
  CHECK(last_block.size() == 1);
}

TEST_CASE("a seed gives the same schedule again") { CHECK(sums(7).atomic == sums(7).atomic); }
