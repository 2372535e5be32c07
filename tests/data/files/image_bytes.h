// Images as the bytes of their files, without libpng and libjpeg: PNG files are put together here,
// and two small JPEG files are written out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "data/files.h"
#include "firn/data/image_files.h"

namespace firn::test {

/// A chunk of a PNG file with its checksum.
inline Bytes png_chunk(const std::string& kind, const Bytes& data) {
  return big_endian(data.size(), 4) + kind + data + big_endian(crc32(kind + data), 4);
}

inline const Bytes kPngMagic = "\x89PNG\r\n\x1a\n";

/// The head of a PNG file of 8 bits a value. Colour types: 0 grey, 2 RGB, 6 RGB and alpha.
inline Bytes png_head(std::uint32_t height, std::uint32_t width, int colour) {
  return big_endian(width, 4) + big_endian(height, 4) + "\x08" + static_cast<char>(colour) +
         Bytes(3, '\0');
}

/// A stream of zlib (RFC 1950) that holds `data`, of less than 64 KiB, as it is.
inline Bytes zlib_stored(const Bytes& data) {
  std::uint32_t a = 1, b = 0;
  for (const char byte : data) {
    a = (a + static_cast<unsigned char>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return Bytes("\x78\x01\x01") + little_endian(data.size(), 2) +
         little_endian(~data.size() & 0xffff, 2) + data + big_endian(b << 16 | a, 4);
}

/// The PNG file of an image u8 [1 or 3, height, width].
inline Bytes png_of(const Tensor& image) {
  const std::int64_t channels = image.size(0), height = image.size(1), width = image.size(2);
  const Tensor pixels = image.permute({1, 2, 0}).contiguous();
  const auto* const from = reinterpret_cast<const char*>(pixels.data<std::uint8_t>());
  Bytes rows;
  for (std::int64_t y = 0; y < height; ++y)
    rows += '\0' + Bytes(from + y * width * channels, static_cast<std::size_t>(width * channels));
  const Bytes head = png_head(static_cast<std::uint32_t>(height), static_cast<std::uint32_t>(width),
                              channels == 1 ? 0 : 2);
  return kPngMagic + png_chunk("IHDR", head) + png_chunk("IDAT", zlib_stored(rows)) +
         png_chunk("IEND", "");
}

inline Bytes from_hex(const std::string& text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

/// 8 x 8 pixels, grey, one scan.
inline const Bytes kGreyJpeg = from_hex(
    "ffd8ffdb0043001b12141714111b1716171e1c1b2028422b28252528513a3d3042605565645f555d5b6a7899816a71"
    "90735b5d85b586909ea3abadab6780bcc9baa6c799a8aba4ffc0000b080008000801011100ffc40014000100000000"
    "000000000000000000000004ffc40017100003010000000000000000000000000000020531ffda0008010100003f00"
    "0cb4c3ffd9");
/// 8 x 8 pixels, YCbCr, ten scans.
inline const Bytes kColourJpeg = from_hex(
    "ffd8ffdb0043001b12141714111b1716171e1c1b2028422b28252528513a3d3042605565645f555d5b6a7899816a"
    "7190735b5d85b586909ea3abadab6780bcc9baa6c799a8aba4ffdb0043011c1e1e2823284e2b2b4ea46e5d6ea4a4"
    "a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4"
    "a4a4ffc20011080008000803011100021101031101ffc40014000100000000000000000000000000000003ffc400"
    "1501010100000000000000000000000000000204ffda000c030100021003100000011acfffc40016100003000000"
    "0000000000000000000000000102ffda0008010100010502527fffc4001511010100000000000000000000000000"
    "000200ffda0008010301013f010affc4001511010100000000000000000000000000000200ffda0008010201013f"
    "014affc40014100100000000000000000000000000000000ffda0008010100063f027fffc4001410010000000000"
    "0000000000000000000000ffda0008010100013f213fffda000c030100020003000000101fffc400141101000000"
    "00000000000000000000000000ffda0008010301013f107fffc40014110100000000000000000000000000000000"
    "ffda0008010201013f105fffc4001510010100000000000000000000000000000061ffda0008010100013f109bff"
    "d9");

inline std::span<const std::byte> span_of(const Bytes& bytes) {
  return std::as_bytes(std::span<const char>(bytes));
}

/// Whether this build reads the format of a good image.
inline bool reads(const Bytes& good) {
  try {
    data::decode_image(span_of(good), "image");
  } catch (const IoError&) {
    throw;
  } catch (const Error& e) {
    if (e.hint().find("apt-get install lib") == std::string::npos) throw;
    return false;
  }
  return true;
}
inline bool reads_png() {
  static const bool does = reads(png_of(zeros({1, 1, 1}, u8, Device::cpu())));
  return does;
}
inline bool reads_jpeg() {
  static const bool does = reads(kGreyJpeg);
  return does;
}

}  // namespace firn::test
