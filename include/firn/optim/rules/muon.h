// Muon, for the hidden matrices of a model, with AdamW for the rest.
#pragma once

#include <cstdint>
#include <functional>

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"
#include "firn/tensor.h"

namespace firn::optim {

/// Factor of the learning rate of a matrix of r rows and c columns. The two differ by more than a
/// constant: a learning rate that was tuned for one does not suit the other. The names are those of
/// torch.optim.Muon.
enum class MuonScale : std::uint8_t {
  original,  ///< sqrt(max(1, r / c)) (Jordan et al. 2024)
  /// 0.2 sqrt(max(r, c)): updates are as large as AdamW's, whose learning rate and decay then serve
  /// both (Liu et al. 2025, "Muon is scalable for LLM training").
  match_rms_adamw,
};

struct MuonOptions {
  Schedule lr = 1e-3;         ///< a number, or a schedule over applied steps
  double momentum = 0.95;     ///< decay of the average of gradients, in [0, 1)
  bool nesterov = true;       ///< needs momentum > 0
  double weight_decay = 0.1;  ///< 0 or more; w -= lr * weight_decay * w, apart from the gradient
  MuonScale scale = MuonScale::original;  ///< fits the learning rate to the shape of a matrix
  std::int64_t newton_schulz_steps = 5;   ///< iterations of X below, 1 to 99
  /// True for parameters that Muon updates; empty: those of two axes. It should leave out
  /// embeddings and the output layer, which are matrices too.
  std::function<bool(const NamedTensor& parameter)> hidden = {};
  /// Parameters of three axes or more, such as weights of convolutions, count as matrices of
  /// size(0) rows. Without it, `hidden` must not choose them.
  bool flatten = false;

  // AdamW for the other parameters.
  double adamw_lr_scale = 1;         ///< its learning rate is lr times this: 0 or more
  double beta1 = 0.9;                ///< decay of the first moment, in [0, 1)
  double beta2 = 0.999;              ///< decay of the second moment, in [0, 1)
  double eps = 1e-8;                 ///< added to the root, more than 0
  double adamw_weight_decay = 1e-2;  ///< 0 or more, as AdamW's
};

/// m = momentum m + (1 - momentum) g;  u = (1 - momentum) g + momentum m with nesterov, else m;
/// w -= lr * weight_decay * w + lr * scale * orthogonal(u). (Jordan et al. 2024, as in
/// torch.optim.)
///
/// orthogonal(u) is u with its singular values brought near 1. X = u / max(|u|, 1e-7), then
/// newton_schulz_steps times X = 3.4445 X - 4.7750 (X X^T) X + 2.0315 (X X^T)^2 X. All is computed
/// in f32 (f64 for f64 parameters), where torch.optim uses bf16. Products follow allow_tf32() and
/// the like.
///
///   optim::Muon opt(net.named_parameters(),
///                   {.lr = optim::cosine(0.02, 5000),
///                    .hidden = [](const NamedTensor& p) {
///                      return p.tensor.rank() == 2 && p.name.starts_with("blocks.");
///                    },
///                    .adamw_lr_scale = 0.015});  // 3e-4 at first
///
/// A group can choose for all of its parameters: ParamGroup::hidden. Its weight_decay applies to
/// both rules. Groups may also set momentum, nesterov, beta1, beta2 and eps.
///
/// State: "momentum", or AdamW's moments. A step needs memory of the momentum's size again for each
/// matrix, and for the products of the largest one. If memory of the heap runs out in a step, the
/// cycle is dropped; weights and states are as before.
///
/// Throws Error if a parameter that Muon is to update has one axis or none, or more than two
/// without `flatten`.
class Muon : public OptimizerOf<MuonOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<MuonOptions>;

}  // namespace firn::optim
