# Writes HEADER with firn's VERSION and the revision of the tree at SOURCE; leaves it alone where
# nothing changed, so that nothing is rebuilt.
set(_revision "")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --tags
    OUTPUT_VARIABLE _revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(_revision STREQUAL "")
  set(_revision unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#pragma once
#define FIRN_SAMPLE_VERSION \"${VERSION}\"
#define FIRN_SAMPLE_REVISION \"${_revision}\"
" @ONLY)
