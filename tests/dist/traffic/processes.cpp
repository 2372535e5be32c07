// The calls of training steps on processes, counted, and the messages that they are made of:
//   mpirun -np 4 firn_traffic_mpi FILE
// Rank r writes FILE.r, with lines beside those of steps.h:
//
//   mode=plain dp=2 ...  <tab> rank <tab> mpi <tab> messages <tab> bytes
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "dist/traffic/steps.h"
#include "firn/dist/mpi.h"

namespace {

std::int64_t messages = 0, bytes = 0;

}  // namespace

/// In place of MPI's own, by its profiling interface: firn sends in no other way.
extern "C" int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag,
                         MPI_Comm comm, MPI_Request* request) {
  int size = 0;
  PMPI_Type_size(type, &size);
  ++messages;
  bytes += static_cast<std::int64_t>(count) * size;
  return PMPI_Isend(from, count, type, to, tag, comm, request);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  firn::set_num_threads(1);
  const firn::dist::Group group = firn::dist::mpi_group();
  if (!std::freopen(fmt::format("{}.{}", argv[1], group.rank()).c_str(), "w", stdout)) return 1;
  firn::testing::CountedSteps(
      group, [] { messages = bytes = 0; },
      [&](const std::string& name) {
        std::printf("%s\t%d\tmpi\t%lld\t%lld\n", name.c_str(), group.rank(),
                    static_cast<long long>(messages), static_cast<long long>(bytes));
      })
      .run_all();
}
