// Micro-steps that fail, taken back by a RollbackPoint: the run goes on to the bits of one in which
// they never were. Layers with streams and statistics, optimizers and data take part together.
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "firn/runtime/rollback.h"
#include "runtime/memory/fail_allocation.h"
#include "semantics/batch_norm/net.h"

namespace firn::testing {
namespace {

using optim::LossScale;

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Micro-batches in order, as a loader has them: only the position is a state.
class Shards {
 public:
  explicit Shards(DType dtype) : dtype_(dtype) {}
  Batch next() {
    runtime::before_change(Rollback::data, position_.get(), [this]() -> std::function<void()> {
      return [p = position_, at = *position_] { *p = at; };
    });
    return batch_of(static_cast<std::uint64_t>(100 + (*position_)++), dtype_, 6);
  }
  std::int64_t position() const { return *position_; }

 private:
  DType dtype_;
  std::shared_ptr<std::int64_t> position_ = std::make_shared<std::int64_t>(0);
};

/// Fails in the middle of its backward pass: layers behind it have their gradients by then.
struct Fragile : nn::Module {
  Fragile() = default;
  bool breaks = false;
  FIRN_MEMBERS()
  Tensor forward(const Tensor& x) override {
    Tensor y;
    {
      const NoGrad guard;
      y = x.clone();
    }
    return custom("fragile", {x}, y, {}, [breaks = breaks](const CustomBackward& b) {
      if (breaks) throw Failure("backward");
      return std::vector<Tensor>{b.grad};
    });
  }
};

struct Layers : nn::Module {
  nn::Linear in, out;
  Fragile fragile;
  nn::BatchNorm1d bn;
  nn::Dropout own{0.25, {.seed = 7}}, common{0.25};
  Layers(DType dtype, BatchNormMode mode)
      : in(kIn, kHidden, {.dtype = dtype}),
        out(kHidden, 3, {.dtype = dtype}),
        bn(kHidden, {.accumulation = mode, .dtype = dtype}) {}
  FIRN_MEMBERS(in, fragile, bn, own, common, out)
  Tensor forward(const Tensor& x) override { return out(common(own(tanh(bn(fragile(in(x))))))); }
};

struct Training {
  Layers net;
  Shards shards;
  optim::AdamW opt;
  Training(DType dtype, BatchNormMode mode, const optim::StepOptions& options)
      : net((manual_seed(3), dtype), mode),
        shards(dtype),
        opt(net.parameters(), {.lr = 0.02}, options) {}

  Loss loss() {
    const Batch b = shards.next();
    return cross_entropy(net(b.x), b.y);
  }
  /// All but the layer's own stream, which later masks show.
  Bits everything() const { return all_but(""); }
  /// Without the sums of losses, which a cycle that was dropped has added to.
  Bits all_but_totals() const { return all_but("step_state"); }

