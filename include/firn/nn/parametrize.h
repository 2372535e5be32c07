// Weights that are computed from other parameters at each call, as PyTorch's
// torch.nn.utils.parametrizations: weight norm and spectral norm. Each is a layer that derives from
// the layer whose weight it computes:
//
//   struct Critic : nn::Module {
//     nn::SpectralNorm<nn::Conv2d> conv{nn::Conv2d(3, 8, 3)};
//     nn::WeightNorm<nn::Linear> out{nn::Linear(8, 1)};
//     FIRN_MEMBERS(conv, out)
//     ...
//   };
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "firn/nn/layers/conv.h"
#include "firn/nn/module.h"

namespace firn::nn {

/// Layers of one input that have a parameter `weight`: Linear, convolutions, transposed or not,
/// Embedding.
template <class M>
concept WithWeight = std::derived_from<M, Module> && std::copy_constructible<M> &&
    requires(M& m, const Tensor& x) {
  { m.weight } -> std::same_as<Parameter&>;
  { m.M::forward(x) } -> std::same_as<Tensor>;
};

namespace detail {

/// Passes every member but the weight to another visitor.
class AllButWeight final : public MemberVisitor {
 public:
  explicit AllButWeight(MemberVisitor& to) : to_(to) {}
  void parameter(std::string_view name, Parameter& p) override;
  void buffer(std::string_view name, Buffer& b) override { to_.buffer(name, b); }
  void module(std::string_view name, Module& m) override { to_.module(name, m); }
  void generator(std::string_view name, Generator& g) override { to_.generator(name, g); }
  std::shared_ptr<Module> own_module(const std::shared_ptr<Module>& m) override {
    return to_.own_module(m);
  }
  std::shared_ptr<void>* own_slot(const void* slot) override { return to_.own_slot(slot); }

 private:
  MemberVisitor& to_;
};

/// True if axis 1 of the weight counts the results' channels.
template <class M>
inline constexpr bool kTransposed =
    std::derived_from<M, ConvTranspose1d> || std::derived_from<M, ConvTranspose2d> ||
    std::derived_from<M, ConvTranspose3d>;

/// Returns the placeholder for a computed weight: NaN of its shape, in no memory.
Tensor no_weight(const Tensor& weight);
/// Returns norms of v over all axes but `axis`, with these axes kept. Without an axis, returns the
/// norm of all of v.
Tensor lengths(const Tensor& v, std::optional<std::int64_t> axis);
/// Returns v g / lengths(v), computed in f32 (f64 for f64).
Tensor with_lengths(const Tensor& v, const Tensor& g, std::optional<std::int64_t> axis);

/// Largest singular value of a weight, seen as a matrix of its slices along an axis.
class LargestSingularValue {
 public:
  /// Draws the vectors from the default generator.
  LargestSingularValue(const Tensor& weight, std::int64_t axis, int iterations, double eps);
  /// Returns the weight divided by this value. `update` first advances the vectors.
  Tensor divided(const Tensor& weight, bool update) const;

  Buffer u, v;  ///< [rows], [columns]; undefined for a weight of one axis

 private:
  std::int64_t axis_;
  int iterations_;
  double eps_;
};

}  // namespace detail

/// A layer whose weight is v g / |v|: direction and length are trained apart (Salimans & Kingma
/// 2016). |v| has one number for each slice along an axis. The parameters are named as PyTorch's:
/// "parametrizations.weight.original0" is g, "parametrizations.weight.original1" is v. They start
/// so that the weight is that of the layer given.
template <WithWeight M>
class WeightNorm : public M {
 public:
  /// `axis` is the axis of the slices; without one, all of v has one length. Throws Error if it
  /// does not exist.
  explicit WeightNorm(M layer, std::optional<std::int64_t> axis = 0)
      : M(std::move(layer)),
        original0(detail::lengths(M::weight, axis)),
        original1(M::weight),
        axis_(axis) {
    static_cast<Tensor&>(M::weight) = detail::no_weight(original1);
  }

