// Learning to learn (MAML, Finn et al. 2017): a network whose weights are a good start for any sine
// wave. The outer loss is computed after one step of gradient descent, and is differentiated
// through it.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

namespace {

/// A network of one hidden layer as a function of its weights.
Tensor predict(const std::vector<Tensor>& w, const Tensor& x) {
  const Tensor h = tanh(linear(x, w[0], w[1]));
  return linear(tanh(linear(h, w[2], w[3])), w[4], w[5]);
}

/// A sine wave with a random phase and height, at ten places.
struct Task {
  Tensor height = rand({1}, {.low = 0.5, .high = 2.0}), phase = rand({1}, {.high = 3.14159});
  std::pair<Tensor, Tensor> draw() const {
    const Tensor x = rand({10, 1}, {.low = -3, .high = 3});
    return {x, height * sin(x + phase)};
  }
};

Tensor error(const std::vector<Tensor>& w, const std::pair<Tensor, Tensor>& data) {
  return mean(square(predict(w, data.first) - data.second));
}

/// Returns the weights after a step on ten places of the task.
std::vector<Tensor> adapted(const std::vector<Tensor>& w, const Task& task, bool create_graph) {
  const std::vector<Tensor> slope =
      grad({error(w, task.draw())}, w, {.create_graph = create_graph});
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < w.size(); ++i) out.push_back(w[i] - 0.05 * slope[i]);
  return out;
}

}  // namespace

int main() {
  manual_seed(6);
  nn::Linear a(1, 40), b(40, 40), c(40, 1);
  const std::vector<Tensor> w = {a.weight, a.bias, b.weight, b.bias, c.weight, c.bias};
  optim::Adam opt(w, {.lr = 2e-3});

  const auto after_a_step = [&] {  // the mean error on unseen tasks
    double sum = 0;
    for (int i = 0; i < 100; ++i) {
      const Task task;
      sum += error(adapted(w, task, false), task.draw()).item() / 100;
    }
    return sum;
  };
  const double before = after_a_step();
  for (int step = 0; step < 600; ++step) {
    Tensor loss = zeros({});
    for (int i = 0; i < 5; ++i) {
      const Task task;
      loss = loss + error(adapted(w, task, true), task.draw());
    }
    opt.backward(loss / 5.0);
    opt.step();
  }
  const double after = after_a_step();
  std::printf("error after one step on ten points: %.3f, before meta-training %.3f\n", after,
              before);
  return after < 0.6 * before ? 0 : 1;
}
