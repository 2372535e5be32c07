#include "firn/io/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/swap_bytes.h"
#include "firn/ops/ops.h"
#include "io/file/atomic_file.h"
#include "io/file/input_file.h"
#include "io/npy_header.h"
#include "tensor/impl.h"

namespace firn::io {
namespace {

static_assert(std::endian::native == std::endian::little, "native order is read as little-endian");

Shape reversed(const Shape& shape) {
  Shape out = shape;
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

Tensor read_npy(const std::string& path) try {
  constexpr const char* kOp = "read_npy";
  InputFile in(kOp, path);
  const NpyHeader h = read_npy_header(kOp, in);
  const std::uint64_t begin = in.offset(), found = in.bytes() - begin;
  const std::uint64_t want = static_cast<std::uint64_t>(h.shape.product()) * size_of(h.dtype);
  if (found != want)
    in.fail(fmt::format("from byte {} on {} {} takes {} bytes, found {}", begin, h.shape, h.dtype,
                        want, found),
            found < want ? "the file is truncated; fetch it again"
                         : "the file has more than one array, or is damaged");
  // The elements of an array in Fortran order are those of its transpose in row-major order.
  Tensor t = empty(h.fortran_order ? reversed(h.shape) : h.shape, h.dtype, Device::cpu());
  require_memory(kOp, t);
  in.read_all(t.mutable_view().data, t.bytes());
  if (h.big_endian) swap_bytes(t.mutable_view().data, t.numel(), size_of(h.dtype));
  if (h.dtype == boolean) {
    const auto* const bytes = static_cast<const unsigned char*>(t.view().data);
    for (std::int64_t i = 0; i < t.numel(); ++i)
      if (bytes[i] > 1)
        in.fail(fmt::format("byte {} is {}, and a bool is 0 or 1",
                            begin + static_cast<std::uint64_t>(i), bytes[i]),
                "the file is damaged; fetch it again");
  }
  if (!h.fortran_order) return t;
  return t.as_strided(h.shape, reversed(t.strides()));
}
FIRN_OUT_OF_MEMORY("read_npy")

void write_npy(const std::string& path, const Tensor& t) try {
  constexpr const char* kOp = "write_npy";
  require_defined(kOp, t);
  const std::string header = npy_header(kOp, t.dtype(), t.shape());
  const Tensor elements = contiguous(to_device(t.detach(), Device::cpu()));
  AtomicFile file(kOp, path);
  file.write(header.data(), header.size());
  file.write(elements.view().data, elements.bytes());
  file.commit();
}
FIRN_OUT_OF_MEMORY("write_npy")

}  // namespace firn::io
