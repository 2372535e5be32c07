// Schedule-free AdamW: trainings beside a NumPy model (tests/goldens/optim/optim_schedule_free.py),
// and which of its two sets of weights is seen when.
#include <filesystem>
#include <functional>
#include <map>

#include "optim/problem.h"
#include "support/golden.h"
#include "support/source_path.h"

namespace firn::testing {
namespace {

using optim::ScheduleFreeAdamW;
using optim::ScheduleFreeAdamWOptions;

struct Run {
  std::string title;
  std::map<std::string, double> options;
  std::map<int, std::vector<double>> y, x;

  double get(const char* key, double otherwise) const {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : found->second;
  }
  ScheduleFreeAdamWOptions of_optimizer() const {
    return {.lr = get("lr", 0),
            .beta1 = get("beta1", 0.9),
            .beta2 = get("beta2", 0.999),
            .eps = get("eps", 1e-8),
            .weight_decay = get("weight_decay", 0),
            .warmup_steps = static_cast<std::int64_t>(get("warmup_steps", 0)),
            .r = get("r", 0),
            .weight_lr_power = get("weight_lr_power", 2)};
  }
};

struct Goldens {
  std::map<std::string, std::vector<double>> data;
  std::vector<Run> runs;
};

const Goldens& goldens() {
  static const Goldens all = [] {
    Goldens out;
    for (const GoldenGroup& group :
         read_golden_groups(source_path("tests/goldens/optim/optim_schedule_free.safetensors"))) {
      if (group.title.empty()) {
        for (const auto& [item, tensor] : group.items) out.data[item] = tensor.values;
        continue;
      }
      Run& run = out.runs.emplace_back();
      run.title = group.title;
      run.options = options_in(run.title);
      for (const auto& [item, tensor] : group.items)  // "y 5": the weights after step 5
        (item[0] == 'y' ? run.y : run.x)[std::stoi(item.substr(2))] = tensor.values;
    }
    return out;
  }();
  return all;
}

/// A module of one parameter.
struct Weights : nn::Module {
  nn::Parameter w;
  FIRN_MEMBERS(w)
  explicit Weights(const Tensor& value) : w(value) {}
  Tensor forward(const Tensor& x) override { return x * w; }
};

TEST_CASE("[S46] trainings without a schedule are the reference's, in both modes") {
  REQUIRE(goldens().runs.size() == 5);
  for (const DType dtype : {f32, f64})
    for (const Run& run : goldens().runs) {
      const Tensor goal = make(goldens().data.at("goal"), {12}, dtype);
      const Tensor curve = make(goldens().data.at("curve"), {12}, dtype);
      Weights net(make(goldens().data.at("initial"), {12}, dtype));
      ScheduleFreeAdamW opt(net.parameters(), run.of_optimizer());
      const Tensor ones = full({12}, 1, dtype);
      for (int step = 1; step <= 30; ++step) {
        opt.backward(sum(0.5 * curve * square(net(ones) - goal)));
        REQUIRE(opt.step());
        if (step == static_cast<int>(run.get("halved", 0))) opt.set_lr(run.get("lr", 0) / 2);
        const auto expected = run.y.find(step);
        if (expected == run.y.end()) continue;
        const std::string what =
            run.title + ", step " + std::to_string(step) + ", " + to_string(dtype);
        const double bound = dtype == f64 ? 1e-13 : 1e-5;
        expect_close(what + ", y", values_of(net(ones)), expected->second, bound);
        net.eval();
        expect_close(what + ", x", values_of(net(ones)), run.x.at(step), bound);
        net.train();
      }
    }
}

/// Its norm is frozen in evaluation mode while the rest trains.
struct Net : nn::Module {
  nn::Linear in{6, 8};
  nn::BatchNorm1d norm{8};
  nn::Linear out{8, 2};
  FIRN_MEMBERS(in, norm, out)
  Tensor forward(const Tensor& x) override {
    const Tensor y = out(tanh(norm(in(x))));
    seen = norm.parameters()[0].detach().clone();  // listed inside of the call
    return y;
  }
  void set_mode(bool evaluation) {
    train(!evaluation);
    norm.eval();
  }
  Tensor seen;  ///< the weight of the norm in the last call
};

/// A net that has trained for some steps.
struct Trained {
  Net net;
  std::unique_ptr<ScheduleFreeAdamW> opt;

