// Muon: momentum whose matrices are orthogonalised by Newton-Schulz iterations.
#include "firn/optim/rules/muon.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "optim/rules/algebra.h"
#include "optim/rules/rule.h"

namespace firn::optim {
namespace {

using namespace algebra;

constexpr const char* kMuon = "Muon";

/// X = a X + b (X X^T) X + c (X X^T)^2 X. Five iterations bring singular values from 1e-3 to 1
/// close to 1 (Jordan et al. 2024).
struct Quintic {
  static constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
};

/// The rows and columns of a weight seen as a matrix.
struct Size {
  std::int64_t rows, cols;
};
Size size_of_matrix(const Shape& shape) {
  const std::int64_t rows = shape[0];
  return {rows, shape.product() / std::max<std::int64_t>(rows, 1)};
}

double scale_of(MuonScale scale, const Size& size) {
  const auto rows = static_cast<double>(size.rows), cols = static_cast<double>(size.cols);
  return scale == MuonScale::original ? std::sqrt(std::max(1.0, rows / cols))
                                      : 0.2 * std::sqrt(std::max(rows, cols));
}

/// Returns `u` with singular values near 1. Overwrites u.
Tensor orthogonal(const Tensor& u, std::int64_t steps) {
  const Tensor norm = sum_of_squares(u, {1, 1}, 1);
  unary(UnaryOp::sqrt, norm);
  binary(BinaryOp::maximum, norm, number(1e-7, norm), norm);
  binary(BinaryOp::div, u, norm, u);
  const bool wide = u.size(0) <= u.size(1);
  const std::int64_t side = std::min(u.size(0), u.size(1));
  const Tensor gram = empty({side, side}, u.dtype(), u.device());
  const Tensor power = empty({side, side}, u.dtype(), u.device());
  Tensor x = u, next = empty(u.shape(), u.dtype(), u.device());
  for (std::int64_t i = 0; i < steps; ++i) {
    // Use the smaller one of X X^T and X^T X: both give the same polynomial.
    if (wide) {
      product(x, transposed(x), 1, 0, gram);
    } else {
      product(transposed(x), x, 1, 0, gram);
    }
    copy(gram, power);
    product(gram, gram, Quintic::c, Quintic::b, power);
    copy(x, next);
    if (wide) {
      product(power, x, 1, Quintic::a, next);
    } else {
      product(x, power, 1, Quintic::a, next);
    }
    std::swap(x, next);
  }
  return x;
}

class MuonRule final : public NonElementwiseRule {
 public:
  explicit MuonRule(const MuonOptions& o) : options_(o) {}

  std::vector<State> states(const NamedTensor& parameter, const std::string& label) const override {
    const int rank = parameter.tensor.rank();
    FIRN_CHECK(rank == 2 || (rank > 2 && options_.flatten), kMuon,
               rank > 2 ? "set flatten, or leave it to AdamW by `hidden`"
                        : "leave it to AdamW by `hidden`, or by a group with .hidden = false",
               "{}, is no matrix", label);
    return {{"momentum", parameter.tensor.shape()}};
  }

  std::string options() const override {
    return fmt::format("momentum {}{}, weight_decay {}, scale {}, newton_schulz_steps {}",
                       options_.momentum, options_.nesterov ? ", nesterov 1" : "",
                       options_.weight_decay,
                       options_.scale == MuonScale::original ? "original" : "match_rms_adamw",
                       options_.newton_schulz_steps);
  }

  std::vector<RuleNumber> numbers() const override {
    return {{"momentum", options_.momentum, true}, {"weight_decay", options_.weight_decay}};
  }

  void compute(const NonElementwiseStep& s) const override {
    const Size size = size_of_matrix(s.weight.shape());
    const double mu = options_.momentum;
    const Tensor gradient = line(s.gradient), weight = line(s.weight);
    const Tensor momentum = line(s.next_states[0]);
    copy(line(s.states[0]), momentum);
    axpby(1 - mu, gradient, mu, momentum);
    if (options_.nesterov) {
      axpby(mu, momentum, 1 - mu, gradient);
    } else {
      copy(momentum, gradient);
    }
    // The matrix is in memory order. The columns of a channels-last weight have another order, and
    // so do those of its result.
    const Tensor update =
        line(orthogonal(matrix(gradient, size.rows, size.cols), options_.newton_schulz_steps));
    const Tensor shrink = number(1, weight), step = number(0, weight);
    axpby(-options_.weight_decay, s.lr, 1, shrink);
    axpby(scale_of(options_.scale, size), s.lr, 0, step);
    binary(BinaryOp::mul, weight, shrink, weight);
    binary(BinaryOp::mul, update, step, update);
    binary(BinaryOp::sub, weight, update, line(s.next_weight));
  }

 private:
  const MuonOptions options_;
};

void check(const MuonOptions& o) {
  require_option(kMuon, "momentum", o.momentum, 0, 1, "0.95 is usual, 0 is off");
  FIRN_CHECK(!o.nesterov || o.momentum > 0, kMuon, "set nesterov to false",
             "nesterov needs momentum > 0; it is {}", o.momentum);
  FIRN_CHECK(o.scale == MuonScale::original || o.scale == MuonScale::match_rms_adamw, kMuon,
             "give MuonScale::original or MuonScale::match_rms_adamw", "scale is {}",
             static_cast<int>(o.scale));
  FIRN_CHECK(o.newton_schulz_steps >= 1 && o.newton_schulz_steps < 100, kMuon, "5 is usual",
             "newton_schulz_steps is {}, not in [1, 100)", o.newton_schulz_steps);
  require_option(kMuon, "adamw_lr_scale", o.adamw_lr_scale, 0,
                 "1 gives both rules the same learning rate");
  require_option(kMuon, "beta1", o.beta1, 0, 1, "0.9 is usual");
  require_option(kMuon, "beta2", o.beta2, 0, 1, "0.999 is usual");
  require_positive(kMuon, "eps", o.eps, "1e-8 is usual");
  require_decay(kMuon, "adamw_weight_decay", o.adamw_weight_decay, "0 is off");
}

}  // namespace

template <>
struct RuleOf<MuonOptions> {
  static constexpr const char* kName = kMuon;
  static void take(GroupOptions& g, MuonOptions& o) {
    const ParamGroup& group = g.group();
    g.take(group.momentum, o.momentum);
    g.take(group.nesterov, o.nesterov);
    g.take(group.beta1, o.beta1);
    g.take(group.beta2, o.beta2);
    g.take(group.eps, o.eps);
    g.take(group.weight_decay, o.adamw_weight_decay);
    bool hidden = false;
    g.take(group.hidden, hidden);
    if (group.hidden) o.hidden = [hidden](const NamedTensor&) { return hidden; };
  }
  static GroupSetup setup(const MuonOptions& o) {
    check(o);
    GroupSetup out{.parameters = {}, .rule = math::Replace{}};
    out.whole = std::make_shared<const MuonRule>(o);
    out.other = math::Adam{o.beta1, o.beta2, o.eps, o.adamw_weight_decay, true};
    out.other_lr_scale = o.adamw_lr_scale;
    out.other_name = "AdamW";
    out.fits = o.hidden ? o.hidden : [](const NamedTensor& p) { return p.tensor.rank() == 2; };
    return out;
  }
};

template class OptimizerOf<MuonOptions>;

}  // namespace firn::optim
