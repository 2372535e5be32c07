// A Wasserstein GAN with gradient penalty (Gulrajani et al. 2017). The critic's gradient with
// respect to its input is a part of its loss, so the loss is differentiated through a gradient.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

int main() {
  manual_seed(4);
  nn::MLP generator({8, 64, 64, 2}), critic({2, 64, 64, 1});
  const std::int64_t n = 128, steps = 500, critic_steps = 3;
  // Rates that fall to 0 let the game come to rest; with constant ones it would circle on.
  const auto rate = [](std::int64_t all) { return optim::linear_schedule(3e-3, 0, all); };
  optim::Adam opt_g(generator.parameters(), {.lr = rate(steps), .beta1 = 0.5, .beta2 = 0.9});
  optim::Adam opt_c(critic.parameters(),
                    {.lr = rate(steps * critic_steps), .beta1 = 0.5, .beta2 = 0.9});

  const auto on_ring = [&] {
    const Tensor angle = rand({n, 1}) * 6.2831853;
    return cat({cos(angle), sin(angle)}, 1);
  };
  const auto penalty = [&](const Tensor& real, const Tensor& fake) {
    const Tensor between = lerp(real, fake, rand({n, 1})).detach().set_requires_grad();
    const Tensor slope = grad({sum(critic(between))}, {between}, {.create_graph = true})[0];
    return mean(square(norm(slope, 1) - 1.0));
  };
  const auto off_ring = [&] {
    const NoGrad guard;
    return mean(abs(norm(generator(randn({1000, 8})), 1) - 1.0)).item();
  };

  const double before = off_ring();
  for (int step = 0; step < steps; ++step) {
    for (int k = 0; k < critic_steps; ++k) {
      const Tensor real = on_ring(), fake = generator(randn({n, 8})).detach();
      opt_c.backward(mean(critic(fake)) - mean(critic(real)) + penalty(real, fake));
      opt_c.step();
    }
    const Freeze frozen(critic.parameters());
    opt_g.backward(-mean(critic(generator(randn({n, 8})))));
    opt_g.step();
  }
  const double after = off_ring();
  const double slope_error = penalty(on_ring(), generator(randn({n, 8})).detach()).item();
  std::printf("points are %.3f off the ring, before %.3f; the slope's squared error is %.3f\n",
              after, before, slope_error);
  return after < 0.4 * before && slope_error < 0.1 ? 0 : 1;
}