  explicit Trained(DType dtype = f32, const optim::StepOptions& step = {}, int steps = 5) {
    manual_seed(4);
    net = Net();
    net.to(dtype);
    net.set_mode(false);
    opt = std::make_unique<ScheduleFreeAdamW>(
        net.named_parameters(), ScheduleFreeAdamWOptions{.lr = 0.05, .weight_decay = 0.1}, step);
    for (int i = 0; i < steps; ++i) {
      backward(i);
      opt->step();
    }
  }
  Tensor input(int i) const {
    return make(Rng(static_cast<std::uint64_t>(i) + 9).uniforms(4 * 6, -1, 1), {4, 6},
                net.in.weight.dtype());
  }
  Tensor loss_of(const Tensor& x) {
    return sum(cast(square(net(x)), compute_dtype(net.in.weight.dtype())));
  }
  Tensor loss(int i) { return loss_of(input(i)); }
  void backward(int i) { opt->backward(loss(i)); }
  /// What the net computes in the mode that it is in.
  Bits output() {
    const NoGrad guard;
    return bits_of(net(input(100)));
  }
  Bits averaged_output() {
    net.set_mode(true);
    const Bits out = output();
    net.set_mode(false);
    return out;
  }
  Bits weights() const {
    Bits out;
    for (const Tensor& p : net.parameters()) out = out + bits_of(p);
    return out;
  }
  /// In f32.
  Tensor averaged(const std::string& i) const {
    return state_of(*opt, "parameters." + i + ".averaged_weight");
  }
};

TEST_CASE("[S46] a module in evaluation mode has averaged weights, and back in training its bits") {
  for (const DType dtype : {f32, f16, bf16, f64}) {
    CAPTURE(to_string(dtype));
    Trained t(dtype);
    const Bits training = t.weights(), computed = t.output();
    const Tensor x = cast(t.averaged("0"), dtype).clone();
    t.net.set_mode(true);
    const Bits evaluated = t.output();
    CHECK(evaluated != computed);
    CHECK(bits_of(t.net.in.weight) == bits_of(x));
    CHECK(t.output() == evaluated);
    t.net.set_mode(false);
    CHECK(t.output() == computed);
    CHECK(t.weights() == training);
    t.net.set_mode(true);
    CHECK(bits_of(t.net.parameters()[0]) == bits_of(x));  // listing is enough
    CHECK(bits_of(t.net.named_parameters()[0].tensor) == bits_of(x));
    t.net.set_mode(false);
    CHECK(t.weights() == training);
  }
}

TEST_CASE("[S46] evaluation at any place between steps changes no bit of the training") {
  for (const DType dtype : {f32, f16, f64}) {
    const optim::StepOptions step{.accumulate = 3, .clip_norm = 0.5, .ema = 0.9};
    Trained plain(dtype, step, 0), evaluated(dtype, step, 0);
    for (int i = 0; i < 18; ++i) {
      plain.backward(i);
      evaluated.backward(i);
      if (i % 2 == 0) evaluated.averaged_output();  // between backward and step
      const bool spoilt = i / 3 == 2;
      if (spoilt && i % 3 == 0) {
        const Tensor inf = full({4, 6}, HUGE_VAL, dtype);
        plain.opt->backward(sum(cast(plain.net(inf) * 0, compute_dtype(dtype))));
        evaluated.opt->backward(sum(cast(evaluated.net(inf) * 0, compute_dtype(dtype))));
      }
      plain.opt->step();
      evaluated.opt->step();
      if (i % 5 == 0) evaluated.averaged_output();
    }
    CHECK(bits_of_training(*plain.opt) == bits_of_training(*evaluated.opt));
    CHECK(plain.averaged_output() == evaluated.averaged_output());
    CHECK(plain.opt->last_report().skipped_steps() == evaluated.opt->last_report().skipped_steps());
  }
}

TEST_CASE("[S46] a validation without gradients in training mode sees the training weights") {
  Trained t;
  const Bits computed = t.output();
  const NoGrad guard;
  CHECK(bits_of(t.net(t.input(100))) == computed);
}

TEST_CASE("[S46] the outermost module's mode counts for all inside") {
  Trained t;
  const Bits y = bits_of(state_of(*t.opt, "parameters.2.weight"));
  const Bits x = bits_of(t.averaged("2"));
  REQUIRE(y != x);
  const Bits training = t.output();
  CHECK(bits_of(t.net.seen) == y);  // in training, though the norm is in evaluation mode
  t.averaged_output();
  CHECK(bits_of(t.net.seen) == x);
  t.net.out.eval();  // computes the same in both modes
  CHECK(t.output() == training);
  // A part that is called by itself follows its own mode.
  const NoGrad guard;
  const Tensor h = make(Rng(3).uniforms(8, -1, 1), {1, 8}, f32);
  const Bits alone = bits_of(t.net.out(h));
  t.net.out.train();
  CHECK(bits_of(t.net.out(h)) != alone);
  t.net.out.eval();
  CHECK(bits_of(t.net.out(h)) == alone);
}

TEST_CASE("[S46] a loss from evaluation mode is refused, as is evaluation before backward()") {
  Trained t;
  Tensor loss = t.loss(1);
  t.averaged_output();
  const Bits before = bits_of_training(*t.opt);
  CHECK(mentions(error_of([&] { t.opt->backward(loss); }), {"evaluation mode", "net.train()"}));
  t.opt->zero_grad();
  t.net.set_mode(true);
  loss = t.loss(1);
  CHECK(mentions(error_of([&] { t.opt->backward(loss); }), {"evaluation mode", "net.train()"}));
  t.opt->zero_grad();
  t.net.set_mode(false);
  CHECK(bits_of_training(*t.opt) == before);
  t.backward(1);
  CHECK(t.opt->step());
}

TEST_CASE("[S46] a loss from evaluation mode is refused though no weight was saved for it") {
  nn::Linear head(4, 1), encoder(4, 4);  // their inputs require no gradient
  std::vector<Tensor> all = head.parameters();
  for (const Tensor& p : encoder.parameters()) all.push_back(p);
  optim::ScheduleFreeAdamW opt(all, {.lr = 0.1});
  const Tensor x = randn({8, 4}), y = zeros({8, 1});
  opt.backward(mse_loss(head(x), y));
  REQUIRE(opt.step());
  const auto refused = [&](const std::function<Loss()>& loss) {
    const std::string said = error_of([&] { opt.backward(loss()); });
    opt.zero_grad();
    return mentions(said, {"evaluation mode", "net.train()"});
  };
  head.eval();
  CHECK(refused([&] { return mse_loss(head(x), y); }));
  CHECK(refused([&] {
    const Loss loss = mse_loss(head(x), y);
    head.train();
    return loss;
  }));
  encoder.eval();
  CHECK(refused([&] { return mse_loss(head(encoder(x)), y); }));
  encoder.train();
  opt.backward(mse_loss(head(encoder(x)), y));
  CHECK(opt.step());
  // A gradient without a step may be one at the averaged weights.
  head.eval();
  const Tensor in = x.clone().set_requires_grad();
  backward(sum(head(in)));
  CHECK(in.grad().defined());
}

TEST_CASE("[S46] files, copies and clones have the weights of the module's mode") {
  Trained t;
  const Bits training = t.output(), averaged = t.averaged_output();
  REQUIRE(training != averaged);
  const auto folder =
      std::filesystem::temp_directory_path() /
      ("firn_schedule_free_" + std::to_string(seed_of(to_string(default_device()))));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "net.safetensors").string();
  const auto computed = [&](Net& net) {
    const NoGrad guard;
    net.set_mode(false);
    return bits_of(net(t.input(100)));
  };
  for (const bool evaluation : {false, true}) {
    const Bits& expected = evaluation ? averaged : training;
    t.net.set_mode(evaluation);
    Net copy = nn::clone(t.net), filled, loaded;
    filled.copy_from(t.net);
    io::save_safetensors(path, io::state_of(t.net));
    io::load_safetensors(path, loaded);
    CHECK(computed(copy) == expected);
    CHECK(computed(filled) == expected);
    CHECK(computed(loaded) == expected);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("[S46][S23] a run that is saved in either mode goes on to the bit") {
  const auto folder =
      std::filesystem::temp_directory_path() /
      ("firn_schedule_free_run_" + std::to_string(seed_of(to_string(default_device()))));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "run.firn").string();
  for (const DType dtype : {f32, f16})
    for (const bool saved_in_evaluation : {false, true})
      for (const bool loaded_in_evaluation : {false, true})
        for (const bool optimizer_first : {false, true}) {
          Trained first(dtype, {.accumulate = 2}, 7), second(dtype, {.accumulate = 2}, 3);
          first.net.set_mode(saved_in_evaluation);
          first.output();
          second.net.set_mode(loaded_in_evaluation);
          second.output();
          const auto parts = [&](Trained& t) {
            return optimizer_first ? std::vector<io::RunPart>{*t.opt, t.net}
                                   : std::vector<io::RunPart>{t.net, *t.opt};
          };
          io::save_run(path, parts(first));
          io::load_run(path, parts(second));
          CHECK(second.averaged_output() == first.averaged_output());
          for (Trained* t : {&first, &second})
            for (int i = 20; i < 27; ++i) {
              t->backward(i);
              t->opt->step();
            }
          CHECK(bits_of_training(*first.opt) == bits_of_training(*second.opt));
          CHECK(second.averaged_output() == first.averaged_output());
        }
  std::filesystem::remove_all(folder);
}

TEST_CASE("[S46] a weight that is written from outside is the new one of both modes") {
  for (const DType dtype : {f32, f16})
    for (const bool evaluation : {false, true}) {
      Trained t(dtype), other(dtype, {}, 9);
      t.net.set_mode(evaluation);
      t.output();
      {
        const NoGrad guard;
        for (Tensor& p : other.net.parameters()) mul_(p, -1.0);  // no weight is as it was
      }
      t.net.copy_from(other.net);
      t.net.set_mode(true);
      const Bits averaged = t.output();
      t.net.set_mode(false);
      CHECK(t.output() == other.output());
      CHECK(averaged == t.output());
      CHECK(bits_of(cast(state_of(*t.opt, "parameters.0.fast_weight"), dtype)) ==
            bits_of(other.net.in.weight));
      // An element alone.
      Trained one(dtype);
      const Tensor x = one.averaged("1").clone();
      one.net.set_mode(evaluation);
      one.output();
      {
        const NoGrad guard;
        Tensor bias = one.net.in.bias;
        fill_(slice(bias, 0, 2, 3), 0.5);
      }
      one.net.set_mode(false);
      std::vector<double> expected = values_of(x);
      one.backward(0);
      expected[2] = 0.5;
      CHECK(values_of(one.averaged("1")) == expected);
    }
}

TEST_CASE("[S46] each optimizer's weights follow the modules that they are in") {
  Trained student, teacher(f32, {}, 9);
  teacher.net.set_mode(true);
  const Bits taught = teacher.output();
  const Tensor goal = [&] {
    const NoGrad guard;
    return teacher.net(student.input(100));
  }();
  // The teacher is evaluated between a forward and a backward pass of the student.
  const Tensor y = student.net(student.input(100));
  CHECK(teacher.output() == taught);
  student.opt->backward(sum(square(y - goal)));
  REQUIRE(student.opt->step());
  CHECK(teacher.output() == taught);
  teacher.net.set_mode(false);
  teacher.backward(1);
  REQUIRE(teacher.opt->step());
  teacher.net.set_mode(true);
  CHECK(teacher.output() != taught);
}

TEST_CASE("[S46] moving averages of the weights are seen in any mode") {
  Trained t(f32, {.ema = 0.5});
  const Bits before = bits_of_training(*t.opt), training = t.output(),
             averaged = t.averaged_output();
  {
    const optim::AveragedWeights scope(*t.opt);
    const Bits moving = t.output();
    CHECK(moving != training);
    CHECK(moving != averaged);
    CHECK(t.averaged_output() == moving);
  }
  CHECK(t.output() == training);
  CHECK(t.averaged_output() == averaged);
  t.net.set_mode(true);
  t.output();
  {
    const optim::AveragedWeights scope(*t.opt);
    CHECK(t.output() != averaged);
  }
  CHECK(t.output() == averaged);
  // A scope that a plan has left behind ended with it.
  std::optional<optim::AveragedWeights> left;
  plan_memory([&] { left.emplace(*t.opt); });
  t.net.set_mode(false);
  CHECK(t.output() == training);
  CHECK(t.averaged_output() == averaged);
  CHECK(bits_of_training(*t.opt) == before);
}

TEST_CASE("[S46] the averaged weights are what an optimizer leaves behind") {
  for (const bool evaluation : {false, true}) {
    Trained t;
    const Bits averaged = t.averaged_output();
    t.net.set_mode(evaluation);
    t.output();
    t.opt.reset();
    t.net.set_mode(false);
    CHECK(t.output() == averaged);
  }
}

TEST_CASE("[S46] captured steps and evaluation take turns") {
  if (default_device().is_cpu()) return;
  Trained plain, recorded;
  const Tensor x = recorded.input(3);  // from the host, which a graph cannot record
  graph::Step step(*recorded.opt, [&] {
    recorded.opt->backward(recorded.loss_of(x));
    recorded.opt->step();
  });
  for (int i = 0; i < 6; ++i) {
    plain.opt->backward(plain.loss(3));
    plain.opt->step();
    step();
    CHECK(plain.averaged_output() == recorded.averaged_output());
  }
  CHECK(bits_of_training(*plain.opt) == bits_of_training(*recorded.opt));
  Trained t;
  CHECK(mentions(error_of([&] {
                   graph::Graph::capture(default_device(), [&] {
                     t.net.set_mode(true);
                     t.net(x);
                   });
                 }),
                 {"[ScheduleFreeAdamW]", "graph", "averaged"}));
}

TEST_CASE("[S46] a recorded evaluation has averaged weights at each replay") {
  Trained t;
  const Tensor x = t.input(100), y = zeros({4, 2});
  t.net.set_mode(true);
  const NoGrad guard;
  t.net(x);
  graph::Graph recorded = graph::Graph::capture(default_device(), [&] { copy_(y, t.net(x)); });
  for (int i = 0; i < 3; ++i) {
    {
      const EnableGrad again;
      t.net.set_mode(false);
      t.backward(i);
      REQUIRE(t.opt->step());
      t.net.set_mode(true);
    }
    t.opt->state();  // the weights of training
    recorded.replay();
    const Bits replayed = bits_of(y);
    CHECK(replayed == t.output());
  }
}

TEST_CASE("[S46] what schedule-free training cannot do is refused") {
  Tensor w = parameter({1, 2}, {2}), h = parameter({1, 2}, {2}, f16);
  const auto refused = [&](const ScheduleFreeAdamWOptions& o) {
    return error_of([&] { ScheduleFreeAdamW({w}, o); });
  };
  CHECK(mentions(refused({.beta1 = 0}), {"[ScheduleFreeAdamW]", "beta1 is 0"}));
  CHECK(mentions(refused({.beta1 = 1}), {"[ScheduleFreeAdamW]", "beta1 is 1"}));
  CHECK(mentions(refused({.beta2 = 1}), {"[ScheduleFreeAdamW]", "beta2 is 1"}));
  CHECK(mentions(refused({.eps = 0}), {"[ScheduleFreeAdamW]", "eps is 0"}));
  CHECK(mentions(refused({.warmup_steps = -1}), {"[ScheduleFreeAdamW]", "warmup_steps is -1"}));
  CHECK(mentions(refused({.r = -1}), {"[ScheduleFreeAdamW]", "r is -1"}));
  CHECK(
      mentions(refused({.weight_lr_power = -1}), {"[ScheduleFreeAdamW]", "weight_lr_power is -1"}));
  CHECK(mentions(error_of([&] { ScheduleFreeAdamW({h}, {}, {.stochastic_rounding = true}); }),
                 {"[ScheduleFreeAdamW]", "stochastic_rounding"}));
  Trained t;
  CHECK(mentions(error_of([&] { t.net.to(f16); }), {"Module::to", "belongs to an optimizer"}));
}

}  // namespace
}  // namespace firn::testing
