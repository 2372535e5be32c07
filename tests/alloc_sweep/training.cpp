// Training steps in which every allocation fails once.
#include <memory>
#include <string>
#include <vector>

#include "alloc_sweep/bytes.h"
#include "alloc_sweep/sweep.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

/// A cycle of two micro-batches, its step included.
class Training : public Work {
 public:
  using LossOf = std::function<Loss(nn::Module& net, const Tensor& x, const Tensor& y)>;

  Training(std::unique_ptr<nn::Module> net, std::unique_ptr<optim::Optimizer> opt, Shape input,
           LossOf loss)
      : net_(std::move(net)), opt_(std::move(opt)), loss_(std::move(loss)) {
    Generator g(3);
    for (Batch& b : batches_) {
      b.x = randn(input, {.generator = &g}).to(net_->parameters()[0].dtype());
      std::vector<std::int64_t> labels;
      for (std::int64_t i = 0; i < input[0]; ++i) labels.push_back((i * 7 + 3) % 4);
      b.y = tensor<std::int64_t>(labels, {input[0]});
    }
  }
  void run() override {
    const GeneratorScope scope(masks_);  // run() is called in several threads
    for (const Batch& b : batches_) {
      opt_->backward(loss_(*net_, b.x, b.y));
      opt_->step();
    }
  }
  /// Weights, masters, moments, averages, counters, loss scale and running statistics. What the
  /// cycle has collected is lost when it throws.
  std::string kept() override {
    std::string all;
    for (const Tensor& p : opt_->parameters()) all += bytes_of(p);
    for (const optim::NamedState& s : opt_->state())
      if (!of_cycle(s.name)) all += bytes_of(s.tensor);
    for (const nn::NamedTensor& b : net_->named_buffers())
      if (b.name.find("pooled") == b.name.npos) all += b.name + bytes_of(b.tensor);
    return all;
  }
  void prepare_again() override {
    opt_->zero_grad();
    masks_ = Generator(5);
  }
  std::string made() override {
    return kept() + std::to_string(masks_.get().offset) + to_string(opt_->last_report());
  }

 protected:
  struct Batch {
    Tensor x, y;
  };
  static bool of_cycle(const std::string& name) {
    return name.ends_with(".gradient") || name == "cycle" || name == "touched" ||
           name == "step_state";
  }

  std::unique_ptr<nn::Module> net_;
  std::unique_ptr<optim::Optimizer> opt_;
  LossOf loss_;
  Batch batches_[2];
  Generator masks_{5};
};

/// A backward() alone, which drops its cycle when it fails: nobody need call zero_grad(). Each try
/// has a graph of its own.
class BackwardAlone final : public Training {
 public:
  template <class... Args>
  explicit BackwardAlone(Args&&... args) : Training(std::forward<Args>(args)...) {
    for (Tensor& sum : sums_) {
      Generator masks(5);
      const GeneratorScope scope(masks);
      sum = loss_(*net_, batches_[0].x, batches_[0].y).sum;
    }
  }
  void run() override { opt_->backward(sums_[tries_++], 8); }
  void prepare_again() override {}
  std::string made() override {
    std::string all = Training::made();
    for (const optim::NamedState& s : opt_->state())
      if (s.name.ends_with(".gradient")) all += bytes_of(s.tensor);
    return all;
  }

 private:
  Tensor sums_[2];
  std::size_t tries_ = 0;
};

/// The same cycle in one call, after whose failure nobody need call zero_grad().
class OneCall : public Training {
 public:
  using Training::Training;
  void prepare_again() override { masks_ = Generator(5); }
};

class RunBatch final : public OneCall {
 public:
  using OneCall::OneCall;
  void run() override {
    const GeneratorScope scope(masks_);
    opt_->run_batch(2, 1, [this](std::int64_t first, std::int64_t) {
      return loss_(*net_, batches_[first].x, batches_[first].y);
    });
  }
};

class StepTwoPass final : public OneCall {
 public:
  using OneCall::OneCall;
  void run() override {
    const GeneratorScope scope(masks_);
    opt_->step_two_pass(
        2, [this](std::int64_t i) { return (*net_)(batches_[i].x); },
        [this](const Tensor& all) {
          return cross_entropy(all, cat({batches_[0].y, batches_[1].y}, 0));
        });
  }
};

