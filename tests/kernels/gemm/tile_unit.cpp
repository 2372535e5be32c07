// What the instructions do: Intel's Software Developer's Manual, volume 2, TDPBF16PS and others.
#include "kernels/gemm/tile_unit.h"

#include "kernels/settings/isa.h"

#if defined(__x86_64__) && defined(__linux__)
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace firn::testing {
namespace {

using kernels::cpu::Isa;

struct Tile {
  std::uint8_t row[16][64];
};

/// The unit of a thread, as ldtilecfg leaves it.
struct Unit {
  bool configured = false;
  std::uint16_t bytes[8];  ///< of a row
  std::uint8_t rows[8];
  Tile tiles[8];
};
thread_local Unit unit;
std::atomic<std::uint64_t> count{0};
struct sigaction before;

/// Subnormal numbers count as 0, as operands and as results.
float flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

float widened(const std::uint8_t* bf16) {
  std::uint16_t upper;
  std::memcpy(&upper, bf16, sizeof upper);
  return flushed(std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16));
}

/// tdpbf16ps: even and odd terms have sums of their own. Columns behind the last one are computed,
/// too, and not stored.
void multiply(int sums, int left, int right) {
  constexpr int kPairs = 16, kColumns = 16;
  float y[kPairs][2][kColumns];
  for (int k = 0; k < kPairs; ++k)
    for (int odd = 0; odd < 2; ++odd)
      for (int j = 0; j < kColumns; ++j)
        y[k][odd][j] = widened(unit.tiles[right].row[k] + 4 * j + 2 * odd);
  for (int i = 0; i < unit.rows[sums]; ++i) {
    float parts[2][kColumns] = {};
    for (int k = 0; k < unit.bytes[left] / 4; ++k) {
      for (int odd = 0; odd < 2; ++odd) {
        const float x = widened(unit.tiles[left].row[i] + 4 * k + 2 * odd);
        for (int j = 0; j < kColumns; ++j)
          parts[odd][j] = flushed(std::fma(x, y[k][odd][j], parts[odd][j]));
      }
    }
    float row[kColumns];
    std::memcpy(row, unit.tiles[sums].row[i], sizeof row);
    for (int j = 0; j < kColumns; ++j)
      row[j] = flushed(flushed(row[j]) + flushed(parts[0][j] + parts[1][j]));
    std::memcpy(unit.tiles[sums].row[i], row, unit.bytes[sums]);
  }
}

std::uint64_t number_in(const ucontext_t& context, int index) {
  constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<std::uint64_t>(context.uc_mcontext.gregs[kOrder[index]]);
}

/// A VEX-coded instruction of the 0F38 map without W and L, as AMX's are.
struct Instruction {
  int prefix, code, mod, reg, rm, vvvv;
  std::uint64_t base = 0, index = 0;  ///< of the operand in memory
  const std::uint8_t* end;

  /// Returns whether it is one.
  bool read(const ucontext_t& context) {
    const auto* const at = std::bit_cast<const std::uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
    if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || (at[2] & 0x84) != 0) return false;
    const int extra_index = at[1] & 0x40 ? 0 : 8, extra_base = at[1] & 0x20 ? 0 : 8;
    vvvv = ~(at[2] >> 3) & 15;
    prefix = at[2] & 3;
    code = at[3];
    mod = at[4] >> 6;
    reg = at[4] >> 3 & 7;
    rm = at[4] & 7;
    end = at + 5;
    if (mod == 3) return true;
    bool has_base = true;
    if (rm == 4) {
      const int sib = *end++;
      const int scaled = (sib >> 3 & 7) | extra_index;
      if (scaled != 4) index = number_in(context, scaled) << (sib >> 6);
      has_base = mod != 0 || (sib & 7) != 5;
      if (has_base) base = number_in(context, (sib & 7) | extra_base);
    } else {
      if (mod == 0 && rm == 5) return false;  // relative to the instruction: firn has none
      base = number_in(context, rm | extra_base);
    }
    if (mod == 1) {
      base += static_cast<std::uint64_t>(static_cast<std::int8_t>(*end++));
    } else if (mod == 2 || !has_base) {
      std::int32_t offset;
      std::memcpy(&offset, end, sizeof offset);
      end += sizeof offset;
      base += static_cast<std::uint64_t>(static_cast<std::int64_t>(offset));
    }
    return true;
  }
};

bool configure(const std::uint8_t* memory) {
  if (memory[0] != 1) return false;
  for (int t = 0; t < 8; ++t) {
    std::memcpy(&unit.bytes[t], memory + 16 + 2 * t, sizeof unit.bytes[t]);
    unit.rows[t] = memory[48 + t];
    if (unit.bytes[t] > 64 || unit.rows[t] > 16) return false;
  }
  std::memset(unit.tiles, 0, sizeof unit.tiles);
  return unit.configured = true;
}

/// Computes one instruction. Returns false if it is none that firn uses, or the unit would fault.
bool compute(const Instruction& one) {
  enum Prefix { kNone, k66, kF3, kF2 };  // as VEX numbers them
  const bool in_memory = one.mod != 3;
  if (one.code == 0x49 && one.prefix == kNone) {
    if (in_memory) return configure(std::bit_cast<const std::uint8_t*>(one.base + one.index));
    unit.configured = false;  // tilerelease
    return true;
  }
  if (!unit.configured) return false;
  if (one.code == 0x49 && one.prefix == kF2 && !in_memory) {  // tilezero
    std::memset(&unit.tiles[one.reg], 0, sizeof(Tile));
    return true;
  }
  if (one.code == 0x4b && one.prefix != kNone && in_memory) {  // tileloadd(t1), tilestored
    for (int i = 0; i < unit.rows[one.reg]; ++i) {
      auto* const memory =
          std::bit_cast<std::uint8_t*>(one.base + static_cast<std::uint64_t>(i) * one.index);
      std::uint8_t* const row = unit.tiles[one.reg].row[i];
      if (one.prefix == kF3) {
        std::memcpy(memory, row, unit.bytes[one.reg]);
      } else {
        std::memcpy(row, memory, unit.bytes[one.reg]);
      }
    }
    return true;
  }
  if (one.code != 0x5c || one.prefix != kF3 || in_memory) return false;
  multiply(one.reg, one.rm, one.vvvv & 7);
  return true;
}

void on_illegal(int, siginfo_t*, void* given) {
  auto& context = *static_cast<ucontext_t*>(given);
  Instruction one;
  if (!one.read(context) || !compute(one)) {  // raised once more, for the handler before
    sigaction(SIGILL, &before, nullptr);
    return;
  }
  count.fetch_add(1, std::memory_order_relaxed);
  context.uc_mcontext.gregs[REG_RIP] = std::bit_cast<greg_t>(one.end);
}

bool has_unit() { return kernels::cpu::machine_isa() >= Isa::amx_bf16; }

}  // namespace

TileUnit::TileUnit() {
  if (has_unit()) return;
  struct sigaction action = {};
  action.sa_sigaction = on_illegal;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGILL, &action, &before);
}
TileUnit::~TileUnit() {
  if (!has_unit()) sigaction(SIGILL, &before, nullptr);
}
bool TileUnit::possible() noexcept { return kernels::cpu::machine_isa() >= Isa::avx512_bf16; }
std::uint64_t TileUnit::computed() noexcept { return count; }

}  // namespace firn::testing
#else
namespace firn::testing {
TileUnit::TileUnit() = default;
TileUnit::~TileUnit() = default;
bool TileUnit::possible() noexcept { return false; }
std::uint64_t TileUnit::computed() noexcept { return 0; }
}  // namespace firn::testing
#endif
