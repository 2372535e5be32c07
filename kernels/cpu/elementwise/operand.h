// Operands of elementwise kernels that are read block by block: in place if their rows are runs of
// the compute type, else through a buffer.
#pragma once

#include <cstdint>

#include "firn/view.h"
#include "kernels/cpu/device/blocks.h"
#include "kernels/cpu/device/convert.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Rows of at least this length are read and computed one by one, and shorter ones together.
inline constexpr std::int64_t kLongRow = 32;

/// Reads the blocks of view number `number` of `blocks`, which have at most kRow elements, as C.
/// If `whole`, a block comes as one run, else as rows.
template <class C>
class Operand {
 public:
  Operand() = default;
  Operand(const ConstView& operand, const Blocks& blocks, int number, bool whole, C* buffer);

  /// Returns the block whose first element is at `offset`: in place or in the buffer. A block that
  /// the buffer holds already is not read again.
  const C* read(std::int64_t offset, std::int64_t height, std::int64_t width) {
    if (in_place_) return static_cast<const C*>(data_) + offset;
    if (constant_ || (offset == offset_ && width == width_ && height <= height_)) return buffer_;
    offset_ = offset;
    height_ = height;
    width_ = width;
    if (run_) {
      const C* const run =
          load_row(advance(data_, dtype_, offset), dtype_, steps_.column, height * width, buffer_);
      if (run != buffer_) width_ = 0;  // one element, in place
      return run;
    }
    read_into(buffer_, offset, height, width);
    return buffer_;
  }
  /// As read(), but never in place: fills `to` with whole rows.
  void read_into(C* to, std::int64_t offset, std::int64_t height, std::int64_t width) const;
  /// Returns the distance between the rows that read() returns for blocks of that width.
  std::int64_t row(std::int64_t width) const noexcept {
    return constant_ ? 0 : in_place_ ? steps_.row : width;
  }

 private:
  const void* data_ = nullptr;
  C* buffer_ = nullptr;
  BlockSteps steps_;
  DType dtype_ = dtype_of<C>;
  bool in_place_ = false, constant_ = false;
  bool run_ = false;  ///< a block is one run of memory, or repeats one element
  std::int64_t offset_ = 0, height_ = 0, width_ = 0;  ///< the block in the buffer
};

// clang-format off
extern template class Operand<float>;
extern template class Operand<double>;
extern template class Operand<std::int64_t>;
// clang-format on

}  // namespace firn::kernels::cpu::FIRN_ISA
