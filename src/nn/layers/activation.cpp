// Activation modules: each calls its op.
#include "firn/nn/layers/activation.h"

#include "base/check.h"
#include "firn/ops/ops.h"

namespace firn::nn {

FIRN_DEFINE_MEMBERS(ReLU)
FIRN_DEFINE_MEMBERS(LeakyReLU)
FIRN_DEFINE_MEMBERS(ELU)
FIRN_DEFINE_MEMBERS(GELU)
FIRN_DEFINE_MEMBERS(Sigmoid)
FIRN_DEFINE_MEMBERS(SiLU)
FIRN_DEFINE_MEMBERS(Tanh)
FIRN_DEFINE_MEMBERS(Softplus)
FIRN_DEFINE_MEMBERS(Softmax)
FIRN_DEFINE_MEMBERS(LogSoftmax)

Tensor ReLU::forward(const Tensor& x) { return relu(x); }

Tensor LeakyReLU::forward(const Tensor& x) { return leaky_relu(x, slope_); }
std::string LeakyReLU::extra_repr() const { return fmt::format("{}", slope_); }

Tensor ELU::forward(const Tensor& x) { return elu(x, alpha_); }
std::string ELU::extra_repr() const { return fmt::format("{}", alpha_); }

GELU::GELU(Form form) : form_(form) { require_named("GELU", "Form", form, Form::tanh); }
Tensor GELU::forward(const Tensor& x) { return form_ == Form::erf ? gelu(x) : gelu_tanh(x); }
std::string GELU::extra_repr() const { return form_ == Form::erf ? "" : "tanh"; }

Tensor Sigmoid::forward(const Tensor& x) { return sigmoid(x); }
Tensor SiLU::forward(const Tensor& x) { return silu(x); }
Tensor Tanh::forward(const Tensor& x) { return tanh(x); }
Tensor Softplus::forward(const Tensor& x) { return softplus(x); }

Tensor Softmax::forward(const Tensor& x) { return softmax(x, axis_); }
std::string Softmax::extra_repr() const { return fmt::format("axis = {}", axis_); }

Tensor LogSoftmax::forward(const Tensor& x) { return log_softmax(x, axis_); }
std::string LogSoftmax::extra_repr() const { return fmt::format("axis = {}", axis_); }

}  // namespace firn::nn
