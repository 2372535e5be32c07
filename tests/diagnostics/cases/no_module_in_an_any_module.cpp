// A struct that has forward() alone, a function, a Module& and a std::unique_ptr.
// at most 40 lines
// says: give a type derived from nn::Module, or a std::shared_ptr to one
#include <firn/firn.h>

using namespace firn;

struct Block {
  Tensor forward(const Tensor& x) { return x; }
};

void hold(const nn::Module& base) {
  const nn::AnyModule block = Block{}, copy = base;
  const nn::AnyModule function([](const Tensor& x) { return x; });
  const nn::Residual residual(std::make_unique<nn::Linear>(2, 2));
}