/// The same cycle under a RollbackPoint, after whose roll_back() nobody need do anything. With
/// `kInCycle` the point is made in the middle of a cycle.
template <bool kInCycle>
class TakenBack final : public Training {
 public:
  template <class... Args>
  explicit TakenBack(Args&&... args) : Training(std::forward<Args>(args)...) {
    if constexpr (kInCycle) {
      const GeneratorScope scope(masks_);
      opt_->backward(loss_(*net_, batches_[1].x, batches_[1].y));
    }
  }
  void run() override {
    const GeneratorScope scope(masks_);
    RollbackPoint start;
    try {
      Training::run();
    } catch (...) {
      start.roll_back();
      throw;
    }
  }
  std::string kept() override {
    std::string all = std::to_string(masks_.get().offset);
    for (const optim::NamedState& s : opt_->state()) all += bytes_of(s.tensor);
    for (const nn::NamedTensor& b : net_->named_buffers()) all += bytes_of(b.tensor);
    return all;
  }
  void prepare_again() override {}
};

/// The end of a cycle alone under a RollbackPoint, which brings gradients back too.
class StepTakenBack final : public Training {
 public:
  template <class... Args>
  explicit StepTakenBack(Args&&... args) : Training(std::forward<Args>(args)...) {
    const GeneratorScope scope(masks_);
    for (const Batch& b : batches_) opt_->backward(loss_(*net_, b.x, b.y));
  }
  void run() override {
    RollbackPoint start;
    try {
      opt_->step();
    } catch (...) {
      start.roll_back();
      throw;
    }
  }
  std::string kept() override {
    std::string all;
    for (const optim::NamedState& s : opt_->state())
      if (s.name != "step_state") all += bytes_of(s.tensor);  // it also has what was decided
    return all;
  }
  void prepare_again() override {}
};

Loss class_loss(nn::Module& net, const Tensor& x, const Tensor& y) {
  return cross_entropy(net(x), y);
}

template <class Opt, class W = Training, class Options>
MakeWork training(const std::function<std::unique_ptr<nn::Module>()>& net, Options options,
                  optim::StepOptions step, Shape input, Training::LossOf loss = class_loss) {
  return [=]() -> std::unique_ptr<Work> {
    manual_seed(1);
    auto model = net();
    auto opt = std::make_unique<Opt>(model->parameters(), options, step);
    return std::make_unique<W>(std::move(model), std::move(opt), input, loss);
  };
}

std::unique_ptr<nn::Module> perceptron(DType dtype) {
  return std::make_unique<nn::Sequential>(nn::Linear(12, 16, {.dtype = dtype}), nn::ReLU(),
                                          nn::Dropout(0.25), nn::Linear(16, 4, {.dtype = dtype}));
}

struct Mixed : nn::Module {
  nn::Linear a{6, 8}, b{6, 8}, out{16, 4};
  FIRN_MEMBERS(a, b, out)
  Tensor forward(const Tensor& x) override {
    const Tensor u = a(x), v = b(x);
    Tensor y;
    {
      const NoGrad guard;
      y = square(v);
    }
    const Tensor w = custom("square", {v}, y, {v}, [](const CustomBackward& c) {
      return std::vector<Tensor>{2.0 * c.saved[0] * c.grad};
    });
    return out(cat({stack({u, w}, 0).sum({0}), w}, 1));
  }
};

std::unique_ptr<nn::Module> convolutional() {
  return std::make_unique<nn::Sequential>(
      nn::Conv2d(3, 16, 3, {.padding = 1}),
      nn::BatchNorm2d(16, {.accumulation = nn::BatchNormMode::per_step}), nn::ReLU(),
      nn::Conv2d(16, 16, 3, {.padding = 1, .groups = 2}), nn::MaxPool2d(2), nn::Flatten(),
      nn::Linear(16 * 4 * 4, 4));
}

TEST_CASE("alloc_sweep: an MLP step with SGD", "[host]") {
  const Threads one(1);
  const auto work = training<optim::SGD>([] { return perceptron(f32); },
                                         optim::SGDOptions{.lr = 0.1, .momentum = 0.9},
                                         {.accumulate = 2, .clip_norm = 1}, {8, 12});
  CHECK(sweep(work, Fails::heap) > 10);
  CHECK(sweep(work, Fails::heap_for_good) > 10);
  CHECK(sweep(work, Fails::blocks) > 10);
}

