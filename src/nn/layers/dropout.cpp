// Dropout, Dropout2d.
#include "firn/nn/layers/dropout.h"

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/ops/ops.h"

namespace firn::nn {
namespace {

void check_share(const char* layer, double p) {
  FIRN_CHECK(p >= 0 && p < 1, layer, "p is the share of what becomes zero",
             "p = {} is not in [0, 1)", p);
}

std::optional<Generator> stream_of(const DropoutOptions& options) {
  if (!options.seed) return {};
  return Generator(*options.seed);
}

/// Returns the layer's own stream, or the thread's.
Generator& generator_of(std::optional<Generator>& own) { return own ? *own : default_generator(); }

}  // namespace

FIRN_DEFINE_MEMBERS(Dropout, stream)
FIRN_DEFINE_MEMBERS(Dropout2d, stream)

Dropout::Dropout(double p, const DropoutOptions& options) : p_(p), stream(stream_of(options)) {
  check_share("Dropout", p);
}

Tensor Dropout::forward(const Tensor& x) {
  return dropout(x, p_, training(), generator_of(stream));
}
std::string Dropout::extra_repr() const { return fmt::format("{}", p_); }

Dropout2d::Dropout2d(double p, const DropoutOptions& options) : p_(p), stream(stream_of(options)) {
  check_share("Dropout2d", p);
}

Tensor Dropout2d::forward(const Tensor& x) {
  FIRN_CHECK(x.defined() && x.rank() >= 3, "Dropout2d", "nn::Dropout drops single elements",
             "input {} is not [n, c, ...]", describe(x));
  if (!training() || p_ == 0) return x;
  Shape shape = Dims::filled(x.rank(), 1);
  shape[0] = x.size(0);
  shape[1] = x.size(1);
  Tensor kept;
  {
    const NoGrad guard;
    kept = dropout(ones(shape, x.dtype(), x.device()), p_, true, generator_of(stream));
  }
  return x * kept;
}
std::string Dropout2d::extra_repr() const { return fmt::format("{}", p_); }

}  // namespace firn::nn
