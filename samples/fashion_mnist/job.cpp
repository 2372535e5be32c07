#include "job.h"

#include <cstdlib>

#ifdef SAMPLE_HAS_MPI
#include "firn/dist/mpi.h"
#endif

namespace sample {

int job_size() {
#ifdef SAMPLE_HAS_MPI
  // Open MPI; MPICH and those that come from it.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(name)) return std::atoi(size) > 1 ? std::atoi(size) : 1;
#endif
  return 1;
}

firn::dist::Group job_group() {
#ifdef SAMPLE_HAS_MPI
  if (job_size() > 1) return firn::dist::mpi_group();
#endif
  return {};
}

}  // namespace sample
