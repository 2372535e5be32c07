// Tables of vectors, looked up by index.
#pragma once

#include <cstdint>
#include <optional>

#include "firn/nn/module_of.h"
#include "firn/ops/index.h"

namespace firn::nn {

struct EmbeddingOptions {
  /// Row of a token that pads sequences: it starts at 0 and gets no gradient. A negative number
  /// counts from the end.
  std::optional<std::int64_t> padding_idx = {};
  DType dtype = f32;
  Device device = default_device();
};

/// index [...] (i64 or i32, in [0, n)) -> rows of weight, [..., d]. weight [n, d] starts normal
/// with mean 0 and standard deviation 1, from the default generator.
class Embedding : public Module {
 public:
  /// Throws Error unless n > 0 and d > 0, and padding_idx is one of the rows.
  Embedding(std::int64_t n, std::int64_t d, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& index) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [n, d]

 private:
  std::optional<std::int64_t> padding_idx_;  ///< 0 or more
};

struct EmbeddingBagOptions {
  BagMode mode = BagMode::mean;                  ///< reduction of the rows of a bag
  std::optional<std::int64_t> padding_idx = {};  ///< the row that starts at 0 and is left out
  bool include_last_offset = false;              ///< see firn::EmbeddingBagOptions
  DType dtype = f32;
  Device device = default_device();
};

/// Sums, means or maxima of rows of weight, bag by bag, by embedding_bag(): index [bags, length],
/// or a list with offsets -> [bags, d]. weight [n, d] starts as that of Embedding.
///
///   nn::EmbeddingBag words(10000, 64, {.mode = BagMode::sum});
///   y = words(list, offsets, weights);
class EmbeddingBag : public ModuleOf<EmbeddingBag> {
 public:
  /// Throws Error unless n > 0 and d > 0, and padding_idx is one of the rows.
  EmbeddingBag(std::int64_t n, std::int64_t d, const EmbeddingBagOptions& options = {});

  Tensor forward(const Tensor& index) override;
  /// `per_sample_weights` (BagMode::sum only) may be undefined, and so may offsets.
  Tensor forward(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights = {});
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [n, d]

 private:
  EmbeddingBagOptions options_;
};

}  // namespace firn::nn
