// A GAN: a generator learns to draw points on a ring from a critic that tells them from real ones.
// It has two optimizers, and train::fit() with a custom step.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

int main() {
  manual_seed(2);
  const Tensor angle = rand({1024, 1}) * 6.2831853;
  const data::TensorDataset ring({cat({cos(angle), sin(angle)}, 1)});
  data::Loader loader(ring, {.batch = 128, .shuffle = true, .seed = 1});
  nn::MLP generator({8, 64, 64, 2}), critic({2, 64, 64, 1});
  optim::Adam opt_g(generator.parameters(), {.lr = 1e-3, .beta1 = 0.5}, {.ema = 0.98});
  optim::Adam opt_c(critic.parameters(), {.lr = 1e-3, .beta1 = 0.5});

  const auto step = [&](const data::LoaderBatch& batch) {
    const Tensor real = batch[0], fake = generator(randn({batch.size(), 8}));
    const Tensor yes = full({batch.size(), 1}, 1.0), no = zeros({batch.size(), 1});
    const Loss on_real = bce_with_logits(critic(real), yes);  // named, since C++ does not order +
    const Loss on_fake = bce_with_logits(critic(fake.detach()), no);
    opt_c.backward(on_real + on_fake);
    opt_c.step();
    const Freeze frozen(critic.parameters());
    opt_g.backward(bce_with_logits(critic(fake), yes));
    opt_g.step();
  };
  const auto off_ring = [&] {  // mean distance of generated points to the ring
    const Tensor radius = sqrt(sum(square(generator(randn({1000, 8}))), 1));
    return std::vector<metrics::Value>{{"off_ring", mean(abs(radius - 1.0)).item()}};
  };
  const double before = off_ring()[0].value;
  const train::FitReport report =
      train::fit({.modules = {{"generator", generator}, {"critic", critic}},
                  .optimizers = {{"generator", opt_g}, {"critic", opt_c}}},
                 loader, step, {.epochs = 60, .evaluate = off_ring, .progress = false});
  const double after = report.last.value("off_ring");

  // The generator should cover the whole ring: all four quadrants get points.
  const NoGrad guard;
  const Tensor points = generator(randn({1000, 8}));
  const Tensor quadrant =
      2.0 * lt(points.slice(1, 0, 1), 0.0).to(f32) + lt(points.slice(1, 1, 2), 0.0).to(f32);
  const double fewest = bincount(quadrant.to(i64).flatten(), {.min_length = 4}).min().item() / 1000;
  std::printf("points are %.3f off the ring, before %.3f; the emptiest quadrant has %.0f %%\n",
              after, before, 100 * fewest);
  return after < 0.3 * before && after < 0.25 && fewest > 0.05 ? 0 : 1;
}
