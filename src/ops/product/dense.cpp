// Chains of dense layers as one op, with one or two launches per layer forward. Backward has one
// launch for the gradients of weight and bias, and one for the data with the activation's
// derivative in its epilogue.
#include "ops/product/dense.h"

#include <utility>
#include <vector>

#include "kernels/dense.h"
#include "kernels/gemm.h"
#include "ops/gradient/again.h"

namespace firn {

using namespace ops;

void ops::accumulate_dense(Backward& back, int weight, int bias, const Tensor& dy,
                           const Tensor& x) {
  if (!back.needs(weight)) {
    if (back.needs(bias)) accumulate_broadcast(back, bias, dy);
    return;
  }
  const auto [dw, beta] = back.sink(weight);
  View db;
  float db_beta = 0;
  if (back.needs(bias)) {
    const autograd::Sink sink = back.sink(bias);
    db = sink.grad.mutable_view();
    db_beta = sink.beta;
  }
  kernels::dense_weight_gradient(dy.view(), x.view(), dw.mutable_view(), beta, db, db_beta,
                                 back.stream());
}

void ops::require_dense(const char* op, const Tensor& x, const Tensor& w, const Tensor& b) {
  require_floating(op, x);
  require_factors(op, x, w);
  FIRN_CHECK(w.rank() == 2 && x.rank() >= 1 && x.size(-1) == w.size(1), op,
             "the last axis of x must be the weight's second: weight is [out, in]",
             "x {}, weight {}", describe(x), describe(w));
  if (!b.defined()) return;
  require_factors(op, x, b);
  FIRN_CHECK(b.shape() == Shape{w.size(0)}, op, "bias is [out]", "bias {}, weight {}", describe(b),
             describe(w));
}

const char* to_string(Activation activation) noexcept {
  switch (activation) {
    case Activation::relu:
      return "relu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::none:
      return "none";
    default:
      return "unknown activation";
  }
}

namespace {

/// The operands of one call in the order in which they are recorded: x, the weights, the biases.
struct Layers {
  int count;
  int weight(int i) const { return 1 + i; }
  int bias(int i) const { return 1 + count + i; }
};

void check_operands(const Tensor& x, std::span<const Tensor> weights,
                    std::span<const Tensor> biases) {
  require_floating("mlp", x);
  FIRN_CHECK(!weights.empty(), "mlp", "give a weight for each layer", "there are no weights");
  FIRN_CHECK(biases.empty() || biases.size() == weights.size(), "mlp",
             "give one bias a layer (undefined for none), or none at all",
             "{} weights and {} biases", weights.size(), biases.size());
  FIRN_CHECK(x.rank() >= 1, "mlp", "the last axis of x are the inputs", "x is {}", describe(x));
  std::int64_t features = x.size(-1);
  const auto require = [&](const Tensor& t) {
    require_defined("mlp", t);
    const bool castable_pair = autocast_on() && castable(x.dtype()) && castable(t.dtype());
    if (!castable_pair || t.device() != x.device()) require_same("mlp", x, t);
  };
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Tensor& w = weights[i];
    require(w);
    FIRN_CHECK(w.rank() == 2 && w.size(1) == features, "mlp", "a weight is [out, in]",
               "layer {} gets {} features and has weight {}", i, features, describe(w));
    features = w.size(0);
    if (biases.empty() || !biases[i].defined()) continue;
    require(biases[i]);
    FIRN_CHECK(biases[i].shape() == Shape{features}, "mlp", "a bias is [out]",
               "layer {} has weight {} and bias {}", i, describe(w), describe(biases[i]));
  }
}

/// Backward of a recorded chain. Saved for layer i: its input (3i), its weight (3i + 1), and the
/// tensor that the activation after it saves (3i + 2; undefined if no gradient passes through it).
struct Chain {
  Layers layers;
  Activation activation;
  int lowest;  ///< the first layer whose weight or bias takes a gradient; 0 if x does

  /// The biases are saved after the layers' tensors.
  void again(GraphBackward& back) const {
    const int first = lowest, count = layers.count;
    std::vector<InGraph> inputs = {{0, first == 0 ? back.input(0, 0) : back.saved(3 * first)}};
    for (int i = first; i < count; ++i) {
      inputs.push_back({layers.weight(i), back.input(layers.weight(i), 3 * i + 1)});
      const bool biased = back.saved(3 * count + i).defined();
      inputs.push_back(
          {layers.bias(i), biased ? back.input(layers.bias(i), 3 * count + i) : Tensor()});
    }
    add_composed(back, inputs, [&](const std::vector<Tensor>& t) {
      Tensor h = t[0];
      for (int i = first; i < count; ++i) {
        const std::size_t at = static_cast<std::size_t>(2 * (i - first) + 1);
        h = linear(h, t[at], t[at + 1]);
        if (i + 1 == count) break;
        if (activation == Activation::relu) h = relu(h);
        if (activation == Activation::gelu_tanh) h = gelu_tanh(h);
      }
      return h;
    });
  }

