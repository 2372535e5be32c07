# firn_check_onednn(folder): sets FIRN_ONEDNN_VERSION to the version of oneDNN whose headers are in the
# folder, or ends the configuration if firn does not know its interface
# (kernels/cpu/gemm/onednn_api.h).
function(firn_check_onednn folder)
  set(_version "")
  foreach(_header oneapi/dnnl/dnnl_version.h dnnl_version.h)
    if(EXISTS ${folder}/${_header} AND _version STREQUAL "")
      file(STRINGS ${folder}/${_header} _lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
      foreach(_part MAJOR MINOR PATCH)
        if(_lines MATCHES "DNNL_VERSION_${_part} +([0-9]+)")
          list(APPEND _version ${CMAKE_MATCH_1})
        endif()
      endforeach()
    endif()
  endforeach()
  list(JOIN _version . _version)
  if(NOT _version MATCHES "^[23]\\.")
    if(_version STREQUAL "")
      set(_version "unknown")
    endif()
    message(FATAL_ERROR "firn uses oneDNN 2 or 3, and the version in ${folder} is ${_version}. Name the folder "
      "of another's headers with -DDNNL_INCLUDE_DIR=... and its library with -DDNNL_LIBRARY=..., or compute "
      "with Eigen: -DFIRN_ONEDNN=OFF")
  endif()
  set(FIRN_ONEDNN_VERSION ${_version} PARENT_SCOPE)
endfunction()
