// The structs of DLPack, by which libraries in one process exchange tensors. Layout and numbers are
// those of the specification, include/dlpack/dlpack.h of https://github.com/dmlc/dlpack, version
// 1.1. The names are those of the specification too, so other code that has its header needs no
// cast. Within major version 1 the layout does not change.
#pragma once

#include <cstdint>

struct DLPackVersion {
  std::uint32_t major;  ///< a new one changes the layout after `flags`
  std::uint32_t minor;  ///< a new one adds numbers to the enumerations
};

enum DLDeviceType : std::int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,  ///< page-locked memory of the host
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
  kDLMAIA = 17,
  kDLTrn = 18,
};

struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};

/// The floats of 8 bits and fewer have the codes 7 to 17; the enum has only firn's.
enum DLDataTypeCode {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLOpaqueHandle = 3,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e5m2 = 12,
};

struct DLDataType {
  std::uint8_t code;  ///< a DLDataTypeCode
  std::uint8_t bits;
  std::uint16_t lanes;  ///< elements of a vector type, else 1
};

struct DLTensor {
  void* data;  ///< null if there are no elements
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;      ///< in elements; null: row-major without gaps
  std::uint64_t byte_offset;  ///< offset of the first element from `data`
};

/// The form before version 1.0. It has neither a version nor flags.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);  ///< may be null
};

inline constexpr std::uint64_t kDLPackReadOnly = 1;  ///< DLPACK_FLAG_BITMASK_READ_ONLY
inline constexpr std::uint64_t kDLPackIsCopied = 2;  ///< DLPACK_FLAG_BITMASK_IS_COPIED

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);  ///< may be null
  std::uint64_t flags;
  DLTensor dl_tensor;
};