 private:
  Bits all_but(const std::string& name) const {
    Bits out = bits_of_buffers(net);
    for (const optim::NamedState& s : opt.state())
      if (s.name != name) out = out + bits_of(s.tensor);
    const RandomKey key = default_generator().get();
    out.bytes += std::to_string(key.seed) + " " + std::to_string(key.offset) + " " +
                 std::to_string(shards.position());
    return out;
  }
};

/// How a micro-step can fail: before its backward pass, in it, or at allocation `at`.
struct Fault {
  enum Kind { forward, backward, memory } kind;
  std::uint64_t at = 0;
};
const std::vector<Fault> kFaults = {{Fault::forward},   {Fault::backward},   {Fault::memory, 0},
                                    {Fault::memory, 4}, {Fault::memory, 13}, {Fault::memory, 25},
                                    {Fault::memory, 34}};

/// `count` micro-steps of a cycle, the last of which fails. Returns whether it did: a micro-step
/// may need fewer allocations than that.
bool failing_steps(Training& t, int count, const Fault& fault) {
  for (int i = 1; i < count; ++i) {
    t.opt.backward(t.loss());
    t.opt.step();
  }
  try {
    if (fault.kind == Fault::memory) {
      const FailAllocation fail(fault.at);
      t.opt.backward(t.loss());
      return false;
    }
    t.net.fragile.breaks = fault.kind == Fault::backward;
    const Loss loss = t.loss();
    if (fault.kind == Fault::forward) throw Failure("forward");
    t.opt.backward(loss);
  } catch (const Failure&) {
    t.net.fragile.breaks = false;
    return true;
  } catch (const OutOfMemory&) {
    return true;
  }
  FAIL("nothing failed");
  return false;
}

TEST_CASE("[S22] a micro-step that failed and was taken back has never been, wherever it fails") {
  const Warnings quiet;
  for (const DType dtype : {f32, f16})
    for (const BatchNormMode mode : {BatchNormMode::per_step, BatchNormMode::per_micro_batch}) {
      // Half of the combinations will do on a device.
      if (default_device().is_cuda() && (dtype == f16) != (mode == BatchNormMode::per_step))
        continue;
      const optim::StepOptions options{
          .accumulate = 3,
          .clip_norm = 1,
          .loss_scale = dtype == f16 ? LossScale::dynamic({.init = 64, .growth_interval = 2})
                                     : LossScale::none(),
          .ema = 0.9};
      Training plain(dtype, mode, options);
      for (int i = 0; i < 9; ++i) {
        plain.opt.backward(plain.loss());
        plain.opt.step();
      }
      const Bits want = plain.everything();

      Training t(dtype, mode, options);
      int failures = 0;
      for (int i = 0; i < 9; ++i) {
        const int place = i % 3;
        for (int count = 1; place + count <= 3; ++count)
          for (const Fault& fault : kFaults) {
            if (i >= 3 && fault.kind == Fault::memory) continue;  // as in the first cycle
            CAPTURE(to_string(dtype), mode == BatchNormMode::per_step, i, count, fault.kind,
                    fault.at);
            const Bits before = t.everything();
            RollbackPoint start;
            failures += failing_steps(t, count, fault) ? 1 : 0;
            start.roll_back();
            CHECK(t.everything() == before);
            start.roll_back();  // nothing more to put back
            CHECK(t.everything() == before);
          }
        t.opt.backward(t.loss());
        t.opt.step();
      }
      CHECK(failures > 50);
      CHECK(t.opt.last_report().applied_steps() == 3);
      CHECK(t.everything() == want);
    }
}

TEST_CASE("[S22] points nest: a micro-step is taken back alone, or with its cycle") {
  const Warnings quiet;
  for (const BatchNormMode mode : {BatchNormMode::per_step, BatchNormMode::per_micro_batch}) {
    const optim::StepOptions options{.accumulate = 3};
    Training plain(f32, mode, options), t(f32, mode, options);
    manual_seed(9);
    for (int i = 0; i < 3; ++i) {
      plain.opt.backward(plain.loss());
      plain.opt.step();
    }
    const RandomKey after = default_generator().get();

    manual_seed(9);
    const Bits begin = t.everything();
    RollbackPoint cycle;
    for (int attempt = 0; attempt < 3; ++attempt) {
      for (int i = 0; i < (attempt < 2 ? 2 : 3); ++i) {
        const Bits before = t.everything();
        RollbackPoint micro_step;
        if (i > 0 || attempt == 1) {
          failing_steps(t, 1, {Fault::backward});
          micro_step.roll_back();
          CHECK(t.everything() == before);
        }
        t.opt.backward(t.loss());
        t.opt.step();
      }
      if (attempt == 2) break;
      cycle.roll_back();
      CHECK(t.everything() == begin);
    }
    CHECK(default_generator().get().offset == after.offset);
    default_generator().set(after);
    CHECK(t.opt.last_report().applied_steps() == 1);
    CHECK(t.everything() == plain.everything());
  }
}

TEST_CASE("[S22] both optimizers of a GAN go back together") {
  struct Gan {
    Net generator{BatchNormMode::per_step}, critic{BatchNormMode::per_step};
    Fragile fragile;
    optim::SGD of_generator, of_critic;
    explicit Gan(const optim::LossScaler& scaler)
        : of_generator(generator.parameters(), {.lr = 0.1}, {.accumulate = 2, .scaler = scaler}),
          of_critic(critic.parameters(), {.lr = 0.1}, {.accumulate = 2, .scaler = scaler}) {}
    void micro_step(std::uint64_t seed) {
      const Batch real = batch_of(seed, f32, 8), noise = batch_of(seed + 50, f32, 8);
      const Tensor made = cat({generator(noise.x), generator(noise.x)}, 1);
      of_critic.backward(cross_entropy(critic(real.x), real.y));
      of_critic.backward(cross_entropy(critic(made.detach()), noise.y));
      of_generator.backward(cross_entropy(critic(fragile(made)), real.y));
    }
    void step() { optim::step_all({&of_generator, &of_critic}); }
    Bits everything() const {
      Bits out = bits_of_buffers(generator) + bits_of_buffers(critic);
      for (const optim::Optimizer* opt : {&of_generator, &of_critic})
        for (const optim::NamedState& s : opt->state()) out = out + bits_of(s.tensor);
      return out;
    }
  };
  const auto scaler = [] { return optim::LossScaler(LossScale::dynamic({.init = 64})); };
  Gan plain(scaler()), gan(scaler());
  for (std::uint64_t i = 0; i < 4; ++i) {
    plain.micro_step(i);
    plain.step();
    const Bits before = gan.everything();
    RollbackPoint start;
    gan.fragile.breaks = true;
    CHECK_THROWS_AS(gan.micro_step(i), Failure);
    gan.fragile.breaks = false;
    start.roll_back();
    CHECK(gan.everything() == before);
    gan.micro_step(i);
    gan.step();
  }
  CHECK(gan.of_critic.last_report().applied_steps() == 2);
  CHECK(gan.everything() == plain.everything());
}

TEST_CASE(
    "[S15][S22] a retried cycle takes the same batches again, and a failed one gives them back") {
  const Warnings quiet;
  const auto cycles = [](const LossScale& scale, BatchNormMode mode, bool fails) {
    Training t(f16, mode, {.loss_scale = scale});
    std::int64_t taken = 0;
    for (int cycle = 0; cycle < 3; ++cycle) {
      const auto micro_batch = [&](std::int64_t i) {
        Loss loss = t.loss();
        ++taken;
        if (i == 1 && t.opt.loss_scale() > 64) loss.sum = spoilt(loss.sum);
        return loss;
      };
      if (fails) {
        const Bits before = t.all_but_totals();
        t.net.fragile.breaks = true;
        CHECK_THROWS_AS(t.opt.run_cycle(2, micro_batch), Failure);
        t.net.fragile.breaks = false;
        CHECK(t.all_but_totals() == before);
      }
      REQUIRE(t.opt.run_cycle(2, micro_batch).applied());
    }
    CHECK(t.shards.position() == 6);
    CHECK(taken == 6 + (scale.kind() == LossScale::Kind::fixed ? 0 : 2 * 2) + (fails ? 3 : 0));
    return bits_of_buffers(t.net) + bits_of_training(t.opt);
  };
  for (const BatchNormMode mode : {BatchNormMode::per_step, BatchNormMode::per_micro_batch}) {
    const Bits want = cycles(LossScale::fixed(64), mode, false);
    const LossScale retry =
        LossScale::dynamic({.init = 256, .on_overflow = optim::OverflowPolicy::retry});
    CHECK(cycles(retry, mode, false) == want);
    CHECK(cycles(retry, mode, true) == want);
  }
}

TEST_CASE(
    "[S20][S22] both passes of step_two_pass() take the same batches, and a failed one undoes it") {
  const Warnings quiet;
  for (const BatchNormMode mode : {BatchNormMode::per_step, BatchNormMode::per_micro_batch}) {
    Training by_number(f32, mode, {}), t(f32, mode, {});
    const auto coupled = [](const Tensor& all) {
      return cross_entropy(all, zeros({all.shape()[0]}, i64));
    };
    manual_seed(4);
    for (int step = 0; step < 2; ++step)
      by_number.opt.step_two_pass(
          3,
          [&](std::int64_t i) {
            return by_number.net(
                batch_of(static_cast<std::uint64_t>(100 + 3 * step + i), f32, 6).x);
          },
          coupled);
    const std::uint64_t drawn = default_generator().get().offset;
    const auto encode = [&](std::int64_t) { return t.net(t.shards.next().x); };
    manual_seed(4);
    for (int step = 0; step < 2; ++step) {
      const Bits before = t.all_but_totals();
      for (const int failing : {1, 4}) {  // in either pass
        int calls = 0;
        CHECK_THROWS_AS(t.opt.step_two_pass(
                            3,
                            [&](std::int64_t i) {
                              if (calls++ == failing) throw Failure("encode");
                              return encode(i);
                            },
                            coupled),
                        Failure);
        CHECK(t.all_but_totals() == before);
      }
      CHECK(t.opt.step_two_pass(3, encode, coupled).applied());
    }
    CHECK(t.shards.position() == 6);
    CHECK(default_generator().get().offset == drawn);
    CHECK(bits_of_buffers(t.net) + bits_of_training(t.opt) ==
          bits_of_buffers(by_number.net) + bits_of_training(by_number.opt));
  }
}

/// Draws from a generator of its own.
struct Noise : nn::Module {
  Generator own{9};
  FIRN_MEMBERS(own)
  Tensor forward(const Tensor& x) override {
    return x + randn(x.shape(), {.dtype = x.dtype(), .generator = &own});
  }
};

std::uint64_t place_of(const Generator& g) { return g.get().offset; }

TEST_CASE("[S22] a point puts back every generator that operations have drawn from") {
  const Tensor x = ones({4, 4});
  Noise noise;
  Generator scoped(4), given(5);
  const auto work = [&] {
    noise(x);
    dropout(x, 0.5, true, given);
    const GeneratorScope scope(scoped);
    randn({8});
    randperm(8);
  };
  work();
  const auto places = [&] {
    return std::vector<std::uint64_t>{place_of(noise.own), place_of(scoped), place_of(given),
                                      place_of(default_generator())};
  };
  const auto before = places();
  RollbackPoint outer;
  {
    RollbackPoint point;
    work();
    work();
    point.roll_back();
    CHECK(places() == before);
    work();
    point.roll_back(Rollback::random);
    CHECK(places() == before);
    work();
  }
  CHECK(places() != before);
  outer.roll_back();
  CHECK(places() == before);
}

TEST_CASE("[S22] a generator may be moved, copied, assigned to and destroyed before it goes back") {
  const Tensor x = ones({4, 4});
  const auto draw = [&x](Generator& g) { dropout(x, 0.5, true, g); };
  RollbackPoint point;
  std::vector<Noise> layers(1);
  layers.front()(x);
  layers.reserve(layers.capacity() + 1);  // moves it
  for (int i = 0; i < 3; ++i) {
    Generator on_stack(7);  // at the same address each time
    draw(on_stack);
  }
  auto gone = std::make_unique<Noise>();
  (*gone)(x);
  gone.reset();
  Generator first(1);
  draw(first);
  Generator copy(first);
  draw(copy);
  draw(copy);
  Generator assigned(2);
  draw(assigned);
  assigned = copy;
  draw(assigned);
  const std::uint64_t block = place_of(first);
  point.roll_back();
  CHECK(place_of(layers.front().own) == 0);
  CHECK(place_of(first) == 0);
  CHECK(place_of(copy) == block);          // where the copy began
  CHECK(place_of(assigned) == 3 * block);  // where the assigned one began
}

TEST_CASE("[S15][S22] a retried cycle draws the same numbers from a layer's own generator") {
  const Warnings quiet;
  const auto trained = [](double scale, int& calls) {
    manual_seed(5);
    const Tensor x = randn({8, 4}).to(f16), y = (100.0 * randn({8, 2})).to(f16);
    nn::Sequential net(nn::Linear(4, 4), Noise(), nn::Linear(4, 2));
    net.to(f16);
    optim::SGD opt(
        net.parameters(), {.lr = 1e-3},
        {.loss_scale = LossScale::dynamic({.init = scale,
                                           .backoff_factor = 1.0 / 65536,
                                           .min = 256,
                                           .on_overflow = optim::OverflowPolicy::retry})});
    CHECK(opt.run_cycle(2,
                        [&](std::int64_t) {
                          ++calls;
                          return mse_loss(net(x), y);
                        })
              .applied());
    Bits out;
    for (const Tensor& p : net.parameters()) out = out + bits_of(p);
    return out;
  };
  int once = 0, twice = 0;
  const Bits want = trained(256, once);
  CHECK(trained(1 << 24, twice) == want);
  CHECK(once == 2);
  CHECK(twice > 2);
}

TEST_CASE("[S22] a batch that is halved draws the same numbers from a layer's own generator") {
  const Warnings quiet;
  const Tensor x = randn({8, 4}), y = randn({8, 2});
  const auto trained = [&](std::int64_t size, std::int64_t most) {
    manual_seed(5);
    nn::Sequential net(nn::Linear(4, 4), Noise(), nn::Linear(4, 2));
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    const auto report =
        opt.run_batch(8, {.size = size}, [&](std::int64_t first, std::int64_t last) {
          const Loss loss = mse_loss(net(x.slice(0, first, last)), y.slice(0, first, last));
          if (last - first > most) throw OutOfMemory("no memory for so many samples", 1);
          return loss;
        });
    CHECK(report.applied());
    CHECK(report.micro_batch() == most);
    Bits out;
    for (const Tensor& p : net.parameters()) out = out + bits_of(p);
    return out;
  };
  CHECK(trained(8, 2) == trained(2, 2));
}

TEST_CASE("[S22] a point is not rolled back while a backward pass of the cycle runs") {
  nn::Linear first(4, 4), second(4, 1);
  std::vector<Tensor> all = first.parameters();
  for (const Tensor& p : second.parameters()) all.push_back(p);
  optim::SGD opt(all, {.lr = 0.1});
  const Tensor x = ones({2, 4}), y = zeros({2, 1});
  std::string said;
  RollbackPoint start;
  const Tensor hidden = first(x);
  randn({2});
  const RandomKey drawn = default_generator().get();
  add_hook(hidden, [&](const Tensor& gradient) {
    said = error_of([&] { start.roll_back(); });
    return gradient;
  });
  opt.backward(mse_loss(second(hidden), y));
  CHECK(mentions(said, {"backward pass", "running"}));
  CHECK(default_generator().get().offset == drawn.offset);  // nothing was put back
  CHECK(opt.step().applied());
}

TEST_CASE("[S22] a whole cycle inside a point leaves no trace if it fails") {
  const Warnings quiet;
  Training t(f32, BatchNormMode::per_micro_batch, {});
  const Tensor calls = zeros({1});
  t.opt.restore_on_retry({calls});
  const auto micro_batch = [&](std::int64_t i) {
    fill_(calls, calls.item() + 1);
    t.net.fragile.breaks = i == 2;
    return t.loss();
  };
  REQUIRE(t.opt.run_cycle(2, micro_batch).applied());
  const Bits before = t.everything();
  RollbackPoint start;
  CHECK_THROWS_AS(t.opt.run_cycle(3, micro_batch), Failure);
  CHECK(t.shards.position() == 5);  // without a retry only the cycle is dropped
  start.roll_back();
  t.net.fragile.breaks = false;
  CHECK(t.everything() == before);
  CHECK(calls.item() == 2);
}

TEST_CASE("[S19][S22] a sample counts once in a pool, also if its pass was taken back") {
  Net net(BatchNormMode::per_step);
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 2});
  const Batch b = batch_of(1);
  const auto pass = [&](const Loss& loss) { opt.backward(loss, {.retain_graph = true}); };
  const Loss early = loss_of(net, b, 0, 10), late = loss_of(net, b, 10, 30);
  pass(early);
  RollbackPoint start;
  pass(early);  // known already
  CHECK(net.bn.pooled_count.item() == 10);
  pass(late);
  CHECK(net.bn.pooled_count.item() == 30);
  start.roll_back();
  CHECK(net.bn.pooled_count.item() == 10);
  pass(early);
  CHECK(net.bn.pooled_count.item() == 10);
  pass(late);  // as if for the first time
  CHECK(net.bn.pooled_count.item() == 30);
  CHECK(opt.flush().applied());
  CHECK(net.bn.num_batches_tracked.item() == 1);
  // The cycle has ended since the mark: its pool is not filled again, and the new one is dropped.
  start.roll_back();
  CHECK(pool_is_empty(net.bn));
  pass(loss_of(net, b, 0, 10));
  CHECK(net.bn.pooled_count.item() == 10);
  start.roll_back();
  CHECK(pool_is_empty(net.bn));
  CHECK(net.bn.num_batches_tracked.item() == 1);
  pass(loss_of(net, b, 0, 10));
  CHECK(net.bn.pooled_count.item() == 10);
}

TEST_CASE("[S19][S22] a pool that was taken back belongs to nobody, as before") {
  Net net(BatchNormMode::per_step, f32, {.affine = false});  // no optimizer trains the layer
  const std::vector<Tensor> first = net.in.parameters(), last = net.out.parameters();
  optim::SGD a(first, {.lr = 0.1}), c(last, {.lr = 0.1});
  const Batch b = batch_of(1);
  RollbackPoint start;
  a.backward(loss_of(net, b, 0, 10));
  CHECK(net.bn.pooled_count.item() == 10);
  start.roll_back();
  CHECK(pool_is_empty(net.bn));
  c.backward(loss_of(net, b, 0, 20));
  CHECK(net.bn.pooled_count.item() == 20);
  CHECK(c.step().applied());
  CHECK(net.bn.num_batches_tracked.item() == 1);
}

}  // namespace
}  // namespace firn::testing
