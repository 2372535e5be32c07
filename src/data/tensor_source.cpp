#include "data/tensor_source.h"

#include "base/check.h"
#include "firn/memory.h"
#include "firn/ops/ops.h"
#include "firn/runtime/stream.h"
#include "kernels/index.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "TensorDataset";

}  // namespace

TensorSource::TensorSource(const std::vector<Tensor>& fields) {
  FIRN_CHECK(!fields.empty(), kOp, "give one tensor or more", "there are no fields");
  const OwnerScope owner(Owner::data);
  for (const Tensor& field : fields) {
    FIRN_CHECK(field.defined(), kOp, "give a tensor for each field", "field {} is undefined",
               fields_.size());
    FIRN_CHECK(field.device().is_cpu() && field.rank() >= 1, kOp,
               "move it: field.to(Device::cpu())", "field {} must be [n, ...] on the CPU, not {}",
               fields_.size(), describe(field));
    FIRN_CHECK(field.size(0) == fields[0].size(0), kOp, "axis 0 counts the samples",
               "field {} has {} samples, field 0 has {}", fields_.size(), field.size(0),
               fields[0].size(0));
    fields_.push_back(contiguous(field.detach()));
  }
}

Sample TensorSource::get(std::int64_t index) const {
  Sample sample;
  for (const Tensor& field : fields_) sample.push_back(field[index].clone());  // callers may write
  return sample;
}

Tensor TensorSource::rows(std::size_t f, std::span<const std::int64_t> indices) const {
  const auto n = static_cast<std::int64_t>(indices.size());
  const Tensor& field = fields_[f];
  Shape shape = field.shape();
  shape[0] = n;
  const Tensor taken = empty(shape, field.dtype(), Device::cpu());
  const std::int64_t d = taken.numel() / n;
  kernels::take_rows(kOp, field.as_strided({field.size(0), d}, {d, 1}).view(),
                     ConstView{indices.data(), i64, Device::cpu(), {n}, {1}},
                     taken.as_strided({n, d}, {d, 1}).mutable_view(),
                     current_stream(Device::cpu()));
  return taken;
}

Sample TensorSource::collect(std::span<const std::int64_t> indices, const DrawContext&) const {
  Sample batch;
  for (std::size_t f = 0; f < fields_.size(); ++f) batch.push_back(rows(f, indices));
  return batch;
}

TensorDataset::TensorDataset(std::vector<Tensor> fields) try
    : Dataset(std::make_shared<const TensorSource>(fields)) {}
FIRN_OUT_OF_MEMORY("TensorDataset")

}  // namespace firn::data
