// fit() has no option for averages: the optimizer keeps them.
// at most 48 lines
// says: FitOptions{...} names a wrong field; ema: in StepOptions
#include <firn/firn.h>

using namespace firn;

int main() {
  nn::Linear net(2, 2);
  optim::Adam opt(net.parameters(), {.lr = 1e-3});
  data::Loader loader(data::TensorDataset({zeros({4, 2}), zeros({4, 2})}), {});
  train::fit(net, opt, loader, [](const Tensor& y, const Tensor& t) { return mse_loss(y, t); },
             {.epochs = 2, .ema = 0.999});
}
