// The processes that mpirun has started, if the sample was built with MPI.
#pragma once

#include "firn/dist/group.h"

namespace sample {

/// How many there are; 1 without mpirun.
int job_size();
/// Their group; that of one rank without mpirun.
firn::dist::Group job_group();

}  // namespace sample
