// The seed that new threads begin with, for a plan of a step, which puts it back.
#pragma once

#include <cstdint>

namespace firn {

/// State that manual_seed() sets on the main thread besides that thread's own stream.
struct ProgramSeed {
  std::uint64_t seed = 0;
  std::uint64_t next_thread = 1;  ///< number of the next thread that begins to draw
};
ProgramSeed program_seed() noexcept;
void set_program_seed(const ProgramSeed& seed) noexcept;

}  // namespace firn
