#include "firn/metrics/metric.h"

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/dist/group.h"
#include "firn/ops/autocast.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/rollback.h"
#include "metrics/batch.h"
#include "tensor/impl.h"

namespace firn::metrics {

void detail::about_to_change(const void* what, const std::function<std::function<void()>()>& save) {
  require_function("about_to_change", save, "give a function that returns how to put it back");
  runtime::before_change(Rollback::statistics, what,
                         [&save]() -> runtime::PutBack { return save(); });
  if (runtime::planning()) runtime::at_dry_end(what, save());
}

void require_batch(const char* name, const Tensor& output, const Tensor& target,
                   const Tensor& kept) {
  require_defined(name, output);
  require_defined(name, target);
  FIRN_CHECK(output.device() == target.device(), name, "target.to(output.device())",
             "devices differ: output {} and target {}", describe(output), describe(target));
  FIRN_CHECK(!kept.defined() || kept.device() == output.device(), name,
             "call reset() before batches of another device",
             "batches were on {}, this one is on {}", kept.device(), output.device());
  runtime::refuse_capture(name, output.device(), "a replay would not count its samples");
}

SumMetric::SumMetric(const char* name, DType dtype, std::int64_t count) try
    : name_(name), dtype_(dtype), count_(count) {
  FIRN_CHECK((dtype == i64 || dtype == f64) && count > 0, name, "counts are i64, sums f64",
             "{} sums of {}", count, dtype);
}
FIRN_OUT_OF_MEMORY(name)

void SumMetric::update(const Tensor& output, const Tensor& target) try {
  require_batch(name_, output, target, sums_->own);
  const NoGrad no_grad;
  const NoAutocast no_autocast;
  Tensor sums = sums_of(output.detach(), target.detach());
  FIRN_CHECK(sums.dtype() == dtype_ && sums.shape() == Shape{count_}, name_,
             "sums_of() returns what the constructor was told", "sums {} for [{}] {}",
             describe(sums), count_, dtype_);
  if (sums_->own.defined()) sums = together(sums_->own, sums);
  sums_.change() = {.own = sums, .all = {}};
}
FIRN_OUT_OF_MEMORY(name_)

std::vector<Value> SumMetric::values() const try { return figures(sums()); }
FIRN_OUT_OF_MEMORY(name_)

std::vector<double> SumMetric::sums() const {
  const Tensor& all = sums_->all.defined() ? sums_->all : sums_->own;
  if (!all.defined()) return std::vector<double>(static_cast<std::size_t>(count_), 0);
  return all.to_vector<double>();
}

void SumMetric::reset() { sums_.change() = {}; }

void SumMetric::combine(const dist::Group& group) try {
  const NoGrad no_grad;
  const NoAutocast no_autocast;
  const Tensor& own = sums_->own;
  const Device device = group.device();
  const Tensor all =
      of_ranks(own.defined() ? own.to(device) : zeros({count_}, dtype_, device), group);
  sums_.change().all = all;
}
FIRN_OUT_OF_MEMORY(name_)

Tensor SumMetric::together(const Tensor& a, const Tensor& b) const { return a + b; }

Tensor SumMetric::of_ranks(const Tensor& own, const dist::Group& group) const {
  const Tensor all = clone(own);
  group.all_reduce(all);
  return all;
}

}  // namespace firn::metrics
