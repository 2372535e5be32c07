// Writes GGUF files for tests, right ones and wrong ones, from the format's description.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/files.h"

namespace firn::test {

/// The bytes of a number, on a little-endian machine.
template <class T>
Bytes raw_bytes(T value) {
  Bytes bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
template <class T>
Bytes raw_bytes(const std::vector<T>& values) {
  Bytes bytes;
  for (const T& value : values) bytes += raw_bytes(value);
  return bytes;
}
inline Bytes gguf_text(const std::string& text) { return little_endian(text.size(), 8) + text; }
/// An array of elements whose bytes follow each other.
inline Bytes gguf_array(std::uint32_t type, std::uint64_t count, const Bytes& elements) {
  return little_endian(type, 4) + little_endian(count, 8) + elements;
}
inline Bytes gguf_texts(const std::vector<std::string>& texts) {
  Bytes elements;
  for (const std::string& text : texts) elements += gguf_text(text);
  return gguf_array(8, texts.size(), elements);
}

struct GgufTensorInfo {
  std::string name;
  std::vector<std::uint64_t> ne;  ///< sizes, the fastest axis first
  std::uint32_t type;
  Bytes data;
  std::optional<std::uint64_t> offset = {};  ///< otherwise behind the tensor before
};

struct GgufWriter {
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;
  struct Key {
    std::string key;
    std::uint32_t type;
    Bytes value;
  };
  std::vector<Key> keys;
  std::vector<GgufTensorInfo> tensors;
  std::optional<std::uint64_t> declared_keys = {}, declared_tensors = {};

  Bytes header() const {
    Bytes out = "GGUF" + little_endian(version, 4);
    out += little_endian(declared_tensors.value_or(tensors.size()), 8);
    out += little_endian(declared_keys.value_or(keys.size()), 8);
    for (const Key& k : keys) out += gguf_text(k.key) + little_endian(k.type, 4) + k.value;
    std::uint64_t next = 0;
    for (const GgufTensorInfo& t : tensors) {
      out += gguf_text(t.name) + little_endian(t.ne.size(), 4) + raw_bytes(t.ne);
      const std::uint64_t offset = t.offset.value_or(next);
      out += little_endian(t.type, 4) + little_endian(offset, 8);
      next = aligned(offset + t.data.size());
    }
    return out;
  }
  Bytes bytes() const {
    Bytes out = header();
    const std::size_t data = aligned(out.size());
    for (const GgufTensorInfo& t : tensors) {
      if (t.data.empty()) continue;
      out.resize(t.offset ? data + *t.offset : aligned(out.size()), '\0');
      out += t.data;
    }
    return out;
  }

 private:
  std::size_t aligned(std::size_t at) const { return (at + alignment - 1) / alignment * alignment; }
};

}  // namespace firn::test
