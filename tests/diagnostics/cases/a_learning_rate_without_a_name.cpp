// An option is named: {.lr = 1e-3}.
// at most 24 lines
// says: write {.lr = 1e-3}
#include <firn/firn.h>

using namespace firn;

int main() {
  nn::Linear net(2, 2);
  optim::Adam opt(net.parameters(), 1e-3);
}
