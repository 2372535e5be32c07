// Initialisation schemes. Each overwrites a floating tensor in place, unrecorded, with numbers from
// the given generator: after manual_seed() a model starts the same every time.
#pragma once

#include <cstdint>

#include "firn/random.h"
#include "firn/tensor.h"

namespace firn::nn::init {

/// Number of inputs that each output of a weight sums over, and number of outputs that each input
/// reaches. A weight [out, in, kernel...] has in*product(kernel) and out*product(kernel).
struct Fans {
  std::int64_t in;   ///< inputs that an output sums over
  std::int64_t out;  ///< outputs that an input reaches
};
/// Throws Error if the tensor has fewer than two axes.
Fans fans(const Tensor& weight);

/// Function that follows the layer whose weight is initialised.
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu };
/// Returns the factor that keeps the variance of activations through a layer followed by the
/// nonlinearity: 1, 1, 5/3, sqrt(2), sqrt(2/(1 + slope^2)).
double gain(Nonlinearity f, double slope = 0.01);

/// Every element becomes `value`.
void constant_(const Tensor& t, double value);
/// Every element becomes 0.
void zeros_(const Tensor& t);
/// Every element becomes 1.
void ones_(const Tensor& t);
/// uniform_() draws from [low, high), and normal_() from the normal distribution.
void uniform_(const Tensor& t, double low = 0, double high = 1, Generator& g = default_generator());
void normal_(const Tensor& t, double mean = 0, double stddev = 1,
             Generator& g = default_generator());
/// Draws from the normal distribution, conditioned on [low, high]. It inverts the distribution
/// function, which is exact for any bounds.
void trunc_normal_(const Tensor& t, double mean = 0, double stddev = 1, double low = -2,
                   double high = 2, Generator& g = default_generator());

/// Draws with variance gain^2 * 2/(fan_in + fan_out) (Glorot & Bengio 2010).
void xavier_uniform_(const Tensor& t, double gain = 1, Generator& g = default_generator());
void xavier_normal_(const Tensor& t, double gain = 1, Generator& g = default_generator());

/// The number that sets the variance: inputs or outputs.
enum class Fan { in, out };
struct KaimingOptions {
  Fan fan = Fan::in;  ///< keep the variance of activations (in) or of gradients (out)
  Nonlinearity nonlinearity = Nonlinearity::relu;  ///< function behind the layer; it sets the gain
  double slope = 0.01;                             ///< slope of leaky_relu
};
/// Draws with variance gain^2 / fan (He et al. 2015).
void kaiming_uniform_(const Tensor& t, const KaimingOptions& options = {},
                      Generator& g = default_generator());
void kaiming_normal_(const Tensor& t, const KaimingOptions& options = {},
                     Generator& g = default_generator());

/// Makes the rows of t, seen as a matrix [size(0), rest], orthonormal times gain. With more rows
/// than columns it does so for the columns (Saxe et al. 2014). The result is uniform among such
/// matrices (Mezzadri 2007). It is computed in f64 on the CPU.
void orthogonal_(const Tensor& t, double gain = 1, Generator& g = default_generator());

}  // namespace firn::nn::init
