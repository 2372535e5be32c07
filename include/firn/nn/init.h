// Initialisation schemes. Each overwrites a floating tensor in place, unrecorded, with numbers from
// the given generator: after manual_seed() a model starts the same every time.
#pragma once

#include <cstdint>

#include "firn/random.h"
#include "firn/tensor.h"

namespace firn::nn::init {

/// How many inputs each output of a weight sums over, and how many outputs each input reaches:
/// weight [out, in, kernel...] has in*product(kernel) and out*product(kernel).
struct Fans {
  std::int64_t in;   ///< inputs that an output sums over
  std::int64_t out;  ///< outputs that an input reaches
};
/// Throws Error if the tensor has fewer than two axes.
Fans fans(const Tensor& weight);

/// What follows the layer whose weight is initialised.
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu };
/// The factor that keeps the variance of activations through a layer followed by the nonlinearity:
/// 1, 1, 5/3, sqrt(2), sqrt(2/(1 + slope^2)).
double gain(Nonlinearity f, double slope = 0.01);

/// Every element becomes `value`.
void constant_(const Tensor& t, double value);
/// Every element becomes 0.
void zeros_(const Tensor& t);
/// Every element becomes 1.
void ones_(const Tensor& t);
/// Uniform in [low, high).
void uniform_(const Tensor& t, double low = 0, double high = 1, Generator& g = default_generator());
void normal_(const Tensor& t, double mean = 0, double stddev = 1,
             Generator& g = default_generator());
/// Normal, conditioned on [low, high]. Inverts the distribution function: exact for any bounds.
void trunc_normal_(const Tensor& t, double mean = 0, double stddev = 1, double low = -2,
                   double high = 2, Generator& g = default_generator());

/// Variance gain^2 * 2/(fan_in + fan_out) (Glorot & Bengio 2010).
void xavier_uniform_(const Tensor& t, double gain = 1, Generator& g = default_generator());
void xavier_normal_(const Tensor& t, double gain = 1, Generator& g = default_generator());

/// The number that sets the variance: inputs or outputs.
enum class Fan { in, out };
struct KaimingOptions {
  Fan fan = Fan::in;  ///< keep the variance of activations (in) or of gradients (out)
  Nonlinearity nonlinearity = Nonlinearity::relu;  ///< what follows the layer; it sets the gain
  double slope = 0.01;                             ///< of leaky_relu
};
/// Variance gain^2 / fan (He et al. 2015).
void kaiming_uniform_(const Tensor& t, const KaimingOptions& options = {},
                      Generator& g = default_generator());
void kaiming_normal_(const Tensor& t, const KaimingOptions& options = {},
                     Generator& g = default_generator());

/// Makes the rows of t, seen as a matrix [size(0), rest], orthonormal times gain; the columns if
/// there are more rows than columns (Saxe et al. 2014). Uniform among such matrices (Mezzadri
/// 2007). Computed in f64 on the CPU.
void orthogonal_(const Tensor& t, double gain = 1, Generator& g = default_generator());

}  // namespace firn::nn::init
