// save_run() and load_run(): a run that is saved anywhere, and continued in a new process's
// objects, has the bits of the run that was not interrupted.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "io/bits.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using test::contains;
using test::TempFolder;

/// A run of this file: objects, and one micro-step.
class Run {
 public:
  virtual ~Run() = default;
  virtual void micro_step(std::int64_t i) = 0;
  virtual std::vector<io::RunPart> parts() = 0;
  /// Names and bits of all that trains.
  virtual std::string bits() = 0;
};

std::string bits_of(const nn::Module& net, const optim::Optimizer& opt) {
  std::string all;
  for (const auto& [name, t] : io::state_of(net)) all += name + testing::bits_of(t);
  std::vector<std::uint8_t> touched;
  for (const auto& [name, t] : opt.state())
    if (name == "touched") touched = t.to_vector<std::uint8_t>();
  std::size_t gradients = 0;
  for (const auto& [name, t] : opt.state()) {
    // A gradient that the cycle has not reached has no meaning.
    if (name.ends_with(".gradient") && !touched[gradients++]) continue;
    all += name + testing::bits_of(t);
  }
  return all;
}

/// The data of a micro-step: a function of its number.
Tensor images(std::int64_t i, const Shape& shape) {
  Generator g(1000 + static_cast<std::uint64_t>(i));
  const GeneratorScope scope(g);
  return rand(shape) * 2 - 1;
}

struct Mlp : nn::Module {
  nn::Linear in{12, 16};
  nn::Dropout drop{0.3, {.seed = 5}};
  nn::Linear hidden{16, 16};
  nn::Dropout shared{0.2};
  nn::Linear out{16, 4};
  FIRN_MEMBERS(in, drop, hidden, shared, out)
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(in(x));
    return out(shared(h + relu(hidden(drop(h)))));
  }
};

template <class Optimizer, class Options>
class MlpRun : public Run {
 public:
  MlpRun(DType dtype, const Options& options, const optim::StepOptions& step)
      : dtype_(dtype), net_(made(dtype)), opt_(net_->named_parameters(), options, step) {}
  void micro_step(std::int64_t i) override {
    const Tensor x = images(i, {6, 12}).to(dtype_);
    const Tensor y = tensor<std::int64_t>({0, 1, 2, 3, 0, 1});
    opt_.backward(cross_entropy((*net_)(x), y));
    opt_.step();
    ++done_;
  }
  std::vector<io::RunPart> parts() override { return {*net_, opt_, {"done", done_}}; }
  std::string bits() override { return bits_of(*net_, opt_) + std::to_string(done_); }
  std::int64_t done() const { return done_; }

 private:
  static std::unique_ptr<Mlp> made(DType dtype) {
    auto net = std::make_unique<Mlp>();
    net->to(dtype);
    return net;
  }

  DType dtype_;
  std::unique_ptr<Mlp> net_;
  Optimizer opt_;
  std::int64_t done_ = 0;
};

struct Cnn : nn::Module {
  nn::Conv2d first{1, 4, 3};
  nn::BatchNorm2d norm{4, {.accumulation = nn::BatchNormMode::per_step}};
  nn::Conv2d second{4, 4, 3};
  nn::BatchNorm2d other{4};
  nn::Linear out{4, 3};
  FIRN_MEMBERS(first, norm, second, other, out)
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(other(second(relu(norm(first(x))))));
    return out(h.mean({2, 3}));
  }
};

class CnnRun : public Run {
 public:
  void micro_step(std::int64_t i) override {
    const Autocast autocast(bf16);
    const Tensor x = images(i, {4, 1, 8, 8});
    opt_.backward(cross_entropy(net_(x), tensor<std::int64_t>({0, 1, 2, 0})));
    opt_.step();
  }
  std::vector<io::RunPart> parts() override { return {net_, opt_}; }
  std::string bits() override { return bits_of(net_, opt_); }

