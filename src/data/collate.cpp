// Batches of samples: stacked, or padded to the longest.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "data/collate.h"
#include "firn/ops/ops.h"
#include "tensor/impl.h"

namespace firn::data {
namespace {

/// Returns the sizes of `x` that must agree: all, or all but the first.
Shape common_shape(const Tensor& x, bool padded) {
  Shape shape = x.shape();
  if (padded && shape.size() > 0) shape[0] = 0;
  return shape;
}

void check_field(const char* op, std::span<const Sample> samples, std::size_t field, bool padded,
                 std::span<const std::int64_t> ids) {
  const auto name = [&](std::size_t i) {
    return ids.empty() ? static_cast<std::int64_t>(i) : ids[i];
  };
  const Tensor* first = nullptr;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Tensor& x = samples[i][field];
    if (!x.defined()) throw SampleError(name(i), fmt::format("field {} is undefined", field));
    if (!x.device().is_cpu())
      throw SampleError(name(i), fmt::format("field {} is {}", field, describe(x)),
                        "make samples on the CPU: a loader moves whole batches");
    if (first == nullptr) first = &x;
    const bool alike =
        x.dtype() == first->dtype() && common_shape(x, padded) == common_shape(*first, padded);
    FIRN_CHECK(alike, op,
               padded ? "padding evens out the first axis alone"
                      : "make them equal in a Map, or pad the first axis (LoaderOptions::pad)",
               "field {} differs: {} in sample {}, {} in sample {}", field, describe(*first),
               name(0), describe(x), name(i));
  }
}

/// Copies x to row i of `to` [n, ...], with zeros after it.
void put_row(const Tensor& x, std::size_t i, std::size_t row_bytes, char* to) {
  const Tensor row = contiguous(x);
  const std::size_t bytes = row.bytes();
  char* const at = to + i * row_bytes;
  if (bytes > 0) std::memcpy(at, row.view().data, bytes);
  if (bytes < row_bytes) std::memset(at + bytes, 0, row_bytes - bytes);
}

}  // namespace

Sample collate_samples(const char* op, std::span<const Sample> samples, bool padded,
                       std::span<const std::int64_t> ids) {
  FIRN_CHECK(!samples.empty(), op, "a batch has one sample or more", "there are no samples");
  const std::size_t fields = samples[0].size();
  FIRN_CHECK(fields > 0, op, "return at least one tensor", "the samples have no fields");
  for (std::size_t i = 1; i < samples.size(); ++i)
    FIRN_CHECK(samples[i].size() == fields, op, "every sample has the same fields",
               "{} fields in sample {}, {} in sample {}", fields, ids.empty() ? 0 : ids[0],
               samples[i].size(), ids.empty() ? static_cast<std::int64_t>(i) : ids[i]);
  const auto n = static_cast<std::int64_t>(samples.size());
  Sample batch, sizes;
  for (std::size_t f = 0; f < fields; ++f) {
    check_field(op, samples, f, padded, ids);
    const Tensor& first = samples[0][f];
    Shape row = first.shape();
    FIRN_CHECK(row.size() < kMaxRank, op, "reshape the samples", "field {} has too many axes: {}",
               f, describe(first));
    if (padded && row.size() > 0) {
      const Tensor lengths = empty({n}, i64, Device::cpu());
      auto* const length = lengths.data<std::int64_t>();
      for (std::size_t i = 0; i < samples.size(); ++i) length[i] = samples[i][f].shape()[0];
      row[0] = *std::max_element(length, length + n);
      sizes.push_back(lengths);
    }
    Shape shape{n};
    for (const std::int64_t size : row) shape.push_back(size);
    const Tensor all = empty(shape, first.dtype(), Device::cpu());
    require_memory(op, all);
    const std::size_t row_bytes = all.bytes() / samples.size();
    for (std::size_t i = 0; i < samples.size(); ++i)
      put_row(samples[i][f], i, row_bytes, static_cast<char*>(all.mutable_view().data));
    batch.push_back(all);
  }
  batch.insert(batch.end(), sizes.begin(), sizes.end());
  return batch;
}

Sample collate(std::span<const Sample> samples) try {
  return collate_samples("collate", samples, false, {});
}
FIRN_OUT_OF_MEMORY("collate")

Sample collate_padded(std::span<const Sample> samples) try {
  return collate_samples("collate_padded", samples, true, {});
}
FIRN_OUT_OF_MEMORY("collate_padded")

}  // namespace firn::data
