// The instruction sets of the CPU kernels, and the namespace that a file of them is compiled in.
//
// A native build compiles kernels/cpu once, in namespace cpu::native. A portable build for x86-64
// (FIRN_NATIVE=OFF) compiles it three times, in cpu::v2, cpu::v3 and cpu::v4, named after the
// levels of the x86-64 psABI; dispatch.h picks one at run time. Code that a process needs once
// (threads, caches, settings) is in namespace cpu and compiled once, without special instructions.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

/// The namespace of the kernels that this file defines or uses. The build sets it for the files of
/// a variant; tests of a portable build see v2, which runs everywhere.
#ifndef FIRN_ISA
#ifdef FIRN_CPU_VARIANTS
#define FIRN_ISA v2
#else
#define FIRN_ISA native
#endif
#endif

namespace firn::kernels::cpu {

/// Levels of instructions that firn distinguishes on a CPU; each level contains those before it.
enum class Isa : std::uint8_t {
  base,         ///< the library's target; x86-64-v2 (SSE 4.2) in a build with variants
  avx2,         ///< x86-64-v3: AVX2, FMA, F16C
  avx512,       ///< x86-64-v4: AVX-512 F, BW, CD, DQ, VL
  avx512_bf16,  ///< also products of bf16 pairs (vdpbf16ps)
  amx_bf16,     ///< also the matrix unit with bf16 (tdpbf16ps)
};

namespace detail {
/// The chosen level, or kUnknownIsa before the first use.
inline constexpr std::uint8_t kUnknownIsa = 0xff;
extern std::atomic<std::uint8_t> chosen_isa;
Isa choose_isa();
/// Throws Error if `found`, the highest that the CPU has up to `wanted`, is less.
void check_level(Isa wanted, Isa found);
}  // namespace detail

/// Returns the highest level that kernels may use: what this CPU has and the system permits, or
/// less if FIRN_CPU_ISA says so (base, avx2, avx512, avx512bf16 or amx). It picks the variant of
/// the kernels and, within each, the choices at run time: bf16 units, and oneDNN's instructions. A
/// native build has one variant, whose other code keeps the instructions of -march=native. Throws
/// Error at first use if FIRN_CPU_ISA holds another word or a level that this CPU lacks.
inline Isa isa() {
  const std::uint8_t chosen = detail::chosen_isa.load(std::memory_order_relaxed);
  if (chosen != detail::kUnknownIsa) [[likely]]
    return static_cast<Isa>(chosen);
  return detail::choose_isa();
}

/// True if kernels may use the instructions.
inline bool has_avx512_bf16() { return isa() >= Isa::avx512_bf16; }
/// If true, the system has given the process the matrix unit's registers.
inline bool has_amx_bf16() { return isa() >= Isa::amx_bf16; }

/// Returns the highest level that this CPU has and the system permits, whatever FIRN_CPU_ISA says.
Isa machine_isa() noexcept;
/// Returns the word for FIRN_CPU_ISA.
const char* name_of(Isa isa) noexcept;
/// True if FIRN_CPU_ISA chose the level.
bool isa_is_forced();

#ifdef FIRN_CPU_VARIANTS
/// Returns the variant of a kernel for this CPU.
template <class T>
T variant(T v2, T v3, T v4) {
  const Isa level = isa();
  return level >= Isa::avx512 ? v4 : level >= Isa::avx2 ? v3 : v2;
}
#else
/// Returns the only variant. It looks at FIRN_CPU_ISA, so that a wrong word is an error in every
/// build.
template <class T>
T variant(T native) {
  isa();
  return native;
}
#endif

}  // namespace firn::kernels::cpu
