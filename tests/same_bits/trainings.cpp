// The trainings of one process.
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "firn/nn/checkpoint.h"
#include "firn/nn/layers/batch_norm.h"
#include "same_bits.h"

namespace same_bits {
namespace {

using namespace firn;

/// Convolutions with a normalisation whose statistics belong to the optimizer's step.
struct NormedNet : nn::Module {
  nn::Conv2d conv;
  nn::BatchNorm2d norm;
  nn::Linear out;
  FIRN_MEMBERS(conv, norm, out)
  explicit NormedNet(nn::BatchNormMode mode)
      : conv(1, 6, 3, {.padding = 1}), norm(6, {.accumulation = mode}), out(60, 5) {}
  Tensor forward(const Tensor& x) override {
    return out(flatten(relu(norm(conv(x.reshape({-1, 1, 2, 5})))), 1));
  }
};

/// Six cycles of ragged micro-batches, the last of which flush() ends early.
template <class Opt>
void accumulate(Hash& hash, nn::Module& model, const std::function<Tensor(const Tensor&)>& net,
                Opt& opt, DType dtype, double factor = 1) {
  std::uint64_t seed = 100;
  for (int cycle = 0; cycle < 6; ++cycle) {
    opt.set_epoch(cycle / 3);
    for (const std::int64_t rows : {16, 16, 7}) {
      const Batch batch(rows, ++seed, dtype);
      const Loss loss = cross_entropy(net(batch.x), batch.y);
      opt.backward(factor == 1 ? loss : loss * factor);
      opt.step();
    }
    const optim::StepReport report = opt.flush();
    hash.add(report.loss());
    hash.add(report.norm());
  }
  hash.add(opt.loss_totals().loss);
  hash.add(model, opt);
}

template <class Opt, class Options>
Training accumulated(const std::string& name, DType dtype, const Options& options,
                     const optim::StepOptions& step = {.accumulate = 3,
                                                       .clip_norm = 0.5,
                                                       .ema = 0.9},
                     double factor = 1) {
  return {name + " " + name_of(dtype), [=](Hash& hash) {
            manual_seed(1);
            Net net;
            net.to(dtype);
            Opt opt(net.parameters(), options, step);
            accumulate(
                hash, net, [&](const Tensor& x) { return net(x); }, opt, dtype, factor);
          }};
}

template <class Opt, class Options>
void add_in_all(std::vector<Training>& list, const std::string& name, const Options& options) {
  for (const DType dtype : {f32, f16, bf16}) list.push_back(accumulated<Opt>(name, dtype, options));
}

std::vector<Training> rules() {
  using namespace optim;
  std::vector<Training> list;
  add_in_all<SGD>(list, "SGD", SGDOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01});
  add_in_all<Adam>(list, "Adam", AdamOptions{.lr = warmup(2, cosine(1e-2, 6))});
  add_in_all<AdamW>(list, "AdamW", AdamWOptions{.lr = 1e-2});
  add_in_all<Adam>(list, "Adam amsgrad", AdamOptions{.lr = 1e-2, .amsgrad = true});
  add_in_all<ScheduleFreeAdamW>(list, "ScheduleFreeAdamW", ScheduleFreeAdamWOptions{.lr = 1e-2});
  add_in_all<Muon>(list, "Muon", MuonOptions{.lr = 1e-2});
  for (const DType dtype : {f32, bf16}) {
    list.push_back(accumulated<NAdam>("NAdam", dtype, NAdamOptions{.lr = 1e-2}));
    list.push_back(accumulated<RAdam>("RAdam", dtype, RAdamOptions{.lr = 1e-2}));
    list.push_back(accumulated<RMSprop>("RMSprop", dtype, RMSpropOptions{.lr = 1e-3}));
    list.push_back(accumulated<Rprop>("Rprop", dtype, RpropOptions{.lr = 1e-2}));
    list.push_back(accumulated<Adadelta>("Adadelta", dtype, AdadeltaOptions{}));
    list.push_back(accumulated<Adagrad>("Adagrad", dtype, AdagradOptions{.lr = 1e-2}));
    list.push_back(accumulated<LAMB>("LAMB", dtype, LAMBOptions{.lr = 1e-2}));
    list.push_back(accumulated<Lion>("Lion", dtype, LionOptions{.lr = 1e-3}));
    list.push_back(accumulated<Adafactor>("Adafactor", dtype, AdafactorOptions{.lr = 1e-2}));
  }
  return list;
}

std::vector<Training> options_of_steps() {
  using namespace optim;
  std::vector<Training> list;
  const AdamWOptions adam{.lr = 1e-2};
  const LossScale high = LossScale::dynamic({.init = 1 << 20});
  // The scale overflows f16 at first, and backs off.
  list.push_back(accumulated<AdamW>("overflow, skipped", f16, adam,
                                    {.accumulate = 3, .loss_scale = high}, 64));
  list.push_back(accumulated<AdamW>("stochastic rounding", bf16, adam,
                                    {.accumulate = 3, .stochastic_rounding = true}));
  list.push_back(accumulated<AdamW>("clip_value, maximize", f32, adam,
                                    {.clip_value = 1e-3, .maximize = true}));
  list.push_back(accumulated<AdamW>("keep_accumulator", f16, adam,
                                    {.accumulate = 3, .keep_accumulator = true}));
  list.push_back(
      accumulated<AdamW>("accumulate by epoch", f32, adam, {.accumulate = {{0, 3}, {1, 2}}}));
  list.push_back({"overflow, retried f16", [](Hash& hash) {
                    manual_seed(2);
                    Net net;
                    net.to(f16);
                    AdamW opt(net.parameters(), {.lr = 1e-2},
                              {.loss_scale = LossScale::dynamic(
                                   {.init = 1 << 22, .on_overflow = OverflowPolicy::retry})});
                    for (int step = 0; step < 4; ++step) {
                      const Batch batch(40, 200 + static_cast<std::uint64_t>(step), f16);
                      opt.run_batch(40, 16, [&](std::int64_t first, std::int64_t last) {
                        return cross_entropy(net(batch.x.slice(0, first, last)),
                                             batch.y.slice(0, first, last)) *
                               64.0;
                      });
                    }
                    hash.add(opt.loss_scale());
                    hash.add(net, opt);
                  }});
  return list;
}

Training with_norm(const std::string& name, nn::BatchNormMode mode, std::int64_t chunk) {
  return {name, [=](Hash& hash) {
            manual_seed(3);
            NormedNet net(mode);
            optim::StepOptions step;
            step.exact.chunk = chunk;
            optim::AdamW opt(net.parameters(), {.lr = 1e-2}, step);
            for (int i = 0; i < 4; ++i) {
              const Batch batch(44, 300 + static_cast<std::uint64_t>(i));
              opt.run_batch(44, 16, [&](std::int64_t first, std::int64_t last) {
                return cross_entropy(net(batch.x.slice(0, first, last)),
                                     batch.y.slice(0, first, last));
              });
            }
            hash.add(net, opt);
          }};
}

Training exact(DType dtype) {
  return {std::string("exact ") + name_of(dtype), [=](Hash& hash) {
            manual_seed(4);
            Net net;
            net.to(dtype);
            optim::StepOptions step{.clip_norm = 1, .ema = 0.9};
            step.exact.chunk = 8;
            optim::AdamW opt(net.parameters(), {.lr = 1e-2}, step);
            for (const std::int64_t rows : {40, 21, 64}) {
              const Batch batch(rows, static_cast<std::uint64_t>(rows), dtype);
              opt.run_batch(rows, 16, [&](std::int64_t first, std::int64_t last) {
                return cross_entropy(net(batch.x.slice(0, first, last)),
                                     batch.y.slice(0, first, last));
              });
            }
            hash.add(net, opt);
          }};
}

/// A run that is saved in the middle of a cycle, and goes on in new objects.
void resumed(Hash& hash) {
  const std::string path = "same_bits_run.safetensors";
  const auto train = [&](int first, int last, bool load, bool save) {
    manual_seed(5);
    Net net;
    net.to(bf16);
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.accumulate = 4, .ema = 0.9});
    if (load) io::load_run(path, {net, opt});
    for (int i = first; i < last; ++i) {
      const Batch batch(9, 400 + static_cast<std::uint64_t>(i), bf16);
      opt.backward(cross_entropy(net(batch.x), batch.y));
      opt.step();
    }
    save ? io::save_run(path, {net, opt}) : hash.add(net, opt);
  };
  train(0, 6, false, true);
  train(6, 12, true, false);
  std::filesystem::remove(path);
}

