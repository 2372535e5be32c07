// What firn-doctor says, to the letter, of machines that are made up.
#include "tools/doctor/diagnose.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "doctor/planted.h"
#include "support/catch.h"

namespace doctor::test {
namespace {

/// Drops the line break after R"(.
std::string text(const char* raw) { return raw + 1; }

}  // namespace

TEST_CASE("doctor: a machine that has everything", "[host]") {
  const auto all = diagnose(planted());
  CHECK(to_text(all) == text(R"(
Build
  ok       firn 0.1.0 (abc1234), Release, g++ 12.2.0, for the CPU of the machine that built it (FIRN_NATIVE=ON)
  ok       Linux 6.1.0

CPU
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  ok       kernels for avx512, units up to amx; products: f32 by oneDNN, bf16 by AMX bf16, f16 by AMX bf16 in two parts
  ok       16-bit products run on a unit of the CPU: bf16 and f16 save time and memory
  ok       8 threads on 8 CPUs

Memory
  ok       32 GiB, 24 GiB available

GPU
  ok       CUDA 13.0 for architectures 80-real, 90; the driver 580.65.06 knows CUDA up to 13.0
  ok       cuda:0: NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80 GiB
  ok       cuBLASLt 130100 (libcublasLt.so.13)
  ok       cuDNN 9.19.0 (libcudnn.so.9)

Libraries
  ok       oneDNN 2.6.3
  ok       Eigen 3.4.0, zlib 1.2.13
  ok       libdeflate 1.14
  ok       libpng 1.6.39
  ok       libjpeg 2.1.5

Ranks
  ok       ranks as threads of a program (dist::run_local)
  ok       ranks as processes over Open MPI 4.1.4 (firn::mpi, /usr/bin/mpirun)
  ok       ranks on CUDA devices over NCCL 2.28.9 (firn::nccl, libnccl.so.2)

Data
  ok       FashionMNIST in /data/fashion-mnist
)"));
  CHECK(all_well(all));
  for (const Finding& f : all) CHECK(f.state == State::ok);
}

TEST_CASE("doctor: a build without oneDNN, libdeflate, libpng, libjpeg", "[host]") {
  Environment e = planted();
  leave_out(e.onednn);
  leave_out(e.libdeflate);
  leave_out(e.png);
  leave_out(e.jpeg);
  CHECK(section(e, "Libraries") == text(R"(
  missing  oneDNN is not built in
           why:  Eigen multiplies matrices and convolves on the CPU, which takes longer in f32
           mend: apt-get install libdnnl-dev, then configure and build firn again with FIRN_ONEDNN=ON
  ok       Eigen 3.4.0, zlib 1.2.13
  missing  libdeflate is not built in
           why:  zlib computes the checksums of files, in four times the time
           mend: apt-get install libdeflate-dev, then configure and build firn again with FIRN_LIBDEFLATE=ON
  missing  libpng is not built in
           why:  PNG files cannot be read
           mend: apt-get install libpng-dev, then configure and build firn again
  missing  libjpeg is not built in
           why:  JPEG files cannot be read
           mend: apt-get install libjpeg-dev, then configure and build firn again
)"));
  CHECK(all_well(diagnose(e)));
}

TEST_CASE("doctor: a CUDA build without a driver trains on the CPU, unless CUDA is asked for",
          "[host]") {
  Environment e = planted();
  e.cuda.driver = e.cuda.driver_cuda = "";
  e.cuda.devices.clear();
  e.cuda.found = Environment::Found::no;
  e.cuda.why = "no NVIDIA driver was found (cudaGetDeviceCount answered 35, ...)";
  e.cuda.hint = "install NVIDIA's driver, or use the CPU";
  CHECK(section(e, "GPU") == text(R"(
  ok       CUDA 13.0 for architectures 80-real, 90
  missing  no CUDA device can be used
           why:  no NVIDIA driver was found (cudaGetDeviceCount answered 35, ...)
           mend: install NVIDIA's driver, or use the CPU
  ok       cuBLASLt 130100 (libcublasLt.so.13)
  ok       cuDNN 9.19.0 (libcudnn.so.9)
)"));
  CHECK(all_well(diagnose(e)));
  CHECK_FALSE(all_well(diagnose(e, {.cuda = true})));
}

TEST_CASE("doctor: devices that the build has no code for", "[host]") {
  Environment e = planted();
  e.cuda.architectures = {"90-real"};
  e.cuda.devices = {{"NVIDIA B200", 10, 0, 148, std::size_t{180} << 30}};
  CHECK(section(e, "GPU") == text(R"(
  ok       CUDA 13.0 for architectures 90-real; the driver 580.65.06 knows CUDA up to 13.0
  broken   cuda:0: NVIDIA B200, compute capability 10.0, 148 multiprocessors, 180 GiB: this build has no code for it
           why:  the build is for CMAKE_CUDA_ARCHITECTURES=90-real
           mend: build with -DCMAKE_CUDA_ARCHITECTURES=100 (nvcc 13.0 must know it), or use the CPU
  ok       cuBLASLt 130100 (libcublasLt.so.13)
  ok       cuDNN 9.19.0 (libcudnn.so.9)
)"));
  CHECK_FALSE(all_well(diagnose(e)));
  e.cuda.devices.push_back(h100());  // firn can use this one
  CHECK(section(e, "GPU") == text(R"(
  ok       CUDA 13.0 for architectures 90-real; the driver 580.65.06 knows CUDA up to 13.0
  missing  cuda:0: NVIDIA B200, compute capability 10.0, 148 multiprocessors, 180 GiB: this build has no code for it
           why:  the build is for CMAKE_CUDA_ARCHITECTURES=90-real
           mend: build with -DCMAKE_CUDA_ARCHITECTURES=100 (nvcc 13.0 must know it), or use the CPU
  ok       cuda:1: NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80 GiB
  ok       cuBLASLt 130100 (libcublasLt.so.13)
  ok       cuDNN 9.19.0 (libcudnn.so.9)
)"));
  CHECK(all_well(diagnose(e)));
}

TEST_CASE("doctor: which devices a list of architectures covers", "[host]") {
  const auto covers = [](std::vector<std::string> architectures, int major, int minor) {
    Environment::Cuda c;
    c.architectures = std::move(architectures);
    return c.covers({"", major, minor, 1, 1});
  };
  CHECK(covers({"90"}, 9, 0));
  CHECK(covers({"90"}, 10, 0));  // by PTX
  CHECK_FALSE(covers({"90"}, 8, 9));
  CHECK(covers({"80-real"}, 8, 6));  // machine code of an earlier minor version
  CHECK_FALSE(covers({"86-real"}, 8, 0));
  CHECK_FALSE(covers({"80-real"}, 9, 0));
  CHECK(covers({"80-virtual"}, 12, 0));
  CHECK_FALSE(covers({"90-virtual"}, 8, 0));
  CHECK(covers({"90a"}, 9, 0));
  CHECK_FALSE(covers({"90a"}, 10, 0));
  CHECK(covers({"100f"}, 10, 3));
  CHECK_FALSE(covers({"100f"}, 12, 0));
  CHECK(covers({"80-real", "90"}, 12, 0));
  CHECK(covers({"native"}, 9, 0));
  CHECK_FALSE(covers({}, 9, 0));
  Environment::Cuda simulator;
  simulator.simulated = true;
  CHECK(simulator.covers({"", 9, 0, 1, 1}));
}

TEST_CASE("doctor: cuDNN is absent at run time, or was when firn was built", "[host]") {
  Environment e = planted();
  e.cuda.cudnn.found = Environment::Found::no;
  e.cuda.cudnn.why = "\n  libcudnn.so.9: cannot open shared object file";
  CHECK(section(e, "GPU") == text(R"(
  ok       CUDA 13.0 for architectures 80-real, 90; the driver 580.65.06 knows CUDA up to 13.0
  ok       cuda:0: NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80 GiB
  ok       cuBLASLt 130100 (libcublasLt.so.13)
  missing  cuDNN was not found
           why:  convolutions on CUDA devices are products over gathered columns, and attention runs firn's kernels: right, but slower; tried:
                   libcudnn.so.9: cannot open shared object file
           mend: install NVIDIA's package libcudnn9-dev-cuda-13 (for CUDA 13), or pip's nvidia-cudnn-cu13, and add its folder to LD_LIBRARY_PATH or build with -DFIRN_CUDNN_LIBRARY=PATH
)"));
  CHECK(all_well(diagnose(e)));
  leave_out(e.cuda.cudnn);
  CHECK(section(e, "GPU") == text(R"(
  ok       CUDA 13.0 for architectures 80-real, 90; the driver 580.65.06 knows CUDA up to 13.0
  ok       cuda:0: NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80 GiB
  ok       cuBLASLt 130100 (libcublasLt.so.13)
  missing  cuDNN is not built in
           why:  convolutions on CUDA devices are products over gathered columns, and attention runs firn's kernels: right, but slower
           mend: install NVIDIA's package libcudnn9-dev-cuda-13 (for CUDA 13), or pip's nvidia-cudnn-cu13, then configure and build firn again
)"));
  CHECK(all_well(diagnose(e)));
}

TEST_CASE("doctor: cuBLASLt is absent, which matters if there is a device", "[host]") {
  Environment e = planted();
  e.cuda.cublaslt.found = Environment::Found::no;
  e.cuda.cublaslt.why = "\n  libcublasLt.so.13: cannot open shared object file";
  CHECK(section(e, "GPU") == text(R"(
  ok       CUDA 13.0 for architectures 80-real, 90; the driver 580.65.06 knows CUDA up to 13.0
  ok       cuda:0: NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80 GiB
  broken   cuBLASLt was not found: CUDA devices cannot multiply matrices
           why:  tried:
                   libcublasLt.so.13: cannot open shared object file
           mend: install the CUDA Toolkit's cuBLAS, or pip's nvidia-cublas, and add its folder to LD_LIBRARY_PATH or build with -DFIRN_CUBLASLT_LIBRARY=PATH
  ok       cuDNN 9.19.0 (libcudnn.so.9)
)"));
  CHECK_FALSE(all_well(diagnose(e)));
  e.cuda.devices.clear();
  e.cuda.found = Environment::Found::no;
  CHECK(all_well(diagnose(e)));
}

TEST_CASE("doctor: a build without CUDA, on machines without a GPU and with one", "[host]") {
  Environment e = planted();
  e.cuda = {};
  CHECK(section(e, "GPU") == text(R"(
  note     firn was built without CUDA
           why:  firn trains on the CPU
           mend: to use a GPU: install the CUDA Toolkit (apt-get install nvidia-cuda-toolkit, or NVIDIA's packages), then configure and build firn again with -DFIRN_CUDA=ON
)"));
  CHECK(section(e, "Ranks").find("NCCL") == std::string::npos);
  CHECK(all_well(diagnose(e)));
  CHECK_FALSE(all_well(diagnose(e, {.cuda = true})));
  e.cuda.driver = "580.65.06";
  CHECK(section(e, "GPU") == text(R"(
  missing  firn was built without CUDA
           why:  this machine has NVIDIA's driver 580.65.06, so probably a GPU
           mend: to use a GPU: install the CUDA Toolkit (apt-get install nvidia-cuda-toolkit, or NVIDIA's packages), then configure and build firn again with -DFIRN_CUDA=ON
)"));
}

TEST_CASE("doctor: --quick says what was not looked for", "[host]") {
  Environment e = planted();
  e.cuda.devices.clear();
  e.cuda.driver_cuda = "";
  e.cuda.found = e.cuda.cublaslt.found = e.cuda.cudnn.found = e.nccl.found =
      Environment::Found::not_looked_for;
  CHECK(section(e, "GPU") == text(R"(
  ok       CUDA 13.0 for architectures 80-real, 90
  note     devices and libraries were not looked for
           why:  --quick was given
           mend: leave out --quick
)"));
  CHECK(section(e, "Ranks") == text(R"(
  ok       ranks as threads of a program (dist::run_local)
  ok       ranks as processes over Open MPI 4.1.4 (firn::mpi, /usr/bin/mpirun)
  note     NCCL was not looked for
           why:  --quick was given
           mend: leave out --quick
)"));
  CHECK(all_well(diagnose(e)));
}

TEST_CASE("doctor: threads are limited by FIRN_THREADS, affinity, OpenMP or a control group",
          "[host]") {
  Environment e = planted();
  e.cpu.threads = 2;
  e.cpu.threads_set = true;
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  ok       kernels for avx512, units up to amx; products: f32 by oneDNN, bf16 by AMX bf16, f16 by AMX bf16 in two parts
  ok       16-bit products run on a unit of the CPU: bf16 and f16 save time and memory
  ok       2 threads on 8 CPUs
  note     FIRN_THREADS limits firn to 2 threads
           why:  the process may run on 8 CPUs
           mend: unset FIRN_THREADS
)"));

  e = planted();
  e.cpu.usable = e.cpu.threads = 1;
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  ok       kernels for avx512, units up to amx; products: f32 by oneDNN, bf16 by AMX bf16, f16 by AMX bf16 in two parts
  ok       16-bit products run on a unit of the CPU: bf16 and f16 save time and memory
  ok       1 thread on 1 CPU
  note     this process may run on 1 of 8 CPUs
           why:  taskset, a container or a batch system has set its affinity
           mend: ask for more CPUs, if they are meant for this program
)"));
  e.variables = {set("OMP_PROC_BIND", "true")};
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  ok       kernels for avx512, units up to amx; products: f32 by oneDNN, bf16 by AMX bf16, f16 by AMX bf16 in two parts
  ok       16-bit products run on a unit of the CPU: bf16 and f16 save time and memory
  ok       1 thread on 1 CPU
  note     this process may run on 1 of 8 CPUs
           why:  OMP_PROC_BIND=true binds the program's first thread, and firn's threads with it
           mend: unset OMP_PROC_BIND
)"));

  e = planted();
  e.cpu.quota = 2.5;
  e.variables = {set("OMP_NUM_THREADS", "4")};
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  ok       kernels for avx512, units up to amx; products: f32 by oneDNN, bf16 by AMX bf16, f16 by AMX bf16 in two parts
  ok       16-bit products run on a unit of the CPU: bf16 and f16 save time and memory
  ok       8 threads on 8 CPUs
  note     the control group grants 2.5 CPUs to 8 threads
           why:  the system stops all threads when they have used it up, so kernels wait for one another
           mend: set FIRN_THREADS=2, or grant the container more CPUs
  note     OMP_NUM_THREADS=4 does not change firn's threads
           why:  firn has threads of its own, also for oneDNN
           mend: FIRN_THREADS=4 does
)"));

  e = planted();
  e.cpu.threads = 16;
  e.cpu.threads_set = true;
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  ok       kernels for avx512, units up to amx; products: f32 by oneDNN, bf16 by AMX bf16, f16 by AMX bf16 in two parts
  ok       16-bit products run on a unit of the CPU: bf16 and f16 save time and memory
  ok       16 threads on 8 CPUs
  note     16 threads share 8 CPUs
           why:  a kernel ends when its last thread does, so threads without a CPU delay it
           mend: set FIRN_THREADS=8
)"));
}

TEST_CASE("doctor: 16-bit numbers on CPUs with fewer units", "[host]") {
  Environment e = planted();
  e.cpu.features = {"avx2", "fma", "f16c"};
  e.cpu.machine_level = e.cpu.level = e.cpu.kernels = "avx2";
  e.cpu.bf16 = e.cpu.f16 = "AVX f32";
  e.cpu.bf16_unit = e.cpu.f16_unit = false;
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c
  ok       kernels for avx2, units up to avx2; products: f32 by oneDNN, bf16 by AVX f32, f16 by AVX f32
  note     16-bit numbers save memory on this CPU, not time
           why:  the CPU has neither AMX nor AVX512-BF16: firn widens them to f32 before it multiplies, and rounds when it stores
           mend: train in f32 if it fits into memory; units for 16-bit numbers are AMX (Intel's Xeons from 2023 on) and AMD's AVX512-BF16 (from Zen 4 on)
  ok       8 threads on 8 CPUs
)"));

  e = planted();  // Zen 4
  e.cpu.machine_level = e.cpu.level = "avx512bf16";
  e.cpu.bf16 = "AVX-512 bf16";
  e.cpu.f16 = "AVX-512 f32";
  e.cpu.f16_unit = false;
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  ok       kernels for avx512, units up to avx512bf16; products: f32 by oneDNN, bf16 by AVX-512 bf16, f16 by AVX-512 f32
  note     bf16 saves time and memory on this CPU, f16 saves memory alone
           why:  the CPU has AVX512-BF16 and no AMX: firn widens f16 to f32 before it multiplies
           mend: train in bf16 rather than in f16
  ok       8 threads on 8 CPUs
)"));

  e.cpu.bf16 = "AVX-512 f32";  // Cooper Lake
  e.cpu.bf16_unit = false;
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  ok       kernels for avx512, units up to avx512bf16; products: f32 by oneDNN, bf16 by AVX-512 f32, f16 by AVX-512 f32
  note     16-bit numbers save memory on this CPU, not time
           why:  the CPU has no AMX, and its AVX512-BF16 is no faster than f32: firn widens them to f32 before it multiplies, and rounds when it stores
           mend: train in f32 if it fits into memory; units for 16-bit numbers are AMX (Intel's Xeons from 2023 on) and AMD's AVX512-BF16 (from Zen 4 on)
  ok       8 threads on 8 CPUs
)"));

  e = planted();
  e.cpu.level = e.cpu.kernels = "avx2";
  e.cpu.level_forced = true;
  e.cpu.variants = 3;
  e.cpu.bf16 = e.cpu.f16 = "AVX f32";
  e.cpu.bf16_unit = e.cpu.f16_unit = false;
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  ok       kernels for avx2 (chosen of 3 variants), units up to avx2; products: f32 by oneDNN, bf16 by AVX f32, f16 by AVX f32
  note     FIRN_CPU_ISA=avx2 is below what the CPU has, amx
           why:  kernels may take longer
           mend: unset FIRN_CPU_ISA
  note     16-bit numbers save memory on this CPU, not time
           why:  FIRN_CPU_ISA holds firn below what the CPU has: firn widens them to f32 before it multiplies, and rounds when it stores
           mend: unset FIRN_CPU_ISA
  ok       8 threads on 8 CPUs
)"));
}

TEST_CASE("doctor: kernels that this CPU cannot run, or that use less than it has", "[host]") {
  Environment e = planted();
  e.cpu.machine_level = "avx2";
  e.cpu.kernels_run = false;
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  broken   the kernels consist of avx512 instructions, and this CPU has avx2 at most
           why:  the build is for the CPU of another machine
           mend: build firn on this machine, or with -DFIRN_NATIVE=OFF for every CPU
  ok       8 threads on 8 CPUs
)"));
  CHECK_FALSE(all_well(diagnose(e)));

  e = planted();
  e.cpu.kernels = "base";
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  ok       kernels for base, units up to amx; products: f32 by oneDNN, bf16 by AMX bf16, f16 by AMX bf16 in two parts
  note     the kernels are for base, though the CPU has amx
           why:  the build has one variant of the kernels, for older CPUs too
           mend: build with -DFIRN_NATIVE=ON, or install binutils, with which FIRN_NATIVE=OFF makes three variants: apt-get install binutils, then configure and build firn again
  ok       16-bit products run on a unit of the CPU: bf16 and f16 save time and memory
  ok       8 threads on 8 CPUs
)"));
  CHECK(all_well(diagnose(e)));

  e = planted();
  e.cpu.level = "";
  e.cpu.problem = "FIRN_CPU_ISA is 'fast'; set it to one of: base, avx2";
  CHECK(section(e, "CPU") == text(R"(
  ok       A Xeon, 8 CPUs: avx2 fma f16c avx512f avx512_bf16 amx_tile amx_bf16
  broken   the CPU's kernels do not start
           why:  FIRN_CPU_ISA is 'fast'; set it to one of: base, avx2
           mend: unset FIRN_CPU_ISA, which means amx here
  ok       8 threads on 8 CPUs
)"));
  CHECK_FALSE(all_well(diagnose(e)));
}

TEST_CASE("doctor: builds for debugging", "[host]") {
  Environment e = planted();
  e.build.type = "Debug";
  e.build.native = false;
  e.build.sanitizers = "address,undefined";
  CHECK(section(e, "Build") == text(R"(
  ok       firn 0.1.0 (abc1234), Debug, g++ 12.2.0, for every CPU of this kind (FIRN_NATIVE=OFF)
  ok       Linux 6.1.0
  note     the build is not optimised
           why:  kernels take many times as long as in a Release build
           mend: cmake -DCMAKE_BUILD_TYPE=Release
  note     the build has sanitizers: address,undefined
           why:  everything takes several times as long
           mend: configure without FIRN_SANITIZE
)"));
  CHECK(all_well(diagnose(e)));
}

TEST_CASE("doctor: memory that is limited, or short, or a limit that is none", "[host]") {
  Environment e = planted();
  e.memory.limit = std::size_t{2} << 30;
  e.memory.available = std::size_t{512} << 20;
  CHECK(section(e, "Memory") == text(R"(
  ok       32 GiB, 512 MiB available
  note     tensors may take 2 GiB
           why:  the process's control group (a container) says so
           mend: give the container more memory
  note     less than 1 GiB of memory is available
           why:  a training may be killed when it runs out
           mend: end other programs, or set FIRN_MEMORY_LIMIT: firn then throws OutOfMemory instead
)"));
  e.variables = {set("FIRN_MEMORY_LIMIT", "2GiB")};
  CHECK(section(e, "Memory").find("mend: unset FIRN_MEMORY_LIMIT") != std::string::npos);
  e.memory.problem = "FIRN_MEMORY_LIMIT: 'x' is no number of bytes";
  CHECK(section(e, "Memory") == text(R"(
  ok       32 GiB, 512 MiB available
  broken   no tensor can be made
           why:  FIRN_MEMORY_LIMIT: 'x' is no number of bytes
           mend: unset FIRN_MEMORY_LIMIT
  note     less than 1 GiB of memory is available
           why:  a training may be killed when it runs out
           mend: end other programs, or set FIRN_MEMORY_LIMIT: firn then throws OutOfMemory instead
)"));
  CHECK_FALSE(all_well(diagnose(e)));
}

TEST_CASE("doctor: MPI and NCCL that are missing in the build or on the machine", "[host]") {
  Environment e = planted();
  e.mpirun = "";
  e.nccl.found = Environment::Found::no;
  e.nccl.why = "\n  libnccl.so.2: is NCCL 2.10.3, older than 2.18.1";
  CHECK(section(e, "Ranks") == text(R"(
  ok       ranks as threads of a program (dist::run_local)
  missing  firn::mpi over Open MPI 4.1.4, but PATH has no mpirun
           why:  programs of firn::mpi run as one rank without it
           mend: apt-get install openmpi-bin
  missing  NCCL was not found, which firn::nccl opens
           why:  tried:
                   libnccl.so.2: is NCCL 2.10.3, older than 2.18.1
           mend: install NVIDIA's package libnccl2, or pip's nvidia-nccl-cu13, and add its folder to LD_LIBRARY_PATH or build with -DFIRN_NCCL_LIBRARY=PATH
)"));
  leave_out(e.mpi);
  leave_out(e.nccl);
  CHECK(section(e, "Ranks") == text(R"(
  ok       ranks as threads of a program (dist::run_local)
  missing  firn::mpi is not built
           why:  ranks cannot be processes
           mend: apt-get install libopenmpi-dev openmpi-bin, then configure and build firn again with FIRN_MPI=ON
  missing  firn::nccl is not built
           why:  ranks on CUDA devices have no NCCL
           mend: install NVIDIA's package libnccl-dev, or pip's nvidia-nccl-cu13, then configure and build firn again with FIRN_NCCL=ON
)"));
  CHECK(all_well(diagnose(e)));
}

TEST_CASE("doctor: data that is not here, and variables that are wrong", "[host]") {
  Environment e = planted();
  e.data[0].folder = "";
  e.data[0].why = "no FashionMNIST files found; looked in: data/fashion-mnist";
  CHECK(section(e, "Data") == text(R"(
  missing  FashionMNIST is not here
           why:  no FashionMNIST files found; looked in: data/fashion-mnist
           mend: scripts/setup data, or apt-get install dataset-fashion-mnist, or set FIRN_DATA to its folder
)"));
  CHECK(all_well(diagnose(e)));

  Environment::Variable typo = set("FIRN_THREAD", "4");
  typo.known = false;
  typo.closest = "FIRN_THREADS";
  Environment::Variable wrong = set("FIRN_SPLIT_K", "depth");
  wrong.problem = "is 'depth'; set it to one of: by_depth, automatic";
  e.variables = {set("FIRN_DATA", "/data"), wrong, typo, set("OMP_NUM_THREADS", "4")};
  CHECK(section(e, "Environment variables") == text(R"(
  ok       FIRN_DATA=/data
  broken   FIRN_SPLIT_K=depth
           why:  is 'depth'; set it to one of: by_depth, automatic
           mend: unset it, or correct its value
  note     FIRN_THREAD=4 has no effect
           why:  firn knows no variable of this name
           mend: did you mean FIRN_THREADS?
)"));
  CHECK_FALSE(all_well(diagnose(e)));
}

TEST_CASE("doctor: bytes that a terminal would obey are shown as escapes", "[host]") {
  Environment e = planted();
  Environment::Variable typo = set("FIRN_\x1b[2J", "a\nb");
  typo.known = false;
  Environment::Variable wrong = set("FIRN_SPLIT_K", "\x1b[31mdepth\x7f\t");
  wrong.problem = "is '\x1b[31mdepth\x7f\t'";
  e.variables = {set("FIRN_DATA", "/d\x07/ä\xc2\x9b\xe2\x80\xae"), wrong, typo};
  e.variables.push_back(set("OMP_NUM_THREADS", "\x1b[1m"));
  CHECK(section(e, "Environment variables") == text(R"(
  ok       FIRN_DATA=/d\x07/ä\x9b\u202e
  broken   FIRN_SPLIT_K=\x1b[31mdepth\x7f\x09
           why:  is '\x1b[31mdepth\x7f\x09'
           mend: unset it, or correct its value
  note     FIRN_\x1b[2J=a\x0ab has no effect
           why:  firn knows no variable of this name
           mend: unset it
)"));
  e.memory.problem = "FIRN_MEMORY_LIMIT is '\x1b]0;x\x07'";
  e.data[0].why = "no files in \xc3\x1b[2J:\n  data";  // the first byte is no UTF-8
  const std::string all = to_text(diagnose(e));
  const auto clean = [](unsigned char c) { return c == '\n' || (c >= 0x20 && c != 0x7f); };
  CHECK(std::all_of(all.begin(), all.end(), clean));
  CHECK(all.find("'\\x1b]0;x\\x07'") != std::string::npos);
  CHECK(all.find("no files in \\xc3\\x1b[2J:\n             ") != std::string::npos);
}

TEST_CASE("doctor: colours stand around the state alone, and JSON has every member", "[host]") {
  const std::vector<Finding> one = {{"CPU", State::broken, "a \"b\"", "c", "d"}};
  CHECK(to_text(one, true) ==
        "CPU\n  \x1b[31mbroken   \x1b[0ma \"b\"\n           why:  c\n           mend: d\n");
  CHECK(nlohmann::json::parse(to_json(one)) ==
        nlohmann::json::parse(R"([{"section": "CPU", "state": "broken", "what": "a \"b\"",
                                   "why": "c", "mend": "d"}])"));
  CHECK(to_json({}) == "[]");
}

}  // namespace doctor::test
