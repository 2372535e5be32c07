// Data sets: samples by number, and sets that are made of other sets.
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

/// The fields of a sample, such as {x, y}; or of a batch, each with a first axis more. On the CPU.
using Sample = std::vector<Tensor>;

/// One sample could not be made. index() is its number in the set that was asked for it.
class SampleError : public Error {
 public:
  SampleError(std::int64_t index, std::string_view message, std::string_view hint = {},
              std::string_view op = "Dataset");
  /// Number of the sample in its set.
  std::int64_t index() const noexcept { return index_; }
  /// message() without "sample 17: " at its beginning.
  std::string_view cause() const noexcept;
  /// The same error in a set that calls this sample `index`.
  SampleError renumbered(std::int64_t index) const;

 private:
  std::int64_t index_;
};

/// For which run and epoch samples are made. Whatever is random about a sample is drawn from
/// generator(id): then it depends on nothing else, such as threads or the batch's other samples.
struct DrawContext {
  std::uint64_t seed = 0;  ///< of the loader
  std::int64_t epoch = 0;  ///< of the pass over the data, from 0

  /// The random stream of sample `id`: the same for the same seed, epoch and id.
  Generator generator(std::int64_t id) const noexcept;
  /// The context for a set inside of this one: its streams have nothing in common with these, nor
  /// with those of another `part`.
  DrawContext inner(std::uint64_t part = 0) const noexcept;
};

/// A set of samples: derive from it for files, decoders or generators of your own. A Loader calls
/// these functions from several threads at once, without autograd, with the CPU as the default
/// device. default_generator() is then a stream of (seed, epoch, id).
class DatasetSource {
 public:
  virtual ~DatasetSource() = default;

  /// The number of samples. Must not change.
  virtual std::int64_t size() const = 0;
  /// Sample `index`, in [0, size()). Always the same number of fields. May throw.
  virtual Sample get(std::int64_t index) const = 0;
  /// Sample `index` as an epoch wants it: override it to augment. Default: get(index).
  virtual Sample take(std::int64_t index, const DrawContext& context) const;
  /// A whole batch: field f is [n, ...], whose row i is field f of sample indices[i]. Override it
  /// if that is faster than n samples; the result must be the default's, which is collate() of
  /// take(). The default throws SampleError if a sample throws.
  virtual Sample collect(std::span<const std::int64_t> indices, const DrawContext& context) const;
};

/// A handle on a set. Copies share it.
class Dataset {
 public:
  /// Throws Error if `source` is null.
  explicit Dataset(std::shared_ptr<const DatasetSource> source);
  /// Sample i is get(i), for i in [0, size). Several threads call `get` at once.
  Dataset(std::int64_t size, std::function<Sample(std::int64_t)> get);

  // After a move from this object each function throws Error.

  std::int64_t size() const;
  /// Sample `index`. Throws Error unless 0 <= index < size(), and what the set throws.
  Sample get(std::int64_t index, const DrawContext& context = {}) const;
  /// As get(index).
  Sample operator[](std::int64_t index) const { return get(index); }
  /// The batch of these samples, as DatasetSource::collect(). Throws Error as get() does.
  Sample collect(std::span<const std::int64_t> indices, const DrawContext& context = {}) const;
  /// What makes the samples; sets that share it have the same ones.
  const std::shared_ptr<const DatasetSource>& source() const;

 private:
  std::shared_ptr<const DatasetSource> source_;
};

/// Sample i is {fields[0][i], fields[1][i], ...}; a batch is one gather for each field. The tensors
/// are shared: do not write to them while a loader reads. Throws Error unless there are fields, all
/// on the CPU, with first axes of one size.
class TensorDataset : public Dataset {
 public:
  explicit TensorDataset(std::vector<Tensor> fields);
};

/// The samples of `set` after fn. Several threads call `fn` at once. It may change the tensors of
/// its argument in place, if get() of the set makes new ones as that of TensorDataset does. A
/// generator that fn takes is that of (seed, epoch, index), and so is default_generator() inside.
/// The index is that in this set: so Map(Subset(set, {7, 7}), fn) draws twice, and
/// Subset(Map(set, fn), {7, 7}) has the same sample twice.
class Map : public Dataset {
 public:
  Map(Dataset set, std::function<Sample(Sample)> fn);
  Map(Dataset set, std::function<Sample(Sample, Generator&)> fn);
};

/// Samples of `set` in the given order; an index may come several times. Throws Error if one is
/// not in the set.
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

/// Divides `set` at random into disjoint parts that together are the whole set, which depends on
/// its size, the parts and the seed alone. With n = set.size(), part k has the positions
/// [round(n s_k), round(n s_k+1)) of Permutation(n, ...), where s_k is the sum of the fractions
/// before k. Needs no memory for the order. Throws Error unless the fractions are 0 or more and
/// their sum is 1, to 1e-6.
std::vector<Dataset> random_split(const Dataset& set, std::span<const double> fractions,
                                  std::uint64_t seed);
/// The same with the numbers of samples. Throws Error unless they are 0 or more and add up to n.
std::vector<Dataset> random_split(const Dataset& set, std::span<const std::int64_t> counts,
                                  std::uint64_t seed);
/// A part of random_split(): a fraction if it is a floating number, a number of samples if it is an
/// integer.
class SplitPart {
 public:
  template <std::floating_point T>
  SplitPart(T fraction) : fraction_(fraction), is_fraction_(true) {}  // NOLINT
  template <std::integral T>
  SplitPart(T count) : count_(static_cast<std::int64_t>(count)) {}  // NOLINT

  /// Whether it was given as a fraction.
  bool is_fraction() const noexcept { return is_fraction_; }
  /// In [0, 1]; 0 if it is a number of samples.
  double fraction() const noexcept { return fraction_; }
  /// Samples; 0 if it is a fraction.
  std::int64_t count() const noexcept { return count_; }

 private:
  double fraction_ = 0;
  std::int64_t count_ = 0;
  bool is_fraction_ = false;
};
/// random_split(set, {0.8, 0.2}, 1) or random_split(set, {set.size() - 100, 100}, 1). Throws Error
/// if fractions and numbers are mixed.
std::vector<Dataset> random_split(const Dataset& set, std::initializer_list<SplitPart> parts,
                                  std::uint64_t seed);

/// Makes a batch of samples: field f is [n, ...], row-major. Throws Error unless the samples have
/// the same number of fields, at least one, and each field one shape and dtype, on the CPU.
Sample collate(std::span<const Sample> samples);
/// Makes a batch of samples whose fields differ in the size of axis 0: each is padded with zeros at
/// its end to the longest of the batch. Behind the fields follows, for each field of rank 1 or more
/// in their order, an i64 [n] of the sizes before padding. So {tokens [len], label []} becomes
/// {tokens [n, longest], labels [n], lengths [n]}. Throws as collate() does; the other axes must
/// agree.
Sample collate_padded(std::span<const Sample> samples);

}  // namespace firn::data
