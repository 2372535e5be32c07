// Steps of 1 to 4 ranks that are threads, and the parts of these steps.
//   bench_ranks [WORK] [--epochs ROUNDS]
#include <firn/dist/local.h>

#include <thread>

#include "measure.h"

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  bench::ranks::Measurement all(
      [](int n, const auto& fn) {
        double out = 0;
        firn::dist::run_local(n,
                              [&](const firn::dist::Group& group) {
                                const double seconds = fn(group);
                                if (group.rank() == 0) out = seconds;
                              },
                              {.threads = 1});
        return out;
      },
      run.work);
  for (int round = 0; round < run.epochs; ++round) all.round(4);
  bench::report("ranks.processes", "", {0});
  bench::report("ranks.cores", "", {static_cast<double>(std::thread::hardware_concurrency())});
  all.report();
}
