// The random streams of threads.
#include "firn/random.h"

#include <unistd.h>

#include <atomic>
#include <new>

#include "base/program_seed.h"
#include "firn/thread_context.h"

namespace firn {
namespace {

std::atomic<std::uint64_t> random_seed{0};
std::atomic<std::uint64_t> next_index{1};

bool on_main_thread() noexcept { return gettid() == getpid(); }

Generator& begun_stream() noexcept {
  return *std::launder(reinterpret_cast<Generator*>(thread_context.random.own));
}

Generator& own_stream() noexcept {
  if (!thread_context.random.begun) [[unlikely]]
    seed_thread(on_main_thread() ? 0 : next_index.fetch_add(1, std::memory_order_relaxed));
  return begun_stream();
}

}  // namespace

const Ref<detail::GeneratorPlace>& Generator::place() {
  if (!place_) place_ = Ref(new detail::GeneratorPlace(*this));
  return place_;
}

ProgramSeed program_seed() noexcept {
  return {random_seed.load(std::memory_order_relaxed), next_index.load(std::memory_order_relaxed)};
}
void set_program_seed(const ProgramSeed& seed) noexcept {
  random_seed.store(seed.seed, std::memory_order_relaxed);
  next_index.store(seed.next_thread, std::memory_order_relaxed);
}

Generator Generator::of_thread(std::uint64_t seed, std::uint64_t index) noexcept {
  if (index == 0) return Generator(seed);
  // Number `index` of the sequence SplitMix64 (Steele, Lea & Flood 2014) that begins at `seed`.
  std::uint64_t z = seed + index * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return Generator(z ^ (z >> 31));
}

Generator& default_generator() noexcept {
  return thread_context.random.chosen ? *thread_context.random.chosen : own_stream();
}

void manual_seed(std::uint64_t seed) noexcept {
  if (on_main_thread()) {
    set_program_seed({.seed = seed});
  }
  default_generator().set({seed, 0});
}

void seed_thread(std::uint64_t index) noexcept {
  const Generator of_index = Generator::of_thread(program_seed().seed, index);
  if (thread_context.random.begun)
    begun_stream().set(of_index.get());
  else
    ::new (thread_context.random.own) Generator(of_index);
  thread_context.random.begun = true;
}

GeneratorScope::GeneratorScope(Generator& generator) noexcept
    : previous_(thread_context.random.chosen) {
  thread_context.random.chosen = &generator;
}
GeneratorScope::~GeneratorScope() { thread_context.random.chosen = previous_; }

}  // namespace firn
