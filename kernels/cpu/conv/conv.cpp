// Convolutions. They are cut into blocks by shape alone and one thread computes each block, so the
// bits do not depend on the number of threads. Operands of other dtypes or memory orders are
// copied to workspace, a block at a time.
#include "kernels/conv.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <type_traits>

#include "kernels/copy.h"
#include "kernels/cpu/conv/block.h"
#include "kernels/cpu/conv/blocks.h"
#include "kernels/cpu/conv/onednn.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/cpu/gemm/microkernel.h"
#include "kernels/elementwise.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Returns the positions `range` along an axis.
template <class V>
V part_of(V v, int axis, ConvRange range) {
  v.data = const_cast<char*>(static_cast<const char*>(v.data)) +
           range.begin * v.strides[axis] * static_cast<std::int64_t>(size_of(v.dtype));
  v.shape[axis] = range.count();
  return v;
}
/// Return a block's part of x or its gradient, and of y or its gradient.
template <class V>
V input_of(const V& x, const ConvBlock& b) {
  const V images = part_of(x, 0, b.images);
  return x.rank() == 5 ? part_of(images, 2, b.in) : images;
}
template <class V>
V output_of(const V& y, const ConvBlock& b) {
  const V images = part_of(y, 0, b.images);
  return y.rank() == 5 ? part_of(images, 2, b.out) : images;
}

/// True if a view can be used without a copy.
template <class T>
bool in_place(const ConstView& v) {
  return v.dtype == dtype_of<T> && is_channels_last(v);
}

/// Channels-last workspace.
class Dense {
 public:
  Dense(const Shape& shape, DType dtype)
      : own_({shape.product()}, dtype),
        view_{own_.view().data, dtype, Device::cpu(), shape,
              strides_in(shape, MemoryFormat::channels_last)} {}
  const View& view() const noexcept { return view_; }

 private:
  Workspace own_;
  View view_;
};

/// A part of an operand, channels-last and in the compute type; copied if necessary.
template <class T>
class Operand {
 public:
  explicit Operand(const ConstView& part) {
    if (in_place<T>(part)) {
      data_ = part.as<T>();
      return;
    }
    copy_.emplace(part.shape, dtype_of<T>);
    FIRN_ISA::copy(part, copy_->view(), Stream{});
    data_ = copy_->view().template as<T>();
  }
  const T* data() const noexcept { return data_; }
  /// Bytes of a slot that a part of some elements takes.
  static std::int64_t scratch(const ConstView& v, std::int64_t elements) {
    return in_place<T>(v) ? 0 : slot_bytes_of<T>(elements);
  }

 private:
  std::optional<Dense> copy_;
  const T* data_;
};

/// A part of a result. finish() sets it to beta * part + data(). data() is the part itself if its
/// layout allows, and beta is 0 or the computation `adds`.
template <class T>
class Result {
 public:
  Result(const View& part, float beta, bool adds) : part_(part), beta_(beta) {
    if (is_direct(part, beta, adds)) {
      data_ = part_.template as<T>();
      if (adds && beta == 0) clear();
      return;
    }
    own_.emplace(part_.shape, dtype_of<T>);
    data_ = own_->view().template as<T>();
    if (adds) clear();
  }
  T* data() const noexcept { return data_; }
  /// Bytes of a slot that a part of some elements takes.
  static std::int64_t scratch(const View& v, std::int64_t elements, float beta, bool adds) {
    return is_direct(v, beta, adds) ? 0 : slot_bytes_of<T>(elements);
  }
  void finish() const {
    if (!own_) return;
    if (beta_ == 0) {
      FIRN_ISA::copy(own_->view(), part_, Stream{});
    } else {
      FIRN_ISA::axpby(1.0, own_->view(), beta_, part_, Stream{});
    }
  }

 private:
  static bool is_direct(const View& v, float beta, bool adds) {
    return in_place<T>(v) && (beta == 0 || adds);
  }
  void clear() { std::fill_n(data_, part_.numel(), T(0)); }

  View part_;
  float beta_;
  std::optional<Dense> own_;
  T* data_;
};

