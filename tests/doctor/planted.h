// A machine that has everything, for tests that take something away from it.
#pragma once

#include <string>

#include "firn/environment.h"
#include "tools/doctor/diagnose.h"

namespace doctor::test {

using firn::Environment;

inline Environment::Library found(const char* name, const char* version, const char* path = "") {
  Environment::Library l;
  l.name = name;
  l.built = true;
  l.found = Environment::Found::yes;
  l.version = version;
  l.path = path;
  return l;
}

/// The build does without the library.
inline void leave_out(Environment::Library& l) {
  l.built = false;
  l.found = Environment::Found::no;
  l.version = l.path = "";
}

inline Environment::CudaDevice h100() { return {"NVIDIA H100", 9, 0, 132, std::size_t{80} << 30}; }

inline Environment planted() {
  Environment e;
  e.build.version = "0.1.0";
  e.build.revision = "abc1234";
  e.build.compiler = "g++ 12.2.0";
  e.build.type = "Release";
  e.build.native = true;
  e.system = "Linux 6.1.0";
  e.cpu.model = "A Xeon";
  e.cpu.cores = e.cpu.usable = e.cpu.threads = 8;
  e.cpu.features = {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16"};
  e.cpu.machine_level = e.cpu.level = "amx";
  e.cpu.kernels = "avx512";
  e.cpu.f32 = "oneDNN";
  e.cpu.bf16 = "AMX bf16";
  e.cpu.f16 = "AMX bf16 in two parts";
  e.cpu.bf16_unit = e.cpu.f16_unit = true;
  e.memory.total = std::size_t{32} << 30;
  e.memory.available = std::size_t{24} << 30;
  e.cuda.built = true;
  e.cuda.toolkit = "13.0";
  e.cuda.architectures = {"80-real", "90"};
  e.cuda.found = Environment::Found::yes;
  e.cuda.driver = "580.65.06";
  e.cuda.driver_cuda = "13.0";
  e.cuda.devices = {h100()};
  e.cuda.cublaslt = found("cuBLASLt", "130100", "libcublasLt.so.13");
  e.cuda.cudnn = found("cuDNN", "9.19.0", "libcudnn.so.9");
  e.onednn = found("oneDNN", "2.6.3");
  e.eigen = found("Eigen", "3.4.0");
  e.zlib = found("zlib", "1.2.13");
  e.libdeflate = found("libdeflate", "1.14");
  e.png = found("libpng", "1.6.39");
  e.jpeg = found("libjpeg", "2.1.5");
  e.mpi = found("MPI", "Open MPI 4.1.4", "/usr/lib/libmpi.so");
  e.nccl = found("NCCL", "2.28.9", "libnccl.so.2");
  e.mpirun = "/usr/bin/mpirun";
  e.data = {{"FashionMNIST", "/data/fashion-mnist", ""}};
  return e;
}

inline Environment::Variable set(const char* name, const char* value) {
  Environment::Variable v;
  v.name = name;
  v.value = value;
  return v;
}

/// What is said of one section, without the heading's line.
inline std::string section(const std::vector<Finding>& all, const std::string& name) {
  std::vector<Finding> of_section;
  for (const Finding& f : all)
    if (f.section == name) of_section.push_back(f);
  const std::string text = to_text(of_section);
  return text.substr(std::min(text.size(), name.size() + 1));
}
inline std::string section(const Environment& e, const std::string& name,
                           const Wishes& wishes = {}) {
  return section(diagnose(e, wishes), name);
}

}  // namespace doctor::test
