// What the tests of training over ranks share: optimizers of every kind, and runs whose ends are
// compared.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "firn/dist/distribute.h"
#include "firn/dist/local.h"
#include "firn/firn.h"
#include "optim/problem.h"

namespace firn::testing {

using OptimizerPtr = std::unique_ptr<optim::Optimizer>;

struct OptimizerKind {
  const char* name;
  std::function<OptimizerPtr(nn::Module&, const optim::StepOptions&)> make;
};

template <class Opt, class Options>
OptimizerKind kind(const char* name, const Options& options) {
  return {name, [options](nn::Module& net, const optim::StepOptions& step) -> OptimizerPtr {
            return std::make_unique<Opt>(net.parameters(), options, step);
          }};
}

inline std::vector<OptimizerKind> all_kinds() {
  using namespace optim;
  return {kind<SGD>("SGD", SGDOptions{.lr = 0.05, .momentum = 0.9}),
          kind<Adam>("Adam", AdamOptions{.lr = 1e-2}),
          kind<AdamW>("AdamW", AdamWOptions{.lr = 1e-2}),
          kind<RMSprop>("RMSprop", RMSpropOptions{.lr = 1e-3}),
          kind<Adam>("Adam, amsgrad", AdamOptions{.lr = 1e-2, .amsgrad = true}),
          kind<NAdam>("NAdam", NAdamOptions{.lr = 1e-2}),
          kind<RAdam>("RAdam", RAdamOptions{.lr = 1e-2}),
          kind<Adadelta>("Adadelta", AdadeltaOptions{}),
          kind<Rprop>("Rprop", RpropOptions{.lr = 1e-2}),
          kind<Adagrad>("Adagrad", AdagradOptions{.lr = 1e-2}),
          kind<LAMB>("LAMB", LAMBOptions{.lr = 1e-2}),
          kind<Lion>("Lion", LionOptions{.lr = 1e-3}),
          kind<Muon>("Muon", MuonOptions{.lr = 1e-2}),
          kind<Adafactor>("Adafactor", AdafactorOptions{.lr = 1e-2}),
          kind<ScheduleFreeAdamW>("ScheduleFreeAdamW", ScheduleFreeAdamWOptions{.lr = 1e-2})};
}

/// What each rank has at the end of fn(group), in the order of ranks.
template <class T>
std::vector<T> on_ranks(int ranks, const std::function<T(const dist::Group&)>& fn,
                        const dist::LocalOptions& options = {}) {
  std::vector<T> out(static_cast<std::size_t>(ranks));
  dist::run_local(
      ranks, [&](const dist::Group& g) { out[static_cast<std::size_t>(g.rank())] = fn(g); },
      options);
  return out;
}

/// What each rank's fn(group) throws, in the order of ranks; empty: nothing.
inline std::vector<std::string> errors_on_ranks(int ranks,
                                                const std::function<void(const dist::Group&)>& fn,
                                                double deadline = 60) {
  return on_ranks<std::string>(ranks,
                               [&](const dist::Group& g) -> std::string {
                                 try {
                                   fn(g);
                                 } catch (const Error& e) {
                                   return e.what();
                                 }
                                 return {};
                               },
                               {.deadline = deadline});
}

/// Rows of numbers with classes, the same in every thread.
struct Rows {
  Tensor x, y;
  Rows(std::int64_t n, std::int64_t width, std::int64_t classes, std::uint64_t seed,
       DType dtype = f32)
      : x(make(Rng(seed).uniforms(n * width, -1, 1), {n, width}, dtype)) {
    Rng rng(seed + 1);
    std::vector<std::int64_t> c;
    for (std::int64_t i = 0; i < n; ++i) c.push_back(rng.below(classes));
    y = tensor(c, {n});
  }
};

/// Seven numbers to three classes.
struct SmallMlp : nn::Module {
  nn::Linear a, b;
  FIRN_MEMBERS(a, b)
  explicit SmallMlp(DType dtype = f32) : a(7, 16, {.dtype = dtype}), b(16, 3, {.dtype = dtype}) {}
  Tensor forward(const Tensor& x) override { return b(gelu(a(x))); }
};

/// The weights, one parameter after another.
inline std::vector<double> weights_of(const optim::Optimizer& opt) {
  std::vector<double> out;
  for (const Tensor& p : opt.parameters())
    for (const double v : values_of(p)) out.push_back(v);
  return out;
}

/// What comes of some steps on batches of `sizes` samples, in micro-batches of at most 4, with
/// class weights, clipping and averages: weights, bits of all that the optimizer keeps if that is
/// whole, and reports.
struct TrainedRun {
  std::vector<double> weights;
  std::string bits, reports;
};
inline TrainedRun train_unevenly(const dist::Group& group, const OptimizerKind& kind, DType dtype,
                                 const std::vector<std::int64_t>& sizes,
                                 const dist::DistributeOptions& options = {},
                                 Device device = Device::cpu()) {
  manual_seed(3);
  SmallMlp net(dtype);
  net.to(device);
  const OptimizerPtr opt = kind.make(net, {.clip_norm = 0.5, .ema = 0.9});
  dist::distribute(*opt, group, options);
  const Tensor class_weights = make({1, 0.5, 2}, {3}, dtype).to(device);
  TrainedRun out;
  std::uint64_t seed = 10;
  for (const std::int64_t n : sizes) {
    const Rows rows(n, 7, 3, seed += 2, dtype);
    const Tensor x = rows.x.to(device), y = rows.y.to(device);
    const auto report = opt->run_batch(n, 4, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last),
                           {.class_weights = class_weights});
    });
    out.reports += fmt::format("{} {} {} {}\n", report.applied(), report.weight(), report.norm(),
                               report.loss());
  }
  const auto totals = opt->loss_totals();
  out.reports += fmt::format("{} {}", totals.loss, totals.weight);
  out.weights = weights_of(*opt);
  if (options.zero == 0) out.bits = bits_of_training(*opt).bytes;
  return out;
}

/// |a - b| / |b|, of vectors.
inline double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double distance = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    distance += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(distance / norm);
}

}  // namespace firn::testing
