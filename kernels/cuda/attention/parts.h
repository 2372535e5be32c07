// Attention's own kernels, and who computes a call: they or cuDNN.
#pragma once

#include "kernels/sequence/attention.h"

namespace firn::kernels::cuda {

/// As cpu::attention(), by firn's kernels, for every call.
void own_attention(const ConstView& q, const ConstView& k, const ConstView& v,
                   const AttentionArgs& args, const View& o, const View& log_sum_exp,
                   Stream stream);
void own_attention_backward(const ConstView& dout, const ConstView& q, const ConstView& k,
                            const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                            const AttentionArgs& args, const AttentionGrads& grads, Stream stream);

}  // namespace firn::kernels::cuda
