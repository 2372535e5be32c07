// NCCL's functions, loaded at the first nccl_group(). The library is not linked: a program runs
// without it until it asks for such a group. The simulator has its own, in
// tests/cusim/libraries/nccl.cpp.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

#include "dist/nccl_version.h"

namespace firn::dist {

/// The functions of one loaded library, by the name that the header gives them.
struct Nccl {
#define FIRN_EACH_NCCL(F)   \
  F(ncclAllGather)          \
  F(ncclAllReduce)          \
  F(ncclBroadcast)          \
  F(ncclCommAbort)          \
  F(ncclCommDestroy)        \
  F(ncclCommFinalize)       \
  F(ncclCommGetAsyncError)  \
  F(ncclCommInitRankConfig) \
  F(ncclGetErrorString)     \
  F(ncclGetLastError)       \
  F(ncclGetUniqueId)        \
  F(ncclGetVersion)         \
  F(ncclGroupEnd)           \
  F(ncclGroupStart)         \
  F(ncclRecv)               \
  F(ncclReduceScatter)      \
  F(ncclSend)
#define FIRN_MEMBER(name) decltype(&::name) name = nullptr;
  FIRN_EACH_NCCL(FIRN_MEMBER)
#undef FIRN_MEMBER
  std::string path;  ///< name of the library that was loaded
  int version = 0;   ///< version as NCCL_VERSION_CODE
};

/// Returns the library, loaded by the first call. If there is none, throws a DeviceError that names
/// every place that was tried.
const Nccl& nccl();

/// Loads the first of `names` that can be loaded and is new enough. Throws as nccl() does.
Nccl load_nccl(const std::vector<std::string>& names);

/// Describes a result: "unhandled system error (ncclSystemError, 2)".
std::string describe(const Nccl& lib, ncclResult_t result);

}  // namespace firn::dist
