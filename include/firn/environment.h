// Facts about this build of firn and about the machine as this process sees it. They serve run logs
// and reports of faults; firn-doctor adds what to do about each problem.
//
//   std::puts(to_string(environment()).c_str());
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "firn/version.h"

namespace firn {

/// Returns the revision of the sources when firn was built, as `git describe` prints it: "2c6324a",
/// with "-dirty" if files differ from it. "unknown" without a git checkout.
const char* revision() noexcept;

/// Facts about build, machine and process. Names and paths are as this process sees them, but "~"
/// stands for the user's home folder. The names of the machine and of the user are left out. A
/// missing thing is an empty field, with the reason in the field beside it. Sizes are bytes.
struct Environment {
  /// Facts about the build of firn.
  struct Build {
    /// Version of firn, "0.1.0", and its commit, which is empty if the sources were not a checkout.
    std::string version, revision;
    std::string compiler;    ///< "g++ 12.2.0"
    std::string type;        ///< CMAKE_BUILD_TYPE
    bool native = false;     ///< FIRN_NATIVE: compiled for the build machine's CPU
    bool shared = false;     ///< BUILD_SHARED_LIBS
    std::string sanitizers;  ///< FIRN_SANITIZE
  };

  /// The CPU, and the units of it that firn uses.
  struct Cpu {
    std::string model;         ///< "unknown" if the system does not say
    int cores = 0;             ///< CPUs of the machine, hardware threads among them
    int usable = 0;            ///< CPUs among them that this process may run on (affinity)
    double quota = 0;          ///< CPUs that its control group grants; 0: no limit
    int threads = 0;           ///< num_threads()
    bool threads_set = false;  ///< FIRN_THREADS holds a number
    /// The features among avx2, fma, f16c, avx512f, avx512_bf16, avx512_fp16, amx_tile, amx_bf16
    /// and amx_fp16 that the CPU has and the system supports.
    std::vector<std::string> features;
    /// Levels are base, avx2, avx512, avx512bf16 and amx, the words of FIRN_CPU_ISA. Each contains
    /// those before it.
    std::string machine_level;   ///< highest level that the CPU supports
    std::string kernels;         ///< level of the instructions in firn's kernels
    std::string level;           ///< highest level of the units in use; empty if `problem` is not
    bool level_forced = false;   ///< FIRN_CPU_ISA sets it
    bool kernels_run = true;     ///< the CPU has the instructions of the kernels
    int variants = 1;            ///< variants of the kernels in this build; 3 with FIRN_NATIVE=OFF
    std::string f32, bf16, f16;  ///< library that multiplies matrices of the dtype: "oneDNN"
    bool bf16_unit = false;      ///< a unit for 16-bit numbers multiplies bf16
    bool f16_unit = false;       ///< a unit for 16-bit numbers multiplies f16
    std::string problem;         ///< why the CPU cannot compute: a wrong FIRN_CPU_ISA
  };

  /// The memory of the machine.
  struct Memory {
    std::size_t total = 0;      ///< bytes that the machine has
    std::size_t available = 0;  ///< bytes that programs can still get, by the system's estimate
    std::size_t limit = 0;      ///< memory_stats().limit of the CPU; 0: no limit
    std::string problem;        ///< why the sizes are unknown: a wrong FIRN_MEMORY_LIMIT
  };

  /// Result of a search. `not_looked_for`: EnvironmentOptions::open is off.
  enum class Found : unsigned char { no, yes, not_looked_for };

  /// A library that firn can use.
  struct Library {
    std::string name;         ///< "oneDNN"
    bool built = false;       ///< the build can use it
    Found found = Found::no;  ///< yes if the machine has it
    std::string version;  ///< version that was found, else the one that the build was compiled with
    std::string path;     ///< path of the opened library; empty if it is linked
    std::string why;      ///< why it was not found, with all places that were tried
  };

  /// A GPU.
  struct CudaDevice {
    std::string name;          ///< as the driver names it
    int major = 0, minor = 0;  ///< compute capability
    int multiprocessors = 0;   ///< streaming multiprocessors (SMs)
    std::size_t bytes = 0;     ///< size of the device's memory
  };

  /// CUDA: the build, the driver, the GPUs.
  struct Cuda {
    bool built = false;                      ///< firn was built with the CUDA backend
    bool simulated = false;                  ///< FIRN_CUDA=SIM
    std::string toolkit;                     ///< "13.0"
    std::vector<std::string> architectures;  ///< as CMake names them: "80-real", "90"
    Found found = Found::no;                 ///< yes if there is at least one device
    std::string driver;                      ///< "570.86.15"; empty if no driver is loaded
    std::string driver_cuda;                 ///< the highest CUDA version that the driver knows
    std::vector<CudaDevice> devices;         ///< devices that firn can use
    std::string why, hint;                   ///< why there are no devices, and a remedy
    Library cublaslt, cudnn;  ///< opened at first use: products, and convolutions and attention

    /// True if the build has code for the device: machine code for its compute capability or an
    /// earlier one of the same major version, or PTX for an earlier one. Also true if an
    /// architecture is a word without a number ("native").
    bool covers(const CudaDevice& device) const;
  };

  /// A data set that firn's readers know by name.
  struct DataSet {
    std::string name;    ///< "FashionMNIST"
    std::string folder;  ///< where its loader finds it
    std::string why;     ///< why its loader does not find it
  };

  /// An environment variable that is set: every FIRN_*, and others that change firn's work.
  struct Variable {
    std::string name, value;  ///< name and text of the variable
    bool known = true;        ///< firn or one of its scripts reads it
    std::string problem;      ///< fault of the value
    std::string closest;      ///< for a name that no program reads: a similar one that is read
  };

  Build build;         ///< facts about the build of firn
  std::string system;  ///< "Linux 6.1.0"
  Cpu cpu;             ///< the CPU of this machine
  Memory memory;       ///< the memory of this machine
  /// CUDA, and its devices.
  Cuda cuda;
  /// Libraries of the build; `found` says what the machine has.
  Library onednn, eigen, zlib, libdeflate, png, jpeg;
  /// firn::mpi and firn::nccl are separate libraries: `built` says whether the build has them.
  Library mpi, nccl;
  std::string mpirun;               ///< path of mpirun; empty if PATH has none
  std::vector<DataSet> data;        ///< the data sets that firn looked for
  std::vector<Variable> variables;  ///< the environment variables that are set
};

struct EnvironmentOptions {
  /// Asks the CUDA driver for its devices and opens cuBLASLt, cuDNN and NCCL, if the build can use
  /// them. That takes up to some seconds, and the libraries stay open. If false, nothing is opened,
  /// and these are Found::not_looked_for.
  bool open = true;
};

/// Returns the facts. A missing thing is an empty field and does not throw; only OutOfMemory does.
Environment environment(const EnvironmentOptions& options = {});

/// Returns a page of text, with one fact a line.
std::string to_string(const Environment& environment);
/// Returns a JSON object with the fields of Environment, under their names. A number that is not
/// finite becomes null, and bytes that are not UTF-8 become "?".
std::string to_json(const Environment& environment);

}  // namespace firn
