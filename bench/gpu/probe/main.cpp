// Prints what a GPU's libraries do with firn's calls, which helps to interpret failures of the
// tests. It prints one line for each fact, in about 20 seconds.
//   firn_probe_gpu [PART...]
// PART: machine, products, epilogues, captures; without it, all. On the simulator it prints what
// the simulator models. Exit status: 0 all lines are complete, 1 some ended in an error (they say
// which), 2 no device or an unknown part. scripts/gpu-check runs it before the tests.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>

#include "bench/gpu/probe/probes.h"
#include "firn/runtime/stream.h"

namespace {

struct Part {
  const char* name;
  void (*add)(std::vector<probe::Step>&);
};
constexpr Part kParts[] = {{"machine", probe::add_machine},
                           {"products", probe::add_products},
                           {"epilogues", probe::add_epilogues},
                           {"captures", probe::add_captures}};

/// A line takes milliseconds, but the first use of a library takes seconds.
constexpr unsigned kSecondsALine = 30;

/// Returns true if there is a device. A child process asks, since this one must not use CUDA before
/// it forks.
bool has_device() {
  const pid_t child = fork();
  if (child == 0) _exit(firn::cuda_device_count() > 0 ? 0 : 1);
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<probe::Step> steps;
  for (int i = 1; i < argc; ++i) {
    const Part* found = nullptr;
    for (const Part& p : kParts)
      if (!std::strcmp(argv[i], p.name)) found = &p;
    if (!found) {
      std::fprintf(stderr, "firn_probe_gpu: no part '%s': machine, products, epilogues, captures\n",
                   argv[i]);
      return 2;
    }
    found->add(steps);
  }
  if (argc == 1)
    for (const Part& p : kParts) p.add(steps);
  if (!has_device()) {
    std::fprintf(stderr, "firn_probe_gpu: no CUDA device\n");
    return 2;
  }
  try {
#ifdef FIRN_HAS_CUSIM
    std::printf("probe: on the simulator\n");
#else
    std::printf("probe: on a GPU\n");
#endif
    const int bad = probe::run_steps(steps, stdout, kSecondsALine);
    std::printf("probe: %zu lines, %d ended in an error\n", steps.size(), bad);
    return bad == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "firn_probe_gpu: %s\n", e.what());
    return 1;
  }
}
