# firn_private: what firn's own targets (library, tests, samples, benchmarks) compile with, and
# consumers do not.
add_library(firn_private INTERFACE)
target_compile_features(firn_private INTERFACE cxx_std_20)

set(_cxx "$<COMPILE_LANGUAGE:CXX>")
set(_cuda "$<COMPILE_LANGUAGE:CUDA>")

target_compile_options(firn_private INTERFACE
  $<${_cxx}:-Wall> $<${_cxx}:-Wextra> $<${_cxx}:-Wpedantic> $<${_cxx}:-Wshadow> $<${_cxx}:-Wnon-virtual-dtor>
  $<${_cuda}:-std=c++20>  # CMake 3.25 does not know it for nvcc: CUDA_STANDARD 20 would do nothing
  $<${_cuda}:-Xcompiler=-Wall,-Wextra>
  # Never -ffast-math: it makes isfinite(inf) true. These two keep IEEE results and drop errno only.
  $<${_cxx}:-fno-math-errno> $<${_cxx}:-fno-trapping-math>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(firn_private INTERFACE $<${_cxx}:-Wno-restrict>)  # false alarms: GCC bug 105651
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(firn_private INTERFACE $<${_cxx}:-Wno-unknown-pragmas>)  # GCC's ivdep
endif()
if(FIRN_WERROR)
  target_compile_options(firn_private INTERFACE $<${_cxx}:-Werror> $<${_cuda}:-Werror=all-warnings>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Tuned for a Zen, GCC leaves out multiply-adds where a loop has one chain of them, and not where it has several. So
  # a row of a product would have other bits by itself than among others (GCC 12 for Zen 2 and 3, GCC 13 for Zen 4).
  target_compile_options(firn_private INTERFACE $<${_cxx}:--param=avoid-fma-max-bits=0>)
endif()
set(FIRN_AVX512_OPTIONS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13
   AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # GCC 12 with AVX-512 moves constants 64 bytes at a time and gets some wrong: {3, 3, 3, 0} as
  # 64-bit integers becomes {3, 3, 3, 3}. tests/base/compiler.cpp watches it.
  set(FIRN_AVX512_OPTIONS -mmove-max=128 -mstore-max=128)
endif()
if(FIRN_NATIVE AND CMAKE_CROSSCOMPILING)
  message(FATAL_ERROR "FIRN_NATIVE=ON means the CPU of the machine that compiles, and this build is for another: turn it off")
endif()
if(FIRN_NATIVE)
  target_compile_options(firn_private INTERFACE $<${_cxx}:-march=native>)
  foreach(_option ${FIRN_AVX512_OPTIONS})
    target_compile_options(firn_private INTERFACE $<${_cxx}:${_option}>)
  endforeach()
endif()
if(FIRN_SANITIZE)
  # AddressSanitizer finds what null, vptr and object-size find; they cost a third of the time to compile.
  target_compile_options(firn_private INTERFACE
    $<${_cxx}:-fsanitize=${FIRN_SANITIZE}> $<${_cxx}:-fno-sanitize=null,vptr,object-size>
    $<${_cxx}:-fno-omit-frame-pointer> $<${_cxx}:-fno-sanitize-recover=all>)
  # GCC's names, which Clang has from version 20 on.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND FIRN_SANITIZE MATCHES "address")
    target_compile_definitions(firn_private INTERFACE __SANITIZE_ADDRESS__=1)
  elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND FIRN_SANITIZE MATCHES "thread")
    target_compile_definitions(firn_private INTERFACE __SANITIZE_THREAD__=1)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # its manual: the sanitizers' code raises false alarms
    target_compile_options(firn_private INTERFACE $<${_cxx}:-Wno-maybe-uninitialized>)
  endif()
  target_link_options(firn_private INTERFACE -fsanitize=${FIRN_SANITIZE})
endif()
# How a shared library of firn is linked: it exports firn's names alone, and is not unloaded, since threads, handlers
# of fork() and thread-local objects would outlive it. -Xlinker, since -Wl, would cut a path at its commas.
function(firn_shared_options target)
  target_link_options(${target} PRIVATE
    "SHELL:-Xlinker \"--version-script=${firn_SOURCE_DIR}/cmake/firn.map\"" LINKER:-z,nodelete)
endfunction()
find_program(FIRN_LLD ld.lld)
mark_as_advanced(FIRN_LLD)
if(FIRN_LLD AND PROJECT_IS_TOP_LEVEL)
  # Programs alone: the shared library keeps the system's linker, and nvcc does not know the option.
  target_link_options(firn_private INTERFACE
    $<$<AND:$<LINK_LANGUAGE:CXX>,$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>>:-fuse-ld=lld>)
endif()
if(FIRN_PRECOMPILE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(firn_private INTERFACE "SHELL:-Xclang -fno-pch-timestamp")  # so that ccache can keep them
endif()
