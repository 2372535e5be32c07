// Activation functions as modules, for Sequential. Each calls the op of the same name in
// elementwise.h, which states formula and derivative. Shapes do not change; there are no
// parameters.
#pragma once

#include <cstdint>

#include "firn/nn/module.h"

namespace firn::nn {

/// max(x, 0).
class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  FIRN_DECLARE_MEMBERS()
};

/// x if x > 0, else slope*x.
class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double slope = 0.01) : slope_(slope) {}
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  double slope_;
};

/// x if x > 0, else alpha*(e^x - 1).
class ELU : public Module {
 public:
  explicit ELU(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  double alpha_;
};

/// x Φ(x): exact, or with the tanh approximation that GPT-2 and BERT were trained with.
class GELU : public Module {
 public:
  /// The exact function, or its approximation by tanh.
  enum class Form { erf, tanh };
  /// Throws Error unless `form` is one of the two.
  explicit GELU(Form form = Form::erf);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Form form_;
};

/// 1/(1 + e^-x).
class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  FIRN_DECLARE_MEMBERS()
};

/// x sigmoid(x).
class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  FIRN_DECLARE_MEMBERS()
};

/// tanh(x).
class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  FIRN_DECLARE_MEMBERS()
};

/// log(1 + e^x).
class Softplus : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  FIRN_DECLARE_MEMBERS()
};

/// e^x / sum e^x along one axis.
class Softmax : public Module {
 public:
  explicit Softmax(std::int64_t axis = -1) : axis_(axis) {}
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t axis_;
};

/// log softmax along one axis. cross_entropy() takes logits: it needs no such layer before it.
class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(std::int64_t axis = -1) : axis_(axis) {}
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t axis_;
};

}  // namespace firn::nn
