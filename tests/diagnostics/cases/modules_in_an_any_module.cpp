// By value, shared, another one, or none.
// compiles
#include <firn/firn.h>

using namespace firn;

int main() {
  nn::AnyModule a = nn::Linear(2, 2), b = std::make_shared<nn::Linear>(2, 2), c = a, d(a),
                e = nullptr, f;
  const nn::Linear layer(2, 2);
  a = layer, b = {}, c = std::move(d), e = f;
  const nn::Residual one(layer), two(layer, nullptr), three(layer, Activation::relu), four(c);
  const nn::Sequential named{{"hidden", layer}, {"act", nn::ReLU()}};
}
