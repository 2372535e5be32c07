// Attention by firn's own kernels, which compute the calls that cuDNN does not.
#pragma once

#include "kernels/sequence/attention.h"

namespace firn::kernels::cuda {

/// Do what cpu::attention() and cpu::attention_backward() do, by firn's kernels, for every call.
void own_attention(const ConstView& q, const ConstView& k, const ConstView& v,
                   const AttentionArgs& args, const View& o, const View& log_sum_exp,
                   Stream stream);
void own_attention_backward(const ConstView& dout, const ConstView& q, const ConstView& k,
                            const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                            const AttentionArgs& args, const AttentionGrads& grads, Stream stream);

}  // namespace firn::kernels::cuda
