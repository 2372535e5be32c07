// Measures steps of several ranks and their parts: a micro-step and an update on one rank,
// collectives without steps. scripts/step-time --measured reads the lines.
//
// Each rank has one thread. A round measures everything once, and the rounds follow one another, so
// that a quiet moment of the machine benefits every line.
#pragma once

#include <firn/dist/distribute.h>
#include <firn/firn.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../../harness.h"

namespace bench::ranks {

using namespace firn;  // NOLINT: a program's own header

/// Runs fn on the first `ranks` ranks of the job; fn of the first rank returns seconds.
using OnRanks = std::function<double(int ranks, const std::function<double(const dist::Group&)>&)>;

struct Work {
  const char* name;
  std::vector<std::int64_t> sizes;  ///< sizes of the layers
  std::int64_t micro_batch;         ///< number of samples; in exact mode the chunk
  int micro_steps;                  ///< per step and rank; with `divides`, of all ranks
  bool divides;
  std::int64_t unused;  ///< elements of an exchanged weight that gets no gradient
  int steps;            ///< number of steps timed at once

  int own_micro_steps(int ranks) const { return divides ? micro_steps / ranks : micro_steps; }
};

/// The works. Most of a step is latency in `talk`, bytes in `wide`, the update in `state`, and
/// micro-steps in `deep`.
inline const std::vector<Work>& works() {
  static const std::vector<Work> all{{"talk", {16, 16, 4}, 2, 1, false, 0, 10},
                                     {"wide", {16, 16, 4}, 2, 1, false, 1 << 18, 4},
                                     {"state", {256, 256, 16}, 1, 1, false, 0, 5},
                                     {"deep", {128, 128, 10}, 32, 12, true, 0, 2}};
  return all;
}

struct Net : nn::Module {
  nn::MLP layers;
  nn::Parameter unused;
  FIRN_MEMBERS(layers, unused)
  explicit Net(const Work& w) : layers(w.sizes) {
    if (w.unused > 0) unused = nn::Parameter(zeros({w.unused}));
  }
  Tensor forward(const Tensor& x) override { return layers(x); }
};

struct Mode {
  const char* name;
  bool exact;
  int zero;
};
inline constexpr Mode kModes[] = {{"plain", false, 0}, {"zero", false, 1}, {"exact", true, 0}};

/// Returns the seconds of fn(): the mean of `calls` calls in a block, and the best of all blocks.
/// Ranks begin together.
template <class Fn>
double time_of(const dist::Group& group, int calls, const Fn& fn, int blocks = 30) {
  group.barrier();
  double best = 0;
  for (int block = 0; block < blocks; ++block) {
    const double start = seconds();
    for (int i = 0; i < calls; ++i) fn();
    const double took = (seconds() - start) / calls;
    if (block == 0 || took < best) best = took;
  }
  return best;
}

class Measurement {
 public:
  /// `only` is the name of a work; empty means all works.
  Measurement(OnRanks on_ranks, const std::string& only) : on_ranks_(std::move(on_ranks)) {
    for (const Work& w : works())
      if (only.empty() || only == w.name) works_.push_back(w);
    if (works_.empty()) Options::refuse(only);
  }

  void round(int most) {
    for (const Work& w : works_) one_rank(w);
    for (int n = 2; n <= most; ++n) {
      collectives(n);
      for (const Work& w : works_)
        for (const Mode& mode : kModes)
          note_microseconds(
              std::string("ranks.") + w.name + "." + mode.name + "." + std::to_string(n),
              step(w, mode, n));
    }
    passes();
  }
  void report() const {
    for (const auto& [what, found] : lines_) bench::report(what, found.unit, found.values);
  }

 private:
  struct Line {
    const char* unit;
    std::vector<double> values;
  };
  static constexpr int kOften = 60;  // blocks: all computed times depend on these figures
  static constexpr std::int64_t kBulk = 1 << 18;  // f32 elements: about the arena of `wide`

  void note(const std::string& what, const char* unit, double value) {
    Line& line = lines_[what];
    line.unit = unit;
    line.values.push_back(value);
  }
  void note_microseconds(const std::string& what, double s) { note(what, "us", s * 1e6); }

  static Loss loss_of(Net& net, const Work& w) {
    static thread_local Tensor x, y;
    if (!x.defined() || x.size(0) != w.micro_batch || x.size(1) != w.sizes.front()) {
      x = full({w.micro_batch, w.sizes.front()}, 0.5);
      y = zeros({w.micro_batch}, i64);
    }
    return cross_entropy(net(x), y);
  }