 private:
  Cnn net_;
  optim::SGD opt_{net_.parameters(), {.lr = 0.05, .momentum = 0.9}, {.accumulate = 3}};
};

/// Two networks with an optimizer each, which share a loss scale.
class GanRun : public Run {
 public:
  GanRun() {
    generator_.to(f16);
    judge_.to(f16);
    g_.emplace(generator_.parameters(), optim::AdamOptions{.lr = 1e-3},
               optim::StepOptions{.loss_scale = optim::LossScale::dynamic({.init = 1024})});
    j_.emplace(judge_.parameters(), optim::AdamOptions{.lr = 1e-3},
               optim::StepOptions{.accumulate = 2, .loss_scale = optim::LossScale::dynamic({})});
  }
  void micro_step(std::int64_t i) override {
    const Tensor noise = randn({5, 12}).to(f16);  // of default_generator()
    const Tensor real = images(i, {5, 4}).to(f16);
    const Tensor fake = generator_(noise);
    j_->backward(bce_with_logits(judge_(real), ones({5, 1}, f16)));
    j_->step();
    g_->backward(bce_with_logits(judge_(fake), ones({5, 1}, f16)));
    g_->step();
  }
  std::vector<io::RunPart> parts() override {
    return {{"generator", generator_}, {"judge", judge_}, {"g_opt", *g_}, {"j_opt", *j_}};
  }
  std::string bits() override { return bits_of(generator_, *g_) + bits_of(judge_, *j_); }

 private:
  Mlp generator_;
  nn::Linear judge_{4, 1};
  std::optional<optim::Adam> g_, j_;
};

/// Trains on a loader's batches, augmented, in f16 with accumulation.
class DataRun : public Run {
 public:
  void micro_step(std::int64_t) override {
    // A program loops; here each call takes the next batch, also that of the next epoch.
    loader_.seek(loader_.position());
    auto batch = loader_.begin();
    if (batch == loader_.end()) batch = loader_.begin();
    opt_->backward(mse_loss(net_(batch->x()), batch->y()));
    opt_->step();
  }
  std::vector<io::RunPart> parts() override { return {net_, *opt_, loader_}; }
  std::string bits() override {
    return bits_of(net_, *opt_) + std::to_string(loader_.position().epoch) + "," +
           std::to_string(loader_.position().sample);
  }

 private:
  static data::Dataset samples() {
    const data::TensorDataset all({images(0, {21, 12}).to(f16), images(1, {21, 4}).to(f16)});
    return data::Map(all, [](data::Sample s, Generator& g) {
      return data::Sample{s[0] + randn({12}, {.generator = &g}).to(f16) * 0.1, s[1]};
    });
  }
  static std::unique_ptr<optim::Adam> made(Mlp& net) {
    net.to(f16);
    return std::make_unique<optim::Adam>(
        net.parameters(), optim::AdamOptions{.lr = 1e-3},
        optim::StepOptions{.accumulate = 2, .loss_scale = optim::LossScale::dynamic({})});
  }

  Mlp net_;
  std::unique_ptr<optim::Adam> opt_ = made(net_);
  data::Loader loader_{samples(), {.batch = 4, .shuffle = true, .seed = 8, .workers = 2}};
};

using Make = std::function<std::unique_ptr<Run>()>;

