# Run at every build: writes FILE, the definition of firn::revision(), with the revision of the sources
# at SOURCE. Leaves FILE alone if nothing changed, so that nothing is rebuilt.
set(_revision "")
find_program(GIT git)
if(GIT)
  # A copy inside of another project's repository has no revision of its own.
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-cdup
    OUTPUT_VARIABLE _above OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _failed)
  if(_failed EQUAL 0 AND _above STREQUAL "")
    execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --tags
      OUTPUT_VARIABLE _revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(_revision STREQUAL "")
  set(_revision unknown)
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT "#include \"firn/environment.h\"
const char* firn::revision() noexcept { return \"${_revision}\"; }
" @ONLY)
