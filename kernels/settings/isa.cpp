#include "kernels/settings/isa.h"

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "firn/cpu.h"
#include "firn/device.h"
#include "firn/error.h"
#include "kernels/gemm.h"
#include "kernels/settings/describe.h"
#include "kernels/settings/environment.h"

namespace firn::kernels {
namespace cpu {
bool multiplies_bf16();  // gemm/microkernel.h
}  // namespace cpu
FIRN_CPU_VARIANTS_OF(multiplies_bf16)
}  // namespace firn::kernels

namespace firn::kernels::cpu {

namespace detail {
constinit std::atomic<std::uint8_t> chosen_isa{kUnknownIsa};
}

namespace {

#if defined(__x86_64__)
struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;  // all 0 if the CPU does not know the leaf

  explicit Cpuid(unsigned leaf, unsigned subleaf = 0) {
    __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx);
  }
};

constexpr bool all(unsigned word, std::initializer_list<int> bits) {
  for (const int bit : bits)
    if ((word >> bit & 1u) == 0) return false;
  return true;
}

/// Returns the registers that the system saves (XCR0).
unsigned saved_registers() {
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/// Asks Linux for the matrix unit's registers, which a process gets only if it asks (arch_prctl(2),
/// ARCH_REQ_XCOMP_PERM). Linux refuses if a thread's alternative signal stack is too small for
/// them.
bool permits_tiles() {
#if defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

// Bits of CPUID: Intel's Software Developer's Manual, volume 2A. Levels: the x86-64 psABI, 3.1.1.
bool has_v2() { return all(Cpuid(1).ecx, {0, 9, 13, 19, 20, 23}); }

bool has_v3() {
  const unsigned one = Cpuid(1).ecx;
  return has_v2() && all(one, {12, 22, 27, 28, 29}) && all(Cpuid(7).ebx, {3, 5, 8}) &&
         all(Cpuid(0x80000001).ecx, {5}) && all(saved_registers(), {1, 2});
}

bool has_v4() {
  return has_v3() && all(Cpuid(7).ebx, {16, 17, 28, 30, 31}) && all(saved_registers(), {5, 6, 7});
}

/// Returns the CPU's level up to `most`, which spares the process a permission that it will not
/// use.
Isa detect(Isa most) {
  if (most == Isa::base || !has_v3()) return Isa::base;
  if (most == Isa::avx2 || !has_v4()) return Isa::avx2;
  if (most == Isa::avx512 || !all(Cpuid(7, 1).eax, {5})) return Isa::avx512;
  const bool tiles = most == Isa::amx_bf16 && all(Cpuid(7).edx, {22, 24}) &&
                     all(saved_registers(), {17, 18}) && permits_tiles();
  return tiles ? Isa::amx_bf16 : Isa::avx512_bf16;
}
#else
Isa detect(Isa) { return Isa::base; }
#endif

}  // namespace

std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  const auto add = [&found](const char* name, bool has) {
    if (has) found.emplace_back(name);
  };
  const unsigned one = Cpuid(1).ecx;
  if (!all(one, {27})) return found;  // the system saves no registers of AVX
  const Cpuid seven(7), more(7, 1);
  const bool avx = all(one, {28}) && all(saved_registers(), {1, 2});
  const bool avx512 = avx && all(seven.ebx, {16}) && all(saved_registers(), {5, 6, 7});
  const bool amx = all(seven.edx, {24}) && all(saved_registers(), {17, 18});
  add("avx2", avx && all(seven.ebx, {5}));
  add("fma", avx && all(one, {12}));
  add("f16c", avx && all(one, {29}));
  add("avx512f", avx512);
  add("avx512_bf16", avx512 && all(more.eax, {5}));
  add("avx512_fp16", avx512 && all(seven.edx, {23}));
  add("amx_tile", amx);
  add("amx_bf16", amx && all(seven.edx, {22}));
  add("amx_fp16", amx && all(more.eax, {21}));
#endif
  return found;
}

Isa machine_isa() noexcept {
  static const Isa most = detect(Isa::amx_bf16);
  return most;
}

const char* name_of(Isa isa) noexcept {
  switch (isa) {
    case Isa::base:
      return "base";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512bf16";
    case Isa::amx_bf16:
      return "amx";
  }
  return "?";
}

bool isa_is_forced() {
  const char* word = std::getenv("FIRN_CPU_ISA");
  return word && *word;
}

Isa detail::choose_isa() {
  const auto word = [](Isa isa) { return std::pair{name_of(isa), isa}; };
  constexpr Isa kBest{kUnknownIsa};
  const Isa wanted = from_environment<Isa>("FIRN_CPU_ISA", kBest,
                                           {word(Isa::base), word(Isa::avx2), word(Isa::avx512),
                                            word(Isa::avx512_bf16), word(Isa::amx_bf16)});
#if defined(FIRN_CPU_VARIANTS)
  if (!has_v2())
    throw Error("the CPU", "lacks SSE 4.2 (x86-64-v2), which firn's kernels need",
                "build firn on this machine (FIRN_NATIVE=ON)");
#endif
  const Isa found = detect(wanted == kBest ? Isa::amx_bf16 : wanted);
  if (wanted != kBest) check_level(wanted, found);
  chosen_isa.store(static_cast<std::uint8_t>(found), std::memory_order_relaxed);
  return found;
}

void detail::check_level(Isa wanted, Isa found) {
  if (found >= wanted) return;
  throw Error("FIRN_CPU_ISA", std::string("is '") + name_of(wanted) + "', which this CPU lacks",
              std::string("its highest level is '") + name_of(found) +
                  "', which firn takes if the variable is unset");
}

Isa level_of_kernels([[maybe_unused]] Isa level) noexcept {
#if defined(FIRN_CPU_VARIANTS)
  return level >= Isa::avx512 ? Isa::avx512 : level >= Isa::avx2 ? Isa::avx2 : Isa::base;
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__AVX512CD__)
  return Isa::avx512;
#elif defined(__AVX2__) && defined(__FMA__)
  return Isa::avx2;
#else
  return Isa::base;
#endif
}

CpuFacts cpu_facts() {
  const Isa level = isa();
#if defined(FIRN_CPU_VARIANTS)
  constexpr int kVariants = 3;
#else
  constexpr int kVariants = 1;
#endif
  const auto unit = [](DType dtype) { return std::string(FIRN_ON_CPU(product_unit)(dtype)); };
  return {.machine = machine_isa(),
          .level = level,
          .kernels = level_of_kernels(level),
          .variants = kVariants,
          .forced = isa_is_forced(),
          .f32 = unit(DType::f32),
          .bf16 = unit(DType::bf16),
          .f16 = unit(DType::f16),
          .bf16_unit = FIRN_ON_CPU(multiplies_bf16)(),
          .f16_unit = has_amx_bf16()};
}

}  // namespace firn::kernels::cpu

namespace firn {

std::string describe_cpu() {
  namespace cpu = kernels::cpu;
  const int threads = num_threads();
  const cpu::CpuFacts facts = cpu::cpu_facts();
  std::string out = std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  out += std::string(", kernels for ") + name_of(facts.kernels);
  if (facts.variants > 1) out += " chosen of " + std::to_string(facts.variants) + " variants";
  out += std::string(", level ") + name_of(facts.level);
  if (facts.forced) out += " as FIRN_CPU_ISA says";
  out += ", products: f32 by " + facts.f32 + ", bf16 by " + facts.bf16 + ", f16 by " + facts.f16;
  return out;
}

}  // namespace firn