/// Saves a run after each of `steps` micro-steps, continues it in new objects made from another
/// seed, twice, and compares all bits at the end.
void check_resume(const Make& make, std::int64_t steps) {
  manual_seed(3);
  const auto whole = make();
  for (std::int64_t i = 0; i < steps; ++i) whole->micro_step(i);
  const std::string want = whole->bits();
  const RandomKey stream = default_generator().get();

  const TempFolder folder;
  const std::string path = folder.file("run.safetensors");
  for (std::int64_t first = 0; first <= steps; ++first) {
    manual_seed(3);
    {
      const auto run = make();
      for (std::int64_t i = 0; i < first; ++i) run->micro_step(i);
      io::save_run(path, run->parts());
    }
    const std::int64_t second = (first + steps + 1) / 2;
    {
      manual_seed(99);
      const auto run = make();
      run->micro_step(50);  // what it holds is replaced
      io::load_run(path, run->parts());
      for (std::int64_t i = first; i < second; ++i) run->micro_step(i);
      io::save_run(path, run->parts());
    }
    manual_seed(77);
    const auto run = make();
    io::load_run(path, run->parts());
    for (std::int64_t i = second; i < steps; ++i) run->micro_step(i);
    INFO("saved after micro-step " << first << " and " << second);
    REQUIRE(run->bits() == want);
    REQUIRE(default_generator().get().seed == stream.seed);
    REQUIRE(default_generator().get().offset == stream.offset);
  }
}

}  // namespace

// Until the child that trains has ended by itself, it is killed and started again.
TEST_CASE("[S23][S34] run: killed at random times, a run ends with the bits of one that was not",
          "[host]") {
  const auto make = [] {
    return std::make_unique<MlpRun<optim::SGD, optim::SGDOptions>>(
        f16, optim::SGDOptions{.lr = 0.05, .momentum = 0.9},
        optim::StepOptions{.accumulate = 4, .loss_scale = optim::LossScale::dynamic({})});
  };
  constexpr std::int64_t kSteps = 40;
  constexpr int kKills = 10;
  manual_seed(3);
  const auto whole = make();
  for (std::int64_t i = 0; i < kSteps; ++i) whole->micro_step(i);

  const TempFolder folder;
  const std::string path = folder.file("run.safetensors");
  const auto train = [&] {
    manual_seed(3);
    const auto run = make();
    if (std::filesystem::exists(path)) io::load_run(path, run->parts());
    while (run->done() < kSteps) {
      run->micro_step(run->done());
      io::save_run(path, run->parts());
    }
  };
  std::srand(11);
  int kills = 0;
  for (int begun = 0; begun < 10 * kKills; ++begun) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        train();
      } catch (...) {
        ::_exit(3);
      }
      ::_exit(0);
    }
    if (kills < kKills) ::usleep(static_cast<useconds_t>(1000 + std::rand() % 60'000));
    if (kills < kKills && ::kill(child, SIGKILL) == 0) ++kills;
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) {
      REQUIRE(WEXITSTATUS(status) == 0);
      break;
    }
  }
  CHECK(kills >= 1);
  manual_seed(98);
  const auto run = make();
  io::load_run(path, run->parts());
  CHECK(run->done() == kSteps);
  CHECK(run->bits() == whole->bits());
  // The next writer has removed what the dead ones left.
  io::save_run(path, run->parts());
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("[S23][S34][S43] run: f16, AdamW with states in 8 bits and masters, cycles of three") {
  check_resume(
      [] {
        return std::make_unique<MlpRun<optim::AdamW, optim::AdamWOptions>>(
            f16,
            optim::AdamWOptions{
                .lr = 1e-2, .state = optim::StatePrecision::bits8, .min_8bit_size = 100},
            optim::StepOptions{.accumulate = 3,
                               .loss_scale = optim::LossScale::dynamic({.init = 1024}),
                               .ema = 0.9});
      },
      14);
}

TEST_CASE("[S23] run: f32, AdamW, cycles of three micro-steps, clipping, averages, a schedule") {
  check_resume(
      [] {
        return std::make_unique<MlpRun<optim::AdamW, optim::AdamWOptions>>(
            f32,
            optim::AdamWOptions{.lr = optim::warmup(3, optim::cosine(1e-2, 20)),
                                .weight_decay = 0.01},
            optim::StepOptions{.accumulate = 3, .clip_norm = 0.5, .ema = 0.9});
      },
      8);
}

