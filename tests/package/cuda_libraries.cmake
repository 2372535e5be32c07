# cmake/FirnCudaLibraries.cmake on made-up folders: the toolkit's library goes before a Python
# package's, both layouts of NVIDIA's packages are found, versions come from the headers that lie
# beside the library, another major version is passed over, and what is given is kept.
#   cmake -DSOURCE=... -DWORK=... -P cuda_libraries.cmake
file(REMOVE_RECURSE ${WORK})

function(expect variable value)
  if(NOT "${${variable}}" STREQUAL "${value}")
    message(FATAL_ERROR "${variable} is '${${variable}}', expected '${value}'")
  endif()
endfunction()

function(make_library folder file)
  file(WRITE ${folder}/lib/${file} "")
endfunction()
function(make_headers folder cublas cudnn)
  file(WRITE ${folder}/include/cublasLt.h "")
  string(REPLACE "." ";" _v ${cublas})
  list(GET _v 0 _a)
  list(GET _v 1 _b)
  file(WRITE ${folder}/include/cublas_api.h
    "#define CUBLAS_VER_MAJOR ${_a}\n#define CUBLAS_VER_MINOR ${_b}\n#define CUBLAS_VER_PATCH 2\n")
  string(REPLACE "." ";" _v ${cudnn})
  list(GET _v 0 _a)
  list(GET _v 1 _b)
  file(WRITE ${folder}/include/cudnn.h "")
  file(WRITE ${folder}/include/cudnn_version.h
    "#define CUDNN_MAJOR ${_a}\n#define CUDNN_MINOR ${_b}\n#define CUDNN_PATCHLEVEL 1\n")
endfunction()

# search(site-packages toolkit): the module's answers, as variables of the caller.
macro(search site toolkit)
  set(FIRN_PYTHON_SITE_PACKAGES ${site})
  set(CUDAToolkit_VERSION_MAJOR 13)
  set(CUDAToolkit_LIBRARY_DIR ${toolkit}/lib)
  set(CUDAToolkit_LIBRARY_ROOT ${toolkit})
  set(CUDAToolkit_INCLUDE_DIRS ${toolkit}/include)
  set(CMAKE_SYSTEM_PREFIX_PATH "")
  set(CMAKE_PREFIX_PATH "")
  foreach(_name CUBLASLT CUDNN NCCL)
    unset(FIRN_${_name}_LIBRARY CACHE)
    unset(FIRN_${_name}_INCLUDE_DIR CACHE)
  endforeach()
  include(${SOURCE}/cmake/FirnCudaLibraries.cmake)
endmacro()

set(site ${WORK}/site-packages)
set(toolkit ${WORK}/toolkit)

search(${site} ${toolkit})  # neither exists
expect(FIRN_CUBLASLT_LIBRARY "")
expect(FIRN_CUDNN_LIBRARY "")
expect(FIRN_CUDNN_INCLUDE_DIR "")
expect(FIRN_CUDNN_VERSION "")
expect(FIRN_NCCL_LIBRARY "")
expect(FIRN_NCCL_VERSION "")

# NCCL's package, as its wheel lays it out.
make_library(${site}/nvidia/nccl libnccl.so.2)
file(WRITE ${site}/nvidia/nccl/include/nccl.h
  "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n")
search(${site} ${toolkit})
expect(FIRN_NCCL_LIBRARY ${site}/nvidia/nccl/lib/libnccl.so.2)
expect(FIRN_NCCL_INCLUDE_DIR ${site}/nvidia/nccl/include)
expect(FIRN_NCCL_VERSION 2.28.9)

# The older layout, with a cuBLASLt of another major version.
make_library(${site}/nvidia/cublas libcublasLt.so.12)
make_library(${site}/nvidia/cudnn libcudnn.so.9)
make_headers(${site}/nvidia/cudnn 12.8 9.10)
search(${site} ${toolkit})
expect(FIRN_CUBLASLT_LIBRARY "")
expect(FIRN_CUDNN_LIBRARY ${site}/nvidia/cudnn/lib/libcudnn.so.9)
expect(FIRN_CUDNN_VERSION 9.10.1)

# The layout from CUDA 13 on; the toolkit has headers, but those beside the library come first.
make_library(${site}/nvidia/cu13 libcublasLt.so.13)
make_headers(${site}/nvidia/cu13 13.1 9.19)
make_headers(${toolkit} 13.0 9.1)
search(${site} ${toolkit})
expect(FIRN_CUBLASLT_LIBRARY ${site}/nvidia/cu13/lib/libcublasLt.so.13)
expect(FIRN_CUBLASLT_VERSION 13.1.2)
expect(FIRN_CUDNN_VERSION 9.10.1)

# The toolkit's own goes first.
make_library(${toolkit} libcublasLt.so.13)
search(${site} ${toolkit})
expect(FIRN_CUBLASLT_LIBRARY ${toolkit}/lib/libcublasLt.so.13)
expect(FIRN_CUBLASLT_VERSION 13.0.2)

# A library that PyTorch carries itself takes the headers of wherever there are some.
file(REMOVE_RECURSE ${site}/nvidia ${toolkit}/lib)
file(WRITE ${site}/torch/lib/libcublasLt.so.13 "")
search(${site} ${toolkit})
expect(FIRN_CUBLASLT_LIBRARY ${site}/torch/lib/libcublasLt.so.13)
expect(FIRN_CUBLASLT_INCLUDE_DIR ${toolkit}/include)

# What is given is kept.
set(FIRN_CUBLASLT_LIBRARY /elsewhere/libcublasLt.so.13 CACHE PATH "" FORCE)
include(${SOURCE}/cmake/FirnCudaLibraries.cmake)
expect(FIRN_CUBLASLT_LIBRARY /elsewhere/libcublasLt.so.13)