/// The bias in the compute type, or null.
template <class T>
class Bias {
 public:
  explicit Bias(const ConstView& v) {
    if (!v.data) return;
    own_.emplace(v.shape, dtype_of<T>);
    FIRN_ISA::copy(v, own_->view(), Stream{});
  }
  const T* data() const noexcept { return own_ ? own_->view().template as<T>() : nullptr; }

 private:
  std::optional<Workspace> own_;
};

/// Type in which sums of operands of type S are computed.
template <class S>
using Sum = std::conditional_t<std::is_same_v<S, double>, double, float>;

/// library_takes is true if the library multiplies such operands without widening them.
template <class S>
inline constexpr bool is_bf16 = std::is_same_v<S, bfloat16>;
template <class S>
inline constexpr bool library_takes = std::is_same_v<S, float> || is_bf16<S>;

/// Adds the bias to y, and applies relu as math::Relu does: a NaN stays NaN.
template <class T>
void finish_outputs(std::int64_t pixels, std::int64_t k, const Sum<T>* bias, bool relu, T* y) {
  const auto above_zero = [](T v) {
    if constexpr (is_bf16<T>) {  // tests the bits, which compilers vectorise
      const bool nan = (v.bits & 0x7fff) > 0x7f80, negative = (v.bits & 0x8000) != 0;
      return T::from_bits(negative && !nan ? std::uint16_t{0} : v.bits);
    } else {
      return v <= T(0) ? T(0) : v;
    }
  };
  if (!bias) {
    if (relu) std::transform(y, y + pixels * k, y, above_zero);
    return;
  }
  for (std::int64_t i = 0; i < pixels; ++i, y += k) {
    for (std::int64_t j = 0; j < k; ++j) y[j] = T(static_cast<Sum<T>>(y[j]) + bias[j]);
    if (relu) std::transform(y, y + k, y, above_zero);
  }
}

/// Returns the total of element operations, as parallel_for counts them.
std::int64_t work_of(const ConvSizes& z) {
  return std::max(z.n * z.image_work(), z.n * (z.image_inputs() + z.image_outputs()));
}

/// oneDNN's primitives for one product, and the weights in its format. oneDNN has none for f64.
class Onednn {
 public:
  template <class T>
  Onednn(const T* weights, ConvPass pass, const ConvBlocks& blocks, bool bias) {
    if constexpr (library_takes<T>) {
      conv_ = OnednnConv::find(pass, dtype_of<T>, blocks.shapes(), bias);
      // conv_takes_volumes() has found the primitives before, so the program is ending.
      if (!conv_ && !is_bf16<T> && blocks.shapes().front().volumes)
        throw DeviceError("conv", "oneDNN is gone", "end threads before main() returns");
      if (!conv_ || !weights) return;
      packed_.emplace(Shape{conv_->weights_size()}, dtype_of<T>);
      conv_->pack(weights, packed_->view().data);
    }
  }
  explicit operator bool() const noexcept { return conv_ != nullptr; }
  /// Returns the scratch memory of a block, by the library or without it.
  template <class T>
  std::int64_t scratch(ConvPass pass, const ConvBlocks& blocks) const {
    if (conv_) return conv_->scratch_bytes();
    std::int64_t most = 0;
    for (const ConvSizes& z : blocks.shapes())
      most = std::max(most, conv_block_scratch<T>(pass, z));
    return most;
  }
  const OnednnConv* operator->() const noexcept { return conv_.get(); }
  const void* weights() const noexcept { return packed_->view().data; }

 private:
  std::shared_ptr<const OnednnConv> conv_;
  std::optional<Workspace> packed_;
};