  void operator()(Backward& back) const {
    Tensor dy = back.grad();
    for (int i = layers.count - 1; i >= lowest; --i) {
      accumulate_dense(back, layers.weight(i), layers.bias(i), dy, back.saved(3 * i));
      const Tensor& w = back.saved(3 * i + 1);
      if (i == 0) {
        if (!back.needs(0)) return;
        const auto [dx, beta] = back.sink(0);
        kernels::gemm(dy.view(), w.view(), dx.mutable_view(), kernels::GemmArgs{.beta = beta},
                      back.stream());
      } else if (i > lowest) {
        const Tensor below = empty({dy.size(0), w.size(1)}, dy.dtype(), dy.device());
        const Tensor& saved = back.saved(3 * i - 1);
        kernels::dense_data_gradient(dy.view(), w.view(), activation,
                                     saved.defined() ? saved.view() : ConstView{},
                                     below.mutable_view(), back.stream());
        dy = below;
      }
    }
  }
};

}  // namespace

Tensor mlp(const Tensor& x, std::initializer_list<Tensor> weights,
           std::initializer_list<Tensor> biases, Activation activation) {
  return mlp(x, span_of(weights), span_of(biases), activation);
}

Tensor mlp(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
           Activation activation) try {
  require_named("mlp", "Activation", activation, Activation::gelu_tanh);
  check_operands(x, weights, biases);
  const Layers layers{static_cast<int>(weights.size())};
  std::vector<Tensor> operands{as_matrix(x)};
  operands.insert(operands.end(), weights.begin(), weights.end());
  operands.insert(operands.end(), biases.begin(), biases.end());
  operands.resize(static_cast<std::size_t>(2 * layers.count + 1));
  const std::vector<Tensor> in =
      autocast_on() ? autocasted(Policy::lower, operands) : std::move(operands);
  const auto at = [&](int i) -> const Tensor& { return in[static_cast<std::size_t>(i)]; };

  // The lowest layer that backward reaches; nothing is saved below it.
  int lowest = 0;
  const bool recorded = autograd::detail::needs_recording(in);
  if (!at(0).requires_grad()) {
    while (lowest < layers.count && !at(layers.weight(lowest)).requires_grad() &&
           !(at(layers.bias(lowest)).defined() && at(layers.bias(lowest)).requires_grad()))
      ++lowest;
  }

  std::vector<Tensor> kept;
  Tensor h = at(0);
  for (int i = 0; i < layers.count; ++i) {
    const Tensor &w = at(layers.weight(i)), &b = at(layers.bias(i));
    const std::int64_t m = h.size(0), n = w.size(0);
    const auto kind = i + 1 < layers.count ? activation : Activation::none;
    const double work = static_cast<double>(m * n) * static_cast<double>(h.size(1));
    const std::array<Tensor, 2> made = autograd::product(work, autograd::ReadsResult::yes, [&] {
      std::array<Tensor, 2> layer{empty({m, n}, h.dtype(), h.device())};
      if (recorded && i >= lowest && kind != Activation::none) {
        const kernels::DenseSaved shape = kernels::dense_saved(kind, m, n, h.dtype());
        layer[1] = empty(shape.shape, shape.dtype, h.device());
      }
      kernels::dense_forward(h.view(), w.view(), b.defined() ? b.view() : ConstView{}, kind,
                             layer[0].mutable_view(),
                             layer[1].defined() ? layer[1].mutable_view() : View{}, stream_of(h));
      return layer;
    });
    const Tensor &y = made[0], &saved = made[1];
    if (recorded) {
      const bool used = i >= lowest;
      kept.insert(kept.end(), {used ? h : Tensor(), used ? w : Tensor(), saved});
    }
    h = y;
  }
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("mlp", {{"activation", to_string(activation)}});
  Tensor y = record("mlp", h, in, {}, Chain{layers, activation, lowest});
  // The tensor that an activation saves may have padding.
  if (recorded) {
    autograd::save(y, kept, [](std::size_t i) { return i % 3 == 2; });
    autograd::save(y, {in.begin() + layers.bias(0), in.end()});
  }
  if (x.rank() == 2) return y;
  Shape shape = x.shape();
  shape.back() = weights.back().size(0);
  return reshape(y, shape);
}
FIRN_OUT_OF_MEMORY("mlp")

}  // namespace firn
