// Optimizers against PyTorch's (tests/goldens/optim.py), and against first steps worked out by
// hand.
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "optim/problem.h"

namespace firn::testing {
namespace {

struct Run {
  std::string title, algorithm;
  DType dtype = f64;
  std::map<std::string, double> options;
  std::vector<std::vector<double>> steps;

  double get(const char* key, double otherwise) const {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : found->second;
  }
};

struct Goldens {
  std::map<std::string, std::vector<double>> data;  // initial, goal, curve
  std::vector<Run> runs;
};

std::vector<double> numbers(std::istream& in) {
  std::vector<double> out;
  for (double v = 0; in >> v;) out.push_back(v);
  return out;
}

Goldens read() {
  std::ifstream file(FIRN_SOURCE_DIR "/tests/goldens/optim.txt");
  REQUIRE(file);
  Goldens out;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string key, word;
    line >> key;
    if (key == "run") {
      Run& run = out.runs.emplace_back();
      run.title = text;
      line >> run.algorithm >> word;
      run.dtype = word == "f64" ? f64 : f32;
      while (line >> word)
        run.options[word.substr(0, word.find('='))] = std::stod(word.substr(word.find('=') + 1));
    } else if (key == "step") {
      line >> word >> word;
      out.runs.back().steps.push_back(numbers(line));
    } else {
      line >> word;
      out.data[key] = numbers(line);
    }
  }
  return out;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Run& r, std::vector<Tensor> parameters) {
  const double lr = r.get("lr", 0), clip = r.get("clip_norm", 0);
  const double beta1 = r.get("beta1", 0.9), beta2 = r.get("beta2", 0.999), eps = r.get("eps", 1e-8);
  if (r.algorithm == "SGD")
    return std::make_unique<optim::SGD>(std::move(parameters),
                                        optim::SGDOptions{.lr = lr,
                                                          .momentum = r.get("momentum", 0),
                                                          .dampening = r.get("dampening", 0),
                                                          .nesterov = r.get("nesterov", 0) != 0,
                                                          .weight_decay = r.get("weight_decay", 0)},
                                        optim::StepOptions{.clip_norm = clip});
  if (r.algorithm == "Adam")
    return std::make_unique<optim::Adam>(
        std::move(parameters),
        optim::AdamOptions{.lr = lr,
                           .beta1 = beta1,
                           .beta2 = beta2,
                           .eps = eps,
                           .weight_decay = r.get("weight_decay", 0)},
        optim::StepOptions{.clip_norm = clip});
  return std::make_unique<optim::AdamW>(
      std::move(parameters),
      optim::AdamWOptions{.lr = lr,
                          .beta1 = beta1,
                          .beta2 = beta2,
                          .eps = eps,
                          .weight_decay = r.get("weight_decay", 0.01)},
      optim::StepOptions{.clip_norm = clip});
}

// The 17 values of the golden problem: a [3, 4] and b [5].
std::vector<Tensor> split(const std::vector<double>& v, DType dtype) {
  return {make({v.begin(), v.begin() + 12}, {3, 4}, dtype),
          make({v.begin() + 12, v.end()}, {5}, dtype)};
}

TEST_CASE("every step of SGD, Adam and AdamW is PyTorch's") {
  const Goldens goldens = read();
  REQUIRE(goldens.runs.size() == 26);
  for (const Run& run : goldens.runs) {
    const auto goal = split(goldens.data.at("goal"), run.dtype);
    const auto curve = split(goldens.data.at("curve"), run.dtype);
    auto weights = split(goldens.data.at("initial"), run.dtype);
    for (Tensor& w : weights) w.set_requires_grad();
    const auto opt = make_optimizer(run, weights);
    REQUIRE(run.steps.size() == 12);
    for (std::size_t step = 1; step <= run.steps.size(); ++step) {
      Tensor loss;
      for (std::size_t i = 0; i < 2; ++i) {
        if (i == 1 && static_cast<double>(step) < run.get("b_from", 0)) continue;
        const Tensor part = sum(0.5 * curve[i] * square(weights[i] - goal[i]));
        loss = loss.defined() ? loss + part : part;
      }
      opt->backward(loss);
      REQUIRE(opt->step());
      auto got = values_of(weights[0]);
      for (const double v : values_of(weights[1])) got.push_back(v);
      expect_close(run.title + ", step " + std::to_string(step), got, run.steps[step - 1],
                   run.dtype == f64 ? 1e-14 : 2e-6);
    }
  }
}

// The first step from w = 1 with gradient 2 and learning rate 0.1.
double first_step(optim::Optimizer&& opt) {
  opt.backward(objective(opt.parameters()[0], {2}));
  REQUIRE(opt.step());
  return opt.parameters()[0].item();
}

TEST_CASE("first steps by hand") {
  const auto one = [] { return std::vector<Tensor>{parameter({1}, {1}, f64)}; };
  CHECK(first_step(optim::SGD(one(), {.lr = 0.1})) == Approx(0.8));
  CHECK(first_step(optim::SGD(one(), {.lr = 0.1, .weight_decay = 0.5})) == Approx(0.75));
  // The first momentum is the gradient itself, whatever the dampening.
  CHECK(first_step(optim::SGD(one(), {.lr = 0.1, .momentum = 0.9, .dampening = 0.5})) ==
        Approx(0.8));
  CHECK(first_step(optim::SGD(one(), {.lr = 0.1, .momentum = 0.9, .nesterov = true})) ==
        Approx(1 - 0.1 * (2 + 0.9 * 2)));
  // With bias correction the first step of Adam is lr * g / (|g| + eps).
  CHECK(first_step(optim::Adam(one(), {.lr = 0.1, .eps = 0.5})) == Approx(1 - 0.1 * 2 / 2.5));
  CHECK(first_step(optim::Adam(one(), {.lr = 0.1, .eps = 0.5, .weight_decay = 1})) ==
        Approx(1 - 0.1 * 3 / 3.5));
  CHECK(first_step(optim::AdamW(one(), {.lr = 0.1, .eps = 0.5, .weight_decay = 1})) ==
        Approx(1 - 0.1 - 0.1 * 2 / 2.5));
}

TEST_CASE("a group has its own scale of the learning rate and its own weight decay") {
  Tensor a = parameter({1}, {1}, f64), b = parameter({1}, {1}, f64);
  optim::SGD opt({{.parameters = {a}, .lr_scale = 0.5, .weight_decay = 0.0}, {.parameters = {b}}},
                 {.lr = 0.1, .weight_decay = 1});
  opt.backward(objective(a, {2}) + objective(b, {2}));
  REQUIRE(opt.step());
  CHECK(a.item() == Approx(1 - 0.05 * 2));
  CHECK(b.item() == Approx(1 - 0.1 * 3));
}

TEST_CASE("set_lr holds from the next step on") {
  Tensor w = parameter({1}, {1}, f64);
  optim::SGD opt({w}, {.lr = 0.1});
  opt.backward(objective(w, {1}));
  CHECK(opt.step().lr() == 0.1);
  CHECK(w.item() == Approx(0.9));
  opt.set_lr(0.25);
  CHECK(opt.lr() == 0.25);
  opt.backward(objective(w, {1}));
  CHECK(opt.step().lr() == 0.25);
  CHECK(w.item() == Approx(0.65));
}

}  // namespace
}  // namespace firn::testing
