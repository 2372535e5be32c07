// What DLPack's own header says, here seen with firn's, as a program may include both. Debian 12
// has version 0.6 in libdlpack-dev.
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#define FIRN_HAS_DLPACK_HEADER
#endif

#include "dlpack/official.h"
#include "firn/io/dlpack.h"

namespace firn::testing {

std::vector<std::size_t> official_old_layout() {
#ifdef FIRN_HAS_DLPACK_HEADER
  return layout_of_old_structs<DLTensor, DLManagedTensor>();
#else
  return {};
#endif
}

#if defined(DLPACK_MAJOR_VERSION) && DLPACK_MAJOR_VERSION == 1

std::vector<std::size_t> official_new_layout() {
  return layout_of_new_struct<DLManagedTensorVersioned>();
}
std::vector<long> official_numbers() {
  return {kDLCPU,
          kDLCUDA,
          kDLCUDAHost,
          kDLInt,
          kDLUInt,
          kDLFloat,
          kDLBool,
          kDLBfloat,
          static_cast<long>(DLPACK_FLAG_BITMASK_READ_ONLY),
          static_cast<long>(DLPACK_FLAG_BITMASK_IS_COPIED)};
}

#else

std::vector<std::size_t> official_new_layout() { return {}; }
std::vector<long> official_numbers() { return {}; }

#endif

}  // namespace firn::testing