TEST_CASE("alloc_sweep: an f16 step with masters, loss scale and accumulation", "[host]") {
  const Threads one(1);
  const auto work =
      training<optim::AdamW>([] { return perceptron(f16); }, optim::AdamWOptions{.lr = 0.01},
                             {.accumulate = 2, .clip_norm = 1}, {8, 12});
  CHECK(sweep(work, Fails::heap) > 10);
  CHECK(sweep(work, Fails::heap_for_good) > 10);
  CHECK(sweep(work, Fails::blocks) > 10);
}

TEST_CASE("[S43] alloc_sweep: an f16 step with states in 8 bits", "[host]") {
  const Threads one(1);
  const auto work = training<optim::AdamW>(
      [] { return perceptron(f16); },
      optim::AdamWOptions{.lr = 0.01, .state = optim::StatePrecision::bits8, .min_8bit_size = 100},
      {.accumulate = 2, .clip_norm = 1}, {8, 12});
  CHECK(sweep(work, Fails::heap) > 10);
  CHECK(sweep(work, Fails::heap_for_good) > 10);
  CHECK(sweep(work, Fails::blocks) > 10);
}

TEST_CASE("[S21] alloc_sweep: steps of rules that are not elementwise", "[host]") {
  const Threads one(1);
  const auto sweep_all = [](const MakeWork& work) {
    CHECK(sweep(work, Fails::heap) > 10);
    CHECK(sweep(work, Fails::heap_for_good) > 10);
    CHECK(sweep(work, Fails::blocks) > 10);
  };
  const auto net = [] { return perceptron(f16); };
  const optim::StepOptions step{.accumulate = 2, .clip_norm = 1};
  const optim::CustomOptions custom{
      .lr = 0.1,
      .states = {{"momentum"}},
      .update = [](const optim::CustomInput& in) -> optim::CustomUpdate {
        const Tensor b = 0.9 * in.states[0] + in.gradient;
        return {in.weight - in.lr * b, {b}};
      }};
  sweep_all(training<optim::Custom>(net, custom, step, {8, 12}));
  sweep_all(training<optim::Muon>(net, optim::MuonOptions{.lr = 0.01}, step, {8, 12}));
  sweep_all(training<optim::Adafactor>(net, optim::AdafactorOptions{.lr = 0.1}, step, {8, 12}));
  sweep_all(training<optim::Muon, RunBatch>(net, optim::MuonOptions{.lr = 0.01}, {}, {8, 12}));
  const auto taken_back = training<optim::Muon, TakenBack<true>>(
      net, optim::MuonOptions{.lr = 0.01}, {.accumulate = 3}, {8, 12});
  CHECK(sweep(taken_back, Fails::heap, 3) > 10);
  CHECK(sweep(taken_back, Fails::blocks) > 10);
  const auto step_taken_back =
      training<optim::Muon, StepTakenBack>(net, optim::MuonOptions{.lr = 0.01}, {}, {8, 12});
  CHECK(sweep(step_taken_back, Fails::heap) > 10);
  CHECK(sweep(step_taken_back, Fails::heap_for_good) > 10);
}

TEST_CASE("alloc_sweep: cat, stack and a custom function", "[host]") {
  const Threads one(1);
  const auto work =
      training<optim::AdamW>([] { return std::make_unique<Mixed>(); },
                             optim::AdamWOptions{.lr = 0.01}, {.accumulate = 2}, {8, 6});
  CHECK(sweep(work, Fails::heap) > 10);
  CHECK(sweep(work, Fails::heap_for_good) > 10);
  CHECK(sweep(work, Fails::blocks) > 10);
}

TEST_CASE("alloc_sweep: whole cycles in one call need no zero_grad() after a failure", "[host]") {
  const Threads one(1);
  const auto sweep_all = [](const MakeWork& work) {
    CHECK(sweep(work, Fails::heap) > 10);
    CHECK(sweep(work, Fails::heap_for_good) > 10);
    CHECK(sweep(work, Fails::blocks) > 10);
  };
  const auto f16_net = [] { return perceptron(f16); };
  const optim::AdamWOptions adam{.lr = 0.01};
  sweep_all(training<optim::AdamW, RunBatch>(f16_net, adam, {.clip_norm = 1}, {8, 12}));
  sweep_all(training<optim::AdamW, StepTwoPass>(f16_net, adam, {.clip_norm = 1}, {8, 12}));
}

