// Data sets: samples by number, and data sets that are derived from other ones.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "firn/error.h"
#include "firn/random.h"
#include "firn/tensor.h"

namespace firn::data {

/// The fields of a sample, such as {x, y}, or of a batch, whose fields have one more axis in front.
/// They are on the CPU.
using Sample = std::vector<Tensor>;

/// The error of a sample that could not be made. index() is the number of the sample in the set
/// that was asked for it.
class SampleError : public Error {
 public:
  SampleError(std::int64_t index, std::string_view message, std::string_view hint = {},
              std::string_view op = "Dataset");
  /// Number of the sample in its set.
  std::int64_t index() const noexcept { return index_; }
  /// Returns message() without "sample 17: " at its beginning.
  std::string_view cause() const noexcept;
  /// Returns this error for a set in which the sample has the number `index`.
  SampleError renumbered(std::int64_t index) const;

 private:
  std::int64_t index_;
};

/// The run and the epoch for which samples are made. A sample draws its random numbers from
/// generator(id), so that they do not depend on threads or on other samples of the batch.
struct DrawContext {
  std::uint64_t seed = 0;  ///< seed of the loader
  std::int64_t epoch = 0;  ///< number of the pass over the data, from 0

  /// Returns the random stream of sample `id`, which depends on seed, epoch and `id` alone.
  Generator generator(std::int64_t id) const noexcept;
  /// Returns the context for a set inside this one. Its streams are independent of this context's,
  /// and of those of every other `part`.
  DrawContext inner(std::uint64_t part = 0) const noexcept;
};

/// A set of samples. Derive from it to read your own files, or to decode or generate samples. A
/// Loader calls these functions from several threads at once, without autograd, with the CPU as the
/// default device. default_generator() is then a stream of (seed, epoch, id).
class DatasetSource {
 public:
  virtual ~DatasetSource() = default;

  /// Returns the number of samples, which must not change.
  virtual std::int64_t size() const = 0;
  /// Returns sample `index`, in [0, size()). All samples have the same number of fields. May throw.
  virtual Sample get(std::int64_t index) const = 0;
  /// Returns sample `index` as an epoch uses it. Override it to augment; the default is get(index).
  virtual Sample take(std::int64_t index, const DrawContext& context) const;
  /// Returns a whole batch: row i of field f, [n, ...], is field f of sample indices[i]. Override
  /// it if that is faster than n samples. The result must equal the default's, which is collate()
  /// of take(). The default throws SampleError if a sample throws.
  virtual Sample collect(std::span<const std::int64_t> indices, const DrawContext& context) const;
};

/// A handle to a data set. Copies share the set.
class Dataset {
 public:
  /// Throws Error if `source` is null.
  explicit Dataset(std::shared_ptr<const DatasetSource> source);
  /// Sample i is get(i), for i in [0, size). Several threads call `get` at once.
  Dataset(std::int64_t size, std::function<Sample(std::int64_t)> get);

  // After an object is moved from, each of its functions throws Error.

  std::int64_t size() const;
  /// Returns sample `index`. Throws Error unless 0 <= index < size(), and what the set throws.
  Sample get(std::int64_t index, const DrawContext& context = {}) const;
  /// Returns get(index).
  Sample operator[](std::int64_t index) const { return get(index); }
  /// Returns the batch of these samples as DatasetSource::collect() does. Throws Error as get()
  /// does.
  Sample collect(std::span<const std::int64_t> indices, const DrawContext& context = {}) const;
  /// Returns the source of the samples. Sets that share a source have the same samples.
  const std::shared_ptr<const DatasetSource>& source() const;