template <class S>
void forward(const ConstView& x, const ConstView& w, const ConstView& bias, bool relu,
             const ConvGeometry& geometry, const View& y) {
  const ConvSizes z = ConvSizes::of(x, w, y, geometry);
  const Operand<S> weights(w);
  const Bias<Sum<S>> shift(bias);
  const ConvBlocks blocks(ConvPass::forward, z);
  const Onednn library(weights.data(), ConvPass::forward, blocks, shift.data() != nullptr);
  if constexpr (is_bf16<S>)
    if (!library) return forward<float>(x, w, bias, relu, geometry, y);
  const std::int64_t bytes = Operand<S>::scratch(x, blocks.inputs()) +
                             Result<S>::scratch(y, blocks.outputs(), 0, false) +
                             library.template scratch<Sum<S>>(ConvPass::forward, blocks);
  parallel_for_with_scratch(bytes, blocks.count(), work_of(z), [&](std::int64_t i) {
    const ConvBlock block = blocks[i];
    const ConvSizes& own = blocks.shapes()[block.shape];
    const std::int64_t pixels = own.n * own.o * own.p * own.q;
    const Operand<S> in(input_of(x, block));
    const Result<S> out(output_of(y, block), 0, false);
    if constexpr (library_takes<S>) {
      if (library) {
        library->run(block.shape, in.data(), library.weights(), shift.data(), out.data());
        // oneDNN's relu would turn a NaN into 0.
        finish_outputs<S>(pixels, z.k, nullptr, relu, out.data());
        return out.finish();
      }
    }
    if constexpr (!is_bf16<S>) {
      conv_forward_block(own, in.data(), weights.data(), out.data());
      finish_outputs(pixels, z.k, shift.data(), relu, out.data());
      out.finish();
    }
  });
}

template <class S>
void data_gradient(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                   const View& dx, float beta) {
  const ConvSizes z = ConvSizes::of(dx, w, dy, geometry);
  const Operand<S> weights(w);
  const ConvBlocks blocks(ConvPass::data, z);
  const Onednn library(weights.data(), ConvPass::data, blocks, false);
  // The product is computed in f32, so that its sum with dx's old values is rounded only once.
  if constexpr (is_bf16<S>)
    if (!library || beta != 0 || dx.dtype != DType::bf16)
      return data_gradient<float>(dy, w, geometry, dx, beta);
  const std::int64_t bytes = Operand<S>::scratch(dy, blocks.outputs()) +
                             Result<S>::scratch(dx, blocks.inputs(), beta, !library) +
                             library.template scratch<Sum<S>>(ConvPass::data, blocks);
  parallel_for_with_scratch(bytes, blocks.count(), work_of(z), [&](std::int64_t i) {
    const ConvBlock block = blocks[i];
    const Operand<S> in(output_of(dy, block));
    const Result<S> out(input_of(dx, block), beta, !library);
    if constexpr (library_takes<S>) {
      if (library) {
        library->run(block.shape, out.data(), library.weights(), nullptr, in.data());
        return out.finish();
      }
    }
    if constexpr (!is_bf16<S>) {
      conv_data_block(blocks.shapes()[block.shape], in.data(), weights.data(), out.data());
      out.finish();
    }
  });
}

/// sum[j] = beta*sum[j] + the sum of parts[i][j] over i, in that order.
template <class T>
void add_parts(std::int64_t count, std::int64_t size, const T* parts, float beta, T* sum) {
  constexpr std::int64_t kChunk = 4096;
  parallel_for(math::ceil_div(size, kChunk), count * size, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * kChunk, end = std::min(begin + kChunk, size);
    alignas(64) T total[kChunk];
    std::copy(parts + begin, parts + end, total);
    for (std::int64_t i = 1; i < count; ++i) {
      const T* const part = parts + i * size + begin;
      for (std::int64_t j = 0; j < end - begin; ++j) total[j] += part[j];
    }
    T* const to = sum + begin;
    if (beta == 0) {
      std::copy(total, total + (end - begin), to);
    } else {
      for (std::int64_t j = 0; j < end - begin; ++j)
        to[j] = static_cast<T>(beta) * to[j] + total[j];
    }
  });
}

/// Returns the number of parts of the batch that have their own partial sum. It is 16, for the
/// threads of a large machine. Large weights get fewer, within 64 MB of f32 sums, but at least 4.
std::int64_t most_parts(std::int64_t weights) {
  constexpr std::int64_t kNumbers = std::int64_t{1} << 24, kMost = 16, kLeast = 4;
  return std::clamp<std::int64_t>(kNumbers / std::max<std::int64_t>(weights, 1), kLeast, kMost);
}

