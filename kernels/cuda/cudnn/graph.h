// An operation graph of cuDNN: its tensors and operations, as convolutions and attention describe
// them.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "firn/dtype.h"
#include "kernels/cuda/cudnn/library.h"

namespace firn::kernels::cuda {

cudnnDataType_t cudnn_type(DType dtype) noexcept;

/// Place of a tensor's elements.
enum class CudnnPlace : std::uint8_t {
  memory,   ///< at an address of the variant pack, a multiple of 16 bytes
  nowhere,  ///< between two operations of the graph
  host      ///< one number, read from the host's memory when the plan runs
};

/// Tensors and operations of one graph, kept until its plan is made. The first status that is not a
/// success stays in `status`.
struct CudnnGraph {
  std::deque<gpu::Descriptor> parts;  ///< references to them stay valid
  std::vector<cudnnBackendDescriptor_t> operations;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

  const gpu::Descriptor& keep(gpu::Descriptor&& part);
  void operation(gpu::Descriptor&& part) { operations.push_back(keep(std::move(part)).get()); }

  const gpu::Descriptor& tensor(const std::vector<std::int64_t>& sizes,
                                const std::vector<std::int64_t>& strides, cudnnDataType_t type,
                                std::int64_t uid, CudnnPlace place = CudnnPlace::memory);

  /// y = mode(x, b), or mode(x) without a b; with a `condition`, y = condition ? x : b. Only
  /// CUDNN_POINTWISE_GEN_INDEX has an `axis`.
  struct PointwiseInputs {
    const gpu::Descriptor& x;
    const gpu::Descriptor* b = nullptr;
    const gpu::Descriptor* condition = nullptr;
    std::int64_t axis = -1;
  };
  void pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, const PointwiseInputs& in,
                 const gpu::Descriptor& y);
  /// c = a b for the last two axes, in f32.
  void product(const gpu::Descriptor& a, const gpu::Descriptor& b, const gpu::Descriptor& c);
  /// y has 1 where x is reduced, in f32.
  void reduction(cudnnReduceTensorOp_t fold, const gpu::Descriptor& x, const gpu::Descriptor& y);
  /// y holds the elements of x in another shape.
  void reshape(const gpu::Descriptor& x, const gpu::Descriptor& y);
};

}  // namespace firn::kernels::cuda
