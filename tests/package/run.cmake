# One step of the package tests: cmake -DSTEP=NAME ... -P run.cmake (see CMakeLists.txt).
set(here ${CMAKE_CURRENT_LIST_DIR})
set(prefix ${WORK}/prefix)
set(expected "loss 12, gradient 24\n")

# run(command...): fails with the output where the command fails; sets `output`.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# The program runs and prints what it must.
function(check_program)
  run(${ARGN})
  if(NOT output STREQUAL expected)
    message(FATAL_ERROR "${ARGN} printed '${output}', expected '${expected}'")
  endif()
endfunction()

# Sets `configure` to the command that configures tests/package/PROJECT afresh in WORK/NAME.
macro(configure_command project name)
  file(REMOVE_RECURSE ${WORK}/${name})
  set(configure ${CMAKE_COMMAND} -S ${here}/${project} -B ${WORK}/${name} -G ${GENERATOR}
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${ARGN})
endmacro()

# Configures and builds a consumer, and runs the programs it made.
function(check_consumer project name options programs)
  configure_command(${project} ${name} ${options})
  run(${configure})
  run(${CMAKE_COMMAND} --build ${WORK}/${name} --parallel 2)
  foreach(program ${programs})
    check_program(${WORK}/${name}/${program})
  endforeach()
endfunction()

