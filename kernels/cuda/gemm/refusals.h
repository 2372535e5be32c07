// Algorithms that cuBLASLt has offered and then refused to run, for describe(Device).
#pragma once

#include <cublasLt.h>

#include "firn/device.h"
#include "firn/dtype.h"
#include "kernels/cuda/gemm/product.h"

namespace firn::kernels::cuda {

/// Counts one more refusal. Any thread may call it; the list is the process's.
void note_refusal(Device device, Epilogue epilogue, DType in, cublasStatus_t status);

}  // namespace firn::kernels::cuda
