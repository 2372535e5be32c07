// The IDX reader. It checks every number in a header against the size of the file before it
// allocates memory.
#include "firn/data/idx.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <optional>

#include "base/check.h"
#include "base/swap_bytes.h"
#include "data/files/byte_reader.h"
#include "firn/memory.h"
#include "tensor/impl.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "read_idx";

std::optional<DType> dtype_of_code(unsigned char code) {
  switch (code) {
    case 0x08:
      return DType::u8;
    case 0x09:
      return DType::i8;
    case 0x0B:
      return DType::i16;
    case 0x0C:
      return DType::i32;
    case 0x0D:
      return DType::f32;
    case 0x0E:
      return DType::f64;
    default:
      return std::nullopt;
  }
}

void read_header_bytes(ByteReader& in, unsigned char* to, std::size_t bytes, const char* what) {
  const std::uint64_t from = in.offset();
  const std::size_t n = in.read(to, bytes);
  if (n == bytes) return;
  in.fail(fmt::format("truncated header: expected {} at {} ({} bytes), found the end after {}",
                      what, in.at(from), bytes, n),
          from + n == 0 ? "the file is empty; fetch it again" : "fetch the file again");
}

DType read_magic(ByteReader& in, int& rank) {
  unsigned char magic[4] = {};
  read_header_bytes(in, magic, 4, "the magic number");
  if (magic[0] != 0 || magic[1] != 0) {
    in.fail(fmt::format("wrong magic number at {}: expected 00 00, a type and a rank, found "
                        "{:02x} {:02x} {:02x} {:02x}",
                        in.at(0), magic[0], magic[1], magic[2], magic[3]),
            "this is not an IDX file");
  }
  const auto dtype = dtype_of_code(magic[2]);
  if (!dtype) {
    in.fail(
        fmt::format("unsupported element type at {}: expected 08 (u8), 09 (i8), 0b (i16), 0c "
                    "(i32), 0d (f32) or 0e (f64), found {:02x}",
                    in.at(2), magic[2]));
  }
  rank = magic[3];
  if (rank > kMaxRank) {
    in.fail(fmt::format("too many axes at {}: expected at most {}, found {}", in.at(3), kMaxRank,
                        rank));
  }
  return *dtype;
}

/// Returns the shape, and sets `bytes` to the size of its elements.
Shape read_shape(ByteReader& in, int rank, DType dtype, std::uint64_t& bytes) {
  Shape shape;
  // The bound counts axes of size 0 as 1, as kMaxElements does.
  std::uint64_t bound = 1;
  bool overflow = false;
  for (int i = 0; i < rank; ++i) {
    unsigned char b[4] = {};
    read_header_bytes(in, b, 4, "the size of an axis");
    const std::uint32_t size = std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 |
                               std::uint32_t{b[2]} << 8 | std::uint32_t{b[3]};
    shape.push_back(size);
    overflow |= __builtin_mul_overflow(bound, std::uint64_t{size == 0 ? 1u : size}, &bound);
  }
  const std::uint64_t header = in.offset();
  if (overflow || bound >= static_cast<std::uint64_t>(kMaxElements)) {
    in.fail(
        fmt::format("absurd sizes at {}: {} {} has too many elements; a tensor has fewer than "
                    "2^56, with sizes of 0 counted as 1",
                    in.at(4), shape, dtype));
  }
  bytes = static_cast<std::uint64_t>(shape.product()) * size_of(dtype);
  const std::uint64_t room = in.most_bytes() < header ? 0 : in.most_bytes() - header;
  if (bytes > room) {
    in.fail(fmt::format("sizes at {} declare {} {}: expected {} bytes of data, found {} {}",
                        in.at(4), shape, dtype, bytes,
                        in.compressed() ? "a gzip file that holds at most" : "only", room),
            "the file is truncated or damaged; fetch it again");
  }
  return shape;
}

}  // namespace

Tensor read_idx(const std::string& path) try {
  ByteReader in(kOp, path);
  int rank = 0;
  const DType dtype = read_magic(in, rank);
  std::uint64_t bytes = 0;
  const Shape shape = read_shape(in, rank, dtype, bytes);
  const std::uint64_t header = in.offset();

  const OwnerScope owner(Owner::data);
  Tensor t = empty(shape, dtype, Device::cpu());
  require_memory(kOp, t);
  void* data = t.mutable_view().data;
  const std::size_t n = bytes == 0 ? 0 : in.read(data, bytes);
  if (n != bytes) {
    in.fail(fmt::format("truncated: {} {} needs {} bytes from {} on, found the end after {}", shape,
                        dtype, bytes, in.at(header), n),
            "fetch the file again");
  }
  // Reading one more byte also makes zlib verify gzip's checksum and length.
  unsigned char extra = 0;
  if (in.read(&extra, 1) != 0) {
    in.fail(fmt::format("trailing data: expected the end of {} {} at {}, found more", shape, dtype,
                        in.at(header + bytes)));
  }
  if constexpr (std::endian::native == std::endian::little)
    swap_bytes(data, t.numel(), size_of(dtype));
  return t;
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn::data
