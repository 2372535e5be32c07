#include "firn/thread_context.h"

namespace firn {

thread_local constinit ThreadContext thread_context;

}  // namespace firn
