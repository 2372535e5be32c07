// The models that firn_onnx_models exports, each with inputs for batches of any size.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "firn/firn.h"

namespace firn::interop {

using Tensors = std::vector<Tensor>;

struct OnnxModel {
  std::string name;
  std::function<Tensors(const Tensors&)> f;
  std::function<Tensors(std::int64_t batch)> inputs;
  std::shared_ptr<nn::Module> module = nullptr;  ///< whose parameters f reads
  double tolerance = 1e-5;                       ///< of the largest element of an output
};

/// Small ones that cover operations, family by family.
std::vector<OnnxModel> operation_models();
/// Whole networks: the sample's, a GPT block, an autoencoder, and others.
std::vector<OnnxModel> network_models();

/// A model of one module with one input.
template <class M>
OnnxModel of_module(std::string name, std::shared_ptr<M> m,
                    std::function<Tensor(std::int64_t)> input) {
  return {.name = std::move(name),
          .f = [m](const Tensors& in) { return Tensors{(*m)(in[0])}; },
          .inputs = [input = std::move(input)](std::int64_t n) { return Tensors{input(n)}; },
          .module = m};
}

}  // namespace firn::interop
