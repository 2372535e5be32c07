// A small network with BatchNorm, micro-batches for it, and what its running statistics should be.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "firn/nn/layers/batch_norm.h"
#include "semantics/mlp.h"
#include "semantics/spoil.h"

namespace firn::testing {

using nn::BatchNormMode;
using Sizes = std::vector<std::int64_t>;
using Values = std::vector<double>;

inline constexpr std::int64_t kIn = 6, kHidden = 5, kBatch = 64;

struct Net : nn::Module {
  nn::Linear in, out;
  nn::BatchNorm1d bn;
  explicit Net(BatchNormMode mode, DType dtype = f32, nn::BatchNormOptions options = {})
      : in(kIn, kHidden, {.dtype = dtype}),
        out(kHidden, 3, {.dtype = dtype}),
        bn(kHidden, {.momentum = options.momentum,
                     .affine = options.affine,
                     .accumulation = mode,
                     .dtype = dtype}) {
    Rng rng(4);
    for (const Tensor& p :
         {Tensor(in.weight), Tensor(in.bias), Tensor(out.weight), Tensor(out.bias)}) {
      const NoGrad guard;
      copy_(p, make(rng.uniforms(p.numel(), -0.5, 0.5), p.shape(), dtype));
    }
  }
  FIRN_MEMBERS(in, bn, out)
  Tensor forward(const Tensor& x) override { return out(tanh(bn(in(x)))); }
};

struct Batch {
  Tensor x, y;
};
inline Batch batch_of(std::uint64_t seed, DType dtype = f32, std::int64_t n = kBatch) {
  Rng rng(seed);
  Values labels;
  const Values x = rng.uniforms(n * kIn, 2, 4);  // far from 0: means and variances differ
  for (std::int64_t i = 0; i < n; ++i) labels.push_back(static_cast<double>(rng.below(3)));
  return {make(x, {n, kIn}, dtype), make(labels, {n}, i64)};
}

inline Loss loss_of(Net& net, const Batch& b, std::int64_t from, std::int64_t to) {
  return cross_entropy(net(b.x.slice(0, from, to)), b.y.slice(0, from, to));
}

/// A cycle in micro-batches of these sizes, up to its step().
inline optim::StepReport cycle(optim::Optimizer& opt, Net& net, const Batch& b,
                               const Sizes& sizes) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i, at += sizes[i - 1]) {
    opt.backward(loss_of(net, b, at, at + sizes[i]));
    if (i + 1 < sizes.size()) opt.step();
  }
  return opt.step();
}
inline optim::StepOptions accumulate(const Sizes& sizes) {
  return {.accumulate = static_cast<std::int64_t>(sizes.size())};
}

inline Values joined(std::initializer_list<Tensor> tensors) {
  Values out;
  for (const Tensor& t : tensors)
    for (const double v : values_of(t)) out.push_back(v);
  return out;
}
inline Values running(const nn::BatchNorm& bn) { return joined({bn.running_mean, bn.running_var}); }
inline Bits bits_of_buffers(const nn::Module& m) {
  Bits out;
  for (const nn::NamedTensor& b : m.named_buffers()) out = out + bits_of(b.tensor);
  return out;
}
inline bool pool_is_empty(const nn::BatchNorm& bn) {
  const Values all = joined({bn.pooled, bn.pooled_count});
  return std::all_of(all.begin(), all.end(), [](double v) { return v == 0; });
}

/// Running statistics after they moved by the mean and the unbiased variance of `rows`, [n, c].
inline Values moved(const Values& before, const Tensor& rows, double share) {
  const Values v = values_of(rows);
  const std::int64_t n = rows.shape()[0], c = rows.shape()[1];
  Values out = before;
  for (std::int64_t k = 0; k < c; ++k) {
    long double mean = 0, squares = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += v[static_cast<std::size_t>(i * c + k)];
    mean /= static_cast<long double>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const long double d = v[static_cast<std::size_t>(i * c + k)] - mean;
      squares += d * d;
    }
    const auto move = [&](std::size_t i, long double fresh) {
      out[i] = static_cast<double>((1 - static_cast<long double>(share)) * out[i] +
                                   static_cast<long double>(share) * fresh);
    };
    move(static_cast<std::size_t>(k), mean);
    move(static_cast<std::size_t>(c + k), squares / static_cast<long double>(n - 1));
  }
  return out;
}

inline const Sizes kEven(4, 16), kUneven = {5, 11, 48};

}  // namespace firn::testing
