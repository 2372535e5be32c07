#include "tools/doctor/diagnose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "tools/visible.h"

namespace doctor {
namespace {

using firn::Environment;
using Found = Environment::Found;

/// Collects the findings of a section.
class Section {
 public:
  Section(std::vector<Finding>& all, const char* name) : all_(all), name_(name) {}

  void ok(std::string what) { add(State::ok, std::move(what), "", ""); }
  void note(std::string what, std::string why, std::string mend) {
    add(State::note, std::move(what), std::move(why), std::move(mend));
  }
  void missing(std::string what, std::string why, std::string mend) {
    add(State::missing, std::move(what), std::move(why), std::move(mend));
  }
  void broken(std::string what, std::string why, std::string mend) {
    add(State::broken, std::move(what), std::move(why), std::move(mend));
  }
  void add(State state, std::string what, std::string why, std::string mend) {
    all_.push_back({name_, state, std::move(what), std::move(why), std::move(mend)});
  }

 private:
  std::vector<Finding>& all_;
  const char* name_;
};

constexpr const char* kBuildAgain = ", then configure and build firn again";

std::string count(long long n, const char* one, const char* many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}
std::string cpus(long long n) { return count(n, "CPU", "CPUs"); }
std::string threads(long long n) { return count(n, "thread", "threads"); }

/// Returns the value of a variable, which may hold any bytes, on one line and without control
/// bytes.
std::string shown(std::string_view value) {
  constexpr std::size_t kMost = 4096;  // as long as a path may be
  return firn::tools::visible(value, kMost);
}

/// Returns the variable if it is set; null if it is not.
const Environment::Variable* variable(const Environment& e, std::string_view name) {
  for (const auto& v : e.variables)
    if (v.name == name && !v.value.empty()) return &v;
  return nullptr;
}

/// Returns the place of a level's word in the order of levels; -1 for another word.
int rank_of(std::string_view level) {
  constexpr std::array<std::string_view, 5> kLevels = {"base", "avx2", "avx512", "avx512bf16",
                                                       "amx"};
  const auto* const found = std::find(kLevels.begin(), kLevels.end(), level);
  return found == kLevels.end() ? -1 : static_cast<int>(found - kLevels.begin());
}

void build(const Environment& e, Section s) {
  const Environment::Build& b = e.build;
  s.ok(fmt::format("firn {} ({}), {}, {}, {}", b.version, b.revision,
                   b.type.empty() ? "no build type" : b.type, b.compiler,
                   b.native ? "for the CPU of the machine that built it (FIRN_NATIVE=ON)"
                            : "for every CPU of this kind (FIRN_NATIVE=OFF)"));
  s.ok(e.system);
  if (b.type.empty() || b.type == "Debug")
    s.note("the build is not optimised", "kernels take many times as long as in a Release build",
           "cmake -DCMAKE_BUILD_TYPE=Release");
  if (!b.sanitizers.empty())
    s.note("the build has sanitizers: " + b.sanitizers, "everything takes several times as long",
           "configure without FIRN_SANITIZE");
}

void kernels(const Environment::Cpu& c, Section& s) {
  if (!c.kernels_run) {
    s.broken(fmt::format("the kernels consist of {} instructions, and this CPU has {} at most",
                         c.kernels, c.machine_level),
             "the build is for the CPU of another machine",
             "build firn on this machine, or with -DFIRN_NATIVE=OFF for every CPU");
    return;
  }
  if (!c.problem.empty()) {
    s.broken("the CPU's kernels do not start", c.problem,
             fmt::format("unset FIRN_CPU_ISA, which means {} here", c.machine_level));
    return;
  }
  s.ok(fmt::format("kernels for {}{}, units up to {}; products: f32 by {}, bf16 by {}, f16 by {}",
                   c.kernels,
                   c.variants > 1 ? fmt::format(" (chosen of {} variants)", c.variants) : "",
                   c.level, c.f32, c.bf16, c.f16));
  if (c.level_forced && c.level != c.machine_level)
    s.note(fmt::format("FIRN_CPU_ISA={} is below what the CPU has, {}", c.level, c.machine_level),
           "kernels may take longer", "unset FIRN_CPU_ISA");
  const int could = std::min(rank_of(c.machine_level), rank_of("avx512"));
  if (!c.level_forced && rank_of(c.kernels) < could)
    s.note(fmt::format("the kernels are for {}, though the CPU has {}", c.kernels, c.machine_level),
           "the build has one variant of the kernels, for older CPUs too",
           "build with -DFIRN_NATIVE=ON, or install binutils, with which FIRN_NATIVE=OFF makes "
           "three variants: apt-get install binutils" +
               std::string(kBuildAgain));
}

void sixteen_bits(const Environment::Cpu& c, Section& s) {
  if (!c.kernels_run || !c.problem.empty()) return;
  if (c.bf16_unit && c.f16_unit)
    return s.ok("16-bit products run on a unit of the CPU: bf16 and f16 save time and memory");
  if (c.bf16_unit)
    return s.note("bf16 saves time and memory on this CPU, f16 saves memory alone",
                  "the CPU has AVX512-BF16 and no AMX: firn widens f16 to f32 before it multiplies",
                  "train in bf16 rather than in f16");
  const bool held = c.level_forced && rank_of(c.machine_level) > rank_of(c.level);
  const std::string why = held ? "FIRN_CPU_ISA holds firn below what the CPU has"
                          : rank_of(c.level) >= rank_of("avx512bf16")
                              ? "the CPU has no AMX, and its AVX512-BF16 is no faster than f32"
                              : "the CPU has neither AMX nor AVX512-BF16";
  s.note("16-bit numbers save memory on this CPU, not time",
         why + ": firn widens them to f32 before it multiplies, and rounds when it stores",
         held ? "unset FIRN_CPU_ISA"
              : "train in f32 if it fits into memory; units for 16-bit numbers are AMX (Intel's "
                "Xeons from 2023 on) and AMD's AVX512-BF16 (from Zen 4 on)");
}

void cpu(const Environment& e, Section s) {
  const Environment::Cpu& c = e.cpu;
  s.ok(fmt::format("{}, {}{}{}", c.model, cpus(c.cores), c.features.empty() ? "" : ": ",
                   fmt::join(c.features, " ")));
  kernels(c, s);
  sixteen_bits(c, s);

  s.ok(fmt::format("{} on {}", threads(c.threads), cpus(c.usable)));
  if (c.usable < c.cores) {
    const auto* const bind = variable(e, "OMP_PROC_BIND");
    s.note(
        fmt::format("this process may run on {} of {}", c.usable, cpus(c.cores)),
        bind ? fmt::format("OMP_PROC_BIND={} binds the program's first thread, and firn's threads "
                           "with it",
                           shown(bind->value))
             : "taskset, a container or a batch system has set its affinity",
        bind ? "unset OMP_PROC_BIND" : "ask for more CPUs, if they are meant for this program");
  }
  if (c.threads_set && c.threads < c.usable)
    s.note(fmt::format("FIRN_THREADS limits firn to {}", threads(c.threads)),
           fmt::format("the process may run on {}", cpus(c.usable)), "unset FIRN_THREADS");
  if (c.threads > c.usable)
    s.note(fmt::format("{} share {}", threads(c.threads), cpus(c.usable)),
           "a kernel ends when its last thread does, so threads without a CPU delay it",
           fmt::format("set FIRN_THREADS={}", c.usable));
  if (c.quota > 0 && c.quota < c.threads)
    s.note(
        fmt::format("the control group grants {:.3g} CPUs to {}", c.quota, threads(c.threads)),
        "the system stops all threads when they have used it up, so kernels wait for one another",
        fmt::format("set FIRN_THREADS={}, or grant the container more CPUs",
                    std::max(1, static_cast<int>(std::floor(c.quota)))));
  if (const auto* const omp = variable(e, "OMP_NUM_THREADS"))
    s.note(fmt::format("OMP_NUM_THREADS={} does not change firn's threads", shown(omp->value)),
           "firn has threads of its own, also for oneDNN",
           fmt::format("FIRN_THREADS={} does", shown(omp->value)));
}

void memory(const Environment& e, Section s) {
  const Environment::Memory& m = e.memory;
  s.ok(fmt::format("{}, {} available", firn::bytes_to_string(m.total),
                   firn::bytes_to_string(m.available)));
  if (!m.problem.empty()) {
    s.broken("no tensor can be made", m.problem, "unset FIRN_MEMORY_LIMIT");
  } else if (m.limit > 0 && m.limit < m.total) {
    const bool set = variable(e, "FIRN_MEMORY_LIMIT") != nullptr;
    s.note("tensors may take " + firn::bytes_to_string(m.limit),
           set ? "FIRN_MEMORY_LIMIT or the process's control group says so"
               : "the process's control group (a container) says so",
           set ? "unset FIRN_MEMORY_LIMIT" : "give the container more memory");
  }
  constexpr std::size_t kLittle = std::size_t{1} << 30;
  if (m.total > 0 && m.available < kLittle)
    s.note("less than 1 GiB of memory is available", "a training may be killed when it runs out",
           "end other programs, or set FIRN_MEMORY_LIMIT: firn then throws OutOfMemory instead");
}

constexpr const char* kOnTheCpu = "firn trains on the CPU";

void devices(const Environment::Cuda& c, const Wishes& wishes, Section& s) {
  const auto covered = [&c](const Environment::CudaDevice& d) { return c.covers(d); };
  const bool any = std::any_of(c.devices.begin(), c.devices.end(), covered);
  for (std::size_t i = 0; i < c.devices.size(); ++i) {
    const Environment::CudaDevice& d = c.devices[i];
    const std::string what =
        fmt::format("cuda:{}: {}, compute capability {}.{}, {} multiprocessors, {}", i, d.name,
                    d.major, d.minor, d.multiprocessors, firn::bytes_to_string(d.bytes));
    if (c.covers(d)) {
      s.ok(what);
      continue;
    }
    s.add(any && !wishes.cuda ? State::missing : State::broken,
          what + ": this build has no code for it",
          fmt::format("the build is for CMAKE_CUDA_ARCHITECTURES={}",
                      fmt::join(c.architectures, ";")),
          fmt::format("build with -DCMAKE_CUDA_ARCHITECTURES={}{} (nvcc {} must know it), or use "
                      "the CPU",
                      d.major, d.minor, c.toolkit));
  }
}

void cuda_libraries(const Environment::Cuda& c, const Wishes& wishes, Section& s) {
  const bool needed = !c.devices.empty() || wishes.cuda;
  const auto found = [&s](const Environment::Library& l) {
    s.ok(fmt::format("{} {} ({})", l.name, l.version, l.path));
  };
  if (c.cublaslt.found == Found::yes) {
    found(c.cublaslt);
  } else if (c.cublaslt.found == Found::no) {
    s.add(needed ? State::broken : State::missing,
          "cuBLASLt was not found: CUDA devices cannot multiply matrices",
          "tried:" + c.cublaslt.why,
          "install the CUDA Toolkit's cuBLAS, or pip's nvidia-cublas, and add its folder to "
          "LD_LIBRARY_PATH or build with -DFIRN_CUBLASLT_LIBRARY=PATH");
  }
  const char* const kWithout =
      "convolutions on CUDA devices are products over gathered columns, and attention runs firn's "
      "kernels: right, but slower";
  const char* const kPackage =
      "NVIDIA's package libcudnn9-dev-cuda-13 (for CUDA 13), or pip's nvidia-cudnn-cu13";
  if (!c.cudnn.built) {
    s.missing("cuDNN is not built in", kWithout, std::string("install ") + kPackage + kBuildAgain);
  } else if (c.cudnn.found == Found::yes) {
    found(c.cudnn);
  } else if (c.cudnn.found == Found::no) {
    s.missing("cuDNN was not found", std::string(kWithout) + "; tried:" + c.cudnn.why,
              std::string("install ") + kPackage +
                  ", and add its folder to LD_LIBRARY_PATH or build with "
                  "-DFIRN_CUDNN_LIBRARY=PATH");
  }
}

void gpu(const Environment& e, const Wishes& wishes, Section s) {
  const Environment::Cuda& c = e.cuda;
  if (!c.built) {
    const State state = wishes.cuda        ? State::broken
                        : c.driver.empty() ? State::note
                                           : State::missing;
    s.add(state, "firn was built without CUDA",
          c.driver.empty()
              ? kOnTheCpu
              : fmt::format("this machine has NVIDIA's driver {}, so probably a GPU", c.driver),
          std::string("to use a GPU: install the CUDA Toolkit (apt-get install "
                      "nvidia-cuda-toolkit, or NVIDIA's packages)") +
              kBuildAgain + " with -DFIRN_CUDA=ON");
    return;
  }
  s.ok(c.simulated
           ? "CUDA kernels on the simulator (FIRN_CUDA=SIM)"
           : fmt::format("CUDA {} for architectures {}{}", c.toolkit,
                         fmt::join(c.architectures, ", "),
                         c.driver_cuda.empty()
                             ? ""
                             : fmt::format("; the driver{}{} knows CUDA up to {}",
                                           c.driver.empty() ? "" : " ", c.driver, c.driver_cuda)));
  if (c.found == Found::not_looked_for)
    return s.note("devices and libraries were not looked for", "--quick was given",
                  "leave out --quick");
  if (c.found == Found::no)
    s.add(wishes.cuda ? State::broken : State::missing, "no CUDA device can be used", c.why,
          c.hint);
  devices(c, wishes, s);
  cuda_libraries(c, wishes, s);
  if (const auto* const v = variable(e, "CUDA_VISIBLE_DEVICES"))
    s.note("CUDA_VISIBLE_DEVICES=" + shown(v->value), "other devices are hidden from this process",
           "unset it to see all of them");
  if (const auto* const v = variable(e, "CUDA_LAUNCH_BLOCKING"); v && v->value != "0")
    s.note("CUDA_LAUNCH_BLOCKING=" + shown(v->value), "the host waits for every kernel",
           "unset it unless you are looking for an error");
}

void libraries(const Environment& e, Section s) {
  const auto optional = [&s](const Environment::Library& l, const char* without,
                             const std::string& install, const char* option = "") {
    if (l.built) return s.ok(l.name + " " + l.version);
    s.missing(l.name + " is not built in", without, install + kBuildAgain + option);
  };
  optional(e.onednn,
           "Eigen multiplies matrices and convolves on the CPU, which takes longer in f32",
           "apt-get install libdnnl-dev", " with FIRN_ONEDNN=ON");
  s.ok(fmt::format("{} {}, {} {}", e.eigen.name, e.eigen.version, e.zlib.name, e.zlib.version));
  optional(e.libdeflate, "zlib computes the checksums of files, in four times the time",
           "apt-get install libdeflate-dev", " with FIRN_LIBDEFLATE=ON");
  optional(e.png, "PNG files cannot be read", "apt-get install libpng-dev");
  optional(e.jpeg, "JPEG files cannot be read", "apt-get install libjpeg-dev");
}

void ranks(const Environment& e, Section s) {
  s.ok("ranks as threads of a program (dist::run_local)");
  const Environment::Library& m = e.mpi;
  if (!m.built) {
    s.missing("firn::mpi is not built", "ranks cannot be processes",
              std::string("apt-get install libopenmpi-dev openmpi-bin") + kBuildAgain +
                  " with FIRN_MPI=ON");
  } else if (m.found == Found::no) {
    s.missing("the MPI library of firn::mpi is not there any more", "tried:" + m.why,
              std::string("apt-get install libopenmpi-dev openmpi-bin") + kBuildAgain);
  } else if (e.mpirun.empty()) {
    s.missing(fmt::format("firn::mpi over {}, but PATH has no mpirun", m.version),
              "programs of firn::mpi run as one rank without it", "apt-get install openmpi-bin");
  } else {
    s.ok(fmt::format("ranks as processes over {} (firn::mpi, {})", m.version, e.mpirun));
  }
  if (!e.cuda.built) return;
  const Environment::Library& n = e.nccl;
  if (!n.built) {
    s.missing("firn::nccl is not built", "ranks on CUDA devices have no NCCL",
              std::string("install NVIDIA's package libnccl-dev, or pip's nvidia-nccl-cu13") +
                  kBuildAgain + " with FIRN_NCCL=ON");
  } else if (n.found == Found::no) {
    s.missing("NCCL was not found, which firn::nccl opens", "tried:" + n.why,
              "install NVIDIA's package libnccl2, or pip's nvidia-nccl-cu13, and add its folder to "
              "LD_LIBRARY_PATH or build with -DFIRN_NCCL_LIBRARY=PATH");
  } else if (n.found == Found::yes) {
    s.ok(fmt::format("ranks on CUDA devices over NCCL {} (firn::nccl, {})", n.version, n.path));
  } else {
    s.note("NCCL was not looked for", "--quick was given", "leave out --quick");
  }
}

void data(const Environment& e, Section s) {
  for (const auto& d : e.data) {
    if (d.why.empty()) {
      s.ok(d.name + " in " + d.folder);
    } else {
      s.missing(d.name + " is not here", d.why,
                "scripts/setup data, or apt-get install dataset-fashion-mnist, or set FIRN_DATA to "
                "its folder");
    }
  }
}

void settings(const Environment& e, Section s) {
  for (const auto& v : e.variables) {
    if (!v.name.starts_with("FIRN_")) continue;
    const std::string what = shown(v.name) + "=" + shown(v.value);
    if (!v.known) {
      s.note(what + " has no effect", "firn knows no variable of this name",
             v.closest.empty() ? "unset it" : "did you mean " + v.closest + "?");
    } else if (!v.problem.empty()) {
      s.broken(what, shown(v.problem), "unset it, or correct its value");
    } else {
      s.ok(what);
    }
  }
}

}  // namespace

std::vector<Finding> diagnose(const Environment& e, const Wishes& wishes) {
  std::vector<Finding> all;
  build(e, {all, "Build"});
  cpu(e, {all, "CPU"});
  memory(e, {all, "Memory"});
  gpu(e, wishes, {all, "GPU"});
  libraries(e, {all, "Libraries"});
  ranks(e, {all, "Ranks"});
  data(e, {all, "Data"});
  settings(e, {all, "Environment variables"});
  return all;
}

}  // namespace doctor
