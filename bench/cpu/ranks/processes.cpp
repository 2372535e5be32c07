// threads.cpp with ranks that are processes: steps of 2 ranks up to all ranks of the job.
//   mpirun -np 4 bench_ranks_mpi [WORK] [--epochs ROUNDS]
#include <firn/dist/mpi.h>

#include <sched.h>

#include "measure.h"

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  firn::set_num_threads(1);
  const firn::dist::Group all = firn::dist::mpi_group();
  std::map<int, firn::dist::Group> first;  // the first n ranks; the others wait
  for (int n = 1; n <= all.size(); ++n) first.emplace(n, all.split(all.rank() < n ? 0 : 1));
  bench::ranks::Measurement steps(
      [&](int n, const auto& fn) {
        const double seconds = all.rank() < n ? fn(first.at(n)) : 0;
        all.barrier();
        return seconds;
      },
      run.work);
  for (int round = 0; round < run.epochs; ++round) steps.round(all.size());
  if (all.rank() > 0) return 0;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  bench::report("ranks.processes", "", {1});
  bench::report("ranks.cores", "", {static_cast<double>(CPU_COUNT(&cores))});
  steps.report();
}