void recomputed(Hash& hash) {
  manual_seed(6);
  Net net;
  net.hidden.set_checkpoint(CheckpointOptions());
  optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.accumulate = 3});
  accumulate(
      hash, net, [&](const Tensor& x) { return net(x); }, opt, f32);
}

void two_pass(Hash& hash) {
  manual_seed(7);
  Net net;
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  for (int i = 0; i < 3; ++i) {
    const Batch batch(24, 500 + static_cast<std::uint64_t>(i));
    opt.step_two_pass(
        3, [&](std::int64_t part) { return net(batch.x.slice(0, 8 * part, 8 * part + 8)); },
        [&](const Tensor& all) { return cross_entropy(all, batch.y); });
  }
  hash.add(net, opt);
}

/// Two optimizers with one loss scale, as a GAN has.
void joint(Hash& hash) {
  manual_seed(8);
  Net a, b;
  a.to(f16), b.to(f16);
  const optim::LossScaler scaler{optim::LossScale::dynamic({.init = 1 << 14})};
  optim::AdamW first(a.parameters(), {.lr = 1e-2}, {.scaler = scaler});
  optim::SGD second(b.parameters(), {.lr = 1e-2}, {.scaler = scaler});
  for (int i = 0; i < 4; ++i) {
    const Batch batch(24, 600 + static_cast<std::uint64_t>(i), f16);
    first.backward(cross_entropy(a(batch.x), batch.y));
    second.backward(cross_entropy(b(batch.x), batch.y));
    optim::step_all({&first, &second});
  }
  hash.add(a, first);
  hash.add(b, second);
}