TEST_CASE("[S37] alloc_sweep: a backward() without memory drops its cycle by itself", "[host]") {
  const Threads one(1);
  const auto work = training<optim::AdamW, BackwardAlone>(
      [] { return perceptron(f16); }, optim::AdamWOptions{.lr = 0.01}, {.clip_norm = 1}, {8, 12});
  CHECK(sweep(work, Fails::heap) > 2);
  CHECK(sweep(work, Fails::heap_for_good) > 2);
  CHECK(sweep(work, Fails::blocks) > 2);
}

TEST_CASE("alloc_sweep: a cycle with BatchNorm that can be retried", "[host]") {
  const Threads one(1);
  const auto work = training<optim::AdamW, RunBatch>(
      [] {
        return std::make_unique<nn::Sequential>(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::ReLU(),
                                                nn::Linear(8, 4));
      },
      optim::AdamWOptions{.lr = 0.01},
      {.loss_scale = optim::LossScale::dynamic({.on_overflow = optim::OverflowPolicy::retry})},
      {8, 6});
  CHECK(sweep(work, Fails::heap) > 10);
  CHECK(sweep(work, Fails::heap_for_good) > 10);
}

TEST_CASE("alloc_sweep: exact mode whose chunks meet in a BatchNorm of the whole batch", "[host]") {
  const Threads one(1);
  const auto work = training<optim::AdamW, RunBatch>(
      [] {
        return std::make_unique<nn::Sequential>(
            nn::Linear(6, 8), nn::BatchNorm1d(8, {.accumulation = nn::BatchNormMode::whole_batch}),
            nn::ReLU(), nn::Linear(8, 4));
      },
      optim::AdamWOptions{.lr = 0.01}, {.clip_norm = 1, .exact = {.chunk = 1}}, {8, 6});
  CHECK(sweep(work, Fails::heap) > 10);
  CHECK(sweep(work, Fails::heap_for_good, 3) > 5);
  CHECK(sweep(work, Fails::blocks) > 5);
}

TEST_CASE("alloc_sweep: a cycle that a RollbackPoint takes back", "[host]") {
  const Threads one(1);
  const WarningHandler before = set_warning_handler([](const std::string&) {});
  const auto sweep_all = [](const MakeWork& work, int stride) {
    CHECK(sweep(work, Fails::heap, stride) > 10);
    CHECK(sweep(work, Fails::heap_for_good, 2 * stride) > 5);
    CHECK(sweep(work, Fails::blocks) > 10);
  };
  const auto net = [] {
    return std::make_unique<nn::Sequential>(
        nn::Linear(6, 8, {.dtype = f16}), nn::BatchNorm1d(8, {.dtype = f16}), nn::ReLU(),
        nn::Dropout(0.25),
        nn::BatchNorm1d(8, {.accumulation = nn::BatchNormMode::per_step, .dtype = f16}),
        nn::Linear(8, 4, {.dtype = f16}));
  };
  const optim::AdamWOptions adam{.lr = 0.01};
  sweep_all(training<optim::AdamW, TakenBack<false>>(net, adam, {.accumulate = 3}, {8, 6}), 3);
  sweep_all(training<optim::AdamW, TakenBack<true>>(net, adam, {.accumulate = 3}, {8, 6}), 3);
  set_warning_handler(before);
}

struct Vocabulary : nn::Module {
  nn::Linear hidden{12, 16, {.dtype = f16}}, out{16, 4, {.dtype = f16}};
  FIRN_MEMBERS(hidden, out)
  Tensor forward(const Tensor& x) override { return hidden(x); }
};

TEST_CASE("alloc_sweep: linear_cross_entropy in chunks", "[host]") {
  const Threads one(1);
  const auto loss = [](nn::Module& net, const Tensor& x, const Tensor& y) {
    const nn::Linear& out = static_cast<Vocabulary&>(net).out;
    return linear_cross_entropy(net(x), out.weight, y,
                                {.label_smoothing = 0.1, .row_weights = ones({8}, f16)},
                                {.bias = out.bias, .chunk_rows = 5, .chunk_classes = 3});
  };
  const auto work =
      training<optim::AdamW>([] { return std::make_unique<Vocabulary>(); },
                             optim::AdamWOptions{.lr = 0.01}, {.accumulate = 2}, {8, 12}, loss);
  CHECK(sweep(work, Fails::heap) > 10);
  CHECK(sweep(work, Fails::blocks) > 10);
}

