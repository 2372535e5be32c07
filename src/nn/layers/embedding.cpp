// Embedding.
#include "firn/nn/layers/embedding.h"

#include "base/checked.h"
#include "firn/nn/init.h"
#include "firn/ops/ops.h"

namespace firn::nn {

Embedding::Embedding(std::int64_t n, std::int64_t d, const EmbeddingOptions& options) {
  FIRN_CHECK(n > 0 && d > 0, "Embedding", "give the number of entries and the size of a vector",
             "n = {} and d = {} must be positive", n, d);
  checked_elements("Embedding", {n, d});
  weight = Parameter::empty({n, d}, options.dtype, options.device);
  init::normal_(weight);
}

Tensor Embedding::forward(const Tensor& index) { return embedding(weight, index); }

std::string Embedding::extra_repr() const {
  return fmt::format("{}, {}", weight.size(0), weight.size(1));
}

}  // namespace firn::nn
