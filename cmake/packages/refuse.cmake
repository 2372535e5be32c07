# cpack reads this first: a build that cannot be given to other machines makes no Debian packages.
if(CPACK_GENERATOR STREQUAL "DEB" AND CPACK_FIRN_REFUSED)
  list(JOIN CPACK_FIRN_REFUSED "; " _why)
  message(FATAL_ERROR "firn: no Debian packages of this build: ${_why}. "
    "Make them of a build of their own: cmake --preset packages")
endif()
