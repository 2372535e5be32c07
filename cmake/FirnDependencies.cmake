# firn_dependencies: what the library is built on, and firn_core_dependencies: what its module core is. Everything comes from the system's package manager,
# and a missing package is named. None of it reaches a public header; cmake/firnConfig.cmake.in finds
# again, for consumers of an installed static library, what has to be linked. FIRN_PACKAGES has what the modules
# that are built need (src/modules.cmake), and nothing else is looked for.
macro(firn_find package apt_name why)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "firn needs ${package} (${why}). Install it: apt-get install ${apt_name}")
  endif()
endmacro()

firn_find(Eigen3 libeigen3-dev "CPU kernels" NO_MODULE)
if(Eigen3_VERSION VERSION_LESS 3.4)  # asked of find_package(), it would refuse Eigen 5
  message(FATAL_ERROR "firn needs Eigen 3.4 or newer, this is ${Eigen3_VERSION} (${Eigen3_DIR}). "
    "Install a newer one, and name its folder: -DEigen3_DIR=...")
endif()
firn_find(fmt libfmt-dev "messages")
add_library(firn_core_dependencies INTERFACE)
target_link_libraries(firn_core_dependencies INTERFACE Eigen3::Eigen fmt::fmt pthread)
target_compile_definitions(firn_core_dependencies INTERFACE
  # Eigen's own threads are off: firn splits the work, so that results do not depend on their number.
  EIGEN_DONT_PARALLELIZE EIGEN_MPL2_ONLY
  # A namespace of our own for Eigen: a consumer may use Eigen too, compiled for another instruction
  # set, and the linker must not take one's functions for the other's.
  Eigen=firn_eigen)

# The packages of other modules. FIRN_LINK_NAME is the target of a package that was found.
add_library(firn_dependencies INTERFACE)
target_link_libraries(firn_dependencies INTERFACE firn_core_dependencies)
function(_firn_package name target)
  target_link_libraries(firn_dependencies INTERFACE ${target})
  set(FIRN_LINK_${name} ${target} PARENT_SCOPE)
  set(FIRN_HAS_${name} ON PARENT_SCOPE)
endfunction()

set(FIRN_HAS_ZLIB OFF)
if("ZLIB" IN_LIST FIRN_PACKAGES)
  firn_find(ZLIB zlib1g-dev "reading .gz data files")
  _firn_package(ZLIB ZLIB::ZLIB)
endif()

# Image files: each library is used if it is there (without it, its files are refused by name).
set(FIRN_HAS_PNG OFF)
set(FIRN_HAS_JPEG OFF)
foreach(_format PNG JPEG)
  if(NOT _format IN_LIST FIRN_PACKAGES)
    continue()
  endif()
  find_package(${_format} QUIET)
  if(${_format}_FOUND)
    _firn_package(${_format} ${_format}::${_format})
  else()
    string(TOLOWER ${_format} _name)
    message(STATUS "firn: reads no ${_format} files (for that: apt-get install lib${_name}-dev)")
  endif()
endforeach()

# Regular expressions and Unicode, for tokenizers: libraries and headers directly, since Debian 12's packages have no
# CMake file for them.
macro(_firn_text_library package header library apt_name why)
  set(FIRN_HAS_${package} OFF)
  if("${package}" IN_LIST FIRN_PACKAGES)
    find_path(${package}_INCLUDE_DIR ${header})
    find_library(${package}_LIBRARY ${library})
    mark_as_advanced(${package}_INCLUDE_DIR ${package}_LIBRARY)
    if(NOT ${package}_INCLUDE_DIR OR NOT ${package}_LIBRARY)
      message(FATAL_ERROR "firn needs ${package} (${why}). Install it: apt-get install ${apt_name}")
    endif()
    add_library(firn_${library} INTERFACE)
    target_include_directories(firn_${library} SYSTEM INTERFACE ${${package}_INCLUDE_DIR})
    target_link_libraries(firn_${library} INTERFACE ${${package}_LIBRARY})
    _firn_package(${package} firn_${library})
  endif()
endmacro()
_firn_text_library(PCRE2 pcre2.h pcre2-8 libpcre2-dev "regular expressions of tokenizers")
_firn_text_library(UTF8PROC utf8proc.h utf8proc libutf8proc-dev "Unicode in tokenizers")

