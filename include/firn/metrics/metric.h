// Metrics: figures that describe how well a model does, over batches of any sizes and over ranks.
//
//   metrics::Accuracy accuracy({.top_k = 1});
//   for (auto& batch : loader.epoch(0)) accuracy.update(net(batch.x()), batch.y());
//   accuracy.combine(group);  // with ranks: the samples of all
//   std::printf("%.3f\n", accuracy.values()[0].value);
//
// Metrics collect counts in i64 and sums in f64 on the device of the batches. So counts do not
// depend on the division of samples into batches, and sums depend on it only by rounding in f64.
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
namespace firn::io {
class Record;
}

namespace firn::metrics {

/// A figure and its name, such as "accuracy" and 0.913.
struct Value {
  std::string name;  ///< name in the table and the log
  double value = 0;  ///< the figure
};

namespace detail {
/// Must be called before the object at `what` changes. RollbackPoints and plans of memory can then
/// restore it: they call `save`, and later the function that it returns.
void about_to_change(const void* what, const std::function<std::function<void()>()>& save);

/// Holds the data that a metric has collected. State is a value whose copies cannot throw. Its
/// separate() returns a copy; memory that either copy writes to is not shared.
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

  /// Adds the samples of a batch: the model's output and the target. Records no gradient, keeps no
  /// graph, and does not wait for the device. All batches since reset() must be on one device. A
  /// RollbackPoint covers it, so a cycle that is retried counts its samples once; a graph cannot
  /// capture it. Throws Error on shapes and dtypes that do not fit and, on the CPU, on a class out
  /// of range; the metric then does not change. On a CUDA device no sample of a batch with such a
  /// class counts, and the host throws the Error at its next wait.
  virtual void update(const Tensor& output, const Tensor& target) = 0;
  /// Adds the samples of a batch, with the model's first input; fit() calls this function. The
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
  /// Makes values() cover the samples of all ranks since their reset(), until this rank's next
  /// update(). Every rank calls it, with metrics of equal options; then all ranks have equal
  /// values, to the bit. A rank may have no samples. This rank's own samples stay separate: a later
  /// combine() counts none twice. Throws RankError as collectives do; the metric then does not
  /// change.
  virtual void combine(const dist::Group& group) = 0;
  /// Adds members other than figures, such as a matrix, to the log of an epoch. The default adds
  /// nothing.
  virtual void add_details(io::Record& details) const { (void)details; }

 protected:
  Metric() = default;
  Metric(const Metric&) = default;
  Metric& operator=(const Metric&) = default;
};

/// A list of metrics for a function: metrics by value, as in {metrics::Accuracy()}, or
/// std::shared_ptr of metrics that the caller reads as well.
class MetricList {
 public:
  /// One metric of the list. Throws std::bad_alloc.
  struct Item : std::shared_ptr<Metric> {
    Item(std::nullptr_t) noexcept {}  // NOLINT: the function that takes the list refuses it
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
  /// Returns the metric at position i, which must be less than size().
  const std::shared_ptr<Metric>& operator[](std::size_t i) const { return list_[i]; }
  auto begin() const noexcept { return list_.begin(); }
  auto end() const noexcept { return list_.end(); }

 private:
  std::vector<std::shared_ptr<Metric>> list_;
};

/// A metric whose figures follow from sums over the samples. Derive from it for a metric of your
/// own: define the sums of a batch, and the figures of the sums.
class SumMetric : public Metric {
 public:
  void update(const Tensor& output, const Tensor& target) final;
  std::vector<Value> values() const final;
  void reset() final;
  void combine(const dist::Group& group) final;

 protected:
  /// `name` is the name in errors, a string literal. There are `count` sums of `dtype`, i64 or f64.
  SumMetric(const char* name, DType dtype, std::int64_t count);

  /// Returns the sums of a batch: [count] of the dtype, on the device of `output`. It must not wait
  /// for the device. It runs without recording and without autocast.
  virtual Tensor sums_of(const Tensor& output, const Tensor& target) const = 0;
  /// Returns the figures of the sums over all samples.
  virtual std::vector<Value> figures(const std::vector<double>& sums) const = 0;
  /// Combines the sums of two sets of samples. The default adds them.
  virtual Tensor together(const Tensor& a, const Tensor& b) const;
  /// Combines the sums of all ranks. The default adds them in the order of the ranks.
  virtual Tensor of_ranks(const Tensor& own, const dist::Group& group) const;

  /// Returns the sums of all samples, 0 without samples. Waits for the device.
  std::vector<double> sums() const;
  /// The constructor's `name`.
  const char* name() const noexcept { return name_; }

 private:
  const char* name_;
  DType dtype_;
  std::int64_t count_;
  struct Sums {
    Tensor own;  ///< this rank's sums; undefined without samples. Never written in place
    Tensor all;  ///< sums of all ranks after combine()
    Sums separate() const { return *this; }
  };
  detail::Collected<Sums> sums_;
};

}  // namespace firn::metrics
