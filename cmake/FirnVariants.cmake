# One library for every x86-64 CPU: a portable build (FIRN_NATIVE=OFF) compiles the files of
# kernels/cpu for three levels of the x86-64 psABI, and kernels/dispatch.h picks one at run time.
#
# All variants instantiate the same templates and inline functions of the C++ library, Eigen and
# firn's headers. The linker must never take one variant's copy for code that runs on older CPUs. So
# the objects of a variant become one, in which only its own namespace, firn::kernels::cpu::vN, is
# global. That takes GNU ld (2.29 or later) and objcopy. Without them there is one variant.
#
#   firn_find_variants(): sets FIRN_CPU_VARIANTS to the names of the variants, or to nothing
#   firn_add_variants(target files...): compiles the files for each and adds the objects to `target`
set(FIRN_CPU_VARIANTS "")

function(_firn_says_help program text result)
  set(${result} OFF PARENT_SCOPE)
  if(program)
    execute_process(COMMAND ${program} --help OUTPUT_VARIABLE _help ERROR_QUIET)
    string(FIND "${_help}" "${text}" _at)
    if(NOT _at EQUAL -1)
      set(${result} ON PARENT_SCOPE)
    endif()
  endif()
endfunction()

macro(_firn_no_variants why)
  message(STATUS "firn: CPU kernels for the compiler's default instruction set only (${why})")
  return()
endmacro()

function(firn_find_variants)
  if(FIRN_NATIVE OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    return()
  endif()
  if(FIRN_HAS_CUSIM OR FIRN_SANITIZE)
    _firn_no_variants("a build for tests")
  endif()
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-march=x86-64-v4 FIRN_HAS_X86_LEVELS)
  if(NOT FIRN_HAS_X86_LEVELS)
    _firn_no_variants("the compiler does not know -march=x86-64-v4")
  endif()
  foreach(_ld ${CMAKE_LINKER} ld.bfd)
    find_program(_firn_ld NAMES ${_ld} NO_CACHE)
    _firn_says_help("${_firn_ld}" "--force-group-allocation" _known)
    if(_known)
      set(FIRN_LD ${_firn_ld} CACHE FILEPATH "Joins the objects of a variant of the CPU kernels")
      break()
    endif()
    unset(_firn_ld)
  endforeach()
  mark_as_advanced(FIRN_LD)
  _firn_says_help("${CMAKE_OBJCOPY}" "--keep-global-symbol" _known)
  if(NOT FIRN_LD OR NOT _known)
    _firn_no_variants("for one library for all CPUs: apt-get install binutils")
  endif()
  set(FIRN_CPU_VARIANTS v2 v3 v4 PARENT_SCOPE)
  message(STATUS "firn: CPU kernels for x86-64-v2, v3 and v4, chosen at run time")
endfunction()

function(firn_add_variants target)
  foreach(_variant ${FIRN_CPU_VARIANTS})
    set(_objects firn_cpu_${_variant})
    add_library(${_objects} OBJECT ${ARGN})
    target_link_libraries(${_objects} PRIVATE firn_private firn_dependencies)
    target_include_directories(${_objects} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
    target_compile_definitions(${_objects} PRIVATE FIRN_ISA=${_variant})
    target_compile_options(${_objects} PRIVATE -march=x86-64-${_variant} -fno-lto
      $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)  # such symbols would stay global
    if(_variant STREQUAL "v4")
      target_compile_options(${_objects} PRIVATE ${FIRN_AVX512_OPTIONS})
    endif()
    set_target_properties(${_objects} PROPERTIES POSITION_INDEPENDENT_CODE ON
      INTERPROCEDURAL_OPTIMIZATION OFF)
    set(_folder ${CMAKE_CURRENT_BINARY_DIR}/variants/$<CONFIG>)
    add_custom_command(OUTPUT ${_folder}/${_variant}.o
      COMMAND ${CMAKE_COMMAND} -E make_directory ${_folder}
      COMMAND ${FIRN_LD} -r --force-group-allocation -o ${_folder}/${_variant}.all.o
        $<TARGET_OBJECTS:${_objects}>
      COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=_ZN4firn7kernels3cpu2${_variant}*
        --keep-global-symbol=_ZTI* --keep-global-symbol=_ZTS*
        ${_folder}/${_variant}.all.o ${_folder}/${_variant}.o
      COMMAND ${CMAKE_COMMAND} -E rm ${_folder}/${_variant}.all.o
      DEPENDS $<TARGET_OBJECTS:${_objects}>
      COMMENT "Joining the CPU kernels for x86-64-${_variant}"
      COMMAND_EXPAND_LISTS VERBATIM)
    target_sources(${target} PRIVATE ${_folder}/${_variant}.o)
    add_dependencies(${target} ${_objects})  # Makefiles know the files' rules only within a target
    set_property(TARGET ${target} APPEND PROPERTY FIRN_VARIANT_OBJECTS ${_folder}/${_variant}.o)
  endforeach()
endfunction()
