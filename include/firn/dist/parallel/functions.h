// Building blocks of sharded layers: differentiable collectives, and the loss of logits whose
// classes are sharded over ranks (Shoeybi et al. 2019, Megatron-LM).
//
// Tensors are on the group's device, floating, and of one shape and dtype on all ranks. All ranks
// make the same calls in the same order, so their backward passes do too. Sums of f16 and bf16 are
// formed in f32, in the order of the ranks, and rounded once. So a tensor that is "the same on
// every rank" has the same bits there. All functions throw Error for a tensor that does not fit,
// and RankError as collectives do, in the backward pass too.
#pragma once

#include "firn/dist/group.h"
#include "firn/ops/losses.h"
#include "firn/random.h"
#include "firn/tensor.h"

namespace firn::dist {

/// Returns x, which is the same on every rank, as the input of a sharded computation. Backward sums
/// the ranks' gradients.
Tensor copy_to_ranks(const Tensor& x, const Group& group);

/// Returns the sum of all ranks' x, the same on every rank. Backward gives each rank the
/// gradient of the sum, which must be the same on every rank.
Tensor reduce_from_ranks(const Tensor& x, const Group& group);

/// x [..., n] -> [..., n size()]: joins the ranks' x along the last axis, the same on every rank.
/// Backward takes this rank's part of the gradient, which must be the same on every rank.
Tensor gather_from_ranks(const Tensor& x, const Group& group);

/// x [..., n], which is the same on every rank -> [..., n / size()], this rank's part. Backward
/// joins the ranks' gradients along the last axis. Throws Error unless size() divides n.
Tensor scatter_to_ranks(const Tensor& x, const Group& group);

/// Computes cross_entropy() of logits [..., C], of which each rank has classes [rank C/size,
/// (rank + 1) C/size): logits_part [..., C/size]. `target` [...], of all C classes, and the options
/// are the same on every rank; class_weights has all C. The loss is the same on every rank. Per row
/// the ranks exchange the maximum, and the sums of e^x, of the target's logit and (for label
/// smoothing) of logits. Computes in f32 (f64 for f64). Throws as cross_entropy(), and for an
/// `axis` that is not the last.
Loss vocab_parallel_cross_entropy(const Tensor& logits_part, const Tensor& target,
                                  const Group& group, const CrossEntropyOptions& options = {});

/// While alive, ops of this thread draw random numbers of this rank's own, for example for dropout
/// of sharded activations. The numbers follow from the stream and the rank. The stream itself
/// advances alike on every rank, so numbers drawn before and after are equal on all ranks. In a
/// group of one rank nothing changes.
class RankNumbers {
 public:
  explicit RankNumbers(const Group& group);
  RankNumbers(const RankNumbers&) = delete;
  RankNumbers& operator=(const RankNumbers&) = delete;

 private:
  Generator own_;
  GeneratorScope scope_;
};

}  // namespace firn::dist
