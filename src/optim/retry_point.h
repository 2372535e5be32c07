// What a pass over the data changes beside the optimizer, and is to be put back before the next try
// or the second pass: random numbers, tensors that the user has named, and those that layers say
// they are about to change.
#pragma once

#include <utility>
#include <vector>

#include "autograd/cycle.h"
#include "firn/random.h"
#include "firn/storage.h"
#include "kernels/copy.h"

namespace firn::optim {

class RetryPoint final : public autograd::Journal {
 public:
  explicit RetryPoint(const std::vector<Tensor>& named = {})
      : random_(default_generator().get()), scope_(*this) {
    for (const Tensor& t : named) keep(t);
  }

  void keep(const Tensor& t) override {
    for (const auto& [tensor, copy] : kept_)
      if (tensor.impl() == t.impl()) return;
    kept_.emplace_back(t, t.detach().clone());
  }

  void keep(Generator& g) override {
    for (const auto& [generator, key] : streams_)
      if (generator == &g) return;
    streams_.emplace_back(&g, g.get());
  }

  void restore() const {
    default_generator().set(random_);
    restore_streams();
    restore_tensors();
  }
  /// Those of layers, without the default one.
  void restore_streams() const {
    for (const auto& [generator, key] : streams_) generator->set(key);
  }
  void restore_tensors() const {
    for (const auto& [tensor, copy] : kept_) {
      kernels::copy(copy.view(), tensor.mutable_view(), current_stream(tensor.device()));
      tensor.storage()->bump_version("the retry of a cycle");
    }
  }

 private:
  RandomKey random_;
  std::vector<std::pair<Generator*, RandomKey>> streams_;  ///< each with where it stood
  std::vector<std::pair<Tensor, Tensor>> kept_;            ///< each with a copy of what it was
  autograd::JournalScope scope_;
};

}  // namespace firn::optim
