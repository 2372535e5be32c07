// A model as a user of an installed firn writes it: a module of two inputs, a hook, a clone.
// A name of the user's own, which firn's headers must not shadow.
struct Result {};

#include <firn/firn.h>

#include <iostream>
#include <utility>

using namespace firn;

struct Mix : nn::ModuleOf<Mix> {
  nn::Linear fc{3, 1, {.bias = false}};
  nn::Sequential after{nn::Identity(), nn::Dropout(0.5)};
  FIRN_MEMBERS(fc, after)

  Tensor forward(const Tensor& x, const Tensor& gate, const Tensor& bias = {}) {
    const Tensor y = after(fc(x * gate));
    return bias.defined() ? y + bias : y;
  }
};

/// The encoder of a variational auto-encoder: one tensor, taken by value, and two results.
struct Encoder : nn::ModuleOf<Encoder> {
  nn::Linear mu{3, 2, {.bias = false}}, log_var{3, 2, {.bias = false}};
  FIRN_MEMBERS(mu, log_var)

  std::pair<Tensor, Tensor> forward(Tensor x) { return {mu(x), log_var(x)}; }
};

int main() {
  Mix net;
  nn::init::ones_(net.fc.weight);
  net.eval();

  const Mix kept = nn::clone(net);
  int calls = 0;
  const nn::HookId id = net.fc.add_forward_hook(
      [&](nn::Module&, const nn::CallTensors& in, const nn::CallTensors& out) {
        calls += in.size() == 1 && out[0].defined() ? 1 : 0;
      });
  Tensor x = ones({2, 3}).set_requires_grad();
  const Tensor loss = net(x, full({2, 3}, 2), zeros({1})).sum();
  net.fc.remove_hook(id);
  loss.backward();
  const double gradient = x.grad().sum().item() + net.fc.weight.grad().sum().item();
  nn::init::zeros_(net.fc.weight);

  Mix again = kept;
  const bool separate = again(x, ones({2, 3})).sum().item() == 6 && !again.training();
  Encoder encode;
  encode.set_autocast(bf16);
  const auto [mu, log_var] = encode(ones({4, 3}));
  const bool two = mu.shape() == Shape{4, 2} && log_var.dtype() == bf16 &&
                   encode.summary(ones({4, 3})).find("[4, 2], [4, 2]") != std::string::npos;
  if (calls != 1 || !separate || !two) return 1;
  std::cout << "loss " << loss.item() << ", gradient " << gradient << "\n";
}