# oneDNN: the library and header directly. Debian's CMake package asks for OpenCL as well, which the
# CPU engine does not need.
set(FIRN_HAS_ONEDNN OFF)
if(FIRN_ONEDNN)
  find_path(DNNL_INCLUDE_DIR dnnl.h)
  find_library(DNNL_LIBRARY dnnl)
  mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
  if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
    include(${CMAKE_CURRENT_LIST_DIR}/FirnOnednn.cmake)
    firn_check_onednn(${DNNL_INCLUDE_DIR})
    set(FIRN_HAS_ONEDNN ON)
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      # GCC's runtime, on which the system's oneDNN runs: with Clang's beside it there would be two.
      set(OpenMP_CXX_LIB_NAMES gomp pthread)
      target_link_libraries(firn_core_dependencies INTERFACE ${OpenMP_CXX_LIB_NAMES})
    else()
      firn_find(OpenMP g++ "telling oneDNN how many threads to use" COMPONENTS CXX)
      target_link_libraries(firn_core_dependencies INTERFACE OpenMP::OpenMP_CXX)
    endif()
    target_include_directories(firn_core_dependencies SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
    target_link_libraries(firn_core_dependencies INTERFACE ${DNNL_LIBRARY})
    target_compile_definitions(firn_core_dependencies INTERFACE FIRN_HAS_ONEDNN)
  endif()
endif()
if(FIRN_HAS_ONEDNN)
  message(STATUS "firn: matrix products through oneDNN ${FIRN_ONEDNN_VERSION} (${DNNL_LIBRARY})")
else()
  message(STATUS "firn: matrix products through Eigen (for oneDNN: apt-get install libdnnl-dev)")
endif()

# libdeflate: the library and header directly, since Debian 12's package has no CMake file.
set(FIRN_HAS_LIBDEFLATE OFF)
if(FIRN_LIBDEFLATE AND "LIBDEFLATE" IN_LIST FIRN_PACKAGES)
  find_path(LIBDEFLATE_INCLUDE_DIR libdeflate.h)
  find_library(LIBDEFLATE_LIBRARY deflate)
  mark_as_advanced(LIBDEFLATE_INCLUDE_DIR LIBDEFLATE_LIBRARY)
  if(LIBDEFLATE_INCLUDE_DIR AND LIBDEFLATE_LIBRARY)
    add_library(firn_libdeflate INTERFACE)
    target_include_directories(firn_libdeflate SYSTEM INTERFACE ${LIBDEFLATE_INCLUDE_DIR})
    target_link_libraries(firn_libdeflate INTERFACE ${LIBDEFLATE_LIBRARY})
    _firn_package(LIBDEFLATE firn_libdeflate)  # src/CMakeLists.txt tells the one file that uses it
  endif()
endif()
if(FIRN_HAS_LIBDEFLATE)
  message(STATUS "firn: checksums through libdeflate (${LIBDEFLATE_LIBRARY})")
elseif("LIBDEFLATE" IN_LIST FIRN_PACKAGES)
  message(STATUS "firn: checksums through zlib (for libdeflate: apt-get install libdeflate-dev)")
endif()

# MPI: of firn::mpi alone, which src/CMakeLists.txt makes if FIRN_HAS_MPI. Without the C++ functions of
# MPI-2, which are gone from the standard.
set(FIRN_HAS_MPI OFF)
if(NOT FIRN_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FIRN_MPI is '${FIRN_MPI}'; it must be AUTO, ON or OFF")
endif()
if(NOT FIRN_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)
  set(_level "${CMAKE_MESSAGE_LOG_LEVEL}")
  set(CMAKE_MESSAGE_LOG_LEVEL NOTICE)  # without MPI, CMake's module says what pkg-config does not know, QUIET or not
  find_package(MPI 3.0 QUIET COMPONENTS CXX)
  set(CMAKE_MESSAGE_LOG_LEVEL "${_level}")
  if(MPI_CXX_FOUND)
    set(FIRN_HAS_MPI ON)
    message(STATUS "firn: ranks as processes through MPI ${MPI_CXX_VERSION} (firn::mpi)")
  elseif(FIRN_MPI STREQUAL "ON")
    message(FATAL_ERROR "firn needs MPI (FIRN_MPI=ON). Install it: apt-get install libopenmpi-dev openmpi-bin")
  else()
    message(STATUS "firn: no MPI, so no firn::mpi (for that: apt-get install libopenmpi-dev openmpi-bin)")
  endif()
endif()
