// Which instruction sets the CPU kernels use. A process reads FIRN_CPU_ISA once, so cases that set
// it do so in a child.
#include "kernels/settings/isa.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "firn/ops/ops.h"
#include "support/catch.h"
#include "support/in_child.h"

namespace firn::testing {
namespace {

using kernels::cpu::Isa;

/// The flags of the first CPU in /proc/cpuinfo; empty if the system has no such file.
std::set<std::string> system_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};
}

std::string read_isa() { return name_of(kernels::cpu::isa()); }

/// A kernel's first use of the setting.
std::string add_ones() { return std::to_string(add(ones({3}), ones({3})).sum().item()); }

}  // namespace

TEST_CASE("the machine's instruction set is the highest that the system lists", "[host]") {
  const std::set<std::string> flags = system_flags();
  if (flags.empty()) return;
  const auto has = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!flags.contains(name)) return false;
    return true;
  };
  Isa expected = Isa::base;
  if (has({"avx2", "fma", "f16c", "bmi1", "bmi2", "movbe", "abm"})) {
    expected = Isa::avx2;
    if (has({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})) {
      expected = Isa::avx512;
      if (has({"avx512_bf16"})) {
        expected = Isa::avx512_bf16;
        if (has({"amx_tile", "amx_bf16"})) expected = Isa::amx_bf16;
      }
    }
  }
  INFO(name_of(expected));
  CHECK(kernels::cpu::machine_isa() == expected);
}

TEST_CASE("kernels use no more than the machine has", "[host]") {
  CHECK(kernels::cpu::isa() <= kernels::cpu::machine_isa());
  CHECK(kernels::cpu::has_amx_bf16() == (kernels::cpu::isa() == Isa::amx_bf16));
  CHECK(kernels::cpu::has_avx512_bf16() >= kernels::cpu::has_amx_bf16());
}

TEST_CASE("FIRN_CPU_ISA takes any level up to the machine's", "[host]") {
  for (int level = 0; level <= static_cast<int>(kernels::cpu::machine_isa()); ++level) {
    const char* word = name_of(static_cast<Isa>(level));
    CHECK(in_child("FIRN_CPU_ISA", word, read_isa) == word);
    CHECK(in_child("FIRN_CPU_ISA", word, add_ones) == "6.000000");
  }
  CHECK(in_child("FIRN_CPU_ISA", "", read_isa) == name_of(kernels::cpu::machine_isa()));
}

TEST_CASE("FIRN_CPU_ISA: an unknown word is an error of the first kernel", "[host]") {
  const std::string message =
      "[FIRN_CPU_ISA] is 'AVX2'; hint: set it to one of: base, avx2, avx512, avx512bf16, amx";
  CHECK(in_child("FIRN_CPU_ISA", "AVX2", read_isa) == message);
  CHECK(in_child("FIRN_CPU_ISA", "AVX2", add_ones) == message);
}

TEST_CASE("FIRN_CPU_ISA: a level that the CPU lacks is an error", "[host]") {
  using kernels::cpu::detail::check_level;
  CHECK_NOTHROW(check_level(Isa::avx2, Isa::avx2));
  CHECK_THROWS_WITH(check_level(Isa::amx_bf16, Isa::avx512),
                    "[FIRN_CPU_ISA] is 'amx', which this CPU lacks; hint: its highest level is "
                    "'avx512', which firn takes if the variable is unset");
  const int most = static_cast<int>(kernels::cpu::machine_isa());
  for (int level = most + 1; level <= static_cast<int>(Isa::amx_bf16); ++level) {
    const char* word = name_of(static_cast<Isa>(level));
    CHECK(in_child("FIRN_CPU_ISA", word, add_ones).find("which this CPU lacks") !=
          std::string::npos);
  }
}

}  // namespace firn::testing
