// Writes all that GgufFile reads of a file to the standard output, for against_gguf.py.
#include <cstdint>
#include <cstdio>
#include <string>

#include "firn/firn.h"

using namespace firn;

namespace {

template <class T>
void put(T value) {
  std::fwrite(&value, sizeof value, 1, stdout);
}
void put(const std::string& text) {
  put<std::uint64_t>(text.size());
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// The values of a key: integers as 64 bits, reals as f64, flags as bytes.
void put_values(const lm::GgufFile& file, const lm::GgufEntry& e) {
  const bool is_array = e.type == lm::GgufValueType::array;
  switch (e.element_type) {
    case lm::GgufValueType::string:
      if (!is_array) return put(file.text(e.key));
      for (const std::string& text : file.texts(e.key)) put(text);
      return;
    case lm::GgufValueType::boolean:
      if (!is_array) return put<std::uint8_t>(file.flag(e.key));
      for (const bool flag : file.flags(e.key)) put<std::uint8_t>(flag);
      return;
    case lm::GgufValueType::f32:
    case lm::GgufValueType::f64:
      if (!is_array) return put(file.real(e.key));
      for (const double value : file.reals(e.key)) put(value);
      return;
    default:
      if (!is_array) return put(file.integer(e.key));
      for (const std::int64_t value : file.integers(e.key)) put(value);
  }
}

}  // namespace

int main(int, char** argv) {
  const lm::GgufFile file(argv[1]);
  const auto entries = file.entries();
  put<std::uint64_t>(entries.size());
  for (const lm::GgufEntry& e : entries) {
    put(e.key);
    put(e.type);
    put(e.element_type);
    put(e.count);
    put_values(file, e);
  }
  const auto names = file.names();
  put<std::uint64_t>(names.size());
  for (const std::string& name : names) {
    const Tensor t = file.read(name, f32);
    put(name);
    put(to_string(file.type(name)));
    put<std::uint64_t>(static_cast<std::uint64_t>(t.rank()));
    for (const std::int64_t size : t.shape()) put(size);
    std::fwrite(t.view().data, 1, t.bytes(), stdout);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
