# Follows the worked example of CONTRIBUTING.md: copies the sources, makes the edits that the page
# gives, compiles the files that see them, and runs the page's program with the new operation.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/code_blocks.cmake)

file(REMOVE_RECURSE ${WORK})
file(COPY ${SOURCE}/include ${SOURCE}/src ${SOURCE}/kernels ${SOURCE}/cmake DESTINATION ${WORK}/firn)

# ---- Edits: "In `FILE`, before|after the line `TEXT`:" and a block. The line is the first one in
# FILE that begins with TEXT. The last block is the program.
code_blocks(${SOURCE}/CONTRIBUTING.md block)
set(edited "")
foreach(i RANGE 1 ${block_count})
  if(NOT "${block_before_${i}}" MATCHES "In `([^`]+)`, (before|after) the line `([^`]+)`:\n$")
    if(NOT i EQUAL block_count)
      message(FATAL_ERROR "CONTRIBUTING.md says of block ${i} neither where it goes nor is it the program")
    endif()
    file(WRITE ${WORK}/program.cpp "${block_${i}}")
    continue()
  endif()
  set(file ${CMAKE_MATCH_1})
  set(side ${CMAKE_MATCH_2})
  set(line "${CMAKE_MATCH_3}")
  list(APPEND edited ${file})
  file(READ ${WORK}/firn/${file} text)
  string(FIND "${text}" "\n${line}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${file} has no line '${line}'")
  endif()
  math(EXPR at "${at} + 1")
  if(side STREQUAL "after")
    string(SUBSTRING "${text}" ${at} -1 tail)
    string(FIND "${tail}" "\n" length)
    math(EXPR at "${at} + ${length} + 1")
  endif()
  string(SUBSTRING "${text}" 0 ${at} head)
  string(SUBSTRING "${text}" ${at} -1 tail)
  file(WRITE ${WORK}/firn/${file} "${head}${block_${i}}${tail}")
endforeach()
list(REMOVE_DUPLICATES edited)
list(LENGTH edited count)
if(NOT count EQUAL 2)
  message(FATAL_ERROR "the example touches ${count} files, not two: ${edited}")
endif()

# ---- The sources that see the changed formulas, directly or through headers. The other edited file
# only gained declarations.
file(GLOB_RECURSE candidates RELATIVE ${WORK}/firn ${WORK}/firn/src/*.cpp ${WORK}/firn/src/*.h
  ${WORK}/firn/kernels/*.h ${WORK}/firn/kernels/cpu/*.cpp
  ${WORK}/firn/kernels/plan/*.cpp)
list(FILTER candidates EXCLUDE REGEX "^src/runtime/cuda/")
set(changed kernels/math/unary.h)
set(known 0)
list(LENGTH changed count)
while(NOT count EQUAL known)
  set(known ${count})
  foreach(file ${candidates})
    file(STRINGS ${WORK}/firn/${file} includes REGEX "^#include \"")
    foreach(line ${includes})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" name "${line}")
      if(name IN_LIST changed OR "src/${name}" IN_LIST changed)
        list(APPEND changed ${file})
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES changed)
  list(LENGTH changed count)
endwhile()
list(FILTER changed INCLUDE REGEX "[.]cpp$")
message(STATUS "compiled again: ${changed}")

# ---- Build and run.
execute_process(COMMAND_ERROR_IS_FATAL ANY
  COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/worked_example -B ${WORK}/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0
    "-DWORK=${WORK}" "-DSOURCES=${changed}" -DFIRN_LIBRARY=${FIRN_LIBRARY} -DFIRN_NATIVE=${FIRN_NATIVE}
    -DFIRN_ONEDNN=${FIRN_ONEDNN} -DFIRN_HAS_CUDA=${FIRN_HAS_CUDA})
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build --parallel 2 COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/build/example COMMAND_ERROR_IS_FATAL ANY)
