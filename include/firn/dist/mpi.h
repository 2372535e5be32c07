// Ranks as processes over MPI. They are in the library firn::mpi, which exists if firn was built
// with MPI (FIRN_MPI): mpirun -n 4 ./program
#pragma once

#include "firn/dist/group.h"

namespace firn::dist {

struct MpiOptions {
  double deadline = 60;  ///< seconds that a collective waits for the other ranks
};

/// The group of all processes that mpirun has started. The first call initialises MPI if the
/// program has not, with MPI_THREAD_MULTIPLE if MPI has it, and ends it when the process ends
/// normally. Throws Error if MPI gives less than MPI_THREAD_SERIALIZED, or if the deadline is not
/// positive. Without mpirun it is a group of one rank.
///
/// A process that ends by an exception or a signal ends the whole job, as MPI defines. A call whose
/// deadline passes throws RankError. The group is then invalid, and the process should end.
Group mpi_group(const MpiOptions& options = {});

}  // namespace firn::dist
