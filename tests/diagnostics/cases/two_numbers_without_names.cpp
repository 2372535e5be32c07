// As in Python: SGD(parameters, 0.1, 0.9).
// at most 24 lines
// says: write {.lr = 1e-3}
#include <firn/firn.h>

using namespace firn;

int main() {
  nn::Linear net(2, 2);
  optim::SGD opt(net.named_parameters(), 0.1, 0.9);
}
