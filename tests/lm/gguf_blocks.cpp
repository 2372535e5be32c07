// Blocks of quantised numbers. A test writes a block's numbers and scales bit by bit, at the places
// that ggml-common.h and the quantise functions of ggml-quants.c give them, and computes the values
// in f64 from those numbers. The file is then read.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "lm/gguf_writer.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::expect_same;
using firn::testing::Rng;
using firn::testing::values_of;
using lm::GgufType;

namespace {

/// A block that is being written, and the values of its elements before they are rounded.
struct Block {
  explicit Block(GgufType type)
      : bytes(static_cast<std::size_t>(block_bytes(type)), '\0'),
        values(static_cast<std::size_t>(block_elements(type))) {}

  /// Adds the `width` bits of `value` at bit `shift` of a byte.
  void put(std::size_t byte, int shift, int width, int value) {
    REQUIRE(value >> width == 0);
    bytes[byte] = static_cast<char>(static_cast<unsigned char>(bytes[byte]) | value << shift);
  }
  void put_half(std::size_t byte, half value) { bytes.replace(byte, 2, raw_bytes(value.bits)); }

  Bytes bytes;
  std::vector<double> values;
};

/// A scale as quantised models have it, or any finite f16, also a subnormal one.
half some_half(Rng& rng) {
  if (rng.below(2) == 0) return half(static_cast<float>(rng.uniform(-0.1, 0.1)));
  const auto bits = static_cast<std::uint16_t>(rng.below(65536));
  return half::from_bits((bits >> 10 & 31) == 31 ? static_cast<std::uint16_t>(bits & 0x83ff)
                                                 : bits);
}

int below(Rng& rng, int n) { return static_cast<int>(rng.below(n)); }

Block of_32(GgufType type, Rng& rng) {
  Block b(type);
  const half d = some_half(rng), m = some_half(rng);
  const bool has_minimum = type == GgufType::q4_1;
  b.put_half(0, d);
  if (has_minimum) b.put_half(2, m);
  const std::size_t begin = has_minimum ? 4 : 2;
  for (std::size_t i = 0; i < 32; ++i) {
    if (type == GgufType::q8_0) {
      const int q = below(rng, 256);
      b.put(begin + i, 0, 8, q);
      b.values[i] = double{d} * (q < 128 ? q : q - 256);
    } else {
      const int q = below(rng, 16);
      b.put(begin + i % 16, i < 16 ? 0 : 4, 4, q);
      b.values[i] = has_minimum ? double{d} * q + double{m} : double{d} * (q - 8);
    }
  }
  return b;
}

/// Group g of 32 elements has a scale and a minimum of 6 bits. The 4 lower bits of those of groups
/// 4 to 7 share a byte, and their upper bits are above the scales and minima of groups 0 to 3.
Block q4_k(Rng& rng) {
  Block b(GgufType::q4_k);
  const half d = some_half(rng), e = some_half(rng);
  b.put_half(0, d);
  b.put_half(2, e);
  int scale[8], minimum[8];
  for (std::size_t g = 0; g < 8; ++g) {
    scale[g] = below(rng, 64);
    minimum[g] = below(rng, 64);
    if (g < 4) {
      b.put(4 + g, 0, 6, scale[g]);
      b.put(8 + g, 0, 6, minimum[g]);
    } else {
      b.put(8 + g, 0, 4, scale[g] % 16);
      b.put(8 + g, 4, 4, minimum[g] % 16);
      b.put(g, 6, 2, scale[g] / 16);
      b.put(4 + g, 6, 2, minimum[g] / 16);
    }
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const int q = below(rng, 16);
    b.put(16 + i / 64 * 32 + i % 32, i % 64 < 32 ? 0 : 4, 4, q);
    b.values[i] = double{d} * scale[i / 32] * q - double{e} * minimum[i / 32];
  }
  return b;
}

/// Element i has 4 bits among the first 128 bytes, 2 in the next 64, and a scale among the next 16.
Block q6_k(Rng& rng) {
  Block b(GgufType::q6_k);
  const half d = some_half(rng);
  b.put_half(208, d);
  int scale[16];
  for (std::size_t g = 0; g < 16; ++g) {
    const int bits = below(rng, 256);
    b.put(192 + g, 0, 8, bits);
    scale[g] = bits < 128 ? bits : bits - 256;
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const int q = below(rng, 64);
    b.put(i / 128 * 64 + i % 64, i % 128 < 64 ? 0 : 4, 4, q % 16);
    b.put(128 + i / 128 * 32 + i % 32, static_cast<int>(i % 128 / 32 * 2), 2, q / 16);
    b.values[i] = double{d} * scale[i / 16] * (q - 32);
  }
  return b;
}

Block some_block(GgufType type, Rng& rng) {
  return type == GgufType::q4_k ? q4_k(rng) : type == GgufType::q6_k ? q6_k(rng) : of_32(type, rng);
}

constexpr GgufType kBlockTypes[] = {GgufType::q4_0, GgufType::q4_1, GgufType::q8_0, GgufType::q4_k,
                                    GgufType::q6_k};

/// A tensor [rows, blocks of a row] of random blocks, and its values.
struct Written {
  GgufTensorInfo tensor;
  std::vector<double> values;
};
Written some_tensor(GgufType type, std::int64_t rows, std::int64_t blocks, Rng& rng) {
  Written w;
  w.tensor = {
      to_string(type),
      {static_cast<std::uint64_t>(blocks * block_elements(type)), static_cast<std::uint64_t>(rows)},
      static_cast<std::uint32_t>(type),
      ""};
  for (std::int64_t i = 0; i < rows * blocks; ++i) {
    const Block b = some_block(type, rng);
    w.tensor.data += b.bytes;
    w.values.insert(w.values.end(), b.values.begin(), b.values.end());
  }
  return w;
}

}  // namespace

