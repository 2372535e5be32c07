// Normalisation of images and sequences by channel: batch, group and instance norm. x is
// [n, c, ...] of rank 2 to 5; the memory format (channels_last() in copy.h) is kept. Statistics are
// computed in f32 (f64 for f64), whatever x's dtype. Autocast does not cast x. weight and bias [c]
// have x's dtype or the compute dtype; undefined means 1 and 0.
#pragma once

#include <cstdint>

#include "firn/tensor.h"

namespace firn {

/// Mean and biased variance per channel [c], of the compute dtype, without gradient.
struct Moments {
  Tensor mean, var;  ///< each [c]
};

/// y = (x - mean) / sqrt(var + eps) * weight + bias with mean and variance of x over all axes but 1
/// (Ioffe & Szegedy 2015). The gradient flows through the statistics. `moments` receives them.
/// Throws if a channel has no values.
Tensor batch_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Moments* moments = nullptr);
/// Normalises by given moments, which are constants. Evaluation uses this form.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Moments& moments,
                  double eps = 1e-5);
/// Splits each sample's channels into `groups` groups and normalises each group by its own mean and
/// variance (Wu & He 2018). Throws if groups does not divide c.
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
/// Normalises each channel of each sample separately (Ulyanov et al. 2016): group_norm with c
/// groups. Throws if a channel has one value only.
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                     double eps = 1e-5);
/// x / (k + alpha mean)^beta with the mean of x^2 over `size` neighbouring channels. Channels
/// beyond the first and the last count as 0 (Krizhevsky et al. 2012). The window is centred on the
/// channel, with the extra element before it if size is even. Throws Error unless size > 0.
Tensor local_response_norm(const Tensor& x, std::int64_t size, double alpha = 1e-4,
                           double beta = 0.75, double k = 1);

}  // namespace firn
