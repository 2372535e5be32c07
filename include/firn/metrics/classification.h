// Metrics for classifiers. Outputs are logits, and targets are class numbers.
//
//   several classes   output [n, C, ...] floating, target [n, ...]; the largest logit decides the
//                     class, the first among equal ones
//   two classes       output [n, ...] floating, target of the same shape; the class is 1 if the
//                     logit is above 0 (a probability above 1/2), else 0
//
// Targets are integers, bool, or floats with integer values, as bce_with_logits() takes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "firn/metrics/metric.h"

namespace firn::metrics {

struct AccuracyOptions {
  std::int64_t top_k = 1;  ///< a sample is right if its class has one of the k largest logits
  std::optional<std::int64_t> ignore_index = std::nullopt;  ///< samples of this target do not count
};
/// The share of samples whose class is right: "accuracy", or "top5_accuracy" for top_k = 5. It
/// equals scikit-learn's accuracy_score and top_k_accuracy_score, except that among equal logits
/// the first one counts as the largest.
class Accuracy final : public SumMetric {
 public:
  using Options = AccuracyOptions;
  /// Throws Error unless top_k > 0.
  explicit Accuracy(const Options& options = {});

 private:
  Tensor sums_of(const Tensor& output, const Tensor& target) const override;
  std::vector<Value> figures(const std::vector<double>& sums) const override;
  Options options_;
};

struct ConfusionOptions {
  std::int64_t classes = 2;                                 ///< number of classes, 2 or more
  std::optional<std::int64_t> ignore_index = std::nullopt;  ///< samples of this target do not count
};
/// Counts samples by true and predicted class, as scikit-learn's confusion_matrix does. values()
/// has only the shares on the diagonal, "class_accuracy_0" to "class_accuracy_<C-1>". A class
/// without samples has the share 0.
class Confusion final : public SumMetric {
 public:
  using Options = ConfusionOptions;
  /// Throws Error unless classes > 1.
  explicit Confusion(const Options& options);
  /// Returns the counts: row t, column p has the number of samples of class t that were predicted
  /// as p. Waits for the device.
  std::vector<std::vector<std::int64_t>> matrix() const;
  /// Adds the matrix as "confusion", a list of rows.
  void add_details(io::Record& details) const override;

 private:
  Tensor sums_of(const Tensor& output, const Tensor& target) const override;
  std::vector<Value> figures(const std::vector<double>& sums) const override;
  Options options_;
};

/// Average over the figures of the classes.
enum class Average : std::uint8_t {
  macro,     ///< mean over the classes that are the target or the prediction of a sample
  micro,     ///< one figure from the hits and misses of all samples
  weighted,  ///< mean, with each class weighted by its number of samples
  none       ///< no average: one figure for each class
};
struct PrecisionRecallF1Options {
  std::int64_t classes = 2;          ///< number of classes, 2 or more
  Average average = Average::macro;  ///< average over the figures of the classes
  std::optional<std::int64_t> ignore_index = std::nullopt;  ///< samples of this target do not count
};
/// "precision", "recall" and "f1", as scikit-learn's precision_recall_fscore_support computes them.
/// A class has tp true positives, fp false positives and fn false negatives. The figures are tp /
/// (tp + fp), tp / (tp + fn) and 2 tp / (2 tp + fp + fn), each 0 if its divisor is 0. With
/// Average::none they are "precision_0" and so on, 0 for a class that does not occur.
class PrecisionRecallF1 final : public SumMetric {
 public:
  using Options = PrecisionRecallF1Options;
  /// Throws Error unless classes > 1.
  explicit PrecisionRecallF1(const Options& options);

 private:
  Tensor sums_of(const Tensor& output, const Tensor& target) const override;
  std::vector<Value> figures(const std::vector<double>& sums) const override;
  Options options_;
};

struct PerplexityOptions {
  std::optional<std::int64_t> ignore_index = std::nullopt;  ///< tokens of this target do not count
  std::int64_t axis = -1;  ///< axis of the classes; language models have it last
};
/// "perplexity": e^(the mean of -log softmax(logits)[target]) over all tokens (Jelinek et al. 1977;
/// torchmetrics' Perplexity). output [..., C] floating, target [...]. Softmax and sums run in f64.
class Perplexity final : public SumMetric {
 public:
  using Options = PerplexityOptions;
  explicit Perplexity(const Options& options = {});

 private:
  Tensor sums_of(const Tensor& output, const Tensor& target) const override;
  std::vector<Value> figures(const std::vector<double>& sums) const override;
  Options options_;
};

struct AurocOptions {
  std::int64_t classes = 2;  ///< number of classes, 2 or more
  /// True if outputs of several classes are logits, to which softmax() is applied. If false,
  /// outputs are compared unchanged. With two classes, the order of the scores does not depend on
  /// it.
  bool logits = true;
  std::optional<std::int64_t> ignore_index = std::nullopt;  ///< samples of this target do not count
};
/// "auroc", the area under the receiver operating characteristic (Hanley & McNeil 1982). Consider
/// the pairs of one sample of the class and one of the others. The area is the share of pairs whose
/// first sample has the larger score; equal scores count one half. It is exact: it keeps all
/// scores, 8 bytes for each class and sample. With two classes the output is [n] scores of class 1,
/// or [n, 2]. With several it is [n, C], and the value is the mean of each class against the rest,
/// as in scikit-learn's roc_auc_score with multi_class="ovr". The mean leaves out a class that no
/// sample has, or that all samples have. The value is NaN if no class is left, or if a score is
/// NaN.
class Auroc final : public Metric {
 public:
  using Options = AurocOptions;
  /// Throws Error unless classes > 1.
  explicit Auroc(const Options& options = {});

  void update(const Tensor& output, const Tensor& target) override;
  std::vector<Value> values() const override;
  void reset() override;
  void combine(const dist::Group& group) override;

 private:
  /// Samples: scores f64 [n, columns] and classes i64 [n]; -1 marks a sample that does not count.
  struct Part {
    Tensor scores, classes;
  };
  struct Samples {
    Part own;  ///< samples of this rank; the first `count` rows are in use, each written once
    Part all;  ///< samples of all ranks, after combine()
    std::int64_t count = 0;
    Samples separate() const;
  };
  std::int64_t columns() const noexcept { return options_.classes == 2 ? 1 : options_.classes; }

  Options options_;
  detail::Collected<Samples> samples_;
};

}  // namespace firn::metrics
