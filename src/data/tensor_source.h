// The source of a TensorDataset.
#pragma once

#include <vector>

#include "firn/data/dataset.h"

namespace firn::data {

class TensorSource : public DatasetSource {
 public:
  /// Throws Error unless there are fields, all on the CPU, with first axes of one size.
  explicit TensorSource(const std::vector<Tensor>& fields);

  std::int64_t size() const override { return fields_[0].size(0); }
  Sample get(std::int64_t index) const override;
  Sample collect(std::span<const std::int64_t> indices, const DrawContext& context) const override;

  const std::vector<Tensor>& fields() const noexcept { return fields_; }
  /// Returns the rows `indices` of field f.
  Tensor rows(std::size_t f, std::span<const std::int64_t> indices) const;

 private:
  std::vector<Tensor> fields_;  // row-major
};

}  // namespace firn::data
