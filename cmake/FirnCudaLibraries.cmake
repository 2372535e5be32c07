# Where cuBLASLt, cuDNN and NCCL are: in the CUDA Toolkit, in the system's folders, or in Python packages
# (NVIDIA's wheels, which PyTorch brings along). Sets, as cache entries that may be given instead,
#
#   FIRN_CUBLASLT_LIBRARY  FIRN_CUBLASLT_INCLUDE_DIR   the library that firn opens at run time, cublasLt.h
#   FIRN_CUDNN_LIBRARY     FIRN_CUDNN_INCLUDE_DIR      libcudnn.so.9, cudnn.h
#   FIRN_NCCL_LIBRARY      FIRN_NCCL_INCLUDE_DIR       libnccl.so.2, nccl.h
#   FIRN_PYTHON_SITE_PACKAGES                          Python's package folders that were looked at
#
# each empty where there is none, and FIRN_CUBLASLT_VERSION, FIRN_CUDNN_VERSION and FIRN_NCCL_VERSION as
# the headers say. Nothing is linked here: the libraries are opened at run time, so that a firn with CUDA
# also starts where they are missing. It also runs as a script (tests/package/cuda_libraries.cmake).

# Asked of Python without importing a package: PyTorch alone takes seconds.
if(NOT DEFINED FIRN_PYTHON_SITE_PACKAGES)
  set(_site "")
  find_program(FIRN_PYTHON NAMES python3 python)
  mark_as_advanced(FIRN_PYTHON)
  if(FIRN_PYTHON)
    execute_process(
      COMMAND ${FIRN_PYTHON} -c "import site, sys, sysconfig
folders = [sysconfig.get_path('purelib'), sysconfig.get_path('platlib')]
folders += getattr(site, 'getsitepackages', list)() + [p for p in sys.path if p.endswith('-packages')]
print(';'.join(dict.fromkeys(folders)))"
      OUTPUT_VARIABLE _site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _failed)
    if(_failed)
      set(_site "")
    endif()
  endif()
  set(FIRN_PYTHON_SITE_PACKAGES "${_site}" CACHE STRING "Python's package folders, searched for cuBLASLt, cuDNN and NCCL")
  mark_as_advanced(FIRN_PYTHON_SITE_PACKAGES)
endif()

# Folders with libraries and folders with headers, in the order of preference.
set(_cuda_lib_folders ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib64)
set(_cuda_include_folders ${CUDAToolkit_INCLUDE_DIRS})
foreach(_prefix ${CMAKE_PREFIX_PATH} ${CMAKE_SYSTEM_PREFIX_PATH})
  list(APPEND _cuda_lib_folders ${_prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE} ${_prefix}/lib64 ${_prefix}/lib)
  list(APPEND _cuda_include_folders ${_prefix}/include/${CMAKE_LIBRARY_ARCHITECTURE} ${_prefix}/include)
endforeach()
foreach(_site ${FIRN_PYTHON_SITE_PACKAGES})
  # nvidia/cublas, nvidia/cudnn; from CUDA 13 on also nvidia/cu13 for what belongs to the toolkit.
  file(GLOB _package_libs LIST_DIRECTORIES ON ${_site}/nvidia/*/lib)
  file(GLOB _package_includes LIST_DIRECTORIES ON ${_site}/nvidia/*/include)
  list(APPEND _cuda_lib_folders ${_package_libs} ${_site}/torch/lib)
  list(APPEND _cuda_include_folders ${_package_includes})
endforeach()

# _firn_first_of(variable file description folders...): the first folder that holds the file, as a
# cache entry of its path, or of the folder where the description begins with "Folder".
function(_firn_first_of variable file description)
  if(${variable})
    return()  # given
  endif()
  set(_found "")
  foreach(_folder ${ARGN})
    if(EXISTS "${_folder}/${file}")
      set(_found "${_folder}/${file}")
      if(description MATCHES "^Folder")
        set(_found "${_folder}")
      endif()
      break()
    endif()
  endforeach()
  set(${variable} "${_found}" CACHE PATH "${description}" FORCE)
  mark_as_advanced(${variable})
endfunction()

# _firn_version(variable header prefix): "9.19.0" from three #defines.
function(_firn_version variable header prefix)
  set(_version "")
  if(EXISTS "${header}")
    foreach(_part MAJOR MINOR PATCH PATCHLEVEL)
      file(STRINGS "${header}" _line REGEX "^#define +${prefix}_${_part} +[0-9]+")
      if(_line MATCHES "${prefix}_${_part} +([0-9]+)")
        list(APPEND _version ${CMAKE_MATCH_1})
      endif()
    endforeach()
    list(JOIN _version "." _version)
  endif()
  set(${variable} "${_version}" PARENT_SCOPE)
endfunction()

# The headers beside a library come first: of one version with it.
macro(_firn_find_library name file header version_header version_prefix)
  _firn_first_of(FIRN_${name}_LIBRARY ${file} "Path of ${file}" ${_cuda_lib_folders})
  set(_beside "")
  if(FIRN_${name}_LIBRARY)
    get_filename_component(_beside "${FIRN_${name}_LIBRARY}" DIRECTORY)
    get_filename_component(_beside ${_beside}/../include ABSOLUTE)
  endif()
  _firn_first_of(FIRN_${name}_INCLUDE_DIR ${header} "Folder of ${header}" ${_beside} ${_cuda_include_folders})
  _firn_version(FIRN_${name}_VERSION "${FIRN_${name}_INCLUDE_DIR}/${version_header}" ${version_prefix})
endmacro()

# cuBLASLt of the toolkit's major version: its functions are those that the headers declare.
set(_major ${CUDAToolkit_VERSION_MAJOR})
_firn_find_library(CUBLASLT libcublasLt.so.${_major} cublasLt.h cublas_api.h CUBLAS_VER)
_firn_find_library(CUDNN libcudnn.so.9 cudnn.h cudnn_version.h CUDNN)
_firn_find_library(NCCL libnccl.so.2 nccl.h nccl.h NCCL)

foreach(_name CUBLASLT CUDNN)
  set(_label cuBLASLt)
  if(_name STREQUAL "CUDNN")
    set(_label cuDNN)
  endif()
  if(FIRN_${_name}_LIBRARY AND FIRN_${_name}_INCLUDE_DIR)
    message(STATUS "firn: ${_label} ${FIRN_${_name}_VERSION} (${FIRN_${_name}_LIBRARY})")
  else()
    message(STATUS "firn: no ${_label} found (library '${FIRN_${_name}_LIBRARY}', headers '${FIRN_${_name}_INCLUDE_DIR}')")
  endif()
endforeach()