  /// Returns the seconds of a step of n ranks.
  double step(const Work& w, const Mode& mode, int n) const {
    return on_ranks_(n, [&](const dist::Group& group) {
      manual_seed(1);
      Net net(w);
      optim::AdamW opt(net.parameters(), {.lr = 1e-4},
                       {.exact = {.chunk = mode.exact ? w.micro_batch : 0}});
      dist::distribute(opt, group, {.zero = mode.zero});
      const std::int64_t batch = w.own_micro_steps(n) * w.micro_batch * n;
      const auto train = [&] {
        opt.run_batch(batch, w.micro_batch,
                      [&](std::int64_t, std::int64_t) { return loss_of(net, w); });
      };
      train();
      train();
      return time_of(group, w.steps, train);
    });
  }

  void one_rank(const Work& w) {
    std::int64_t elements = 0;
    std::size_t tensors = 0;
    const double micro_step = on_ranks_(1, [&](const dist::Group& group) {
      manual_seed(1);
      Net net(w);
      optim::AdamW opt(net.parameters(), {.lr = 1e-4});
      for (const Tensor& p : opt.parameters()) elements += (p.numel() + 15) / 16 * 16;
      tensors = opt.parameters().size();
      opt.backward(loss_of(net, w));  // the first one of a cycle may do less
      const double s = time_of(group, w.steps, [&] { opt.backward(loss_of(net, w)); });
      opt.zero_grad();
      return s;
    });
    const std::string name = std::string("ranks.") + w.name;
    note(name + ".elements", "", static_cast<double>(elements));
    note(name + ".tensors", "", static_cast<double>(tensors));
    note_microseconds(name + ".micro_step", micro_step);
    note_microseconds(name + ".plain.1", step(w, kModes[0], 1));
  }

  /// Measures a collective of few bytes, and large ones. Each rank writes the bytes before and
  /// reads them afterwards, since bytes that another core wrote are slow to read.
  void collectives(int n) {
    const std::string at = "." + std::to_string(n);
    const double few = on_ranks_(n, [](const dist::Group& group) {
      const Tensor x = zeros({16});
      const auto call = [&] {
        pause();
        group.all_reduce(x);
      };
      return time_of(group, 20, call, kOften);
    });
    note_microseconds("ranks.latency" + at, few);
    if (n > 2) return;
    bulk("sum" + at, n, [](const dist::Group& g, const Tensor& x) { g.all_reduce(x); });
    bulk("gather" + at, n, [](const dist::Group& g, const Tensor& x) {
      const std::int64_t part = kBulk / g.size();
      g.all_gather(x.slice(0, part * g.rank(), part * (g.rank() + 1)), x);
    });
  }

  /// Does some work between calls; ranks that arrive at once would find the others awake.
  static void pause() {
    static thread_local Tensor x = zeros({4096});
    for (int i = 0; i < 10; ++i) mul_(x, 0.5);
  }
  /// Measures the nanoseconds of the call and of a pass over x, for each byte of x.
  void bulk(const std::string& what, int n,
            const std::function<void(const dist::Group&, const Tensor&)>& call) {
    const double s = on_ranks_(n, [&](const dist::Group& group) {
      Tensor x = zeros({kBulk});
      const auto pass_and_call = [&] {
        mul_(x, 0.5);
        call(group, x);
      };
      return time_of(group, 2, pass_and_call, kOften);
    });
    note("ranks.bulk." + what, "ns/B", s * 1e9 / (4 * kBulk));
  }
  /// Measures passes over memory by one rank: x *= 0.5, and y += x, as exact mode adds gradients.
  void passes() {
    const double paused =
        on_ranks_(1, [](const dist::Group& group) { return time_of(group, 20, [] { pause(); }); });
    note_microseconds("ranks.pause", paused);
    bulk("pass", 1, [](const dist::Group&, const Tensor&) {});
    const double s = on_ranks_(1, [](const dist::Group& group) {
      const Tensor x = zeros({kBulk});
      Tensor y = zeros({kBulk});
      return time_of(group, 2, [&] { add_(y, x); });
    });
    note("ranks.bulk.add", "ns/B", s * 1e9 / (4 * kBulk));
  }

  const OnRanks on_ranks_;
  std::vector<Work> works_;
  std::map<std::string, Line> lines_;
};

}  // namespace bench::ranks
