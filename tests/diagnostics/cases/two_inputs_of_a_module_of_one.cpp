// nn::Module takes one tensor; ModuleOf any arguments.
// at most 16 lines
// says: base: ModuleOf<Net>
#include <firn/firn.h>

using namespace firn;

struct Net : nn::Module {
  Tensor forward(const Tensor& x, const Tensor& y) { return x + y; }
};

int main() {
  Net net;
  net(zeros({1}), zeros({1}));
}
