// Compilers do not say which field is wrong; the declaration says how they would.
// at most 78 lines
// says: AdamOptions{...} names a wrong field
#include <firn/firn.h>

using namespace firn;

int main() {
  nn::Linear net(2, 2);
  optim::Adam opt(net.parameters(), {.rate = 1e-3});
}
