// Proximal policy optimisation (Schulman et al. 2017) on CartPole. A cart with a pole is pushed to
// the left or to the right, and the pole should not fall for 500 steps. All carts run at once.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "firn/firn.h"

using namespace firn;

/// n carts (Barto, Sutton & Anderson 1983), with the numbers of Gymnasium's CartPole-v1. A cart
/// whose pole has fallen, or that has stood for 500 steps, starts anew.
struct Carts {
  Tensor state, age;  // [n, 4]: place, speed, angle, its speed; [n]: steps so far
  static Tensor start(std::int64_t n) { return 0.1 * rand({n, 4}) - 0.05; }
  explicit Carts(std::int64_t n) : state(start(n)), age(zeros({n})) {}

  struct Result {
    Tensor fell, ended;  // bool [n]
  };
  Result push(const Tensor& right) {  // i64 [n]: 0 or 1
    const Tensor x = state.select(1, 0), v = state.select(1, 1), angle = state.select(1, 2),
                 w = state.select(1, 3), force = 20.0 * right.to(f32) - 10.0;
    const Tensor sine = sin(angle), cosine = cos(angle);
    const Tensor push = (force + 0.05 * square(w) * sine) / 1.1;
    const Tensor dw = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3 - 0.1 * square(cosine) / 1.1));
    const Tensor dv = push - 0.05 * dw * cosine / 1.1;
    state = stack({x + 0.02 * v, v + 0.02 * dv, angle + 0.02 * w, w + 0.02 * dw}, 1);
    age = age + 1.0;
    const Tensor fell =
        logical_or(gt(abs(state.select(1, 0)), 2.4), gt(abs(state.select(1, 2)), 0.2095));
    const Tensor ended = logical_or(fell, ge(age, 500));
    state = where(ended.unsqueeze(1), start(state.size(0)), state);
    age = where(ended, 0, age);
    return {fell, ended};
  }
};

struct Agent : nn::Module {
  nn::MLP policy{{4, 64, 64, 2}}, value{{4, 64, 64, 1}};
  FIRN_MEMBERS(policy, value)
  Tensor worth(const Tensor& state) { return value(state).squeeze(-1); }
};

static Tensor log_chance(const Tensor& log_chances, const Tensor& action) {
  return gather(log_chances, 1, action.unsqueeze(1)).squeeze(1);
}

int main(int argc, char** argv) {
  manual_seed(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1);
  constexpr std::int64_t kCarts = 32, kSteps = 64, kRounds = 60, kEpochs = 6, kBatch = 256;
  constexpr double kDiscount = 0.99, kLambda = 0.95, kClip = 0.2;
  Agent agent;
  optim::Adam opt(
      agent.parameters(),
      {.lr = optim::linear_schedule(2e-3, 0, kRounds * kEpochs * kCarts * kSteps / kBatch)},
      {.clip_norm = 0.5});
  Carts carts(kCarts);
  for (std::int64_t round = 0; round < kRounds; ++round) {
    std::vector<Tensor> states, actions, chances, worths, rewards, goes_on;
    {
      const NoGrad guard;
      for (std::int64_t t = 0; t < kSteps; ++t) {
        states.push_back(carts.state);
        const Tensor all = log_softmax(agent.policy(carts.state));
        actions.push_back(categorical(all));
        chances.push_back(log_chance(all, actions.back()));
        worths.push_back(agent.worth(carts.state));
        const auto [fell, ended] = carts.push(actions.back());
        rewards.push_back(where(fell, 0, ones({kCarts})));
        goes_on.push_back(logical_not(ended).to(f32));
      }
      worths.push_back(agent.worth(carts.state));
    }
    // Generalized advantage estimation (Schulman et al. 2016).
    std::vector<Tensor> advantages(kSteps);
    Tensor sum = zeros({kCarts});
    for (std::size_t t = kSteps; t-- > 0;) {
      const Tensor surprise = rewards[t] + kDiscount * goes_on[t] * worths[t + 1] - worths[t];
      advantages[t] = sum = surprise + kDiscount * kLambda * goes_on[t] * sum;
    }
    worths.pop_back();
    const Tensor state = cat(states), action = cat(actions), old_chance = cat(chances),
                 advantage = cat(advantages), goal = advantage + cat(worths);
    const Tensor gain = (advantage - mean(advantage)) / (firn::std(advantage) + 1e-8);
    for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (const Tensor& at : split(randperm(state.size(0)), kBatch)) {
        const auto of = [&](const Tensor& all) { return index_select(all, 0, at); };
        const Tensor all = log_softmax(agent.policy(of(state))), a = of(gain);
        const Tensor ratio = exp(log_chance(all, of(action)) - of(old_chance));
        const Tensor better = minimum(ratio * a, clamp(ratio, 1 - kClip, 1 + kClip) * a);
        const Tensor entropy = -(exp(all) * all).sum(1);
        const Tensor error = square(agent.worth(of(state)) - of(goal));
        opt.backward(0.5 * mean(error) - mean(better) - 0.01 * mean(entropy));
        opt.step();
      }
    }
  }
  // The test is not random: it takes the likelier push, until every cart's first pole has fallen or
  // stood.
  const NoGrad guard;
  Carts tests(100);
  Tensor steps = zeros({100}), first = ones({100});
  for (int t = 0; t < 500; ++t) {
    steps = steps + first;
    first = first * logical_not(tests.push(argmax(agent.policy(tests.state))).ended).to(f32);
  }
  const double mean_return = mean(steps).item();
  std::printf("the pole stands for %.0f of 500 steps in the mean of 100 trials\n", mean_return);
  return mean_return >= 400 ? 0 : 1;
}
