// The parameters that an optimizer is given, and the groups that they form.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "firn/named_tensor.h"
#include "firn/tensor.h"

namespace firn::optim {

/// A list of parameters, with their names if they are known: from net.parameters(),
/// net.named_parameters(), or {weight, bias}. Errors and reports name parameters so.
class ParamList {
 public:
  ParamList() = default;
  ParamList(const std::vector<Tensor>& parameters);  // NOLINT: a list of tensors is one
  ParamList(std::initializer_list<Tensor> parameters);
  ParamList(std::vector<NamedTensor> parameters);  // NOLINT

  void push_back(const Tensor& parameter) { list_.push_back({{}, parameter}); }
  void push_back(NamedTensor parameter) { list_.push_back(std::move(parameter)); }
  bool empty() const noexcept { return list_.empty(); }
  std::size_t size() const noexcept { return list_.size(); }
  const NamedTensor& operator[](std::size_t i) const { return list_[i]; }
  auto begin() const noexcept { return list_.begin(); }
  auto end() const noexcept { return list_.end(); }

 private:
  std::vector<NamedTensor> list_;
};

/// Parameters that are updated alike. What is set here stands instead of the optimizer's option of
/// that name; Error if its rule has none.
struct ParamGroup {
  ParamList parameters = {};
  double lr_scale = 1;  ///< multiplies the optimizer's learning rate; 0 or more
  std::optional<double> weight_decay = {};
  std::optional<double> beta1 = {}, beta2 = {}, eps = {};
  std::optional<double> momentum = {}, dampening = {}, alpha = {};
  std::optional<double> lr_decay = {}, initial_accumulator = {};
  std::optional<bool> nesterov = {}, centered = {};
};

}  // namespace firn::optim