  /// Returns the weight as the parameters are now.
  Tensor weight() const { return detail::with_lengths(original1, original0, axis_); }
  /// Calls the layer's forward() with this weight.
  Tensor forward(const Tensor& x) override {
    M layer(static_cast<const M&>(*this));
    static_cast<Tensor&>(layer.weight) = weight();
    return layer.M::forward(x);
  }
  /// Visits the members as FIRN_MEMBERS would.
  void visit_members(MemberVisitor& visitor) override {
    detail::AllButWeight others(visitor);
    M::visit_members(others);
    visitor.parameter("parametrizations.weight.original0", original0);
    visitor.parameter("parametrizations.weight.original1", original1);
  }
  /// Returns the facts that FIRN_MEMBERS would.
  const detail::ModuleTraits* firn_traits() const noexcept override {
    return &detail::traits_of<WeightNorm>();
  }

  Parameter original0;  ///< g, of weight's rank; without an axis a scalar
  Parameter original1;  ///< v, of weight's shape

 private:
  std::optional<std::int64_t> axis_;
};

struct SpectralNormOptions {
  int iterations = 1;  ///< steps of the power method, at each call in training mode
  double eps = 1e-12;  ///< vectors shorter than this are not scaled up to length 1
  /// Axis of the matrix's rows; other axes are its columns. Default: 0, and 1 for transposed
  /// convolutions.
  std::optional<std::int64_t> axis = {};
};

/// A layer whose weight is divided by its largest singular value, as a matrix (Miyato et al. 2018).
/// The singular vectors are found by the power method, 15 steps at the beginning and some at each
/// call in training mode. Gradients go through the division, and not through the vectors. The state
/// is named as PyTorch's: the parameter "parametrizations.weight.original", the buffers
/// "parametrizations.weight.0._u" and "._v", which are f32 or f64.
///
/// Each call in training mode changes the vectors, so a second one gives other numbers. A call
/// inside of checkpoint() in training mode throws Error, since it could not be repeated.
template <WithWeight M>
class SpectralNorm : public M {
 public:
  /// Throws Error unless iterations > 0, eps >= 0 and the axis exists.
  explicit SpectralNorm(M layer, const SpectralNormOptions& options = {})
      : M(std::move(layer)),
        original(M::weight),
        largest_(M::weight, options.axis.value_or(detail::kTransposed<M> ? 1 : 0),
                 options.iterations, options.eps) {
    static_cast<Tensor&>(M::weight) = detail::no_weight(original);
  }

  /// Returns the weight as parameter and vectors are now.
  Tensor weight() const { return largest_.divided(original, false); }
  /// Calls the layer's forward() with this weight.
  Tensor forward(const Tensor& x) override {
    M layer(static_cast<const M&>(*this));
    static_cast<Tensor&>(layer.weight) = largest_.divided(original, M::training());
    return layer.M::forward(x);
  }
  /// Visits the members as FIRN_MEMBERS would.
  void visit_members(MemberVisitor& visitor) override {
    detail::AllButWeight others(visitor);
    M::visit_members(others);
    visitor.parameter("parametrizations.weight.original", original);
    visitor.buffer("parametrizations.weight.0._u", largest_.u);
    visitor.buffer("parametrizations.weight.0._v", largest_.v);
  }
  /// Returns the facts that FIRN_MEMBERS would.
  const detail::ModuleTraits* firn_traits() const noexcept override {
    return &detail::traits_of<SpectralNorm>();
  }

  Parameter original;  ///< the weight before the division

 private:
  detail::LargestSingularValue largest_;
};

/// Returns the layer with weight norm: `auto fc = nn::weight_norm(nn::Linear(8, 4));`
template <WithWeight M>
WeightNorm<M> weight_norm(M layer, std::optional<std::int64_t> axis = 0) {
  return WeightNorm<M>(std::move(layer), axis);
}
/// Returns the layer with spectral norm.
template <WithWeight M>
SpectralNorm<M> spectral_norm(M layer, const SpectralNormOptions& options = {}) {
  return SpectralNorm<M>(std::move(layer), options);
}

}  // namespace firn::nn
