// MLP.
#include "firn/nn/layers/mlp.h"

#include "base/check.h"

namespace firn::nn {

FIRN_DEFINE_MEMBERS(MLP, layers)

MLP::MLP(const std::vector<std::int64_t>& sizes, const MLPOptions& options)
    : activation_(options.activation) {
  FIRN_CHECK(sizes.size() >= 2, "MLP", "as {784, 512, 10}",
             "needs the size of the input and of every layer, got {} sizes", sizes.size());
  require_named("MLP", "Activation", activation_, Activation::gelu_tanh);
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
    layers.push_back(
        Linear(sizes[i], sizes[i + 1],
               {.bias = options.bias, .dtype = options.dtype, .device = options.device}));
}

Tensor MLP::forward(const Tensor& x) {
  const std::int64_t in = layers[0].weight.size(1);
  FIRN_CHECK(x.defined() && x.rank() > 0 && x.shape().back() == in, "MLP",
             "flatten or permute the input so that its last axis has the first layer's inputs",
             "input {} does not end with an axis of {}", describe(x), in);
  std::vector<Tensor> weights, biases;
  weights.reserve(layers.size());
  biases.reserve(layers.size());
  for (const Linear& layer : layers) {
    weights.push_back(layer.weight);
    biases.push_back(layer.bias);
  }
  return mlp(x, weights, biases, activation_);
}

std::string MLP::extra_repr() const {
  return fmt::format("activation = {}", to_string(activation_));
}

}  // namespace firn::nn
