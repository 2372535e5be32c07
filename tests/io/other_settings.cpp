// LoadRunOptions::other_settings: parts of an optimizer's state that settings switch on or off,
// over ranks that shard the state.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/files.h"
#include "dist/training.h"
#include "firn/optim/gathered_weights.h"
#include "support/matchers.h"

namespace firn::testing {
namespace {

using dist::Group;
using optim::StepOptions;
using Entries = std::map<std::string, Tensor>;

/// A kernel in channels-last order, and two matrices.
struct Filters : nn::Module {
  nn::Conv2d conv{2, 4, 3, {.padding = 1}};
  nn::Linear in{4 * 9, 33}, out{33, 3};
  FIRN_MEMBERS(conv, in, out)
  Filters() { conv.weight = nn::Parameter(conv.weight.channels_last()); }
  Tensor forward(const Tensor& x) override {
    return out(gelu(in(flatten(relu(conv(x.reshape({x.size(0), 2, 3, 3}))), 1))));
  }
};

/// An optimizer before a change of its settings, and after it.
struct Change {
  std::string what;  ///< the settings before and after
  DType dtype;
  OptimizerKind before, after;
  StepOptions step, step_after;
  /// Parts of parameter 2, a matrix, that are new, and that are dropped.
  std::vector<std::string> on = {}, off = {};
  /// Where this state is new, so is the rule. It counts its updates from the start.
  std::string first = {};
};

bool is_inner(const NamedTensor& p) { return p.tensor.rank() == 2 && p.tensor.size(0) == 33; }
bool is_outer(const NamedTensor& p) { return p.tensor.rank() == 2 && !is_inner(p); }

OptimizerKind custom(std::vector<optim::CustomState> states) {
  optim::CustomOptions o{.lr = 0.1, .states = std::move(states)};
  o.update = [](const optim::CustomInput& in) -> optim::CustomUpdate {
    optim::CustomUpdate out{in.weight, in.states};
    for (Tensor& s : out.states) out.weight = out.weight - in.lr * (s = 0.5 * s + in.gradient);
    return out;
  };
  return kind<optim::Custom>("Custom", o);
}

/// All pairs of settings, both ways.
std::vector<Change> changes() {
  using namespace optim;
  using Names = std::vector<std::string>;
  const auto sgd = kind<SGD>("SGD", SGDOptions{.lr = 0.1});
  const auto heavy =
      kind<SGD>("heavy SGD", SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  const auto adamw = kind<AdamW>("AdamW", AdamWOptions{.lr = 1e-2});
  const auto amsgrad = kind<AdamW>("AMSGrad", AdamWOptions{.lr = 1e-2, .amsgrad = true});
  const auto small =
      kind<AdamW>("AdamW in 8 bits",
                  AdamWOptions{.lr = 1e-2, .state = StatePrecision::bits8, .min_8bit_size = 0});
  const auto rmsprop = kind<RMSprop>("RMSprop", RMSpropOptions{.lr = 1e-3});
  const auto centered = kind<RMSprop>(
      "centered RMSprop", RMSpropOptions{.lr = 1e-3, .momentum = 0.9, .centered = true});
  const auto lion = kind<Lion>("Lion", LionOptions{.lr = 1e-3});
  const auto adafactor = kind<Adafactor>("Adafactor", AdafactorOptions{.lr = 1e-2});
  const auto inner = kind<Muon>("Muon within", MuonOptions{.lr = 1e-2, .hidden = is_inner});
  const auto outer = kind<Muon>("Muon outside", MuonOptions{.lr = 1e-2, .hidden = is_outer});
  const StepOptions plain{.accumulate = 2};
  StepOptions mean = plain, rounded = plain, rounded_mean = plain;
  mean.ema = 0.9;
  rounded.stochastic_rounding = true;
  rounded_mean.ema = 0.9;
  rounded_mean.stochastic_rounding = true;
  std::vector<Change> out;
  const auto add = [&](DType dtype, const OptimizerKind& a, const OptimizerKind& b,
                       const StepOptions& of_a, const StepOptions& of_b, const Names& on,
                       const Names& off = {}, const std::string& first = {}) {
    out.push_back({fmt::format("{}, {} -> {}", to_string(dtype), a.name, b.name), dtype, a, b, of_a,
                   of_b, on, off, first});
    out.push_back({fmt::format("{}, {} -> {}, back", to_string(dtype), b.name, a.name), dtype, b, a,
                   of_b, of_a, off, on, first});
  };
  add(f32, sgd, sgd, plain, mean, {"ema"});
  add(f32, sgd, heavy, mean, mean, {"momentum"}, {}, "momentum");
  add(f32, heavy, sgd, plain, mean, {"ema"}, {"momentum"}, "momentum");
  add(bf16, adamw, adamw, rounded, plain, {"master"});
  add(bf16, lion, lion, rounded, mean, {"master", "ema"});
  add(bf16, adamw, amsgrad, rounded_mean, mean, {"master", "largest_second_moment"});
  add(f16, sgd, heavy, plain, mean, {"ema", "momentum"}, {}, "momentum");
  add(f16, adafactor, adafactor, rounded, mean, {"master", "ema"});
  add(f32, adamw, amsgrad, plain, plain, {"largest_second_moment"});
  add(f32, small, small, plain, mean, {"ema"});
  add(f32, rmsprop, centered, plain, plain, {"gradient_average", "momentum"});
  add(f32, outer, inner, plain, mean, {"momentum", "ema"}, {"first_moment", "second_moment"},
      "first_moment");
  add(bf16, custom({{"a"}}), custom({{"a"}, {"b", 0.25}}), rounded, plain, {"b", "master"});
  return out;
}

Entries entries_in(const std::string& path) {
  Entries out;
  for (const auto& [name, t] : io::load_safetensors(path)) out.emplace(name, t);
  return out;
}

/// Names of the entries that differ between two files. `of_step` says whether those of the step
/// count: the norm in it has an order of ranks.
std::string unlike(const std::string& one, const std::string& other, bool of_step = true) {
  const Entries a = entries_in(one), b = entries_in(other);
  std::string out;
  for (const auto& [name, t] : a) {
    const auto it = b.find(name);
    if (name == "rng" || name == "firn.crc32" || (name == "optim.step_state" && !of_step)) continue;
    if (it == b.end() || it->second.dtype() != t.dtype() || it->second.shape() != t.shape() ||
        bits_of(it->second) != bits_of(t))
      out += name + " ";
  }
  for (const auto& [name, t] : b)
    if (!a.contains(name)) out += name + " ";
  return out;
}

void micro_step(Filters& net, optim::Optimizer& opt, DType dtype, std::uint64_t seed) {
  const Rows rows(4, 18, 3, seed);
  opt.backward(cross_entropy(net(rows.x.to(dtype)), rows.y));
  opt.step();
}

/// Saves a run of these ranks in mid-cycle.
void save_in_cycle(const Change& c, const Group& group, int zero, const std::string& path) {
  manual_seed(1);
  Filters net;
  net.to(c.dtype);
  const OptimizerPtr opt = c.before.make(net, c.step);
  dist::distribute(*opt, group, {.zero = zero});
  for (std::uint64_t i = 0; i < 5; ++i)
    micro_step(net, *opt, c.dtype, 10 * i + static_cast<std::uint64_t>(group.rank()));
  io::save_run(path, {net, *opt});
}

/// Saves what should come of loading the file, and then what the cycle's end makes of that: a new
/// optimizer at the file's weights, given those parts of the file's state that it has.
void save_expected(const Change& c, const std::string& from, const std::string& loaded,
                   const std::string& ended) {
  const NoGrad guard;
  Filters net;
  net.to(c.dtype);
  Entries file = entries_in(from);
  for (const auto& [name, t] : io::state_of(net)) {
    const Tensor to = t;
    copy_(to, file.at(name));
  }
  const OptimizerPtr opt = c.after.make(net, c.step_after);
  for (const auto& [name, t] : opt->state()) {
    const Tensor to = t;
    const auto it = file.find("optim." + name);
    const std::string master = name.substr(0, name.size() - 3) + "master";
    if (name != "kind" && it != file.end())
      copy_(to, it->second);
    else if (name.ends_with(".ema") && file.contains("optim." + master))
      copy_(to, file.at("optim." + master));
  }
  for (std::size_t i = 0; !c.first.empty() && i < opt->parameters().size(); ++i) {
    const std::string part = fmt::format("parameters.{}.{}", i, c.first);
    for (const auto& [name, t] : opt->state())
      if (name == part && !file.contains("optim." + name)) {
        const Tensor count = state_of(*opt, "update_counts")[static_cast<std::int64_t>(i)];
        fill_(count, 0);
      }
  }
  io::save_run(loaded, {net, *opt});
  opt->flush();
  io::save_run(ended, {net, *opt});
}

TEST_CASE("[S33][S43] run: settings switch parts of sharded states on and off in mid-cycle") {
  const test::TempFolder folder;
  const std::string saved = folder.file("saved"), loaded = folder.file("loaded"),
                    ended = folder.file("ended");
  // Stages of ZeRO, and whether all weights are here while the run is loaded.
  const std::vector<std::pair<int, bool>> stages = {
      {0, false}, {1, false}, {2, false}, {3, false}, {3, true}};
  int turn = 0;
  for (const Change& c : changes()) {
    const int by = 1 + (turn + turn / 2) % 2, zero_by = (turn / 2) % 4;
    ++turn;
    CAPTURE(c.what, by, zero_by);
    dist::run_local(by, [&](const Group& g) { save_in_cycle(c, g, zero_by, saved); });
    save_expected(c, saved, loaded, ended);
    const Entries before = entries_in(saved), after = entries_in(loaded);
    for (const std::string& part : c.on) {
      CHECK_FALSE(before.contains("optim.parameters.2." + part));
      CHECK(after.contains("optim.parameters.2." + part));
    }
    for (const std::string& part : c.off) {
      CHECK(before.contains("optim.parameters.2." + part));
      CHECK_FALSE(after.contains("optim.parameters.2." + part));
    }
    for (const int ranks : {1, 2})
      for (const auto& [zero, held] : stages) {
        CAPTURE(ranks, zero, held);
        dist::run_local(ranks, [&, zero = zero, held = held](const Group& group) {
          manual_seed(2);
          Filters net;
          net.to(c.dtype);
          const OptimizerPtr opt = c.after.make(net, c.step_after);
          dist::distribute(*opt, group, {.zero = zero});
          for (std::uint64_t i = 0; i < 3; ++i) micro_step(net, *opt, c.dtype, 70 + i);
          io::save_run(folder.file("old"), {net, *opt});
          std::string said;
          try {
            io::load_run(saved, {net, *opt});
          } catch (const IoError& e) {
            said = e.what();
          }
          THREAD_CHECK(mentions(said, {"\"optim.settings\"", "LoadRunOptions::other_settings"}));
          for (const auto& parts : {c.on, c.off})
            for (const std::string& part : parts) THREAD_CHECK(mentions(said, {part.c_str()}));
          io::save_run(folder.file("still"), {net, *opt});
          {
            std::optional<optim::GatheredWeights> whole;
            if (held) whole.emplace(*opt);
            io::load_run(saved, {net, *opt}, {.other_settings = true});
          }
          io::save_run(folder.file("new"), {net, *opt});
          opt->flush();
          io::save_run(folder.file("end"), {net, *opt});
        });
        CHECK(unlike(folder.file("old"), folder.file("still")).empty());
        CHECK(unlike(loaded, folder.file("new")) == "");
        CHECK(unlike(ended, folder.file("end"), false) == "");
      }
  }
}

TEST_CASE("[S28] run: averages begin with weights that were written after their masters") {
  const test::TempFolder folder;
  const std::string path = folder.file("run");
  const auto train = [](nn::Linear& net, optim::AdamW& opt) {
    for (int i = 0; i < 2; ++i) {
      opt.backward(cast(net(make({1, 0.3, -2}, {1, 3}, bf16)).sum(), f32));
      opt.step();
    }
  };
  nn::Linear net(3, 2, {.dtype = bf16}), again(3, 2, {.dtype = bf16});
  optim::AdamW opt(net.parameters()), averaged(again.parameters(), {}, {.ema = 0.9});
  train(net, opt);
  train(again, averaged);
  {
    const NoGrad guard;
    fill_(net.weight, 0.5);
  }
  io::save_run(path, {net, opt});
  io::load_run(path, {again, averaged}, {.other_settings = true});
  CHECK(values_of(state_of(averaged, "parameters.0.ema")) == std::vector<double>(6, 0.5));
  CHECK(bits_of(state_of(averaged, "parameters.1.ema")) ==
        bits_of(state_of(opt, "parameters.1.master")));
}

TEST_CASE("run: no settings drop the sums of a batch that was saved half-way in exact mode") {
  const test::TempFolder folder;
  const std::string path = folder.file("run");
  nn::Linear net(3, 2), again(3, 2);
  optim::SGD opt(net.parameters(), {}, {.exact = {.chunk = 2}}), other(again.parameters());
  const Tensor x = ones({8, 3});
  opt.run_batch(8,
                {.size = 2,
                 .between =
                     [&](std::int64_t done) {
                       if (done == 2) io::save_run(path, {net, opt});
                     }},
                [&](std::int64_t first, std::int64_t last) {
                  return mse_loss(net(x.slice(0, first, last)), zeros({last - first, 2}));
                });
  const Bits before = bits_of_training(other);
  CHECK_THROWS_WITH(io::load_run(path, {again, other}, {.other_settings = true}),
                    test::contains("\"optim.batch\" is in the file alone"));
  CHECK(bits_of_training(other) == before);
}

}  // namespace
}  // namespace firn::testing
