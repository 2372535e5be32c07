// Rules by firn's operations, for tests of optim::Custom.
#pragma once

#include <cmath>

#include "firn/firn.h"

namespace firn::testing {

/// SGD with momentum, as optim::SGD computes it.
inline optim::CustomOptions custom_momentum(const optim::Schedule& lr) {
  return {.lr = lr,
          .states = {{"momentum"}},
          .update = [](const optim::CustomInput& in) -> optim::CustomUpdate {
            const Tensor b = 0.9 * in.states[0] + in.gradient;
            return {in.weight - in.lr * b, {b}};
          }};
}

/// A second moment for each row and not for each element, with bias correction: a state of another
/// shape than the weight's, and one that begins with something else than 0.
inline optim::CustomOptions custom_rows(const optim::Schedule& lr) {
  const auto rows = [](const Shape& weight) { return Shape{weight[0]}; };
  return {
      .lr = lr,
      .states = {{.name = "row_squares", .initial = 0.25, .shape = rows}, {.name = "first_moment"}},
      .update = [](const optim::CustomInput& in) -> optim::CustomUpdate {
        const Tensor g = reshape(in.gradient, {in.gradient.size(0), -1});
        const Tensor v = 0.9 * in.states[0] + 0.1 * mean(square(g), {1});
        Tensor m = in.states[1];
        m *= 0.8;  // the function may write its copies
        m += 0.2 * in.gradient;
        Shape column = in.weight.shape();
        for (int i = 1; i < column.size(); ++i) column[i] = 1;
        const Tensor root = reshape(sqrt(v) + 1e-3, column);
        const Tensor correction = 1.0 - exp(in.t * std::log(0.8));
        return {in.weight - in.lr * (m / correction) / root, {v, m}};
      }};
}

}  // namespace firn::testing
