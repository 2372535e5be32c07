// Reads operands of elementwise kernels block by block.
#include "kernels/cpu/elementwise/operand.h"

namespace firn::kernels::cpu::FIRN_ISA {

namespace {

/// Columns at least so many bytes apart are not fetched by the hardware.
constexpr std::int64_t kPrefetched = 1024;

/// Fetches the tile beside one that is contiguous along its rows. It lies in as many pages as it
/// has columns, so the hardware does not foresee it. An address beyond the operand does no harm.
void fetch_next(const void* tile, BlockSteps steps, std::int64_t size, std::int64_t height,
                std::int64_t width) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t column = steps.column * size, bytes = height * size;
  auto next = reinterpret_cast<std::uintptr_t>(tile) + static_cast<std::uintptr_t>(width * column);
  for (std::int64_t j = 0; j < width; ++j, next += static_cast<std::uintptr_t>(column))
    for (std::int64_t i = 0; i < bytes; i += kLine)
      __builtin_prefetch(reinterpret_cast<const void*>(next + static_cast<std::uintptr_t>(i)));
}

}  // namespace

template <class C>
Operand<C>::Operand(const ConstView& operand, const Blocks& blocks, int number, bool whole,
                    C* buffer)
    : data_(operand.data),
      buffer_(buffer),
      steps_(blocks.steps(number)),
      dtype_(operand.dtype),
      in_place_(dtype_ == dtype_of<C> && steps_.column == 1 && (!whole || blocks.dense(number))),
      constant_(!in_place_ && blocks.constant(number)),
      run_(blocks.dense(number) || (blocks.height() == 1 && steps_.column == 0)) {
  if (constant_) {
    const std::int64_t n = blocks.height() * blocks.width();
    const C* const first = load_row(data_, dtype_, 0, n, buffer_);
    if (first != buffer_) *buffer_ = *first;  // n is 1
  }
}

template <class C>
void Operand<C>::read_into(C* to, std::int64_t offset, std::int64_t height,
                           std::int64_t width) const {
  const void* const from = advance(data_, dtype_, offset);
  const BlockSteps rows{width, 1};
  const auto size = static_cast<std::int64_t>(size_of(dtype_));
  if (steps_.row == 1 && steps_.column * size >= kPrefetched)
    fetch_next(from, steps_, size, height, width);
  if (run_) {
    load_row(from, dtype_, steps_.column, height * width, to);
    return;
  }
  if (steps_.column == 0 && width >= kLongRow) {
    for (std::int64_t i = 0; i < height; ++i)
      load_row(advance(from, dtype_, i * steps_.row), dtype_, 0, width, to + i * width);
    return;
  }
  visit_size(dtype_, [&]<class T>() {
    const T* const bits = static_cast<const T*>(from);
    if (dtype_ == dtype_of<C>)
      return copy_block(bits, steps_, reinterpret_cast<T*>(to), rows, height, width);
    alignas(64) T moved[kRow];
    copy_block(bits, steps_, moved, rows, height, width);
    load_row(moved, dtype_, 1, height * width, to);
  });
}

template class Operand<float>;
template class Operand<double>;
template class Operand<std::int64_t>;

}  // namespace firn::kernels::cpu::FIRN_ISA
