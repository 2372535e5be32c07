// The layers of firn, docs/design.md, section "Layers": which part of the repository a file belongs
// to, and which parts it may include. This table is the law that include_law.cpp enforces.
#pragma once

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

// clang-format off
inline const std::vector<Part> kParts = {
    {"base",      {"include/firn/error.h", "include/firn/dtype.h", "include/firn/half.h", "include/firn/float8.h",
                   "include/firn/shape.h", "include/firn/device.h", "include/firn/random.h",
                   "include/firn/ref.h", "include/firn/view.h", "include/firn/warning.h",
                   "include/firn/ops/activation.h", "include/firn/ops/recurrent_cell.h", "include/firn/cpu.h", "include/firn/optim/kinds.h"},
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
    {"ops",       {"include/firn/grad.h", "include/firn/ops/", "src/ops/"},
                  {"base", "base_src", "runtime", "tensor", "math", "contracts", "autograd", "losses"}},
    {"nn",        {"include/firn/nn/", "src/nn/"},
                  {"base", "base_src", "runtime", "tensor", "autograd", "losses", "ops"}},
    {"optim",     {"include/firn/optim/", "src/optim/"},
                  {"base", "base_src", "runtime", "runtime_src", "tensor", "math", "contracts", "autograd", "losses"}},
    {"parallel",  {"include/firn/dist/parallel/", "src/dist/parallel/"},
                  {"base", "base_src", "runtime", "tensor", "math", "contracts", "autograd", "losses",
                   "ops", "nn", "optim", "dist"}},
    {"dist",      {"include/firn/dist/", "src/dist/"},
                  {"base", "base_src", "runtime", "tensor", "math", "contracts", "autograd", "losses",
                   "optim"}},
    {"train",     {"include/firn/data/", "include/firn/environment.h", "include/firn/io/", "include/firn/metrics/",
                   "include/firn/profile.h", "include/firn/train/", "src/data/", "src/environment/", "src/io/", "src/metrics/", "src/profile/",
                   "src/train/"},
                  {"base", "base_src", "runtime", "tensor", "math", "contracts", "autograd", "losses", "ops",
                   "nn", "optim", "dist", "parallel"}},
    {"roof",      {"include/firn/firn.h"},
                  {"base", "runtime", "tensor", "autograd", "losses", "ops", "nn", "optim", "dist", "parallel", "train"}},
    {"tools",     {"src/tools/"},
                  {"base", "runtime", "roof"}},
};

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
