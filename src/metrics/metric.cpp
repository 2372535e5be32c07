#include "firn/metrics/metric.h"

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/dist/group.h"
#include "firn/ops/autocast.h"
#include "firn/ops/ops.h"
#include "tensor/impl.h"

namespace firn::metrics {

SumMetric::SumMetric(const char* name, DType dtype, std::int64_t count)
    : name_(name), dtype_(dtype), count_(count) {
  FIRN_CHECK((dtype == i64 || dtype == f64) && count > 0, name, "counts are i64, sums f64",
             "{} sums of {}", count, dtype);
}

void SumMetric::update(const Tensor& output, const Tensor& target) try {
  require_defined(name_, output);
  require_defined(name_, target);
  FIRN_CHECK(output.device() == target.device(), name_, "target.to(output.device())",
             "devices differ: output {} and target {}", describe(output), describe(target));
  FIRN_CHECK(!own_.defined() || own_.device() == output.device(), name_,
             "call reset() before batches of another device",
             "batches were on {}, this one is on {}", own_.device(), output.device());
  const NoGrad no_grad;
  const NoAutocast no_autocast;
  Tensor batch = sums_of(output.detach(), target.detach());
  FIRN_CHECK(batch.dtype() == dtype_ && batch.shape() == Shape{count_}, name_,
             "sums_of() returns what the constructor was told", "sums {} for [{}] {}",
             describe(batch), count_, dtype_);
  own_ = own_.defined() ? together(own_, batch) : batch;
  all_ = {};
}
FIRN_OUT_OF_MEMORY(name_)

std::vector<Value> SumMetric::values() const try { return figures(sums()); }
FIRN_OUT_OF_MEMORY(name_)

std::vector<double> SumMetric::sums() const {
  const Tensor& samples = all_.defined() ? all_ : own_;
  if (!samples.defined()) return std::vector<double>(static_cast<std::size_t>(count_), 0);
  return samples.to_vector<double>();
}

void SumMetric::reset() { own_ = all_ = {}; }

void SumMetric::combine(const dist::Group& group) try {
  const NoGrad no_grad;
  const NoAutocast no_autocast;
  all_ = of_ranks(
      own_.defined() ? own_.to(group.device()) : zeros({count_}, dtype_, group.device()), group);
}
FIRN_OUT_OF_MEMORY(name_)

Tensor SumMetric::together(const Tensor& a, const Tensor& b) const { return a + b; }

Tensor SumMetric::of_ranks(const Tensor& own, const dist::Group& group) const {
  const Tensor all = clone(own);
  group.all_reduce(all);
  return all;
}

}  // namespace firn::metrics
