// CosineSimilarity, PairwiseDistance.
#include "firn/nn/layers/distance.h"

#include "base/check.h"

namespace firn::nn {

FIRN_DEFINE_MEMBERS(CosineSimilarity)
FIRN_DEFINE_MEMBERS(PairwiseDistance)

Tensor CosineSimilarity::forward(const Tensor& a, const Tensor& b) {
  return cosine_similarity(a, b, axis_, eps_);
}
std::string CosineSimilarity::extra_repr() const {
  return fmt::format("axis = {}, eps = {}", axis_, eps_);
}

Tensor PairwiseDistance::forward(const Tensor& a, const Tensor& b) {
  return pairwise_distance(a, b, options_);
}
std::string PairwiseDistance::extra_repr() const {
  return fmt::format("p = {}, eps = {}{}", options_.p, options_.eps,
                     options_.keepdims ? ", keepdims = true" : "");
}

}  // namespace firn::nn
