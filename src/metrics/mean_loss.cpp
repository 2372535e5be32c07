#include "firn/metrics/mean_loss.h"

#include <limits>
#include <vector>

#include "firn/autograd.h"
#include "firn/ops/losses.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"

namespace firn::metrics {

void MeanLoss::add(const Loss& loss) {
  const NoGrad guard;
  const auto add_to = [](Tensor& total, const Tensor& part) {
    const Tensor wide = part.to(f64), sum = total.defined() ? total + wide : wide;
    if (!runtime::planning()) total = sum;  // a plan adds nothing
  };
  add_to(sum_, loss.sum);
  add_to(weight_, loss.weight);
}

double MeanLoss::value(const dist::Group& group) const {
  std::vector<double> sums = {sum_.defined() ? sum_.item() : 0,
                              weight_.defined() ? weight_.item() : 0};
  if (group.size() > 1) {
    const Tensor all = tensor(sums, {2}, group.device());
    group.all_reduce(all);
    sums = all.to_vector<double>();
  }
  return sums[1] != 0 ? sums[0] / sums[1] : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace firn::metrics
