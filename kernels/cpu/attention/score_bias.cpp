#include "kernels/cpu/attention/score_bias.h"

namespace firn::kernels::cpu::FIRN_ISA {

template <class C>
void ScoreBias<C>::add(std::int64_t b, std::int64_t head, const PairBlock& block, C* x,
                       std::int64_t ld) const {
  const Strides& strides = bias_.strides;
  const std::int64_t first =
      b * strides[0] + head * strides[1] + block.query * strides[2] + block.key * strides[3];
  const void* const from = advance(bias_.data, bias_.dtype, first);
  alignas(64) C buffer[kKeyBlock];
  const C* row = nullptr;
  for (std::int64_t r = 0; r < block.rows; ++r, x += ld) {
    if (r == 0 || strides[2] != 0)
      row = load_row(advance(from, bias_.dtype, r * strides[2]), bias_.dtype, strides[3],
                     block.cols, buffer);
    for (std::int64_t c = 0; c < block.cols; ++c) x[c] = scale_ * x[c] + row[c];
  }
}

template class ScoreBias<float>;
template class ScoreBias<double>;

}  // namespace firn::kernels::cpu::FIRN_ISA
