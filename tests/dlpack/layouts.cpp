// The structs have the layout that the specification gives them on a machine with 64-bit pointers.
#include "dlpack/official.h"
#include "io/dlpack_abi.h"
#include "support/catch.h"

static_assert(sizeof(void*) == 8);
static_assert(sizeof(DLPackVersion) == 8 && sizeof(DLDevice) == 8 && sizeof(DLDataType) == 4);
static_assert(offsetof(DLPackVersion, major) == 0 && offsetof(DLPackVersion, minor) == 4);
static_assert(offsetof(DLDevice, device_type) == 0 && offsetof(DLDevice, device_id) == 4);
static_assert(offsetof(DLDataType, code) == 0 && offsetof(DLDataType, bits) == 1 &&
              offsetof(DLDataType, lanes) == 2);

namespace firn::testing {

TEST_CASE("dlpack: the structs have the specification's layout", "[host]") {
  // DLTensor: size, data, device, ndim, dtype, shape, strides, byte_offset; DLManagedTensor: size,
  // dl_tensor, manager_ctx, deleter.
  CHECK(layout_of_old_structs<DLTensor, DLManagedTensor>() ==
        std::vector<std::size_t>{48, 0, 8, 16, 20, 24, 32, 40, 64, 0, 48, 56});
  // Size, version, manager_ctx, deleter, flags, dl_tensor.
  CHECK(layout_of_new_struct<DLManagedTensorVersioned>() ==
        std::vector<std::size_t>{80, 0, 8, 16, 24, 32});
}

TEST_CASE("dlpack: the specification's own header agrees, if it is installed", "[host]") {
  if (official_old_layout().empty()) {
    WARN("dlpack/dlpack.h is not installed: nothing is compared");
    return;
  }
  CHECK(layout_of_old_structs<DLTensor, DLManagedTensor>() == official_old_layout());
  if (official_new_layout().empty()) {
    WARN("dlpack/dlpack.h is older than 1.0: only what it has is compared");
    return;
  }
  CHECK(layout_of_new_struct<DLManagedTensorVersioned>() == official_new_layout());
  const std::vector<long> numbers = {kDLCPU,          kDLCUDA,        kDLCUDAHost, kDLInt,
                                     kDLUInt,         kDLFloat,       kDLBool,     kDLBfloat,
                                     kDLPackReadOnly, kDLPackIsCopied};
  CHECK(numbers == official_numbers());
}

}  // namespace firn::testing
