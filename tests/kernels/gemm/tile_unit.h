// AMX in software, so that firn's own code for the matrix unit runs on CPUs without one.
#pragma once

#include <cstdint>

namespace firn::testing {

/// While alive, this process can run the AMX instructions that firn uses. If the CPU has none, each
/// raises SIGILL, whose handler computes it. Make it within a test case: Catch has a handler of its
/// own around each. One at a time.
class TileUnit {
 public:
  TileUnit();
  ~TileUnit();
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  /// Whether firn's code for the unit can run here: factors are packed by AVX-512.
  static bool possible() noexcept;
  /// How many instructions software has computed. 0 on a CPU that has the unit.
  static std::uint64_t computed() noexcept;
};

}  // namespace firn::testing
