// Reads operands of elementwise kernels block by block.
#include "kernels/cpu/elementwise/operand.h"

namespace firn::kernels::cpu::FIRN_ISA {

template <class C>
Operand<C>::Operand(const ConstView& operand, const Blocks& blocks, int number, bool whole,
                    C* buffer)
    : data_(operand.data),
      buffer_(buffer),
      steps_(blocks.steps(number)),
      dtype_(operand.dtype),
      in_place_(dtype_ == dtype_of<C> && steps_.column == 1 && (!whole || blocks.dense(number))),
      constant_(!in_place_ && blocks.constant(number)) {
  if (constant_) {
    const std::int64_t n = blocks.height() * blocks.width();
    const C* const first = load_row(data_, dtype_, 0, n, buffer_);
    if (first != buffer_) *buffer_ = *first;  // n is 1
  }
}

template <class C>
const C* Operand<C>::read(std::int64_t offset, std::int64_t height, std::int64_t width) {
  if (in_place_) return static_cast<const C*>(data_) + offset;
  if (constant_ || (offset == offset_ && width == width_ && height <= height_)) return buffer_;
  read_into(buffer_, offset, height, width);
  offset_ = offset;
  height_ = height;
  width_ = width;
  return buffer_;
}

template <class C>
void Operand<C>::read_into(C* to, std::int64_t offset, std::int64_t height,
                           std::int64_t width) const {
  const void* const from = advance(data_, dtype_, offset);
  const BlockSteps rows{width, 1};
  visit_size(dtype_, [&]<class T>() {
    const T* const bits = static_cast<const T*>(from);
    if (dtype_ == dtype_of<C>)
      return copy_block(bits, steps_, reinterpret_cast<T*>(to), rows, height, width);
    const std::int64_t n = height * width;
    if (steps_.column == 1 && (height == 1 || steps_.row == width)) {
      load_row(from, dtype_, 1, n, to);
      return;
    }
    alignas(64) T moved[kRow];
    copy_block(bits, steps_, moved, rows, height, width);
    load_row(moved, dtype_, 1, n, to);
  });
}

template class Operand<float>;
template class Operand<double>;
template class Operand<std::int64_t>;

}  // namespace firn::kernels::cpu::FIRN_ISA
