# Everything comes from the system's package manager; a missing package is named.
function(firn_find package apt_name why)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "firn needs ${package} (${why}). Install it: apt-get install ${apt_name}")
  endif()
endfunction()

firn_find(Eigen3 libeigen3-dev "CPU kernels" 3.4 NO_MODULE)
firn_find(fmt libfmt-dev "messages")
firn_find(ZLIB zlib1g-dev "reading .gz data files")
firn_find(OpenMP g++ "CPU threads" COMPONENTS CXX)
firn_find(Threads libc6-dev "threads")

# oneDNN: the library and header directly. Debian's CMake package asks for OpenCL as well, which the
# CPU engine does not need.
if(FIRN_ONEDNN)
  find_path(DNNL_INCLUDE_DIR dnnl.h)
  find_library(DNNL_LIBRARY dnnl)
  mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
endif()
if(FIRN_ONEDNN AND DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
  set(FIRN_HAS_ONEDNN ON)
  message(STATUS "firn: matrix products through oneDNN (${DNNL_LIBRARY})")
else()
  set(FIRN_HAS_ONEDNN OFF)
  message(STATUS "firn: matrix products through Eigen (for oneDNN: apt-get install libdnnl-dev)")
endif()
