// Random numbers: counter-based Philox4x32-10 (Salmon et al., SC'11), the same bits on every
// device.
#pragma once

#include <cstdint>
#include <utility>

#include "firn/ref.h"

namespace firn {

class Generator;

namespace detail {

/// Finds a generator that may be moved or destroyed meanwhile.
struct GeneratorPlace final : RefCounted {
  explicit GeneratorPlace(Generator& g) noexcept : generator(&g) {}
  static void destroy(GeneratorPlace* p) noexcept { delete p; }
  void end() noexcept {
    generator = nullptr;
    if (ended) ended(*this);
  }

  Generator* generator;  ///< null once it was destroyed or assigned to
  /// Called when that happens, unless it is null.
  void (*ended)(const GeneratorPlace& place) noexcept = nullptr;
};

}  // namespace detail

/// A place in a random stream. Element i of a tensor drawn at (seed, offset) uses word (i mod 4) of
/// the Philox block with counter offset + i/4 and key seed. So it does not matter which thread or
/// device computes it.
struct RandomKey {
  std::uint64_t seed = 0;    ///< key of Philox
  std::uint64_t offset = 0;  ///< in Philox blocks of four 32-bit words
  /// In a captured graph: {seed, offset} in the device's memory, written before every replay. The
  /// kernel takes this seed instead of `seed`, and adds this offset to `offset`. Null: none.
  const std::uint64_t* base = nullptr;
};

/// A random stream: a seed and the next unused offset. Two threads must not use one at the same
/// time. A RollbackPoint (firn/runtime/rollback.h) follows a generator that is moved. A copy, and a
/// generator that was assigned to, are others.
class Generator {
 public:
  explicit constexpr Generator(std::uint64_t seed = 0) noexcept : seed_(seed) {}
  Generator(const Generator& from) noexcept : seed_(from.seed_), offset_(from.offset_) {}
  Generator(Generator&& from) noexcept : seed_(from.seed_), offset_(from.offset_) { take(from); }
  Generator& operator=(const Generator& from) noexcept {
    if (this != &from) cut();
    set(from.get());
    return *this;
  }
  Generator& operator=(Generator&& from) noexcept {
    if (this == &from) return *this;
    cut();
    set(from.get());
    take(from);
    return *this;
  }
  ~Generator() { cut(); }
  /// Returns the first stream of thread number `index` of a program with this seed. Number 0 is the
  /// main thread: its stream is Generator(seed). Others get a seed that is mixed from both.
  static Generator of_thread(std::uint64_t seed, std::uint64_t index) noexcept;

  /// Reserves `numbers` 32-bit words of the stream and returns their start.
  RandomKey reserve(std::uint64_t numbers) noexcept {
    const RandomKey k = get();
    offset_ += (numbers + 3) / 4;
    return k;
  }
  /// Returns the start of the next reserve(); set() puts a stream back there, to the bit.
  RandomKey get() const noexcept { return {seed_, offset_}; }
  void set(const RandomKey& key) noexcept {
    seed_ = key.seed;
    offset_ = key.offset;
  }

  // For the library.
  /// Returns an object that finds this generator. Throws std::bad_alloc.
  const Ref<detail::GeneratorPlace>& place();

 private:
  void take(Generator& from) noexcept {
    if (!from.place_) [[likely]]
      return;
    place_ = std::move(from.place_);
    place_->generator = this;
  }
  void cut() noexcept {
    if (!place_) [[likely]]
      return;
    place_->end();
    place_.reset();
  }

  std::uint64_t seed_, offset_ = 0;
  Ref<detail::GeneratorPlace> place_;  ///< null until place() is called
};

/// The stream that this thread's ops use if they are given none: the one of a GeneratorScope, else
/// the thread's own. Every thread has its own, so threads that train at once neither race nor
/// change each other's numbers.
///
/// The main thread is number 0. Other threads are numbered in the order of their first random
/// number. If that order is not fixed, name the number with seed_thread(). A recorded graph draws
/// from the stream of the thread that recorded it, and must not outlive that thread.
Generator& default_generator() noexcept;

/// Restarts default_generator() at `seed`: the same seed gives the same training run, in any
/// thread. On the main thread it also sets the seed of all threads that begin to draw from now on,
/// and numbers those from 1 again. Threads that have already begun keep their streams.
void manual_seed(std::uint64_t seed) noexcept;

/// Restarts this thread's own stream as that of thread number `index` of the program:
/// Generator::of_thread(the main thread's last manual_seed(), index).
void seed_thread(std::uint64_t index) noexcept;

/// While alive, this thread's ops draw from `generator` if they are given none. The generator must
/// outlive the scope.
class GeneratorScope {
 public:
  [[nodiscard]] explicit GeneratorScope(Generator& generator) noexcept;
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  Generator* previous_;
};

}  // namespace firn