TEST_CASE("GgufFile: blocks have the values that their numbers and scales say, to the bit",
          "[host]") {
  const TempFolder folder;
  for (const GgufType type : kBlockTypes) {
    Rng rng(static_cast<std::uint64_t>(type) + 1);
    const Written w = some_tensor(type, 7, 5, rng);
    GgufWriter writer;
    writer.tensors = {w.tensor};
    for (const bool map : {true, false}) {
      const lm::GgufFile file(write_file(folder.file("m.gguf"), writer.bytes()), {.map = map});
      const std::string name = to_string(type);
      const Tensor t = file.read(name);
      CHECK(t.shape() == Shape{7, 5 * block_elements(type)});
      expect_same(name, values_of(t), firn::testing::rounded(w.values, f32));
      for (const DType dtype : {f16, bf16, f64})
        expect_same(name, values_of(file.read(name, dtype)), values_of(t.to(dtype)));
      const Tensor blocks = file.blocks(name);
      CHECK(blocks.shape() == Shape{7, 5 * block_bytes(type)});
      CHECK(Bytes(static_cast<const char*>(blocks.view().data), blocks.bytes()) == w.tensor.data);
    }
  }
}

TEST_CASE("GgufFile: blocks are decoded to the same bits by any number of threads", "[host]") {
  const TempFolder folder;
  Rng rng(7);
  GgufWriter writer;
  std::vector<std::vector<double>> values;
  for (const GgufType type : kBlockTypes) {
    const Written w = some_tensor(type, 131, 1024 / block_elements(type), rng);
    writer.tensors.push_back(w.tensor);
    values.push_back(firn::testing::rounded(w.values, f32));
  }
  const lm::GgufFile file(write_file(folder.file("m.gguf"), writer.bytes()));
  for (const int threads : {1, 2, 3}) {
    const firn::testing::Threads guard(threads);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::string name = to_string(kBlockTypes[i]);
      expect_same(name, values_of(file.read(name)), values[i]);
      expect_same(name, values_of(file.read(name, bf16)), firn::testing::rounded(values[i], bf16));
    }
  }
}

TEST_CASE("GgufFile: a scale that is not finite gives numbers that are not", "[host]") {
  const TempFolder folder;
  GgufWriter w;
  w.tensors = {{"q", {32}, 8, raw_bytes<std::uint16_t>(0x7c00) + Bytes(31, '\1') + Bytes(1, '\0')}};
  const auto values =
      values_of(lm::GgufFile(write_file(folder.file("m.gguf"), w.bytes())).read("q"));
  CHECK(std::isinf(values[0]));
  CHECK(std::isnan(values[31]));
}