 private:
  std::shared_ptr<const DatasetSource> source_;
};

/// Sample i is {fields[0][i], fields[1][i], ...}; a batch is one gather for each field. The set
/// shares the tensors: do not write to them while a loader reads. Throws Error unless there is at
/// least one field, all are on the CPU, and their first axes have one size.
class TensorDataset : public Dataset {
 public:
  explicit TensorDataset(std::vector<Tensor> fields);
};

/// Applies `fn` to the samples of `set`. Several threads call `fn` at once. If get() of the set
/// makes new tensors, as that of TensorDataset does, `fn` may change its argument in place. The
/// generator that `fn` takes is a stream of (seed, epoch, index), and so is default_generator()
/// inside. `index` counts in this set: Map(Subset(set, {7, 7}), fn) draws twice, and
/// Subset(Map(set, fn), {7, 7}) has the same sample twice.
class Map : public Dataset {
 public:
  Map(Dataset set, std::function<Sample(Sample)> fn);
  Map(Dataset set, std::function<Sample(Sample, Generator&)> fn);
};

/// The samples of `set` at the given indices, in their order. An index may appear several times.
/// Throws Error if an index is not in the set.
class Subset : public Dataset {
 public:
  Subset(Dataset set, std::vector<std::int64_t> indices);
  /// The samples [first, last).
  Subset(Dataset set, std::int64_t first, std::int64_t last);
};

/// The samples of all parts, one part after the other. Throws Error if there is no part.
class Concat : public Dataset {
 public:
  explicit Concat(std::vector<Dataset> parts);
};

/// Divides `set` at random into disjoint parts that together are the whole set. The parts depend
/// only on the set's size, the fractions and `seed`. With n = set.size(), part k has the positions
/// [round(n s_k), round(n s_k+1)) of Permutation(n, ...), where s_k is the sum of the fractions
/// before k. The order takes no memory. Throws Error unless each fraction is 0 or more and their
/// sum is 1, to within 1e-6.
std::vector<Dataset> random_split(const Dataset& set, std::span<const double> fractions,
                                  std::uint64_t seed);
/// Divides `set` by numbers of samples. Throws Error unless each is 0 or more and they add up to n.
std::vector<Dataset> random_split(const Dataset& set, std::span<const std::int64_t> counts,
                                  std::uint64_t seed);
/// Size of a part of random_split(). A floating-point number is a fraction; an integer is a number
/// of samples.
class SplitPart {
 public:
  template <std::floating_point T>
  SplitPart(T fraction) : fraction_(fraction), is_fraction_(true) {}  // NOLINT
  template <std::integral T>
  SplitPart(T count) : count_(static_cast<std::int64_t>(count)) {}  // NOLINT

  /// True if the size was given as a fraction.
  bool is_fraction() const noexcept { return is_fraction_; }
  /// Fraction in [0, 1]; 0 if a number of samples was given.
  double fraction() const noexcept { return fraction_; }
  /// Number of samples; 0 if a fraction was given.
  std::int64_t count() const noexcept { return count_; }

 private:
  double fraction_ = 0;
  std::int64_t count_ = 0;
  bool is_fraction_ = false;
};
/// Divides `set` by a list of parts, such as {0.8, 0.2} or {set.size() - 100, 100}. Throws Error if
/// fractions and numbers are mixed.
std::vector<Dataset> random_split(const Dataset& set, std::initializer_list<SplitPart> parts,
                                  std::uint64_t seed);

/// Makes a batch of samples: field f is [n, ...], row-major. Throws Error unless the samples have
/// the same number of fields, at least one. Each field must have one shape and dtype, and be on the
/// CPU.
Sample collate(std::span<const Sample> samples);
/// Makes a batch of samples whose fields differ in the size of axis 0. Each field is padded with
/// zeros at its end to the longest one in the batch. The fields are followed by one i64 [n] for
/// each field of rank 1 or more, with the sizes before padding. So {tokens [len], label []} becomes
/// {tokens [n, longest], labels [n], lengths [n]}. The other axes must agree. Throws as collate()
/// does.
Sample collate_padded(std::span<const Sample> samples);

}  // namespace firn::data
