// What becomes of a store's arenas when their state is divided over ranks.
//
// Folder law: floor 6. Includes floors 0 to 3, kernel contracts, and of floor 4 only losses.h.
#pragma once

#include <vector>

#include "optim/store/param_store.h"

namespace firn::optim {

struct ParamStore::Division {
  std::vector<Arena> arenas;
  std::vector<kernels::OptimizerArena> views;
  std::vector<Ref<Storage>> norm_tables;  ///< of the whole arenas, which the norm goes on to use
  WholeUpdates whole;
};

}  // namespace firn::optim