template <class S>
void weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                     const View& dw, float beta) {
  using T = Sum<S>;
  const ConvSizes z = ConvSizes::of(x, dw, dy, geometry);
  const ConvBlocks blocks(ConvPass::weight, z, most_parts(dw.numel()));
  const Onednn library(static_cast<const S*>(nullptr), ConvPass::weight, blocks, false);
  if constexpr (is_bf16<S>)
    if (!library) return weight_gradient<float>(dy, x, geometry, dw, beta);
  const std::int64_t size = library ? library->weights_size() : dw.numel();
  const Workspace parts({blocks.count(), size}, dtype_of<T>);
  T* const sums = parts.view().template as<T>();
  const std::int64_t bytes = Operand<S>::scratch(dy, blocks.outputs()) +
                             Operand<S>::scratch(x, blocks.inputs()) +
                             library.template scratch<T>(ConvPass::weight, blocks);
  parallel_for_with_scratch(bytes, blocks.count(), work_of(z), [&](std::int64_t i) {
    const ConvBlock block = blocks[i];
    T* const part = sums + i * size;
    const Operand<S> from(output_of(dy, block)), in(input_of(x, block));
    if constexpr (library_takes<S>) {
      if (library) return library->run(block.shape, in.data(), part, nullptr, from.data());
    }
    if constexpr (!is_bf16<S>) {
      std::fill_n(part, size, T(0));
      conv_weight_block(blocks.shapes()[block.shape], from.data(), in.data(), part);
    }
  });
  if (!library && in_place<T>(dw)) return add_parts(blocks.count(), size, sums, beta, dw.as<T>());
  add_parts(blocks.count(), size, sums, 0, sums);
  View sum{sums, dtype_of<T>, Device::cpu(), dw.shape,
           strides_in(dw.shape, MemoryFormat::channels_last)};
  std::optional<Workspace> plain;
  if constexpr (library_takes<S>) {
    if (library) {
      plain.emplace(dw.shape, DType::f32);
      sum.data = plain->view().data;
      library->unpack(sums, sum.data);
    }
  }
  FIRN_ISA::axpby(1.0, sum, beta, dw, Stream{});
}

/// Calls fn<S>() with the type S of the products' operands. The library has no unit for f16, and
/// multiplies it as f32.
template <class Fn>
void with_operands(DType dtype, Fn&& fn) {
  if (dtype == DType::f64) return fn.template operator()<double>();
  if (dtype == DType::bf16 && multiplies_bf16()) return fn.template operator()<bfloat16>();
  fn.template operator()<float>();
}

}  // namespace

void conv_forward(const ConstView& x, const ConstView& w, const ConstView& bias, bool relu,
                  const ConvGeometry& geometry, const View& y, Stream) {
  if (y.numel() == 0) return;
  with_operands(x.dtype, [&]<class S>() { forward<S>(x, w, bias, relu, geometry, y); });
}

void conv_data_gradient(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                        const View& dx, float beta, Stream) {
  if (dx.numel() == 0) return;
  with_operands(dy.dtype, [&]<class S>() { data_gradient<S>(dy, w, geometry, dx, beta); });
}

void conv_weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                          const View& dw, float beta, Stream) {
  if (dw.numel() == 0) return;
  with_operands(dy.dtype, [&]<class S>() { weight_gradient<S>(dy, x, geometry, dw, beta); });
}

bool conv_takes_volumes(ConvPass pass, const ConstView& x, const ConstView& w, const ConstView& y,
                        bool bias, const ConvGeometry& geometry) {
  if (x.dtype == DType::f64 || x.numel() == 0 || w.numel() == 0 || y.numel() == 0) return false;
  const ConvSizes z = ConvSizes::of(x, w, y, geometry);
  // Blocks of such a gradient could not be cut along depth.
  if (pass == ConvPass::data && z.depth_reach() < z.geometry.depth.stride) return false;
  const ConvBlocks blocks =
      pass == ConvPass::weight ? ConvBlocks(pass, z, most_parts(w.numel())) : ConvBlocks(pass, z);
  return OnednnConv::find(pass, DType::f32, blocks.shapes(), bias) != nullptr;
}

}  // namespace firn::kernels::cpu::FIRN_ISA
