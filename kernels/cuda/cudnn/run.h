// Plans of cuDNN, kept for each thread and device, and their launch.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <vector>

#include "firn/view.h"
#include "kernels/cuda/cudnn/plan.h"
#include "kernels/dispatch.h"

namespace firn::kernels::cuda {

/// Everything that the choice of a plan depends on. It begins with the kind of problem and is
/// filled up with zeros. The kinds of convolutions are 0 to 2, those of attention 3 and 4.
using CudnnKey = std::array<std::int64_t, 36>;

/// A tensor of a graph, and the address of its elements.
struct CudnnTensorAt {
  std::int64_t uid;
  const void* address;
};

/// True if cuDNN is installed, and addresses are multiples of 16 bytes, as plans assume.
bool cudnn_takes(std::initializer_list<const void*> addresses);

/// Returns this thread's plan for a problem, made by the first call with its key; null if there is
/// none. It is valid until the thread's next call. While a graph is captured no plan can be made;
/// an Error then says to run a step first.
const CudnnPlan* cudnn_plan(const CudnnKey& key,
                            const std::function<CudnnPlan(const CudnnTarget&)>& make, Stream stream,
                            const char* op);

/// Launches a plan that cudnn_plan() of this thread returned. In a dry run it only allocates the
/// workspace.
void cudnn_execute(const CudnnPlan& plan, const std::vector<CudnnTensorAt>& tensors, Stream stream,
                   const char* op);

}  // namespace firn::kernels::cuda
