#include "symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

extern "C" {
extern char __executable_start[], __data_start[], _end[];
}

namespace cusim {
namespace {

struct Variable {
  std::uintptr_t begin, end;
  bool in_function;
};

/// Reads the symbol table of the running program: the dynamic linker knows no local names.
std::vector<Variable> read_variables() {
  std::vector<Variable> variables;
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0) return variables;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const image = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (image == MAP_FAILED) return variables;
  const char* const base = static_cast<const char*>(image);
  const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(base);
  const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(base + header->e_shoff);
  const auto load =
      header->e_type == ET_DYN ? reinterpret_cast<std::uintptr_t>(__executable_start) : 0;
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const char* const names = base + sections[sections[s].sh_link].sh_offset;
    const auto* const symbols = reinterpret_cast<const Elf64_Sym*>(base + sections[s].sh_offset);
    for (std::size_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i) {
      const Elf64_Sym& symbol = symbols[i];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_size == 0) continue;
      const std::uintptr_t begin = load + symbol.st_value;
      // In the C++ ABI the names of a function's own variables begin with _ZZ.
      variables.push_back(
          {begin, begin + symbol.st_size, std::strncmp(names + symbol.st_name, "_ZZ", 3) == 0});
    }
  }
  munmap(image, size);
  std::sort(variables.begin(), variables.end(),
            [](const Variable& a, const Variable& b) { return a.begin < b.begin; });
  return variables;
}

}  // namespace

bool is_static_data(const void* p) { return p >= __data_start && p < _end; }
bool is_read_only(const void* p) { return p >= __executable_start && p < __data_start; }

bool is_function_static(const void* p) {
  static const std::vector<Variable>& variables = *new std::vector<Variable>(read_variables());
  static Variable last{0, 0, false};
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  if (address >= last.begin && address < last.end) return last.in_function;
  const auto after =
      std::upper_bound(variables.begin(), variables.end(), address,
                       [](std::uintptr_t a, const Variable& v) { return a < v.begin; });
  if (after == variables.begin()) return false;
  const Variable& found = *std::prev(after);
  if (address >= found.end) return false;
  last = found;
  return found.in_function;
}

std::string source_line(const void* pc) {
  char program[512] = {};
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return "";
  char command[700];
  // The call is the instruction before the address that it returns to.
  const auto offset = static_cast<const char*>(pc) - __executable_start - 1;
  std::snprintf(command, sizeof command, "addr2line -Cfipse '%s' 0x%tx 2>/dev/null", program,
                offset);
  std::string text;
  if (std::FILE* const pipe = popen(command, "r")) {
    char line[512];
    while (std::fgets(line, sizeof line, pipe)) text += line;
    pclose(pipe);
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::snprintf(command, sizeof command, " (pc +0x%tx)", offset);
  return text + command;
}

}  // namespace cusim
