# How single files of the library are compiled: kernels, and what CUDA and the simulator ask for.
#
#   firn_left_out(out): a regular expression for files that this build does not compile; empty: none
#   firn_kernel_settings(files...): sets the properties of those files that have some
function(firn_left_out out)
  set(_left "")
  if(NOT FIRN_HAS_CUDA)
    set(_left "/(kernels/cuda|src/runtime/cuda)/")
  elseif(FIRN_HAS_CUSIM OR NOT FIRN_CUDNN_INCLUDE_DIR)
    # cuDNN is opened at run time, but its headers are needed; without them convolutions are matrix
    # products and attention runs firn's kernels. The simulator has its own.
    set(_left "/kernels/cuda/.*cudnn/")
  endif()
  set(${out} "${_left}" PARENT_SCOPE)
endfunction()

function(firn_kernel_settings)
  set(_cpu ${ARGN})
  list(FILTER _cpu INCLUDE REGEX "/kernels/cpu/")
  set(_cuda ${ARGN})
  list(FILTER _cuda INCLUDE REGEX "/kernels/cuda/.*[.]cu$")
  set(_cuda_host ${ARGN})
  list(FILTER _cuda_host INCLUDE REGEX "/kernels/cuda/.*[.]cpp$|/tests/cusim/")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms in the headers of the compiler's own vector functions: GCC bug 105593.
    set_source_files_properties(${_cpu} PROPERTIES COMPILE_OPTIONS "-Wno-uninitialized;-Wno-maybe-uninitialized")
  endif()
  if(FIRN_HAS_CUSIM)
    _firn_simulated_settings()
  elseif(FIRN_HAS_CUDA)
    _firn_cuda_settings()
  endif()
  if(FIRN_HAS_CUSIM OR (FIRN_HAS_CUDA AND FIRN_CUDNN_INCLUDE_DIR))
    set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/cuda/conv/conv.cpp
      ${PROJECT_SOURCE_DIR}/kernels/cuda/attention/attention.cpp
      ${PROJECT_SOURCE_DIR}/src/environment/cuda.cpp PROPERTIES COMPILE_DEFINITIONS FIRN_HAS_CUDNN)
  endif()
  if(FIRN_SANITIZE)
    # Eigen's decompositions, and hundreds of small kernels: it is compiling them that takes the time.
    set(_unoptimised ${_cpu} ${_cuda})
    list(FILTER _unoptimised INCLUDE REGEX "/kernels/(cpu/(index|linalg)|cuda/elementwise)/")
    set_property(SOURCE ${_unoptimised} APPEND PROPERTY COMPILE_OPTIONS -O0)
  endif()
  if(FIRN_PRECOMPILE)  # kernels have options of their own
    set_source_files_properties(${_cpu} ${_cuda} ${_cuda_host} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# The kernels on the simulator: each .cu file is compiled by the host's compiler.
macro(_firn_simulated_settings)
  set(_fakes ${_cuda_host})
  list(FILTER _fakes INCLUDE REGEX "/tests/cusim/")
  set_source_files_properties(${_fakes} PROPERTIES COMPILE_OPTIONS -O3)  # reference products, in every build type
  if(FIRN_CUSIM_CHECK)
    set_source_files_properties(${_fakes} PROPERTIES COMPILE_DEFINITIONS CUSIM_CHECK)
    # A block of device memory ends where the request for it does, so that accesses past it are seen.
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/runtime/cuda/allocator.cpp PROPERTIES
      COMPILE_DEFINITIONS FIRN_EXACT_BLOCKS)
  endif()
  set_source_files_properties(${_cuda} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${FIRN_CUSIM_KERNEL_OPTIONS}")
  if(FIRN_SANITIZE AND NOT FIRN_CUSIM_CHECK)
    # The build with FIRN_CUSIM_CHECK checks the kernels' loads and stores, more precisely.
    set_property(SOURCE ${_cuda} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=address,alignment)
  endif()
  # Both backends then update a parameter to the same bits, which tests check.
  set(_cpu_optim ${_cpu})
  list(FILTER _cpu_optim INCLUDE REGEX "/kernels/cpu/optim/")
  set_property(SOURCE ${_cuda} ${_cpu_optim} APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=off)
endmacro()

# cuBLASLt and cuDNN are opened at run time, which also searches the folder where the build found them.
macro(_firn_cuda_settings)
  set(_gemm ${PROJECT_SOURCE_DIR}/kernels/cuda/gemm)
  set_source_files_properties(${_gemm}/cublaslt.cpp PROPERTIES
    COMPILE_DEFINITIONS "FIRN_CUBLASLT_PATH=\"${FIRN_CUBLASLT_LIBRARY}\"")
  set_source_files_properties(${_gemm}/cublaslt.cpp ${_gemm}/describe.cpp ${_gemm}/product.cpp PROPERTIES
    INCLUDE_DIRECTORIES "${FIRN_CUBLASLT_INCLUDE_DIR}")
  if(FIRN_CUDNN_INCLUDE_DIR)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/cuda/cudnn/library.cpp PROPERTIES
      COMPILE_DEFINITIONS "FIRN_CUDNN_PATH=\"${FIRN_CUDNN_LIBRARY}\"")
    set(_use_cudnn ${_cuda_host})
    list(FILTER _use_cudnn INCLUDE REGEX "/cudnn/")
    set_source_files_properties(${_use_cudnn} PROPERTIES INCLUDE_DIRECTORIES "${FIRN_CUDNN_INCLUDE_DIR}")
  endif()
endmacro()
