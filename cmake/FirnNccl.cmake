# Sets FIRN_HAS_NCCL: whether there is a library firn::nccl, which src/CMakeLists.txt makes. It needs the
# CUDA backend and NCCL's header (FIRN_NCCL_INCLUDE_DIR). NCCL itself is opened at run time; where the
# build found it (FIRN_NCCL_LIBRARY) is one of the places that are tried.
set(FIRN_HAS_NCCL OFF)
if(NOT FIRN_NCCL MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FIRN_NCCL is '${FIRN_NCCL}'; it must be AUTO, ON or OFF")
endif()
if(FIRN_NCCL STREQUAL "OFF")
  return()
endif()
if(NOT FIRN_HAS_CUDA)
  if(FIRN_NCCL STREQUAL "ON")
    message(FATAL_ERROR "FIRN_NCCL=ON needs the CUDA backend: FIRN_CUDA is '${FIRN_CUDA}'")
  endif()
  return()
endif()

if(FIRN_HAS_CUSIM)  # else FirnCudaLibraries.cmake has looked
  find_path(FIRN_NCCL_INCLUDE_DIR nccl.h HINTS ${FIRN_CUDA_INCLUDE_DIR})
  mark_as_advanced(FIRN_NCCL_INCLUDE_DIR)
endif()
if(FIRN_NCCL_INCLUDE_DIR)
  set(FIRN_HAS_NCCL ON)
  message(STATUS "firn: ranks on CUDA devices through NCCL (firn::nccl, ${FIRN_NCCL_INCLUDE_DIR}/nccl.h)")
elseif(FIRN_NCCL STREQUAL "ON")
  message(FATAL_ERROR "FIRN_NCCL=ON, but there is no nccl.h. Install it (apt-get install libnccl-dev from NVIDIA's "
    "packages, or pip's nvidia-nccl-cu13), or set FIRN_NCCL_INCLUDE_DIR")
else()
  message(STATUS "firn: no nccl.h, so no firn::nccl (for that: libnccl-dev of NVIDIA's packages, or pip's nvidia-nccl-cu13)")
endif()
