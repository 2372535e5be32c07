// Metrics: figures of a model's quality, over batches of any sizes and over ranks.
//
//   metrics::Accuracy accuracy({.top_k = 1});
//   for (auto& batch : loader.epoch(0)) accuracy.update(net(batch.x()), batch.y());
//   accuracy.combine(group);  // with ranks: the samples of all
//   std::printf("%.3f\n", accuracy.values()[0].value);
//
// Metrics keep their counts (i64) and sums (f64) on the device of the batches. So counts do not
// depend on how samples are divided into batches, and sums only by rounding in f64.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "firn/tensor.h"

namespace firn::dist {
class Group;
}
namespace firn::train {
class Record;
}

namespace firn::metrics {

/// A figure and its name, such as "accuracy" and 0.913.
struct Value {
  std::string name;  ///< as the table and the log show it
  double value = 0;  ///< the figure
};

namespace detail {
/// Call this before a change of the object at `what`. RollbackPoints and plans of memory can then
/// restore it: save() returns the function that does so.
void about_to_change(const void* what, const std::function<std::function<void()>()>& save);

/// The collected samples of a metric. State is a value whose copies cannot throw. Its separate()
/// returns a copy that shares no memory that either writes to.
template <class State>
class Collected {
 public:
  Collected() : state_(std::make_shared<State>()) {}
  Collected(const Collected& other) : state_(std::make_shared<State>(other->separate())) {}
  Collected& operator=(const Collected& other) {
    State copy = other->separate();
    change() = copy;
    return *this;
  }
  const State* operator->() const noexcept { return state_.get(); }

  /// Returns the state for writing.
  State& change() {
    about_to_change(state_.get(), [this]() -> std::function<void()> {
      return [s = state_, was = *state_] { *s = was; };
    });
    return *state_;
  }

 private:
  std::shared_ptr<State> state_;  ///< a RollbackPoint may outlive the metric
};
}  // namespace detail

/// Interface of all metrics. One thread at a time uses a metric; copies are independent.
class Metric {
 public:
  virtual ~Metric() = default;

  /// Adds the samples of a batch: the output of the model, and its target. Records no gradient,
  /// keeps no graph, and does not wait for the device. All batches since reset() are on one device.
  /// A RollbackPoint covers the metric, so a retried cycle counts its samples once; a graph cannot
  /// capture the call. Throws Error if shapes or dtypes do not fit and, on the CPU, if a class is
  /// out of range; the metric then stays as it was. On a CUDA device no sample of a batch with such
  /// a class counts, and the Error comes at the host's next wait.
  virtual void update(const Tensor& output, const Tensor& target) = 0;
  /// Adds the samples of a batch together with the first input of the model; fit() calls it. The
  /// default ignores the input.
  virtual void update_from(const Tensor& input, const Tensor& output, const Tensor& target) {
    (void)input;
    update(output, target);
  }
  /// Returns the figures of all samples since reset(). Waits for the device. Without samples a
  /// figure is NaN.
  virtual std::vector<Value> values() const = 0;
  /// Forgets all samples.
  virtual void reset() = 0;
  /// Lets values() cover all ranks' samples since their reset(), until this rank's next update().
  /// Every rank calls it, with metrics of the same options; then all have the same values, to the
  /// bit. A rank may have no samples. This rank's own samples are kept separately, so a later
  /// combine() counts none twice. Throws RankError as collectives do; the metric then stays as it
  /// was.
  virtual void combine(const dist::Group& group) = 0;
  /// Adds details other than figures to the log of an epoch, such as a matrix. The default adds
  /// none.
  virtual void add_details(train::Record& details) const { (void)details; }

 protected:
  Metric() = default;
  Metric(const Metric&) = default;
  Metric& operator=(const Metric&) = default;
};

/// Metrics as an argument: {metrics::Accuracy()} by value, or std::shared_ptr of metrics that the
/// caller reads as well.
class MetricList {
 public:
  /// One metric of the list. Throws std::bad_alloc.
  struct Item : std::shared_ptr<Metric> {
    Item(std::nullptr_t) noexcept {}  // NOLINT: refused by what takes the list
    template <std::derived_from<Metric> M>
    Item(M metric)  // NOLINT: meant to convert
        : std::shared_ptr<Metric>(std::make_shared<M>(std::move(metric))) {}
    template <std::derived_from<Metric> M>
    Item(std::shared_ptr<M> metric)  // NOLINT: meant to convert
        : std::shared_ptr<Metric>(std::move(metric)) {}
  };

  MetricList() = default;
  MetricList(std::initializer_list<Item> metrics) : list_(metrics.begin(), metrics.end()) {}
  MetricList(std::vector<std::shared_ptr<Metric>> metrics)  // NOLINT: meant to convert
      : list_(std::move(metrics)) {}

  /// Appends a metric.
  void push_back(Item metric) { list_.push_back(std::move(metric)); }
  bool empty() const noexcept { return list_.empty(); }
  std::size_t size() const noexcept { return list_.size(); }
  /// The metric at position i, which is less than size().
  const std::shared_ptr<Metric>& operator[](std::size_t i) const { return list_[i]; }
  auto begin() const noexcept { return list_.begin(); }
  auto end() const noexcept { return list_.end(); }

 private:
  std::vector<std::shared_ptr<Metric>> list_;
};

/// Base of metrics whose figures follow from sums over the samples. A derived metric computes the
/// sums of a batch (sums_of()), and the figures from all sums (figures()).
class SumMetric : public Metric {
 public:
  void update(const Tensor& output, const Tensor& target) final;
  std::vector<Value> values() const final;
  void reset() final;
  void combine(const dist::Group& group) final;

 protected:
  /// `name` is used in errors, and is a string literal. `count` is the number of sums, and `dtype`
  /// their dtype, i64 or f64.
  SumMetric(const char* name, DType dtype, std::int64_t count);

  /// Returns the sums of a batch: [count] of the dtype, on the device of `output`. Must not wait
  /// for the device. Runs without recording and without autocast.
  virtual Tensor sums_of(const Tensor& output, const Tensor& target) const = 0;
  /// Returns the figures for `sums`, the sums over all samples.
  virtual std::vector<Value> figures(const std::vector<double>& sums) const = 0;
  /// Combines the sums of two parts of the samples. The default adds them.
  virtual Tensor together(const Tensor& a, const Tensor& b) const;
  /// Combines the sums of all ranks. The default adds them in the order of the ranks.
  virtual Tensor of_ranks(const Tensor& own, const dist::Group& group) const;

  /// Returns the sums over all samples, 0 without any. Waits for the device.
  std::vector<double> sums() const;
  /// The name that was given to the constructor.
  const char* name() const noexcept { return name_; }

 private:
  const char* name_;
  DType dtype_;
  std::int64_t count_;
  struct Sums {
    Tensor own;  ///< sums of this rank's samples; undefined without any. Never written in place
    Tensor all;  ///< sums of all ranks' samples, after combine()
    Sums separate() const { return *this; }
  };
  detail::Collected<Sums> sums_;
};

}  // namespace firn::metrics
