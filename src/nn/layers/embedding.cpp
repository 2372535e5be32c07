// Embedding, EmbeddingBag.
#include "firn/nn/layers/embedding.h"

#include "base/checked.h"
#include "firn/autograd.h"
#include "firn/nn/init.h"
#include "firn/ops/ops.h"
#include "nn/layers/sizes.h"

namespace firn::nn {
namespace {

/// A table that starts normal, but for the row of padding.
Parameter table_of(const char* layer, std::int64_t n, std::int64_t d,
                   std::optional<std::int64_t> padding, DType dtype, Device device) {
  FIRN_CHECK(n > 0 && d > 0, layer, "give the number of entries and the size of a vector",
             "n = {} and d = {} must be positive", n, d);
  FIRN_CHECK(!padding || (*padding >= -n && *padding < n), layer, "it is one of the rows",
             "padding_idx = {} of {} rows", *padding, n);
  checked_elements(layer, {n, d});
  check_dtype(layer, dtype);
  Parameter weight = Parameter::empty({n, d}, dtype, device);
  init::normal_(weight);
  if (padding) {
    const NoGrad guard;
    zero_(select(weight, 0, *padding));
  }
  return weight;
}

}  // namespace

FIRN_DEFINE_MEMBERS(Embedding, weight)
FIRN_DEFINE_MEMBERS(EmbeddingBag, weight)

Embedding::Embedding(std::int64_t n, std::int64_t d, const EmbeddingOptions& options)
    : weight(table_of("Embedding", n, d, options.padding_idx, options.dtype, options.device)),
      padding_idx_(options.padding_idx) {
  if (padding_idx_ && *padding_idx_ < 0) *padding_idx_ += n;
}

Tensor Embedding::forward(const Tensor& index) {
  return padding_idx_ ? embedding(weight, index, *padding_idx_) : embedding(weight, index);
}

std::string Embedding::extra_repr() const {
  return fmt::format("{}, {}", weight.size(0), weight.size(1)) +
         (padding_idx_ ? fmt::format(", padding_idx = {}", *padding_idx_) : "");
}

EmbeddingBag::EmbeddingBag(std::int64_t n, std::int64_t d, const EmbeddingBagOptions& options)
    : weight(table_of("EmbeddingBag", n, d, options.padding_idx, options.dtype, options.device)),
      options_(options) {
  if (options_.padding_idx && *options_.padding_idx < 0) *options_.padding_idx += n;
}

Tensor EmbeddingBag::forward(const Tensor& index) { return forward(index, Tensor()); }

Tensor EmbeddingBag::forward(const Tensor& index, const Tensor& offsets,
                             const Tensor& per_sample_weights) {
  return embedding_bag(weight, index,
                       {.mode = options_.mode,
                        .offsets = offsets,
                        .per_sample_weights = per_sample_weights,
                        .include_last_offset = options_.include_last_offset,
                        .padding_idx = options_.padding_idx});
}

std::string EmbeddingBag::extra_repr() const {
  std::string text =
      fmt::format("{}, {}, mode = {}", weight.size(0), weight.size(1), to_string(options_.mode));
  if (options_.padding_idx) text += fmt::format(", padding_idx = {}", *options_.padding_idx);
  if (options_.include_last_offset) text += ", include_last_offset = true";
  return text;
}

}  // namespace firn::nn
