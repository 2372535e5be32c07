// The average of the weights is an option of the step, in braces of its own.
// at most 78 lines
// says: AdamOptions{...} names a wrong field; ema: in step
#include <firn/firn.h>

using namespace firn;

int main() {
  nn::Linear net(2, 2);
  optim::Adam opt(net.parameters(), {.lr = 1e-3, .ema = 0.999});
}
