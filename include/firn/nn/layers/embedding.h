// A table of vectors, looked up by index.
#pragma once

#include <cstdint>

#include "firn/nn/module.h"

namespace firn::nn {

struct EmbeddingOptions {
  DType dtype = f32;
  Device device = default_device();
};

/// index [...] (i64 or i32, in [0, n)) -> rows of weight, [..., d]. weight [n, d] starts normal
/// with mean 0 and standard deviation 1, from the default generator.
class Embedding : public Module {
 public:
  /// Throws Error unless n > 0 and d > 0.
  Embedding(std::int64_t n, std::int64_t d, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& index) override;
  std::string extra_repr() const override;
  FIRN_MEMBERS(weight)

  Parameter weight;  ///< [n, d]
};

}  // namespace firn::nn
