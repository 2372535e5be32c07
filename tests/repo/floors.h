// The layers of firn, docs/design.md, section "Layers": which part of the repository a file belongs
// to, and which parts it may include. This table is the law that include_law.cpp enforces. Which
// modules it allows is written in src/modules.cmake, and modules.cpp compares the two.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

namespace repo {

struct Part {
  std::string_view name;
  /// Files and folders (with a closing slash), relative to the repository. "kernels/*" is the files
  /// of that folder alone. The first part that matches a path owns it.
  std::vector<std::string_view> paths;
  /// Names of parts that it may include; its own always.
  std::vector<std::string_view> may_include;
};

/// The parts of the module core that other modules may include, and more.
inline std::vector<std::string_view> core_and(std::initializer_list<std::string_view> more) {
  std::vector<std::string_view> all = {"base", "base_src",  "runtime",  "tensor",
                                       "math", "contracts", "autograd", "losses",
                                       "ops",  "nn",        "optim",    "group"};
  all.insert(all.end(), more);
  return all;
}

// clang-format off
inline const std::vector<Part> kParts = {
    // The module core.
    {"base",      {"include/firn/error.h", "include/firn/dtype.h", "include/firn/half.h", "include/firn/float8.h",
                   "include/firn/shape.h", "include/firn/device.h", "include/firn/random.h",
                   "include/firn/ref.h", "include/firn/view.h", "include/firn/warning.h", "include/firn/version.h",
                   "include/firn/ops/activation.h", "include/firn/ops/recurrent_cell.h", "include/firn/cpu.h", "include/firn/optim/kinds.h",
                   "include/firn/thread_context.h"},
                  {}},
    {"base_src",  {"src/base/"},
                  {"base"}},
    {"runtime",   {"include/firn/memory.h", "include/firn/memory/", "include/firn/runtime/"},
                  {"base"}},
    {"runtime_src", {"src/runtime/"},
                  {"base", "base_src", "runtime"}},
    {"tensor",    {"include/firn/tensor.h", "src/tensor/"},
                  {"base", "base_src", "runtime", "runtime_src", "math"}},
    {"math",      {"kernels/math/"},
                  {"base"}},
    {"linalg_kernels", {"kernels/linalg.h", "kernels/cpu/linalg/"},  // of the module linalg
                  {"base", "runtime", "math", "contracts", "cpu"}},
    {"lm_kernels", {"include/firn/lm/gguf_type.h", "kernels/lm.h", "kernels/cpu/lm/"},  // of the module lm
                  {"base", "runtime", "contracts", "cpu"}},
    {"contracts", {"kernels/*", "kernels/plan/", "kernels/sequence/", "kernels/settings/"},
                  {"base", "runtime", "math"}},
    {"cpu",       {"kernels/cpu/"},
                  {"base", "runtime", "math", "contracts"}},
    {"cuda",      {"kernels/cuda/"},
                  {"base", "runtime", "math", "contracts"}},
    {"autograd",  {"include/firn/autograd.h", "include/firn/checkpoint.h", "src/autograd/"},
                  {"base", "base_src", "runtime", "runtime_src", "tensor", "math", "contracts"}},
    {"losses",    {"include/firn/ops/losses.h"},
                  {"base", "runtime", "tensor"}},
    {"linalg",    {"include/firn/ops/linalg.h", "src/linalg/"},  // a module
                  {"base", "base_src", "runtime", "tensor", "math", "contracts", "autograd", "ops", "linalg_kernels"}},
    {"ops",       {"include/firn/grad.h", "include/firn/ops/", "src/ops/"},
                  {"base", "base_src", "runtime", "tensor", "math", "contracts", "autograd", "losses"}},
    {"nn",        {"include/firn/nn/", "src/nn/"},
                  {"base", "base_src", "runtime", "tensor", "autograd", "losses", "ops"}},
    {"optim",     {"include/firn/optim/", "src/optim/"},
                  {"base", "base_src", "runtime", "runtime_src", "tensor", "math", "contracts", "autograd", "losses"}},
    {"group",     {"include/firn/dist/group.h", "src/dist/group.cpp", "src/dist/transport.h", "src/dist/transport.cpp",
                   "src/dist/combine.h", "src/dist/combine.cpp", "src/dist/nccl_version.h"},
                  {"base", "base_src", "runtime", "tensor", "math", "autograd"}},
    {"core_roof", {"include/firn/core.h"},
                  {"base", "runtime", "tensor", "autograd", "losses", "ops", "nn", "optim", "group"}},

    // The other modules: core, and the modules that they link.
    {"mpi",       {"include/firn/dist/mpi.h", "src/dist/mpi/"},
                  {"base", "base_src", "runtime", "tensor", "math", "contracts", "autograd", "group"}},
    {"nccl",      {"include/firn/dist/nccl.h", "src/dist/nccl/"},
                  {"base", "base_src", "runtime", "tensor", "math", "contracts", "autograd", "group"}},
    {"parallel",  {"include/firn/dist/parallel/", "src/dist/parallel/"},
                  {"base", "base_src", "runtime", "tensor", "math", "contracts", "autograd", "losses",
                   "ops", "nn", "optim", "group", "dist"}},
    {"dist",      {"include/firn/dist/", "src/dist/"},
                  {"base", "base_src", "runtime", "tensor", "math", "contracts", "autograd", "losses",
                   "optim", "group"}},
    {"onnx",      {"include/firn/onnx/", "include/firn/io/onnx.h", "src/onnx/"},
                  core_and({"io"})},
    {"io",        {"include/firn/io/", "src/io/"},
                  core_and({})},
    {"data",      {"include/firn/data/", "src/data/"},
                  core_and({"io"})},
    {"lm",        {"include/firn/lm/", "src/lm/"},
                  core_and({"io", "lm_kernels"})},
    {"metrics",   {"include/firn/metrics/", "src/metrics/"},
                  core_and({"io"})},
    {"profile",   {"include/firn/profile.h", "src/profile/"},
                  core_and({"io"})},
    {"environment", {"include/firn/environment.h", "src/environment/"},
                  core_and({"io", "data"})},
    {"train",     {"include/firn/train/", "src/train/"},
                  core_and({"io", "data", "metrics", "environment"})},

    // What is of no module.
    {"roof",      {"include/firn/firn.h", "include/firn/deprecated.h"},
                  {"core_roof", "optim", "linalg", "dist", "parallel", "io", "data", "onnx", "metrics", "profile", "environment", "train", "lm"}},
    {"tools",     {"src/tools/"},
                  {"base", "base_src", "runtime", "roof"}},
};

/// The part that owns `path`, or null.
inline const Part* part_of(std::string_view path) {
  for (const Part& part : kParts) {
    for (std::string_view p : part.paths) {
      const bool in_folder = p.ends_with('/') && path.starts_with(p);
      const bool directly = p.ends_with("/*") && path.starts_with(p.substr(0, p.size() - 1)) &&
                            path.find('/', p.size() - 1) == std::string_view::npos;
      if (path == p || in_folder || directly) return &part;
    }
  }
  return nullptr;
}

/// Headers of other projects, by how their name begins, and the only parts (or files) that may
/// include them. Headers of the C++ library are allowed everywhere but for the limits below.
struct Foreign {
  std::string_view prefix;
  std::vector<std::string_view> allowed;
};
inline const std::vector<Foreign> kForeign = {
    {"fmt/",     {"src/"}},
    {"Eigen/",   {"kernels/cpu/"}},
    {"dnnl",     {"kernels/cpu/"}},
    {"oneapi/",  {"kernels/cpu/"}},
    {"omp.h",    {}},
    {"cuda",     {"kernels/cuda/", "src/runtime/cuda/"}},
    {"nvtx3/",  {"src/runtime/cuda/"}},
    {"cusim",    {"kernels/cuda/device/gpu.h"}},
    {"cublas",   {"kernels/cuda/"}},
    {"cudnn",    {"kernels/cuda/"}},
    {"dlfcn.h",  {"kernels/settings/open_library.h"}},
    {"zlib.h",   {"src/data/", "src/environment/libraries.cpp", "src/io/"}},
    {"libdeflate.h", {"src/environment/libraries.cpp", "src/io/"}},
    {"pcre2.h",  {"src/lm/"}},
    {"utf8proc.h", {"src/lm/"}},
    {"png.h",    {"src/data/files/", "src/environment/libraries.cpp"}},
    {"jpeglib.h", {"src/data/files/", "src/environment/libraries.cpp"}},
    {"jerror.h", {"src/data/files/"}},
    {"immintrin.h", {"kernels/cpu/"}},
    {"xmmintrin.h", {"kernels/cpu/"}},
    {"emmintrin.h", {"kernels/cpu/"}},
    {"sched.h",  {"src/"}},
    {"cxxabi.h", {"src/"}},
    {"sys/",     {"src/", "kernels/settings/isa.cpp", "kernels/cpu/device/reserve.cpp"}},
    {"dirent.h", {"src/"}},
    {"fcntl.h",  {"src/"}},
    {"unistd.h", {"src/", "kernels/settings/isa.cpp", "kernels/cpu/conv/primitive.cpp"}},
    {"cpuid.h",  {"kernels/settings/isa.cpp"}},
    {"pthread.h", {"src/", "kernels/cpu/"}},
    {"mpi.h",    {"src/dist/mpi/"}},
    {"nccl.h",   {"src/dist/nccl/"}},
    {"nlohmann/", {"src/tools/"}},
    {"CLI/",     {"src/tools/"}},
};

/// What certain files may include of no part, by a word in the header's name: they serve whoever
/// runs a backward pass, and know no optimizer.
struct Stranger {
  std::vector<std::string_view> files;
  std::vector<std::string_view> words;
};
inline const std::vector<Stranger> kStrangers = {
    {{"kernels/rows.h", "kernels/cpu/rows/", "kernels/cuda/rows/", "kernels/cpu/device/",
      "kernels/cuda/device/", "src/autograd/"},
     {"optim", "step_memory", "step_state"}},
};

/// C++ headers that cost every file that includes firn.h, and so stay out of public headers.
inline const std::vector<std::string_view> kHeavy = {
    "algorithm", "chrono", "filesystem", "format", "future", "iostream", "map", "random", "ranges",
    "regex", "sstream", "thread", "unordered_map"};

/// All that the formulas may use: they are compiled for CPU tiles, CUDA threads and doubles alike.
inline const std::vector<std::string_view> kMathStd = {"cmath", "cstdint", "limits", "type_traits"};
// clang-format on

}  // namespace repo
