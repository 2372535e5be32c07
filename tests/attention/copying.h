// What layers of attention are trained on in tests: to copy the token before.
#pragma once

#include <vector>

#include "firn/firn.h"
#include "support/values.h"

namespace firn::testing {

/// The loss after so many micro-steps. `net` takes tokens [8, 6] of six kinds and returns logits
/// [8, 6, 6]; without the token before it, it stays near log 6 = 1.79.
template <class Net>
double learn_to_copy(Net& net, optim::Optimizer& opt, int micro_steps, DType dtype) {
  Rng rng(6);
  double last = 0;
  for (int step = 0; step < micro_steps; ++step) {
    std::vector<double> tokens, targets;
    for (int i = 0; i < 8 * 6; ++i) tokens.push_back(static_cast<double>(rng.below(6)));
    for (int i = 0; i < 8 * 6; ++i)
      targets.push_back(i % 6 == 0 ? -100 : tokens[static_cast<std::size_t>(i - 1)]);
    const Autocast guard(dtype);
    const Loss loss = cross_entropy(net(make(tokens, {8, 6}, i64)), make(targets, {8, 6}, i64),
                                    {.class_weights = {}, .axis = 2});
    opt.backward(loss);
    opt.step();
    last = loss.item();
  }
  return last;
}

}  // namespace firn::testing
