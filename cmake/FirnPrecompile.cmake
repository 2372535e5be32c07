# Precompiled headers that change nothing but the time: a file gets them only if its own includes reach every one of
# them. So a file that forgets an include does not compile with them either.

# Sets `out` to what FILE includes by name, itself and through headers in its folder and in FOLDERS. A header that is
# found in none of them stands there by the name that it is included by.
function(firn_included out file folders)
  get_property(_known GLOBAL PROPERTY "firn_included ${file}" SET)
  if(NOT _known)
    set_property(GLOBAL PROPERTY "firn_included ${file}" "")  # headers that include each other end here
    set(_all "")
    file(STRINGS ${file} _lines REGEX "^#include \"")
    get_filename_component(_beside ${file} DIRECTORY)
    foreach(_line ${_lines})
      string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" _name "${_line}")
      list(APPEND _all "${_name}")
      foreach(_at ${_beside} ${folders})
        if(EXISTS ${_at}/${_name})
          firn_included(_more ${_at}/${_name} "${folders}")
          list(APPEND _all ${_more})
          break()
        endif()
      endforeach()
    endforeach()
    list(REMOVE_DUPLICATES _all)
    set_property(GLOBAL PROPERTY "firn_included ${file}" "${_all}")
  endif()
  get_property(_all GLOBAL PROPERTY "firn_included ${file}")
  set(${out} "${_all}" PARENT_SCOPE)
endfunction()

# Leaves those sources of TARGET without precompiled headers whose includes do not reach each of NAMES. FOLDERS: where
# includes are looked for besides a file's own folder.
function(firn_precompiled_if_included target names folders)
  get_target_property(_sources ${target} SOURCES)
  foreach(_source ${_sources})
    if(NOT EXISTS ${_source})
      continue()  # made by the build
    endif()
    firn_included(_included ${_source} "${folders}")
    foreach(_name ${names})
      if(NOT _name IN_LIST _included)
        set_source_files_properties(${_source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endforeach()
  endforeach()
endfunction()
