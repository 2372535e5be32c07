# Sets FIRN_HAS_CUDA; where it is ON, the CUDA language is enabled and its architectures are chosen.
# All variables set here live in firn's own directory scope.
set(FIRN_HAS_CUDA OFF)
if(NOT FIRN_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FIRN_CUDA is '${FIRN_CUDA}'; it must be AUTO, ON or OFF")
endif()
if(FIRN_CUDA STREQUAL "OFF")
  return()
endif()

# The toolkit's usual place counts even where PATH does not name it.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(FIRN_NVCC nvcc PATHS /usr/local/cuda/bin)
  mark_as_advanced(FIRN_NVCC)
  if(FIRN_NVCC)
    set(ENV{CUDACXX} ${FIRN_NVCC})
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(FIRN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FIRN_CUDA=ON, but no working nvcc was found. Install the CUDA Toolkit (apt-get install "
      "nvidia-cuda-toolkit, or NVIDIA's own package), put nvcc on PATH or set CUDACXX, or build with -DFIRN_CUDA=OFF")
  endif()
  message(STATUS "firn: CPU only (no working nvcc found)")
  return()
endif()

# With a GPU in this machine and a build for this machine: its architecture. Otherwise A100 and later
# as machine code, and PTX that newer GPUs compile for themselves.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90")
  if(FIRN_NATIVE)
    execute_process(COMMAND nvidia-smi -L RESULT_VARIABLE _no_gpu OUTPUT_QUIET ERROR_QUIET)
    if(_no_gpu EQUAL 0)
      set(CMAKE_CUDA_ARCHITECTURES native)
    endif()
  endif()
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(FIRN_HAS_CUDA ON)
message(STATUS "firn: CUDA ${CUDAToolkit_VERSION} for architectures ${CMAKE_CUDA_ARCHITECTURES}")
