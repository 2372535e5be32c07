// Random numbers of work that is computed twice. The first pass notes the key of each draw, and the
// second one gets the same keys, so that no generator moves. In a captured graph a key refers to
// memory that each replay writes anew, so a replay computes twice with its own numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "firn/random.h"
#include "firn/thread_context.h"

namespace firn::runtime {

struct Draw {
  RandomKey key;
  std::uint64_t numbers;
};

struct DrawTape {
  std::vector<Draw>& draws;
  bool again;  ///< true: draws come from the list; false: draws are added to it
  std::size_t position = 0;

  /// Returns the next key. Throws Error if the next draw on the list has another count.
  RandomKey next(std::uint64_t numbers);
};

/// While alive, this thread draws by `tape`, or (null) by no tape.
class DrawTapeScope {
 public:
  explicit DrawTapeScope(DrawTape* tape) noexcept
      : before_(std::exchange(thread_context.draw_tape, tape)) {}
  ~DrawTapeScope() { thread_context.draw_tape = before_; }
  DrawTapeScope(const DrawTapeScope&) = delete;
  DrawTapeScope& operator=(const DrawTapeScope&) = delete;

 private:
  DrawTape* before_;
};

/// While alive, this thread draws from `generator` alone; reserve_random() of another one throws
/// Error. This is for work whose numbers must not depend on earlier draws.
class OnlyGenerator {
 public:
  explicit OnlyGenerator(const Generator& generator) noexcept
      : before_(std::exchange(thread_context.only_generator, &generator)) {}
  ~OnlyGenerator() { thread_context.only_generator = before_; }
  OnlyGenerator(const OnlyGenerator&) = delete;
  OnlyGenerator& operator=(const OnlyGenerator&) = delete;

 private:
  const Generator* before_;
};

}  // namespace firn::runtime
