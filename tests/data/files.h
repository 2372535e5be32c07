// Files made by tests: temporary folders, IDX bytes, gzip without a compressor.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace firn::test {

/// An empty folder that is gone when the test ends.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "firn-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

using Bytes = std::string;

inline std::string write_file(const std::string& path, const Bytes& bytes) {
  // A new file, not a truncated one: ext4 flushes what replaces old contents to disk at once.
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out) throw std::runtime_error("cannot write " + path);
  return path;
}

inline Bytes read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The `bytes` lowest bytes of `value`, most significant first.
inline Bytes big_endian(std::uint64_t value, int bytes) {
  Bytes out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

inline Bytes little_endian(std::uint64_t value, int bytes) {
  const Bytes big = big_endian(value, bytes);
  return {big.rbegin(), big.rend()};
}

/// An IDX header: type code and sizes.
inline Bytes idx_header(std::uint8_t type, const std::vector<std::uint32_t>& sizes) {
  Bytes out("\0\0", 2);
  out += static_cast<char>(type);
  out += static_cast<char>(sizes.size());
  for (const auto s : sizes) out += big_endian(s, 4);
  return out;
}

/// CRC-32 of RFC 1952, bit by bit.
inline std::uint32_t crc32(const Bytes& data) {
  std::uint32_t c = 0xffffffffu;
  for (const char byte : data) {
    c ^= static_cast<unsigned char>(byte);
    for (int k = 0; k < 8; ++k) c = (c & 1u) != 0 ? 0xedb88320u ^ (c >> 1) : c >> 1;
  }
  return c ^ 0xffffffffu;
}

/// One gzip member that holds `data` in stored blocks (RFC 1951, 3.2.4).
inline Bytes gzip(const Bytes& data) {
  Bytes out("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  std::size_t at = 0;
  do {
    const std::size_t n = std::min<std::size_t>(data.size() - at, 65535);
    out += static_cast<char>(at + n == data.size() ? 1 : 0);
    out += little_endian(n, 2) + little_endian(~n & 0xffffu, 2) + data.substr(at, n);
    at += n;
  } while (at < data.size());
  return out + little_endian(crc32(data), 4) + little_endian(data.size(), 4);
}

/// Images [n, 28, 28] and labels [n] as IDX files in `folder`, `split` being "train" or "t10k". An
/// image's class can be told from its pixels: a bright band whose rows depend on it.
inline void write_split(const std::filesystem::path& folder, const std::string& split, int n,
                        bool compress = false) {
  Bytes images = idx_header(0x08, {static_cast<std::uint32_t>(n), 28, 28});
  Bytes labels = idx_header(0x08, {static_cast<std::uint32_t>(n)});
  std::uint32_t noise = 1;
  for (int i = 0; i < n; ++i) {
    const int label = i % 10;
    labels += static_cast<char>(label);
    for (int row = 0; row < 28; ++row) {
      for (int column = 0; column < 28; ++column) {
        noise = noise * 1664525u + 1013904223u;
        const std::uint32_t base = row / 2 - 2 == label ? 160 : 0;
        images += static_cast<char>(base + (noise >> 24) % 90);
      }
    }
  }
  std::filesystem::create_directories(folder);
  const std::string suffix = compress ? ".gz" : "";
  const auto put = [&](const std::string& kind, const Bytes& bytes) {
    write_file((folder / (split + kind + suffix)).string(), compress ? gzip(bytes) : bytes);
  };
  put("-images-idx3-ubyte", images);
  put("-labels-idx1-ubyte", labels);
}

}  // namespace firn::test