# The command must fail and its output match every pattern after EXPECT.
function(check_fails)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "COMMAND;EXPECT")
  execute_process(COMMAND ${arg_COMMAND} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(result EQUAL 0)
    message(FATAL_ERROR "succeeded but must fail: ${arg_COMMAND}")
  endif()
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  foreach(pattern ${arg_EXPECT})
    if(NOT output MATCHES "${pattern}")
      message(FATAL_ERROR "no '${pattern}' in: ${output}")
    endif()
  endforeach()
endfunction()

# The names (mangled) that `nm OPTIONS` lists, written to `symbols`.
function(read_symbols)
  execute_process(COMMAND ${NM} ${ARGN} OUTPUT_FILE ${WORK}/symbols.txt ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(STRINGS ${WORK}/symbols.txt symbols REGEX " [A-Zu] ")
  list(LENGTH symbols count)
  if(count LESS 100)
    message(FATAL_ERROR "only ${count} symbols: the check would be empty")
  endif()
  set(symbols "${symbols}" PARENT_SCOPE)
endfunction()

# The last two: the lock of a named critical section, and what nvcc makes of a kernel.
set(firn_symbol "_Z(T[ISVTWH]|Thn?[0-9]+_|Tvn?[0-9]+_n?[0-9]+_|GV)?N[KO]*4firn|_Z[0-9]+__device_stub__ZN4firn")

file(MAKE_DIRECTORY ${WORK})
if(STEP STREQUAL "install")
  file(REMOVE_RECURSE ${prefix})
  run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${prefix})
  foreach(file include/firn/firn.h ${LIBDIR}/cmake/firn/firnConfig.cmake ${LIBDIR}/pkgconfig/firn.pc
          share/doc/firn/LICENSE)
    if(NOT EXISTS ${prefix}/${file})
      message(FATAL_ERROR "not installed: ${file}")
    endif()
  endforeach()
  # Nothing in the package points back at this machine's source or build folder.
  file(GLOB_RECURSE files ${prefix}/${LIBDIR}/*.cmake ${prefix}/${LIBDIR}/*.pc)
  foreach(file ${files})
    file(READ ${file} text)
    foreach(path ${SOURCE} ${BUILD} ${prefix})
      string(FIND "${text}" "${path}" at)
      if(NOT at EQUAL -1)
        message(FATAL_ERROR "${file} names ${path}")
      endif()
    endforeach()
  endforeach()

elseif(STEP STREQUAL "find_package")
  check_consumer(find_package find_package -DCMAKE_PREFIX_PATH=${prefix} "consumer;forms;modules;kernel;whole")

elseif(STEP STREQUAL "find_package_twice")
  check_consumer(find_twice find_twice -DCMAKE_PREFIX_PATH=${prefix}
    "consumer;first/first;second/second")

elseif(STEP STREQUAL "component_mpi")
  configure_command(find_mpi find_no_component -DCMAKE_PREFIX_PATH=${prefix} -DCOMPONENT=gossip)
  check_fails(COMMAND ${configure} EXPECT "firn needs a component 'gossip', which it does not have")
  configure_command(find_mpi find_mpi -DCMAKE_PREFIX_PATH=${prefix})
  if(NOT FIRN_HAS_MPI)
    check_fails(COMMAND ${configure} EXPECT "firn needs to be built with MPI")
    message("SKIPPED: firn was built without MPI, and the package says so")
    return()
  endif()
  run(${configure})
  run(${CMAKE_COMMAND} --build ${WORK}/find_mpi --parallel 2)
  # One rank by itself, without mpirun.
  run(${CMAKE_COMMAND} -E env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ${WORK}/find_mpi/ranks)
  if(NOT output STREQUAL "rank 0 of 1 over mpi: 3\n")
    message(FATAL_ERROR "ranks printed '${output}'")
  endif()

elseif(STEP STREQUAL "component_nccl")
  configure_command(find_nccl find_nccl -DCMAKE_PREFIX_PATH=${prefix})
  if(NOT FIRN_HAS_NCCL)
    check_fails(COMMAND ${configure} EXPECT "firn needs to be built with CUDA and NCCL")
    message("SKIPPED: firn was built without NCCL, and the package says so")
    return()
  endif()
  run(${configure})
  run(${CMAKE_COMMAND} --build ${WORK}/find_nccl --parallel 2)
  run(${WORK}/find_nccl/devices)
  if(NOT output MATCHES " ranks over nccl: [0-9]+\n$|cuda:0 cannot be used")
    message(FATAL_ERROR "devices printed '${output}'")
  endif()

elseif(STEP STREQUAL "moved_prefix")
  file(REMOVE_RECURSE ${WORK}/first-home "${WORK}/second home")
  run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${WORK}/first-home)
  file(RENAME ${WORK}/first-home "${WORK}/second home")
  check_consumer(find_package moved "-DCMAKE_PREFIX_PATH=${WORK}/second home" "consumer")

elseif(STEP STREQUAL "pkg-config")
  find_program(PKG_CONFIG pkg-config)
  if(NOT PKG_CONFIG)
    message("SKIPPED: no pkg-config on this machine (apt-get install pkgconf)")
    return()
  endif()
  set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
  run(${PKG_CONFIG} --cflags --libs firn)
  separate_arguments(flags UNIX_COMMAND "${output}")
  run(${CMAKE_CXX_COMPILER} -std=c++20 ${here}/program/consumer.cpp ${flags} -o ${WORK}/with-pkg-config)
  check_program(${WORK}/with-pkg-config)
  run(${PKG_CONFIG} --modversion firn)
  file(STRINGS ${prefix}/${LIBDIR}/cmake/firn/firnConfigVersion.cmake version REGEX "set.PACKAGE_VERSION \"")
  string(STRIP "${output}" output)
  if(NOT version MATCHES "\"${output}\"")
    message(FATAL_ERROR "pkg-config says ${output}, the CMake package ${version}")
  endif()

elseif(STEP STREQUAL "add_subdirectory")
  # Unoptimised: the build is what is tested here, and the library is compiled a second time.
  check_consumer(subdirectory subdirectory
    "-DFIRN_SOURCE_DIR=${SOURCE};-DFIRN_CUDA=OFF;-DCMAKE_BUILD_TYPE=Debug;-DCMAKE_CXX_FLAGS_DEBUG=-O0" "consumer")

elseif(STEP STREQUAL "kernels_of_every_CPU")
  # A portable library (FIRN_NATIVE=OFF) under each instruction set, twice.
  foreach(isa base avx2 avx512 avx512bf16 amx)
    set(command ${CMAKE_COMMAND} -E env FIRN_CPU_ISA=${isa} ${WORK}/subdirectory/every_cpu)
    execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE first ERROR_VARIABLE first)
    if(NOT isa STREQUAL "base" AND result EQUAL 2 AND first MATCHES "which this CPU lacks")
      message(STATUS "this CPU lacks ${isa}")
      continue()
    endif()
    run(${command})
    if(NOT output STREQUAL first)
      message(FATAL_ERROR "two runs with ${isa} differ:\n${first}${output}")
    endif()
    message(STATUS "${output}")
  endforeach()
  check_fails(COMMAND ${CMAKE_COMMAND} -E env FIRN_CPU_ISA=fastest ${WORK}/subdirectory/every_cpu
    EXPECT "FIRN_CPU_ISA. is 'fastest'")

elseif(STEP STREQUAL "kernels_of_a_CPU_stay_apart")
  # Code for a newer CPU must not replace a function of the same name that older CPUs run. So the
  # object of a variant defines nothing global but its own namespace and type information, which is
  # data. Nothing else that can be written may be in it: other variants would have another copy.
  file(GLOB objects ${WORK}/subdirectory/firn/src/variants/*/v?.o)
  if(NOT objects)
    message("SKIPPED: one variant of the kernels only")
    return()
  endif()
  foreach(object ${objects})
    get_filename_component(variant ${object} NAME_WE)
    read_symbols(-g --defined-only ${object})
    list(FILTER symbols EXCLUDE REGEX " (_ZN4firn7kernels3cpu2${variant}|_ZT[IS])")
    execute_process(COMMAND ${NM} --format=sysv --defined-only ${object}
      OUTPUT_VARIABLE all COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE ";" "," all "${all}")
    string(REGEX MATCHALL "[^\n]*[|][.](data|bss|tdata|tbss)[^\n]*" writable "${all}")
    # Constants that hold addresses, empty constants of Eigen, and the caches' sizes that it measures.
    list(FILTER writable EXCLUDE REGEX
      "4firn7kernels3cpu2${variant}|[|][.]data[.]rel[.]ro|^DW[.]ref[.]|^_ZN10firn_eigenL|20manage_caching_sizes")
    if(symbols OR writable)
      list(JOIN symbols "\n" symbols)
      list(JOIN writable "\n" writable)
      message(FATAL_ERROR "${variant}.o defines for all:\n${symbols}\nand has data of its own:\n${writable}")
    endif()
  endforeach()

elseif(STEP STREQUAL "missing_packages_are_named")
  set(cases fmt=libfmt-dev ZLIB=zlib1g-dev)
  if(FIRN_HAS_PNG)
    list(APPEND cases PNG=libpng-dev)
  endif()
  if(FIRN_HAS_JPEG)
    list(APPEND cases JPEG=libjpeg-dev)
  endif()
  foreach(case ${cases})
    string(REPLACE "=" ";" case ${case})
    list(POP_FRONT case package apt_name)
    configure_command(find_package missing -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
    check_fails(COMMAND ${configure} EXPECT "firn needs.*${apt_name}")
  endforeach()
  foreach(case Eigen3=libeigen3-dev fmt=libfmt-dev ZLIB=zlib1g-dev Catch2=catch2)
    string(REPLACE "=" ";" case ${case})
    list(POP_FRONT case package apt_name)
    file(REMOVE_RECURSE ${WORK}/missing)
    check_fails(
      COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/missing -G ${GENERATOR} -DFIRN_CUDA=OFF
        -DFIRN_SAMPLES=OFF -DFIRN_TOOLS=OFF -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON
      EXPECT "firn needs ${package} .*apt-get install ${apt_name}")
  endforeach()

elseif(STEP STREQUAL "symbols_are_firn's_own")
  read_symbols(-g --defined-only ${LIBRARY})
  # Strong definitions would collide with a consumer's; weak ones (templates) may be of the standard
  # library and fmt, whose names carry their version, but not of Eigen (src/CMakeLists.txt).
  set(strong ${symbols})
  list(FILTER strong EXCLUDE REGEX " [WVu] ")
  list(FILTER strong EXCLUDE REGEX " (${firn_symbol})")
  set(eigen ${symbols})
  list(FILTER eigen INCLUDE REGEX "N5Eigen")
  if(strong OR eigen)
    list(JOIN strong "\n" strong)
    list(LENGTH eigen eigen)
    message(FATAL_ERROR "symbols outside namespace firn, of Eigen ${eigen}; strong:\n${strong}")
  endif()

elseif(STEP STREQUAL "shared_library_exports_firn_only")
  file(GLOB library ${BUILD}/tests/package/libfirn_shared.so)
  read_symbols(-D --defined-only ${library})
  list(FILTER symbols EXCLUDE REGEX " (${firn_symbol})")
  if(symbols)
    list(JOIN symbols "\n" symbols)
    message(FATAL_ERROR "exported, but not firn's:\n${symbols}")
  endif()
  run(${CMAKE_CXX_COMPILER} -std=c++20 -I${SOURCE}/include ${here}/program/consumer.cpp ${library}
    -Wl,-rpath,${BUILD}/tests/package -o ${WORK}/with-shared)
  check_program(${WORK}/with-shared)

else()
  message(FATAL_ERROR "no step '${STEP}'")
endif()
