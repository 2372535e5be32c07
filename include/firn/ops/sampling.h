// Random integers, choices and noise, drawn from a Generator's stream: the same seed gives the same
// numbers for any number of threads. Only gumbel_softmax() has a gradient.
#pragma once

#include <cstdint>

#include "firn/random.h"
#include "firn/tensor.h"

namespace firn {

struct RandintOptions {
  DType dtype = i64;  ///< i64, i32, u8 or floating; it must hold low and high - 1
  Device device = default_device();
  Generator* generator = nullptr;  ///< null: default_generator()
};
/// Integers in [low, high), uniform to 2^-32 each. Throws Error unless low < high, with high - low
/// at most 2^32 and both within 2^53.
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape,
               const RandintOptions& options = {});
/// 1 with the probability p[i], else 0, of p's shape, dtype and device; p floating. A p of 0 or
/// less gives 0, of 1 or more 1, and NaN 0.
Tensor bernoulli(const Tensor& p, Generator& generator = default_generator());

struct GumbelOptions {
  DType dtype = f32;  ///< floating
  Device device = default_device();
  Generator* generator = nullptr;  ///< null: default_generator()
};
/// Numbers of the standard Gumbel distribution, -log(-log u); none is infinite.
Tensor gumbel(const Shape& shape, const GumbelOptions& options = {});
/// A class drawn for each row of logits [..., C] by their softmax: i64 [...]. It adds Gumbel noise
/// and takes the largest (Maddison et al. 2014). A class of logit -inf or NaN is not drawn; if a
/// row has no other class, class 0 is.
Tensor categorical(const Tensor& logits, Generator& generator = default_generator());
/// `count` classes for each row of weights [..., C], 0 or more, drawn in proportion: i64 [...,
/// count], in the order of drawing. Without replacement no class comes twice, count is at most C,
/// and classes of weight 0 come after all others. With replacement it takes memory for count * C
/// numbers a row. The host does not look at the weights: weights below 0 and NaN count as 0, and a
/// row without others draws class 0.
Tensor multinomial(const Tensor& weights, std::int64_t count, bool replacement = false,
                   Generator& generator = default_generator());

struct GumbelSoftmaxOptions {
  double temperature = 1;          ///< more than 0: the lower, the nearer to one class
  bool hard = false;               ///< one-hot rows, with the gradient of the soft ones
  std::int64_t axis = -1;          ///< axis of the classes
  Generator* generator = nullptr;  ///< null: default_generator()
};
/// softmax((logits + Gumbel noise) / temperature): a sample with a gradient (Jang et al. 2017).
Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxOptions& options = {});

}  // namespace firn
