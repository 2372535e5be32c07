// The parameters that an optimizer is given, and the groups that they form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "firn/tensor.h"

namespace firn::detail {

/// A module, which has parameters but is not a list of them.
template <class T>
concept HasParameters = requires(const T& t) {
  t.named_parameters();
};

}  // namespace firn::detail

namespace firn::optim {

/// A list of parameters, with their names if they are known: from net.parameters(),
/// net.named_parameters(), or {weight, bias}. Errors and reports use these names.
class ParamList {
 public:
  ParamList() = default;
  ParamList(const std::vector<Tensor>& parameters);  // NOLINT: a list of tensors is one
  ParamList(std::initializer_list<Tensor> parameters);
  ParamList(std::vector<NamedTensor> parameters);  // NOLINT
  ParamList(std::initializer_list<NamedTensor> parameters);

  /// Appends a parameter.
  void push_back(const Tensor& parameter);
  void push_back(NamedTensor parameter);
  bool empty() const noexcept { return list_.size() == 0; }
  std::size_t size() const noexcept { return list_.size(); }
  /// Returns parameter number i, with its name if it has one.
  const NamedTensor& operator[](std::size_t i) const { return list_[i]; }
  const NamedTensor* begin() const noexcept { return list_.data(); }
  const NamedTensor* end() const noexcept { return list_.data() + list_.size(); }

 private:
  std::vector<NamedTensor> list_;
};

/// Precision of the states of an optimizer's rule, such as moments.
enum class StatePrecision : std::uint8_t {
  full,  ///< f32, or f64 for f64 parameters
  /// 8 bits for each element, and an f32 scale for each block of 256: the dynamic code of 8-bit
  /// optimizers (Dettmers et al. 2022). A block is of one parameter, in memory order. So states of
  /// channels-last parameters and of contiguous ones cannot be exchanged: see Optimizer::state().
  bits8,
};

/// Parameters that are updated alike. An option set here replaces the optimizer's option of that
/// name; Error if its rule has none.
struct ParamGroup {
  ParamList parameters = {};                ///< parameters of the group
  double lr_scale = 1;                      ///< multiplies the optimizer's learning rate; 0 or more
  std::optional<double> weight_decay = {};  ///< unset: the optimizer's
  std::optional<double> beta1 = {}, beta2 = {}, eps = {};           ///< unset: the optimizer's
  std::optional<double> momentum = {}, dampening = {}, alpha = {};  ///< unset: the optimizer's
  std::optional<double> lr_decay = {}, initial_accumulator = {};    ///< unset: the optimizer's
  std::optional<double> rho = {}, momentum_decay = {};              ///< unset: the optimizer's
  std::optional<bool> nesterov = {}, centered = {}, amsgrad = {};   ///< unset: the optimizer's
  std::optional<StatePrecision> state = {};                         ///< unset: the optimizer's
  std::optional<std::int64_t> min_8bit_size = {};                   ///< unset: the optimizer's
  std::optional<bool> hidden = {};  ///< Muon only: Muon updates all of them; false: AdamW does
};

/// The usual two groups for decoupled weight decay: parameters of two axes or more decay by
/// `weight_decay`, and those of fewer, the biases and the gains of norms, do not. Parameters that
/// require no gradient are left out, and so is a group without parameters.
///
///   optim::AdamW opt(optim::decay_groups(net.named_parameters(), 0.05), {.lr = 1e-3});
///
/// Embeddings have two axes, and decay. Throws Error for an undefined tensor.
std::vector<ParamGroup> decay_groups(const ParamList& parameters, double weight_decay);

}  // namespace firn::optim
