// Encodes protobuf messages field by field. It covers the wire types that ONNX files and
// TensorBoard events use (https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace firn::protobuf {

/// Returns the lowest `count` bytes of x, the lowest one first.
inline std::string little_endian(std::uint64_t x, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += static_cast<char>(x >> (8 * i) & 0xff);
  return out;
}

/// The bytes of a message. Fields are written in the order of the calls.
class Message {
 public:
  Message& integer(int field, std::int64_t x) {
    key(field, kVarint);
    put(static_cast<std::uint64_t>(x));
    return *this;
  }
  Message& f32(int field, float x) {
    key(field, kFixed32);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(x), 4);
    return *this;
  }
  Message& f64(int field, double x) {
    key(field, kFixed64);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(x), 8);
    return *this;
  }
  Message& text(int field, std::string_view x) {
    head(field, x.size());
    bytes_ += x;
    return *this;
  }
  Message& message(int field, const Message& m) { return text(field, m.bytes_); }
  /// Writes the key and the length of a message of `bytes` bytes. The caller writes these next.
  Message& head(int field, std::size_t bytes) {
    key(field, kBytes);
    put(bytes);
    return *this;
  }
  const std::string& bytes() const noexcept { return bytes_; }
  std::string take() noexcept { return std::move(bytes_); }
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }

 private:
  enum Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  void put(std::uint64_t x) {
    for (; x >= 0x80; x >>= 7) bytes_ += static_cast<char>(x | 0x80);
    bytes_ += static_cast<char>(x);
  }
  void key(int field, Wire wire) {
    put(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
  }

  std::string bytes_;
};

}  // namespace firn::protobuf
