// Convolutions that oneDNN computes wrongly, so that firn computes them another way. A test
// compares all small shapes with plain loops (tests/kernels/image/conv_sweep.cpp); its long form
// found these.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "kernels/plan/conv_sizes.h"

namespace firn::kernels::cpu {

/// One axis of a convolution.
struct ConvAxis {
  std::int64_t in, taps, out, stride, before, dilation;

  std::int64_t reach() const noexcept { return dilation * (taps - 1) + 1; }
  /// True if the window of output o begins before the input, or ends after it.
  bool begins_before(std::int64_t o) const noexcept { return o * stride < before; }
  bool ends_after(std::int64_t o) const noexcept { return o * stride + reach() > before + in; }
  /// True if no window reads anything.
  bool is_blind() const noexcept {
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t t = 0; t < taps; ++t)
        if (const auto i = o * stride - before + t * dilation; i >= 0 && i < in) return false;
    return true;
  }
};

/// True if an output at the front is at the back as well, or the `next` one after it is. oneDNN
/// steps along depth and height as if whole windows lay between.
inline bool has_no_middle(const ConvAxis& a, std::int64_t next) noexcept {
  for (std::int64_t o = 0; o < a.out && a.begins_before(o); ++o)
    if (a.ends_after(std::min(o + next, a.out - 1))) return true;
  return false;
}

/// True if oneDNN 2.6 and 3.7 compute the gradient of weights wrongly. For maps and volumes that
/// are all border they read and write at wrong places. With one channel and one column of bf16 they
/// read behind the input.
inline bool weight_gradient_is_wrong(DType dtype, const ConvSizes& z) noexcept {
  const ConvGeometry& g = z.geometry;
  if (dtype == DType::bf16 && z.channels() == 1 && z.q == 1) return true;
  if (has_no_middle({z.h, z.r, z.p, g.stride[0], g.before[0], g.dilation[0]}, 0)) return true;
  return z.volumes &&
         has_no_middle({z.d, z.t, z.o, g.depth.stride, g.depth.before, g.depth.dilation}, 1);
}

/// True if oneDNN writes beyond scratch memory. Kernels of one tap that step over pixels gather
/// them there, and write whole vectors of channels behind its end.
inline bool gathers_beyond(const ConvSizes& z, std::string_view name) noexcept {
  const ConvGeometry& g = z.geometry;
  return name.find("_1x1") != name.npos && z.channels() % 16 != 0 &&
         std::max({g.stride[0], g.stride[1], g.depth.stride}) > 1;
}

/// True if oneDNN 3.7, which regroups the taps of a row, computes outputs wrongly. It crashes where
/// windows see zeros alone, and is wrong in bf16 for one channel, or one column.
inline bool regrouped_outputs_are_wrong(DType dtype, const ConvSizes& z) noexcept {
  const ConvGeometry& g = z.geometry;
  if (dtype == DType::bf16 && z.q == 1) return true;
  return z.channels() == 1 ||  // in f32, a NaN leaks to outputs nearby
         ConvAxis{z.d, z.t, z.o, g.depth.stride, g.depth.before, g.depth.dilation}.is_blind() ||
         ConvAxis{z.h, z.r, z.p, g.stride[0], g.before[0], g.dilation[0]}.is_blind() ||
         ConvAxis{z.w, z.s, z.q, g.stride[1], g.before[1], g.dilation[1]}.is_blind();
}

/// True if oneDNN's implementation `name` is wrong. Names are "brgconv:avx512_core_bf16" in 2.6 and
/// "brg_conv_fwd:avx512_core_bf16" in 3.7, for example.
inline bool onednn_is_wrong(ConvPass pass, DType dtype, const ConvSizes& z, std::string_view name) {
  if (gathers_beyond(z, name)) return true;
  if (pass == ConvPass::weight) return weight_gradient_is_wrong(dtype, z);
  const bool regroups = name.find("brg_conv") != name.npos;
  const bool blocks = regroups || name.find("brgconv") != name.npos;
  // oneDNN multiplies channels of bf16 in pairs, and an odd last one with the next pixel's first,
  // times 0. A NaN there would leak.
  const std::int64_t summed = pass == ConvPass::forward ? z.channels() : z.kernels();
  if (blocks && dtype == DType::bf16 && summed % 2 != 0) return true;
  return regroups && pass == ConvPass::forward && regrouped_outputs_are_wrong(dtype, z);
}

}  // namespace firn::kernels::cpu
