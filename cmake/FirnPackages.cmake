# Debian packages of firn by CPack: `cmake --preset packages`, build, `cpack -G DEB` in build/packages.
# scripts/check-packages does that and tries them. Packages, each a component of the install rules:
#
#   libfirn0.1       the shared library; the number is that of its SONAME
#   libfirn-dev      headers, CMake package, pkg-config file, the link that -lfirn finds
#   libfirn-mpi0.1   firn::mpi, if the build has MPI: a program that does not want it installs no MPI
#   libfirn-mpi-dev  what a program needs to link firn::mpi
#   firn-tools       firn-doctor and firn-report with their manual pages
#
# They are made of a build that runs on other machines; of another one cpack makes none, and says why.
set(FIRN_PACKAGE_MAINTAINER "" CACHE STRING
  "Who makes packages: 'Name <address>'; empty: the environment variables DEBFULLNAME and DEBEMAIL")
# Below the first revision of Debian's own, so that theirs would replace it.
set(FIRN_PACKAGE_REVISION 0local1 CACHE STRING "The packages' revision of this version of firn")

set(_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(_version ${PROJECT_VERSION}-${FIRN_PACKAGE_REVISION})
set(_in ${CMAKE_CURRENT_LIST_DIR}/packages)
set(_out ${PROJECT_BINARY_DIR}/package)

set(_maintainer "${FIRN_PACKAGE_MAINTAINER}")
if(NOT _maintainer AND NOT "$ENV{DEBEMAIL}" STREQUAL "")
  set(_name "$ENV{DEBFULLNAME}")
  if(_name STREQUAL "")
    set(_name "The firn authors")
  endif()
  set(_maintainer "${_name} <$ENV{DEBEMAIL}>")
elseif(NOT _maintainer)
  set(_maintainer "The firn authors <firn@localhost>")  # no address is known; lintian objects to it
endif()

# ---- What makes no packages ----------------------------------------------------------------------
set(CPACK_FIRN_REFUSED "")
macro(_firn_refuse_packages why)
  list(APPEND CPACK_FIRN_REFUSED "${why}")
endmacro()
if(FIRN_HAS_CUDA)
  _firn_refuse_packages("it has CUDA (FIRN_CUDA), whose libraries Debian does not have")
endif()
if(FIRN_NATIVE)
  _firn_refuse_packages("it is for this machine's CPU (FIRN_NATIVE=ON)")
endif()
if(NOT BUILD_SHARED_LIBS)
  _firn_refuse_packages("its library is static (BUILD_SHARED_LIBS=OFF)")
endif()
if(FIRN_SANITIZE)
  _firn_refuse_packages("it has sanitizers (FIRN_SANITIZE)")
endif()
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")  # from which GNUInstallDirs knows Debian's folder of libraries
  _firn_refuse_packages("its prefix is ${CMAKE_INSTALL_PREFIX}, not /usr (CMAKE_INSTALL_PREFIX)")
endif()
if(NOT CMAKE_SKIP_INSTALL_RPATH)
  _firn_refuse_packages("its programs have a search path of their own (CMAKE_SKIP_INSTALL_RPATH=OFF)")
endif()

# ---- Documents -----------------------------------------------------------------------------------
# The copyright file repeats LICENSE in Debian's format, which calls the MIT licence Expat.
file(READ ${PROJECT_SOURCE_DIR}/LICENSE _licence)
if(NOT _licence MATCHES "^MIT License\n\nCopyright \\(c\\) ([^\n]+)\n\n(.+[^\n])\n*$")
  message(FATAL_ERROR "LICENSE is not the MIT licence that cmake/FirnPackages.cmake knows how to read")
endif()
set(FIRN_COPYRIGHT "${CMAKE_MATCH_1}")
set(FIRN_LICENCE "${CMAKE_MATCH_2}")
string(REPLACE "\n\n" "\n.\n" FIRN_LICENCE "${FIRN_LICENCE}")
string(REPLACE "\n" "\n " FIRN_LICENCE " ${FIRN_LICENCE}")
configure_file(${_in}/copyright.in ${_out}/copyright @ONLY)

# The day of the entry is that of the last commit, so that the same sources make the same packages.
set(_seconds "$ENV{SOURCE_DATE_EPOCH}")
if(_seconds STREQUAL "")
  execute_process(COMMAND git log -1 --format=%ct WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE _seconds OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(_kept "$ENV{SOURCE_DATE_EPOCH}")
if(_seconds MATCHES "^[0-9]+$")
  set(ENV{SOURCE_DATE_EPOCH} ${_seconds})  # the time that string(TIMESTAMP) tells
endif()
string(TIMESTAMP _day "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(ENV{SOURCE_DATE_EPOCH} ${_kept})
file(CONFIGURE OUTPUT ${_out}/changelog.Debian @ONLY CONTENT
"firn (${_version}) unstable; urgency=medium

  * Packages of firn ${PROJECT_VERSION} that CPack made. changelog.gz lists what firn has.

 -- ${_maintainer}  ${_day}
")

# ---- Packages ------------------------------------------------------------------------------------
include(GNUInstallDirs)
set(CPACK_COMPONENTS_ALL "")

# _firn_package(COMPONENT package section depends description): a package of the component's files.
macro(_firn_package component package section depends description)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  string(TOUPPER ${component} _name)
  set(CPACK_DEBIAN_${_name}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${_name}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${_name}_PACKAGE_DEPENDS "${depends}")
  set(CPACK_DEBIAN_${_name}_DESCRIPTION "${description}")
  # Not in an ordinary installation, which has LICENSE.
  install(FILES ${_out}/copyright ${_out}/changelog.Debian DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
    COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
    RENAME changelog COMPONENT ${component} EXCLUDE_FROM_ALL)
endmacro()

# A package of a shared library says what programs that link it depend on, and has the linker's cache renewed.
set(CPACK_FIRN_SHLIBS "")
macro(_firn_library_package component package library)
  set(_line "${library} ${_soversion} ${package} (>= ${PROJECT_VERSION})")
  file(WRITE ${_out}/${component}/shlibs "${_line}\n")
  file(WRITE ${_out}/${component}/triggers "activate-noawait ldconfig\n")
  set(CPACK_DEBIAN_${_name}_PACKAGE_CONTROL_EXTRA "${_out}/${component}/shlibs;${_out}/${component}/triggers")
  list(APPEND CPACK_FIRN_SHLIBS "${_line}")
endmacro()

set(_what "firn is a small deep-learning framework: tensors, reverse-mode autograd,
layers and optimizers. Its optimizer owns the path of a gradient from the loss
to the weight: gradients are added up in FP32, and a step commits wholly or
not at all.")
set(_cpu "This build computes on the
CPU.")
if(FIRN_CPU_VARIANTS)
  set(_cpu "This build computes on the CPU,
by kernels for x86-64-v2, v3 and v4. It needs a CPU of x86-64-v2 (SSE4.2).")
endif()

_firn_package(library libfirn${_soversion} libs "" "deep-learning framework in C++ (shared library)
${_what}
.
This package has the shared library. ${_cpu}")
_firn_library_package(library libfirn${_soversion} libfirn)

_firn_package(development libfirn-dev libdevel "libfirn${_soversion} (= ${_version})"
"deep-learning framework in C++ (development files)
${_what}
.
This package has the headers, the CMake package (find_package(firn)) and the
pkg-config file. No header of another library is behind them.")

if(FIRN_HAS_MPI)
  _firn_package(mpi libfirn-mpi${_soversion} libs "" "deep-learning framework in C++ (ranks as processes)
${_what}
.
This package has the shared library of firn::mpi: ranks are processes that
exchange gradients over MPI.")
  _firn_library_package(mpi libfirn-mpi${_soversion} libfirn_mpi)
  # Even a single rank begins by MPI's programs, and no library asks for them.
  set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
  if("${MPI_CXX_LIBRARIES}" MATCHES "mpich")
    set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS mpich)
  endif()
  _firn_package(mpi_development libfirn-mpi-dev libdevel
"libfirn-dev (= ${_version}), libfirn-mpi${_soversion} (= ${_version})"
"deep-learning framework in C++ (development files of firn::mpi)
${_what}
.
This package has what a program needs to link firn::mpi, by which ranks are
processes over MPI: find_package(firn COMPONENTS mpi).")
endif()

if(FIRN_TOOLS)
  _firn_package(tools firn-tools science "" "deep-learning framework in C++ (programs)
${_what}
.
This package has firn-doctor, which says what firn can use on a machine, what
is missing and how to mend it, and firn-report, which makes a page, text, CSV
or an event file of TensorBoard of the log of a training.")
endif()

# ---- CPack ---------------------------------------------------------------------------------------
set(CPACK_PACKAGE_NAME firn)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each description has a first line of its own
set(CPACK_PACKAGE_CONTACT "${_maintainer}")
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SOURCE firn)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${FIRN_PACKAGE_REVISION})
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
# packages/prepare.cmake runs dpkg-shlibdeps instead: CPack knows no package that is being made, and would
# have its own postinst call ldconfig, which Debian leaves to triggers.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
set(CPACK_FIRN_LIBRARY_DIR ${PROJECT_BINARY_DIR}/src)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS  # whatever the umask is
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PROJECT_CONFIG_FILE ${_in}/refuse.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${_in}/prepare.cmake)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
