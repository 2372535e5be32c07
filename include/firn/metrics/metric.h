// Metrics: figures that tell how well a model does, over batches of any sizes and over ranks.
//
//   metrics::Accuracy accuracy({.top_k = 1});
//   for (auto& batch : loader.epoch(0)) accuracy.update(net(batch.x()), batch.y());
//   accuracy.combine(group);  // with ranks: the samples of all
//   std::printf("%.3f\n", accuracy.values()[0].value);
//
// What metrics collect stays on the device of the batches, as counts in i64 and sums in f64. So
// counts do not depend on how samples are divided into batches, and sums only by rounding in f64.
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
  std::string name;  ///< as the table and the log show it
  double value = 0;  ///< the figure
};

namespace detail {
/// To be called before a change of what lies at `what`: RollbackPoints and plans of memory then can
/// put it back as save() has found it.
void about_to_change(const void* what, const std::function<std::function<void()>()>& save);

/// What a metric has collected. State is a value whose copies cannot throw; its separate() is a
/// copy that shares no memory that either writes to.
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

  /// For writing to it.
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

/// What all metrics do. One thread at a time uses a metric; copies are independent.
class Metric {
 public:
  virtual ~Metric() = default;

  /// Adds the samples of a batch: what the model returned, and what it should have. Records no
  /// gradient, keeps no graph, and does not wait for the device. All batches since reset() are on
  /// one device. A RollbackPoint covers it, so a cycle that is retried counts its samples once; a
  /// graph cannot capture it. Throws Error on shapes and dtypes that do not fit and, on the CPU, on
  /// a class that is out of range; the metric then stays as it was. On a CUDA device no sample of a
  /// batch with such a class counts, and the Error comes at the host's next wait.
  virtual void update(const Tensor& output, const Tensor& target) = 0;
  /// The same with what the model was given, its first input: what fit() calls. The default leaves
  /// that out.
  virtual void update_from(const Tensor& input, const Tensor& output, const Tensor& target) {
    (void)input;
    update(output, target);
  }
  /// The figures of all samples since reset(). Waits for the device. Without samples a figure is
  /// NaN.
  virtual std::vector<Value> values() const = 0;
  /// Forgets all samples.
  virtual void reset() = 0;
  /// Makes values() those of all ranks' samples since their reset(), until this rank's next
  /// update(). Every rank calls it, with metrics of the same options; then all have the same
  /// values, to the bit. A rank may have no samples. This rank's own samples stay apart: a later
  /// combine() counts none twice. Throws RankError as collectives do; the metric then stays as it
  /// was.
  virtual void combine(const dist::Group& group) = 0;
  /// Adds what the log of an epoch says beside the figures, such as a matrix; the default nothing.
  virtual void add_details(io::Record& details) const { (void)details; }

 protected:
  Metric() = default;
  Metric(const Metric&) = default;
  Metric& operator=(const Metric&) = default;
};

/// Metrics that a function uses: {metrics::Accuracy()}, by value, or std::shared_ptr of metrics
/// that somebody else reads as well.
class MetricList {
 public:
  /// One of them. Throws std::bad_alloc.
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

  /// Appends one.
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

/// A metric whose figures follow from sums over the samples. A metric of your own derives from it
/// and says what a batch adds, and what the figures are.
class SumMetric : public Metric {
 public:
  void update(const Tensor& output, const Tensor& target) final;
  std::vector<Value> values() const final;
  void reset() final;
  void combine(const dist::Group& group) final;

 protected:
  /// `name` is that of errors, a string literal. `count` sums of `dtype`, which is i64 or f64.
  SumMetric(const char* name, DType dtype, std::int64_t count);

  /// The sums of a batch: [count] of the dtype, on the device of `output`. Must not wait for the
  /// device. Runs without recording and without autocast.
  virtual Tensor sums_of(const Tensor& output, const Tensor& target) const = 0;
  /// The figures of these sums, which are those of all samples.
  virtual std::vector<Value> figures(const std::vector<double>& sums) const = 0;
  /// What two parts of the samples have together; the sum, if not overridden.
  virtual Tensor together(const Tensor& a, const Tensor& b) const;
  /// What all ranks have together; the sum in the order of the ranks, if not overridden.
  virtual Tensor of_ranks(const Tensor& own, const dist::Group& group) const;

  /// The sums of all samples, 0 without any. Waits for the device.
  std::vector<double> sums() const;
  /// As the constructor got it.
  const char* name() const noexcept { return name_; }

 private:
  const char* name_;
  DType dtype_;
  std::int64_t count_;
  struct Sums {
    Tensor own;  ///< of this rank's samples; undefined without any. Never written in place
    Tensor all;  ///< of all ranks' after combine()
    Sums separate() const { return *this; }
  };
  detail::Collected<Sums> sums_;
};

}  // namespace firn::metrics