TEST_CASE("[S23] run: f16 with masters, dropout, a loss scale that overflows and grows") {
  check_resume(
      [] {
        return std::make_unique<MlpRun<optim::SGD, optim::SGDOptions>>(
            f16, optim::SGDOptions{.lr = 0.05, .momentum = 0.9},
            optim::StepOptions{
                .accumulate = 2,
                .loss_scale = optim::LossScale::dynamic({.init = 16777216, .growth_interval = 2})});
      },
      9);
}

TEST_CASE("[S23] run: convolutions with BatchNorm in both modes, under autocast") {
  check_resume([] { return std::make_unique<CnnRun>(); }, 7);
}

TEST_CASE("[S23][S31] run: a loader with threads, in the middle of an epoch") {
  check_resume([] { return std::make_unique<DataRun>(); }, 9);
}

TEST_CASE("[S23] run: two networks with an optimizer each, f16") {
  check_resume([] { return std::make_unique<GanRun>(); }, 6);
}

/// A layer in the middle of a cycle of three micro-steps.
struct MidCycle {
  nn::Linear net{4, 2};
  optim::AdamW opt{net.named_parameters(), {.lr = 1e-2}, {.accumulate = 3}};
  Tensor loss() { return (net(images(0, {8, 4})) - images(1, {8, 2})).square().sum(); }
  void micro_step() {
    opt.backward(loss(), 8);
    opt.step();
  }
  std::vector<io::RunPart> parts() { return {net, opt}; }
};

TEST_CASE("[S23] run: gradients of a loaded cycle are seen at once") {
  const TempFolder folder;
  const std::string path = folder.file("run");
  MidCycle saved;
  saved.micro_step();
  io::save_run(path, saved.parts());
  const std::string gradient = testing::bits_of(saved.net.weight.grad());

  MidCycle loaded;
  SECTION("after load_run()") { io::load_run(path, loaded.parts()); }
  SECTION("after load_run() over another cycle") {
    loaded.opt.backward(loaded.net.weight.sum(), 1);
    io::load_run(path, loaded.parts());
    CHECK(loaded.net.bias.grad().defined());
  }
  SECTION("after copies into state()") {
    const auto from = saved.opt.state();
    std::size_t i = 0;
    for (const optim::NamedState& s : loaded.opt.state()) copy_(s.tensor, from[i++].tensor);
  }
  REQUIRE(loaded.net.weight.grad().defined());
  CHECK(testing::bits_of(loaded.net.weight.grad()) == gradient);
  CHECK(optim::gradient_health(loaded.opt)[0].received);

  for (MidCycle* run : {&saved, &loaded}) {
    run->net.weight.set_grad(run->net.weight.grad() * 2);
    run->micro_step();
    run->micro_step();
  }
  CHECK(bits_of(loaded.net, loaded.opt) == bits_of(saved.net, saved.opt));
}

TEST_CASE("[S23] run: a gradient dropped after copies into state() stays dropped") {
  MidCycle saved, loaded;
  saved.micro_step();
  const auto from = saved.opt.state();
  std::size_t i = 0;
  for (const optim::NamedState& s : loaded.opt.state()) copy_(s.tensor, from[i++].tensor);
  for (MidCycle* run : {&saved, &loaded}) {
    run->net.weight.set_grad({});
    CHECK(!run->net.weight.grad().defined());
    run->micro_step();
    run->micro_step();
  }
  CHECK(bits_of(loaded.net, loaded.opt) == bits_of(saved.net, saved.opt));
}

TEST_CASE("[S23] run: a plain backward() after load_run() in mid-cycle is refused") {
  const TempFolder folder;
  const std::string path = folder.file("run");
  MidCycle saved, loaded;
  saved.micro_step();
  io::save_run(path, saved.parts());
  io::load_run(path, loaded.parts());
  loaded.loss().backward();
  CHECK_THAT(error_of([&] { loaded.opt.step(); }), contains("did not come through the optimizer"));
}

}  // namespace firn::testing
