// The two passes of attention as cuDNN computes them. On the simulator
// tests/cusim/libraries/cudnn_attention.cpp computes them, and refuses what the library refuses.
//
// Operands, result and gradients are of one 16-bit dtype and not empty. Head sizes are multiples of
// 8, the last axis has stride 1, and other strides are positive multiples of 8. The scale is
// positive. With `causal` there are no more queries than keys. Each function returns false, with
// nothing done, if cuDNN is not installed or has no plan.
//
// Differences from kernels/sequence/attention.h: the log_sum_exp of a query that has only scores of
// -inf is -inf. With `causal`, a tile is multiplied with probabilities of 0 for hidden pairs. So a
// NaN or an infinity reaches queries and keys of the tile that do not see it: from v in the forward
// pass, from every operand in the backward pass.
//
// A plan is made at the first call with a shape, which may take seconds, and cached per device and
// thread. While a graph is captured no plan can be made; an Error then says to run a step first.
#pragma once

#include "kernels/sequence/attention.h"

namespace firn::kernels::cuda {

bool cudnn_attention(const ConstView& q, const ConstView& k, const ConstView& v, double scale,
                     bool causal, const View& o, const View& log_sum_exp, Stream stream);

/// Writes all three gradients. The sums have one order unless allow_nondeterministic() is on. In
/// that order cuDNN holds 2 bytes a pair in workspace, so a part of the batch or of the heads runs
/// at a time.
bool cudnn_attention_backward(const ConstView& dout, const ConstView& q, const ConstView& k,
                              const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                              double scale, bool causal, const View& dq, const View& dk,
                              const View& dv, Stream stream);

}  // namespace firn::kernels::cuda
