# cpack runs this when the files of all packages lie in their folders, before it packs them.
find_program(_gzip gzip REQUIRED)
find_program(_shlibdeps dpkg-shlibdeps REQUIRED)

# dpkg-shlibdeps runs in a folder of its own. There it reads what to depend on for libraries of packages
# that are not installed, which are these packages' own.
set(_work ${CPACK_TOPLEVEL_DIRECTORY}/shlibdeps)
file(WRITE ${_work}/debian/control "")
list(JOIN CPACK_FIRN_SHLIBS "\n" _lines)
file(WRITE ${_work}/debian/shlibs.local "${_lines}\n")

foreach(_component ${CPACK_COMPONENTS_ALL})
  set(_package ${CPACK_TEMPORARY_DIRECTORY}/${_component})
  # Debian wants manual pages and changelogs compressed: as small as it gets, without name and time.
  file(GLOB_RECURSE _files ${_package}/usr/share/man/*.1
    ${_package}/usr/share/doc/*/changelog ${_package}/usr/share/doc/*/changelog.Debian)
  foreach(_file ${_files})
    execute_process(COMMAND ${_gzip} -9n ${_file} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()

  # Programs and shared libraries depend on the packages of the libraries that they need.
  file(GLOB _files ${_package}/usr/bin/* ${_package}/usr/lib/*/*.so.*)
  if(_files)
    execute_process(COMMAND ${_shlibdeps} -l${CPACK_FIRN_LIBRARY_DIR} -O ${_files} WORKING_DIRECTORY ${_work}
      OUTPUT_VARIABLE _depends ERROR_VARIABLE _says RESULT_VARIABLE _result OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT _result EQUAL 0 OR NOT _depends MATCHES "^shlibs:Depends=(.+)$")
      message(FATAL_ERROR "firn: dpkg-shlibdeps does not know the dependencies of ${_component}: ${_depends}${_says}")
    endif()
    string(TOUPPER ${_component} _name)
    set(CPACK_DEBIAN_${_name}_PACKAGE_DEPENDS "${CMAKE_MATCH_1}")
  endif()
endforeach()
