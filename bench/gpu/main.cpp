// Times firn on a CUDA device, with one JSON line for each figure.
//   firn_bench_gpu [--smoke] [--windows N] [--window-ms N] [WORK...]
// WORK: ceilings, mlp, cnn, memory_bound, optim, gemm, overhead; without it, all. --smoke runs
// everything once in tiny sizes, on the simulator too. bench/gpu/run compares them with PyTorch.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "bench.h"

namespace {

struct Work {
  const char* name;
  void (*run)();
};
constexpr Work kWorks[] = {{"ceilings", bench::ceilings}, {"mlp", bench::mlp},
                           {"cnn", bench::cnn},           {"memory_bound", bench::memory_bound},
                           {"optim", bench::optim},       {"gemm", bench::gemm},
                           {"overhead", bench::overhead}};

int usage() {
  std::fprintf(stderr, "firn_bench_gpu [--smoke] [--windows N] [--window-ms N] [WORK...]\nworks:");
  for (const Work& w : kWorks) std::fprintf(stderr, " %s", w.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<const Work*> chosen;
  for (int i = 1; i < argc; ++i) {
    const char* a = argv[i];
    if (!std::strcmp(a, "--smoke")) {
      bench::settings().smoke = true;
    } else if (!std::strcmp(a, "--windows") && i + 1 < argc) {
      bench::settings().windows = std::max(1, std::atoi(argv[++i]));
    } else if (!std::strcmp(a, "--window-ms") && i + 1 < argc) {
      bench::settings().window_ms = std::max(0.1, std::atof(argv[++i]));
    } else {
      const Work* found = nullptr;
      for (const Work& w : kWorks)
        if (!std::strcmp(a, w.name)) found = &w;
      if (!found) return usage();
      chosen.push_back(found);
    }
  }
  if (chosen.empty())
    for (const Work& w : kWorks) chosen.push_back(&w);

  if (firn::cuda_device_count() == 0) {
    std::fprintf(stderr, "firn_bench_gpu: no CUDA device\n");
    return 2;
  }
  int failed = 0;
  for (const Work* w : chosen) {
    // Each work has equal random numbers, independent of earlier works, and a device without
    // leftovers.
    firn::manual_seed(1);
    try {
      w->run();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "firn_bench_gpu: %s: %s\n", w->name, e.what());
      ++failed;
    }
    firn::release_cached_memory(bench::kDevice);
  }
  // Prints what cuBLASLt refused: the figures then belong to other kernels than intended.
  const std::string text = firn::describe(bench::kDevice);
  if (const std::size_t at = text.find('\n'); at != std::string::npos)
    std::fprintf(stderr, "firn_bench_gpu: %s\n", text.c_str() + at + 1);
  return failed == 0 ? 0 : 1;
}
