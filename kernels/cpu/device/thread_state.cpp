#include "kernels/cpu/device/thread_state.h"

namespace firn::kernels::cpu {

thread_local constinit ThreadState thread_state;

}  // namespace firn::kernels::cpu
