# Writes FILE, the definitions of revision.h: firn's VERSION and the revision of the tree at SOURCE.
# Leaves FILE alone if nothing changed, so that nothing is rebuilt.
set(_revision "")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --tags
    OUTPUT_VARIABLE _revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(_revision STREQUAL "")
  set(_revision unknown)
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT "#include \"revision.h\"
const char* const sample::kVersion = \"${VERSION}\";
const char* const sample::kRevision = \"${_revision}\";
" @ONLY)
