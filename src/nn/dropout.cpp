// Dropout.
#include "firn/nn/dropout.h"

#include "base/check.h"
#include "firn/ops.h"

namespace firn::nn {

Dropout::Dropout(double p) : p_(p) {
  FIRN_CHECK(p >= 0 && p < 1, "Dropout", "p is the share of elements that become zero",
             "p = {} is not in [0, 1)", p);
}

Tensor Dropout::forward(const Tensor& x) { return dropout(x, p_, training()); }
std::string Dropout::settings() const { return fmt::format("{}", p_); }

}  // namespace firn::nn
