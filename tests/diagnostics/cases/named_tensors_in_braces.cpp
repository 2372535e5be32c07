// Lists of tensors with names, for optimizers, groups and files.
// compiles
#include <firn/firn.h>

using namespace firn;

int main() {
  nn::Linear net(2, 2);
  const std::vector<NamedTensor> named = net.named_parameters();
  const optim::ParamGroup one{.parameters = {named[0]}}, list{.parameters = {{"b", net.bias}}};
  optim::SGD opt({one, {.parameters = {named[1]}, .lr_scale = 0.1}}, {.lr = 0.1});
  io::save_safetensors("w.safetensors", {{"w", net.weight}});
  io::save_safetensors("w.safetensors", {{"w", net.weight}, {"b", net.bias}}, {});
}
