# Installs the headers, the library, a CMake package and a pkg-config file. All of them are
# relocatable: they name each other relative to themselves.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/firn)
set(_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS firn EXPORT firnTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/firn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN *.h)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(FIRN_TOOLS)
  # OPTIONAL: scripts/fashion-mnist builds the library and the sample alone, and what is there can be installed.
  install(TARGETS firn_doctor firn_report RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
endif()

# ---- CMake package -------------------------------------------------------------------------------
get_target_property(_type firn TYPE)
if(_type STREQUAL "STATIC_LIBRARY")
  set(FIRN_STATIC_PACKAGE ON)
else()
  set(FIRN_STATIC_PACKAGE OFF)
endif()
string(REGEX MATCH "^[0-9]+" FIRN_FMT_MAJOR "${fmt_VERSION}")
# By name, not by path: the consumer's compiler finds its own (oneDNN: gomp and pthread, or omp).
set(FIRN_THREAD_LIBRARIES pthread)
if(FIRN_HAS_ONEDNN)
  set(FIRN_THREAD_LIBRARIES ${OpenMP_CXX_LIB_NAMES})
endif()
set(FIRN_CUDA_LIBRARY_DIR "${CUDAToolkit_LIBRARY_DIR}")

# firn::mpi, the component mpi: a consumer finds the MPI that firn was built with by name and folder.
set(FIRN_MPI_LIBRARIES "")
set(FIRN_MPI_FOLDERS "")
if(FIRN_HAS_MPI)
  install(TARGETS firn_mpi EXPORT firnMpiTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT firnMpiTargets NAMESPACE firn:: DESTINATION ${_package_dir})
  if(FIRN_STATIC_PACKAGE)
    foreach(_name ${MPI_CXX_LIB_NAMES})
      if(NOT _name STREQUAL "mpi_cxx")
        get_filename_component(_folder "${MPI_${_name}_LIBRARY}" DIRECTORY)
        list(APPEND FIRN_MPI_LIBRARIES ${_name})
        list(APPEND FIRN_MPI_FOLDERS ${_folder})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES FIRN_MPI_FOLDERS)
  endif()
endif()

# firn::nccl, the component nccl: it opens NCCL at run time, so a consumer needs nothing more.
if(FIRN_HAS_NCCL)
  install(TARGETS firn_nccl EXPORT firnNcclTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT firnNcclTargets NAMESPACE firn:: DESTINATION ${_package_dir})
endif()

install(EXPORT firnTargets NAMESPACE firn:: DESTINATION ${_package_dir})
configure_file(${CMAKE_CURRENT_LIST_DIR}/firnConfig.cmake.in ${PROJECT_BINARY_DIR}/package/firnConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/firnConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/firnConfig.cmake ${PROJECT_BINARY_DIR}/package/firnConfigVersion.cmake
  DESTINATION ${_package_dir})

# ---- pkg-config ----------------------------------------------------------------------------------
file(RELATIVE_PATH FIRN_PC_TO_PREFIX /prefix/${_pkgconfig_dir} /prefix)
string(REGEX REPLACE "/$" "" FIRN_PC_TO_PREFIX "${FIRN_PC_TO_PREFIX}")
set(FIRN_PC_REQUIRES Requires.private)
set(FIRN_PC_LIBS "")
if(FIRN_STATIC_PACKAGE)
  set(FIRN_PC_REQUIRES Requires)  # `pkg-config --libs firn` is all a consumer types
  list(TRANSFORM FIRN_THREAD_LIBRARIES PREPEND -l OUTPUT_VARIABLE _libs)
  if(FIRN_HAS_ONEDNN)
    list(APPEND _libs -ldnnl)
  endif()
  if(FIRN_HAS_PNG)
    list(APPEND _libs -lpng)
  endif()
  if(FIRN_HAS_JPEG)
    list(APPEND _libs -ljpeg)
  endif()
  if(FIRN_HAS_LIBDEFLATE)
    list(APPEND _libs -ldeflate)
  endif()
  if(FIRN_HAS_CUDA)
    list(APPEND _libs -L${FIRN_CUDA_LIBRARY_DIR} -lcudart_static -ldl -lrt)
  endif()
  list(JOIN _libs " " FIRN_PC_LIBS)
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/firn.pc.in ${PROJECT_BINARY_DIR}/package/firn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/firn.pc DESTINATION ${_pkgconfig_dir})
