// Attention on CUDA devices. cuDNN computes it if it keeps the contract, else firn's kernels do.
// The passes of a step may take different ways: both keep the natural log_sum_exp in f32.
#include "kernels/sequence/attention.h"

#include <initializer_list>

#include "kernels/cuda/attention/cudnn/products.h"
#include "kernels/cuda/attention/parts.h"
#include "kernels/settings/settings.h"

namespace firn::kernels::cuda {
namespace {

#ifdef FIRN_HAS_CUDNN
constexpr bool kHasCudnn = true;
#else
constexpr bool kHasCudnn = false;  // built without its headers
#endif

/// True if cuDNN reads and writes such an array: its last axis is contiguous, and rows begin at
/// multiples of 16 bytes. An axis that repeats elements is not taken.
bool is_aligned(const ConstView& x) {
  constexpr std::int64_t kStep = 8, kMostElements = std::int64_t{1} << 31;
  if (x.shape[3] % kStep != 0 || x.strides[3] != 1 || x.numel() >= kMostElements) return false;
  for (int i = 0; i < 3; ++i)
    if (x.shape[i] > 1 && (x.strides[i] < kStep || x.strides[i] % kStep != 0)) return false;
  return true;
}

/// True if cuDNN may be asked for a call with these options and arrays. It is not asked:
///  - with lengths, mask, bias, window or dropout, nor in f32 and f64;
///  - for a causal call, unless FIRN_ATTENTION=cudnn: a NaN in a value that is not seen would reach
///    the queries of its tile. Queries before the first key are never taken;
///  - for a scale that is not positive, as cuDNN scales the maximum of the products;
///  - for one query: while a cache grows, every step would wait for a plan of its own.
bool asks_cudnn(const ConstView& q, const ConstView& k, const AttentionArgs& args,
                std::initializer_list<ConstView> arrays) {
  const AttentionPath path = attention_path().load(std::memory_order_relaxed);
  if (path == AttentionPath::own || (args.causal && path != AttentionPath::cudnn)) return false;
  if (q.dtype != DType::f16 && q.dtype != DType::bf16) return false;
  if (args.lengths.data || args.mask.data || args.bias.data) return false;
  if (args.window > 0 || args.dropout > 0) return false;
  if (!(static_cast<float>(args.scale) > 0)) return false;
  if (q.shape[2] < 2 || (args.causal && q.shape[2] > k.shape[2])) return false;
  for (const ConstView& x : arrays)
    if (x.dtype != q.dtype || x.numel() == 0 || !is_aligned(x)) return false;
  return true;
}

}  // namespace

void attention(const ConstView& q, const ConstView& k, const ConstView& v,
               const AttentionArgs& args, const View& o, const View& log_sum_exp, Stream stream) {
  if constexpr (kHasCudnn) {
    if (asks_cudnn(q, k, args, {q, k, v, o}) &&
        cudnn_attention(q, k, v, args.scale, args.causal, o, log_sum_exp, stream)) {
      return;
    }
  }
  own_attention(q, k, v, args, o, log_sum_exp, stream);
}

/// cuDNN writes all three gradients, rounded to the operands' dtype. It is not asked to add to old
/// values, to write only some of them, or for sums in f32.
void attention_backward(const ConstView& dout, const ConstView& q, const ConstView& k,
                        const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                        const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  if constexpr (kHasCudnn) {
    const bool stores = grads.dq.data && grads.dk.data && grads.dv.data && grads.dq_beta == 0 &&
                        grads.dk_beta == 0 && grads.dv_beta == 0;
    if (stores && asks_cudnn(q, k, args, {q, k, v, o, dout, grads.dq, grads.dk, grads.dv}) &&
        cudnn_attention_backward(dout, q, k, v, o, log_sum_exp, args.scale, args.causal, grads.dq,
                                 grads.dk, grads.dv, stream)) {
      return;
    }
  }
  own_attention_backward(dout, q, k, v, o, log_sum_exp, args, grads, stream);
}

}  // namespace firn::kernels::cuda