#ifdef SAME_BITS_CUDA
void captured(Hash& hash) {
  const DeviceScope scope(Device::cuda());
  manual_seed(9);
  Net net;
  net.to(f16);
  optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.accumulate = 2, .clip_norm = 1});
  Batch now(16, 700, f16);
  graph::Step step(opt, [&] {
    opt.backward(cross_entropy(net(now.x), now.y));
    opt.step();
  });
  for (int i = 0; i < 8; ++i) {
    const Batch next(16, 701 + static_cast<std::uint64_t>(i), f16);
    copy_(now.x, next.x);
    copy_(now.y, next.y);
    step();
  }
  hash.add(net, opt);
}
#endif

}  // namespace

std::vector<Training> trainings_of_one_process() {
  std::vector<Training> list = rules();
  for (auto& training : options_of_steps()) list.push_back(std::move(training));
  list.push_back(with_norm("BatchNorm per step", nn::BatchNormMode::per_step, 0));
  list.push_back(with_norm("BatchNorm per micro-batch", nn::BatchNormMode::per_micro_batch, 0));
  list.push_back(with_norm("BatchNorm whole batch, exact", nn::BatchNormMode::whole_batch, 8));
  for (const DType dtype : {f32, f16, bf16}) list.push_back(exact(dtype));
  list.push_back({"saved in mid-cycle and resumed bf16", resumed});
  list.push_back({"recomputed f32", recomputed});
  list.push_back({"two passes f32", two_pass});
  list.push_back({"shared loss scale f16", joint});
#ifdef SAME_BITS_CUDA
  list.push_back({"captured, simulated f16", captured});
#endif
  return list;
}

}  // namespace same_bits
