// With the struct in front of the braces the compiler names the field.
// at most 8 lines
// says: rate
#include <firn/firn.h>

using namespace firn;

int main() {
  nn::Linear net(2, 2);
  optim::Adam opt(net.parameters(), optim::AdamOptions{.rate = 1e-3});
}
