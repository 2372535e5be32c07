// The time of exact mode's exchange over MPI, compared with MPI_Allreduce of as many bytes: 64 MiB
// of f32 gradients.
//   mpirun -np 2 bench_reduction_mpi [--epochs ROUNDS]
// The exchange is the difference of two alternating steps. In one, each rank has a chunk of the
// batch of all ranks; in the other, each trains on its chunk independently. The exchange includes
// the sums in a fixed order, and the ranks' metadata of a cycle.
#include <firn/dist/distribute.h>
#include <firn/dist/mpi.h>
#include <firn/firn.h>

#include <mpi.h>

#include <vector>

#include "../../harness.h"

using namespace firn;

namespace {

constexpr std::int64_t kElements = std::int64_t{16} << 20;

struct Model {
  nn::Parameter weight{zeros({kElements})};
  optim::SGD opt{{weight}, {.lr = 0.01}, {.exact = {.chunk = 1}}};
  /// All ranks begin a step together.
  double step(const dist::Group& group, std::int64_t samples) {
    group.barrier();
    const double start = bench::seconds();
    opt.run_batch(samples, 1, [&](std::int64_t, std::int64_t) -> Loss {
      return {weight.sum(), full({}, 1.0)};
    });
    return bench::seconds() - start;
  }
};

double all_reduce(const dist::Group& group, std::vector<float>& x, std::vector<float>& y) {
  group.barrier();
  const double start = bench::seconds();
  MPI_Allreduce(x.data(), y.data(), static_cast<int>(kElements), MPI_FLOAT, MPI_SUM,
                MPI_COMM_WORLD);
  return bench::seconds() - start;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  set_num_threads(1);
  const dist::Group group = dist::mpi_group();
  Model together, alone;
  dist::distribute(together.opt, group);
  std::vector<float> x(kElements, 1), y(kElements);
  std::vector<double> exchange, peer;
  for (int round = -2; round < 10 * run.epochs; ++round) {
    const double with = together.step(group, group.size());
    const double without = alone.step(group, 1);
    const double theirs = all_reduce(group, x, y);
    if (round < 0) continue;
    exchange.push_back((with - without) * 1e3);
    peer.push_back(theirs * 1e3);
  }
  if (group.rank() > 0) return 0;
  // Single differences are noisy, so the medians are compared.
  bench::report("reduction.exact", "ms", exchange);
  bench::report("reduction.mpi_allreduce", "ms", peer);
  bench::report("reduction.share", "of MPI_Allreduce",
                {bench::median(exchange) / bench::median(peer)});
}
