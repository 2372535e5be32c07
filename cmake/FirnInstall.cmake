# Installs the headers, the library, a CMake package and a pkg-config file. All of them are
# relocatable: they name each other relative to themselves. The components are those of the packages
# (FirnPackages.cmake); `cmake --install` without --component installs all of them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/firn)
set(_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# A shared library is of the component RUNTIME; its link without a number, and a static one, of DEVELOPMENT.
macro(_firn_install_library target export runtime development)
  install(TARGETS ${target} EXPORT ${export}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${runtime} NAMELINK_COMPONENT ${development}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${development}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT ${export} NAMESPACE firn:: DESTINATION ${_package_dir} COMPONENT ${development})
endmacro()

_firn_install_library(firn firnTargets library development)
# Headers of modules that are left out stay at home, and with them firn.h and deprecated.h, which include them.
set(_exclude "")
if(FIRN_LEFT_MODULES)
  set(_exclude REGEX "/include/firn/(firn|deprecated)[.]h$" EXCLUDE)
  foreach(_module ${FIRN_LEFT_MODULES})
    firn_module_files(_headers ${_module} h)
    list(FILTER _headers INCLUDE REGEX "^${PROJECT_SOURCE_DIR}/include/")
    foreach(_header ${_headers})
      file(RELATIVE_PATH _header ${PROJECT_SOURCE_DIR} ${_header})
      string(REPLACE "." "[.]" _header ${_header})
      list(APPEND _exclude REGEX "/${_header}$" EXCLUDE)
    endforeach()
  endforeach()
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/firn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN *.h ${_exclude})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT licence)

if(FIRN_TOOLS)
  # OPTIONAL: scripts/fashion-mnist builds the library and the sample alone, and what is there can be installed.
  install(TARGETS firn_doctor firn_report RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools OPTIONAL)
  install(FILES ${PROJECT_SOURCE_DIR}/src/tools/doctor/firn-doctor.1 ${PROJECT_SOURCE_DIR}/src/tools/report/firn-report.1
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
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
  _firn_install_library(firn_mpi firnMpiTargets mpi mpi_development)
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
  _firn_install_library(firn_nccl firnNcclTargets nccl nccl_development)
endif()

configure_file(${CMAKE_CURRENT_LIST_DIR}/firnConfig.cmake.in ${PROJECT_BINARY_DIR}/package/firnConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/firnConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/firnConfig.cmake ${PROJECT_BINARY_DIR}/package/firnConfigVersion.cmake
  DESTINATION ${_package_dir} COMPONENT development)

# ---- pkg-config ----------------------------------------------------------------------------------
file(RELATIVE_PATH FIRN_PC_TO_PREFIX /prefix/${_pkgconfig_dir} /prefix)
string(REGEX REPLACE "/$" "" FIRN_PC_TO_PREFIX "${FIRN_PC_TO_PREFIX}")
set(FIRN_PC_REQUIRES "")  # a shared library brings its own, and no header of theirs is public
set(FIRN_PC_LIBS "")
if(FIRN_STATIC_PACKAGE)
  set(FIRN_PC_REQUIRES "Requires: fmt")  # `pkg-config --libs firn` is all a consumer types
  if(FIRN_HAS_ZLIB)
    string(APPEND FIRN_PC_REQUIRES ", zlib")
  endif()
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
  if(FIRN_HAS_PCRE2)
    list(APPEND _libs -lpcre2-8)
  endif()
  if(FIRN_HAS_UTF8PROC)
    list(APPEND _libs -lutf8proc)
  endif()
  if(FIRN_HAS_CUDA)
    list(APPEND _libs -L${FIRN_CUDA_LIBRARY_DIR} -lcudart_static -ldl -lrt)
  endif()
  list(JOIN _libs " " FIRN_PC_LIBS)
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/firn.pc.in ${PROJECT_BINARY_DIR}/package/firn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/firn.pc DESTINATION ${_pkgconfig_dir} COMPONENT development)
