# cmake/FirnOnednn.cmake on made-up headers: versions 2 and 3 are taken, in both places of the header,
# and others are refused with what to do.
#   cmake -DSOURCE=... -DWORK=... -P onednn_version.cmake
# With -DFOLDER=... it checks the headers there alone.
include(${SOURCE}/cmake/FirnOnednn.cmake)
if(FOLDER)
  firn_check_onednn(${FOLDER})
  return()
endif()
file(REMOVE_RECURSE ${WORK})

function(make_headers folder header major minor patch)
  file(WRITE ${folder}/${header}
    "#define DNNL_VERSION_MAJOR ${major}\n\n/// Minor version\n#define DNNL_VERSION_MINOR ${minor}\n"
    "#define DNNL_VERSION_PATCH ${patch}\n#define DNNL_VERSION_HASH \"N/A\"\n")
endfunction()
function(expect folder version)
  firn_check_onednn(${folder})
  if(NOT FIRN_ONEDNN_VERSION STREQUAL version)
    message(FATAL_ERROR "${folder} is '${FIRN_ONEDNN_VERSION}', expected '${version}'")
  endif()
endfunction()
function(expect_refusal folder version)
  execute_process(COMMAND ${CMAKE_COMMAND} -DSOURCE=${SOURCE} -DFOLDER=${folder} -P ${CMAKE_CURRENT_LIST_FILE}
    ERROR_VARIABLE said RESULT_VARIABLE result OUTPUT_QUIET)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  foreach(_words "firn uses oneDNN 2 or 3" "is ${version}." "-DFIRN_ONEDNN=OFF")
    string(FIND "${said}" "${_words}" _at)
    if(result EQUAL 0 OR _at LESS 0)
      message(FATAL_ERROR "${folder}: no '${_words}' in: ${said}")
    endif()
  endforeach()
endfunction()

make_headers(${WORK}/old dnnl_version.h 2 6 3)
expect(${WORK}/old 2.6.3)
make_headers(${WORK}/new oneapi/dnnl/dnnl_version.h 3 7 1)
file(WRITE ${WORK}/new/dnnl_version.h "#include \"oneapi/dnnl/dnnl_version.h\"\n")
expect(${WORK}/new 3.7.1)
make_headers(${WORK}/next oneapi/dnnl/dnnl_version.h 4 0 0)
expect_refusal(${WORK}/next 4.0.0)
make_headers(${WORK}/first dnnl_version.h 1 96 0)
expect_refusal(${WORK}/first 1.96.0)
file(WRITE ${WORK}/none/dnnl.h "")
expect_refusal(${WORK}/none unknown)