/// Self-attention with grouped heads, attention to the input, and a gated block, with a residual
/// around each; f16, so that gradients of 16-bit operands are added into arenas of f32.
struct Transformer : nn::Module {
  nn::Embedding token{7, 8, {.dtype = f16}};
  nn::RMSNorm norm{8, {.dtype = f16}};
  nn::MultiHeadAttention self{
      8, 2, {.key_heads = 1, .causal = true, .dropout = 0.25, .rope_theta = 100.0, .dtype = f16}};
  nn::MultiHeadAttention cross{8, 2, {.memory_width = 8, .window = 2, .dtype = f16}};
  nn::SwiGLU feed{8, 12, {.dtype = f16}};
  nn::Linear out{8, 4, {.dtype = f16}};
  FIRN_MEMBERS(token, norm, self, cross, feed, out)
  Tensor forward(const Tensor& x) override {
    const Tensor words = token(x);
    const nn::SeenKeys seen{.lengths = tensor<std::int64_t>({5, 3, 4, 1}, {4})};
    Tensor h = words + self(norm(words), seen);
    h = h + cross(norm(h), words, seen);
    h = h + feed(norm(h));
    return out(h.mean({1}));
  }
};

/// Words for a network whose batches are random numbers.
Loss word_loss(nn::Module& net, const Tensor& x, const Tensor& y) {
  return cross_entropy(net(clamp(x.to(f32) * 2.0 + 3.0, 0, 6).to(i64)), y);
}

MakeWork transformer_training() {
  return training<optim::AdamW>([] { return std::make_unique<Transformer>(); },
                                optim::AdamWOptions{.lr = 0.01}, {.accumulate = 2, .clip_norm = 1},
                                {4, 5}, word_loss);
}

TEST_CASE("alloc_sweep: a transformer with masters, loss scale, dropout and lengths", "[host]") {
  const Threads one(1);
  CHECK(sweep(transformer_training(), Fails::heap, 2) > 100);
  CHECK(sweep(transformer_training(), Fails::heap_for_good, 5) > 40);
  CHECK(sweep(transformer_training(), Fails::blocks, 2) > 100);
}

TEST_CASE("alloc_sweep: a transformer on two threads", "[host]") {
  const Threads two(2);
  CHECK(sweep(transformer_training(), Fails::heap, 7) > 30);
  CHECK(sweep(transformer_training(), Fails::blocks, 5) > 30);
}

MakeWork convolutional_training() {
  return training<optim::AdamW>(convolutional, optim::AdamWOptions{.lr = 0.01}, {.accumulate = 2},
                                {8, 3, 8, 8});
}

TEST_CASE("alloc_sweep: a convolutional network with BatchNorm", "[host]") {
  const Threads one(1);
  CHECK(sweep(convolutional_training(), Fails::heap) > 60);
  CHECK(sweep(convolutional_training(), Fails::heap_for_good, 3) > 20);
  CHECK(sweep(convolutional_training(), Fails::blocks) > 50);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE(
    "alloc_sweep: a convolutional network in a heap that is too small, oneDNN's code included",
    "[host]") {
  const Threads one(1);
  CHECK(sweep_limits(convolutional_training(), 512 << 10) > 0);
}
#endif

TEST_CASE("alloc_sweep: warm steps of a convolutional network and an MLP", "[host]") {
  const Threads one(1);
  CHECK(sweep(convolutional_training(), Fails::warm_heap) > 100);
  const auto net = [] {
    return std::make_unique<nn::Sequential>(nn::Linear(12, 16), nn::ReLU(), nn::Linear(16, 4));
  };
  const auto mlp = training<optim::SGD>(net, optim::SGDOptions{.lr = 0.1, .momentum = 0.9},
                                        {.accumulate = 2, .clip_norm = 1}, {8, 12});
  CHECK(sweep(mlp, Fails::warm_heap) > 5);
}

TEST_CASE("alloc_sweep: a convolutional network on two threads", "[host]") {
  const Threads two(2);
  CHECK(sweep(convolutional_training(), Fails::heap, 3) > 30);
  CHECK(sweep(convolutional_training(), Fails::blocks, 3) > 15);
}

}  // namespace
}  // namespace firn::testing
