# Sets FIRN_HAS_CUDA; where it is ON, the CUDA language is enabled and its architectures are chosen.
# All variables set here live in firn's own directory scope.
set(FIRN_HAS_CUDA OFF)
set(FIRN_HAS_CUSIM OFF)
if(NOT FIRN_CUDA MATCHES "^(AUTO|ON|OFF|SIM)$")
  message(FATAL_ERROR "FIRN_CUDA is '${FIRN_CUDA}'; it must be AUTO, ON, OFF or SIM")
endif()
if(FIRN_CUDA STREQUAL "OFF")
  return()
endif()

# The simulator runs the same .cu files, compiled by the host's compiler: the toolkit's headers are all
# it needs of CUDA.
if(FIRN_CUDA STREQUAL "SIM")
  find_path(FIRN_CUDA_INCLUDE_DIR cuda_runtime.h PATHS /usr/local/cuda/include)
  if(NOT FIRN_CUDA_INCLUDE_DIR)
    message(FATAL_ERROR "FIRN_CUDA=SIM needs the headers of the CUDA Toolkit (cuda_runtime.h); set FIRN_CUDA_INCLUDE_DIR")
  endif()
  set(FIRN_HAS_CUDA ON)
  set(FIRN_HAS_CUSIM ON)
  target_compile_definitions(firn_private INTERFACE FIRN_HAS_CUDA FIRN_HAS_CUSIM)
  # Of each .cu file. Tests are small: what counts is the time to compile.
  set(FIRN_CUSIM_KERNEL_OPTIONS -x c++ -O1 -Wno-unknown-pragmas)
  if(FIRN_CUSIM_CHECK)
    if(FIRN_SANITIZE MATCHES "thread")
      message(FATAL_ERROR "FIRN_CUSIM_CHECK stands in for ThreadSanitizer's functions: FIRN_SANITIZE must not name thread")
    endif()
    # Linked with functions of the simulator's own (tests/cusim/check/check_entry.cpp).
    list(APPEND FIRN_CUSIM_KERNEL_OPTIONS -fsanitize=thread -fsanitize=bounds,alignment -g1)
    if(FIRN_SANITIZE)  # the checker sees what AddressSanitizer would, and it goes on where a fault is found
      list(PREPEND FIRN_CUSIM_KERNEL_OPTIONS -fno-sanitize=address -fsanitize-recover=bounds,alignment)
    endif()
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      # A read just before a write of the same place counts too. Calls need not be told.
      list(APPEND FIRN_CUSIM_KERNEL_OPTIONS -mllvm -tsan-instrument-read-before-write=1
        -mllvm -tsan-instrument-func-entry-exit=0)
    endif()
    message(STATUS "firn: CUDA kernels on the simulator (tests/cusim), every load and store checked")
  else()
    message(STATUS "firn: CUDA kernels on the simulator (tests/cusim)")
  endif()
  return()
endif()

# The nvcc of the machine that compiles makes code for that machine: for another one it has to be named.
if(CMAKE_CROSSCOMPILING AND FIRN_CUDA STREQUAL "AUTO" AND NOT CMAKE_CUDA_COMPILER)
  message(STATUS "firn: CPU only (cross-compiling, and CMAKE_CUDA_COMPILER is not set)")
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
include(${CMAKE_CURRENT_LIST_DIR}/FirnCudaLibraries.cmake)  # cuBLASLt, cuDNN
set(FIRN_HAS_CUDA ON)
target_compile_definitions(firn_private INTERFACE FIRN_HAS_CUDA)
message(STATUS "firn: CUDA ${CUDAToolkit_VERSION} for architectures ${CMAKE_CUDA_ARCHITECTURES}")
