// Encodes protobuf messages, field by field: the part of the wire format that ONNX files need
// (https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace firn::io::onnx {

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
    little_endian(std::bit_cast<std::uint32_t>(x));
    return *this;
  }
  Message& text(int field, std::string_view x) {
    head(field, x.size());
    bytes_ += x;
    return *this;
  }
  Message& message(int field, const Message& m) { return text(field, m.bytes_); }
  /// Writes the head of a message of `bytes` bytes, which the caller writes next.
  Message& head(int field, std::size_t bytes) {
    key(field, kBytes);
    put(bytes);
    return *this;
  }
  const std::string& bytes() const noexcept { return bytes_; }
  std::string take() noexcept { return std::move(bytes_); }
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }

 private:
  enum Wire : std::uint8_t { kVarint = 0, kBytes = 2, kFixed32 = 5 };

  void put(std::uint64_t x) {
    for (; x >= 0x80; x >>= 7) bytes_ += static_cast<char>(x | 0x80);
    bytes_ += static_cast<char>(x);
  }
  void key(int field, Wire wire) {
    put(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
  }
  void little_endian(std::uint32_t x) {
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(x >> (8 * i) & 0xff);
  }

  std::string bytes_;
};

}  // namespace firn::io::onnx
