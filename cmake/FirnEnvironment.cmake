# What environment() says of the build (src/environment): the revision, looked up at every build, and
# what CMake alone knows, as definitions of single files.
#
#   firn_describe_build(target): adds them to the module that has src/environment
function(firn_describe_build target)
  set(_folder ${PROJECT_SOURCE_DIR}/src/environment)
  set(_revision ${CMAKE_CURRENT_BINARY_DIR}/revision.cpp)
  add_custom_target(firn_revision
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DFILE=${_revision}
            -P ${PROJECT_SOURCE_DIR}/cmake/FirnRevision.cmake
    BYPRODUCTS ${_revision}
    COMMENT "Looking up the revision" VERBATIM)
  target_sources(${target} PRIVATE ${_revision})
  add_dependencies(${target} firn_revision)

  set(_native $<BOOL:${FIRN_NATIVE}>)
  set(_shared $<BOOL:${BUILD_SHARED_LIBS}>)
  string(REPLACE ";" "," _sanitize "${FIRN_SANITIZE}")
  set_property(SOURCE ${_folder}/build.cpp APPEND PROPERTY COMPILE_DEFINITIONS
    "FIRN_BUILD_TYPE=\"$<CONFIG>\"" FIRN_BUILT_NATIVE=${_native}
    FIRN_BUILT_SHARED=${_shared} "FIRN_BUILT_SANITIZERS=\"${_sanitize}\"")

  # Architectures: the words that stand for several, as CMake takes them.
  set(_architectures "${CMAKE_CUDA_ARCHITECTURES}")
  if(FIRN_HAS_CUSIM)
    set(_architectures "")
  elseif(_architectures STREQUAL "native" AND CMAKE_CUDA_ARCHITECTURES_NATIVE)
    set(_architectures "${CMAKE_CUDA_ARCHITECTURES_NATIVE}")
  elseif(_architectures MATCHES "^all" AND CMAKE_CUDA_ARCHITECTURES_ALL)
    set(_architectures "${CMAKE_CUDA_ARCHITECTURES_ALL}")
    if(CMAKE_CUDA_ARCHITECTURES STREQUAL "all-major")
      set(_architectures "${CMAKE_CUDA_ARCHITECTURES_ALL_MAJOR}")
    endif()
    list(POP_BACK _architectures _last)
    list(TRANSFORM _architectures REPLACE "^([0-9]+)$" "\\1-real")
    list(APPEND _architectures ${_last})
  endif()
  string(REPLACE ";" "," _architectures "${_architectures}")
  set_property(SOURCE ${_folder}/cuda.cpp APPEND PROPERTY COMPILE_DEFINITIONS
    "FIRN_CUDA_ARCHITECTURES=\"${_architectures}\"")

  foreach(_name LIBDEFLATE PNG JPEG)
    if(FIRN_HAS_${_name})
      set_property(SOURCE ${_folder}/libraries.cpp APPEND PROPERTY COMPILE_DEFINITIONS FIRN_HAS_${_name})
    endif()
  endforeach()

  if(FIRN_HAS_MPI)
    _firn_mpi_version(_version)
    set(_library "")
    foreach(_name ${MPI_CXX_LIB_NAMES})
      if(NOT _library AND NOT _name STREQUAL "mpi_cxx")
        _firn_runtime_file("${MPI_${_name}_LIBRARY}" _library)
      endif()
    endforeach()
    set_property(SOURCE ${_folder}/ranks.cpp APPEND PROPERTY COMPILE_DEFINITIONS
      FIRN_HAS_MPI "FIRN_MPI_VERSION=\"${_version}\"" "FIRN_MPI_PATH=\"${_library}\"")
  endif()
  if(FIRN_HAS_NCCL)
    set_property(SOURCE ${_folder}/ranks.cpp APPEND PROPERTY COMPILE_DEFINITIONS
      FIRN_HAS_NCCL "FIRN_NCCL_PATH=\"${FIRN_NCCL_LIBRARY}\"" "FIRN_NCCL_VERSION=\"${FIRN_NCCL_VERSION}\"")
  endif()
endfunction()

# The file that programs open, libmpi.so.40, which is there without the package for building, too.
function(_firn_runtime_file library variable)
  set(${variable} "${library}" PARENT_SCOPE)
  get_filename_component(_file "${library}" REALPATH)
  string(REGEX REPLACE "([.]so[.][0-9]+)[.][0-9.]+$" "\\1" _file "${_file}")
  if(_file MATCHES "[.]so[.][0-9]+$" AND EXISTS "${_file}")
    set(${variable} "${_file}" PARENT_SCOPE)
  endif()
endfunction()

# "Open MPI 4.1.4", as mpi.h says; else the version of the standard.
function(_firn_mpi_version variable)
  set(_version "MPI ${MPI_CXX_VERSION}")
  foreach(_folder ${MPI_CXX_INCLUDE_DIRS})
    if(EXISTS ${_folder}/mpi.h)
      file(STRINGS ${_folder}/mpi.h _lines
        REGEX "^#define +(OMPI_(MAJOR|MINOR|RELEASE)_VERSION +[0-9]+|MPICH_VERSION +\")")
      if(_lines MATCHES "OMPI_MAJOR_VERSION +([0-9]+)")
        set(_version "Open MPI ${CMAKE_MATCH_1}")
        foreach(_part MINOR RELEASE)
          if(_lines MATCHES "OMPI_${_part}_VERSION +([0-9]+)")
            string(APPEND _version ".${CMAKE_MATCH_1}")
          endif()
        endforeach()
      elseif(_lines MATCHES "MPICH_VERSION +\"([^\"]+)\"")
        set(_version "MPICH ${CMAKE_MATCH_1}")
      endif()
      break()
    endif()
  endforeach()
  set(${variable} "${_version}" PARENT_SCOPE)
endfunction()
