// The file of save_run(): what is in it, what load_run() refuses, and that nothing is written then.
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
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

using test::TempFolder;

struct Net : nn::Module {
  nn::Linear fc{5, 3};
  nn::BatchNorm1d norm{3};
  FIRN_MEMBERS(fc, norm)
  Tensor forward(const Tensor& x) override { return norm(fc(x)); }
};

template <class Optimizer>
void train(Net& net, Optimizer& opt, int steps) {
  for (int i = 0; i < steps; ++i) {
    opt.backward(mse_loss(net(randn({4, 5})), zeros({4, 3})));
    opt.step();
  }
}

std::string bits_of(const std::vector<NamedTensor>& tensors) {
  std::string all;
  for (const auto& [name, t] : tensors) all += name + testing::bits_of(t);
  return all;
}

std::map<std::string, Tensor> entries_of(const std::string& path) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, t] : io::load_safetensors(path)) out.emplace(name, t);
  return out;
}

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("[S33] run: the file has logical names, weights once, and only gradients of the cycle") {
  manual_seed(1);
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net net;
  optim::Adam opt(net.parameters(), {}, {.accumulate = 2});
  Generator noise(9);
  std::int64_t epoch = 7;
  double best = 0.25;
  const Tensor table = tensor<float>({1, 2, 3});
  const auto save = [&] {
    io::save_run(path,
                 {net, opt, {"noise", noise}, {"epoch", epoch}, {"best", best}, {"table", table}});
  };
  train(net, opt, 2);
  save();
  auto found = entries_of(path);
  for (const char* name :
       {"fc.weight", "fc.bias", "norm.running_mean", "optim.parameters.0.first_moment",
        "optim.step_state", "optim.kind", "noise", "epoch", "best", "table", "rng"})
    CHECK(found.contains(name));
  CHECK_FALSE(found.contains("optim.parameters.0.weight"));
  CHECK_FALSE(found.contains("optim.parameters.0.gradient"));
  train(net, opt, 1);
  save();
  CHECK(entries_of(path).contains("optim.parameters.0.gradient"));

  epoch = 0, best = 0;
  noise.reserve(40);
  fill_(table, 0);
  io::load_run(path,
               {net, opt, {"noise", noise}, {"epoch", epoch}, {"best", best}, {"table", table}});
  CHECK(epoch == 7);
  CHECK(best == 0.25);
  CHECK(noise.get().offset == 0);
  CHECK(table.to_vector<float>() == std::vector<float>{1, 2, 3});

  // An optimizer alone brings its weights.
  io::save_run(path, {opt});
  CHECK(entries_of(path).contains("optim.parameters.0.weight"));
}

TEST_CASE("run: one error lists all differences, and nothing is written") {
  manual_seed(2);
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net net;
  optim::Adam opt(net.parameters(), {.lr = 1e-3});
  std::int64_t epoch = 1;
  train(net, opt, 3);
  io::save_run(path, {net, opt, {"epoch", epoch}});

  struct Other : nn::Module {
    nn::Linear fc{4, 3};
    nn::BatchNorm1d norm{3, {.dtype = f64}};
    FIRN_MEMBERS(fc, norm)
  } other;
  optim::SGD sgd(other.parameters(), {.lr = 1e-3});
  double best = 3, epochs = 1;
  const std::string before = bits_of(io::state_of(other)) + bits_of(sgd.state());
  const std::string said = message_of([&] {
    io::load_run(path, {other, sgd, {"best", best}, {"epoch", epochs}});
  });
  for (const char* part :
       {"[load_run]", "\"fc.weight\" is [3, 5] f32 in the file, and [3, 4] f32 here",
        "\"norm.running_mean\" is [3] f32 in the file, and [3] f64 here",
        "\"best\" is missing in the file", "\"epoch\" is [] i64 in the file, and [] f64 here",
        "\"optim.kind\" is \"Adam state 2\" in the file, and \"SGD state 2\" here",
        "first_moment\" is in the file alone", "hint: give the parts that were saved"}) {
    INFO(said);
    CHECK(said.find(part) != std::string::npos);
  }
  CHECK(said.find("optim.kind") < said.find("fc.weight"));
  CHECK(bits_of(io::state_of(other)) + bits_of(sgd.state()) == before);
  CHECK(best == 3);
}

TEST_CASE("run: other settings of an optimizer are refused unless allowed") {
  manual_seed(3);
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net net;
  optim::Adam opt(net.parameters(), {.lr = 1e-3});
  train(net, opt, 2);
  io::save_run(path, {net, opt});
  Net again;
  optim::Adam clipped(again.parameters(), {.lr = 1e-3}, {.clip_norm = 2});
  const std::string said = message_of([&] { io::load_run(path, {again, clipped}); });
  INFO(said);
  CHECK(said.find("\"optim.settings\"") != std::string::npos);
  CHECK(said.find("clip norm 2") != std::string::npos);
  CHECK(said.find("hint: make the optimizer with the same options, or set "
                  "LoadRunOptions::other_settings") != std::string::npos);
  io::load_run(path, {again, clipped}, {.other_settings = true});
  CHECK(bits_of(io::state_of(again)) == bits_of(io::state_of(net)));
}

/// What load_run() says if `other` is what the file of `one` is loaded into.
template <class Optimizer, class Options>
std::string difference_of(const Options& one, const Options& other,
                          const optim::StepOptions& step = {},
                          const std::optional<optim::StepOptions>& other_step = {}) {
  const TempFolder folder;
  const std::string path = folder.file("run");
  nn::Linear net(3, 2), again(3, 2);
  Optimizer opt(net.parameters(), one, step);
  io::save_run(path, {net, opt});
  Optimizer loaded(again.parameters(), other, other_step.value_or(step));
  const std::string said = message_of([&] { io::load_run(path, {again, loaded}); });
  io::load_run(path, {again, loaded}, {.other_settings = true});
  return said;
}

TEST_CASE("run: every number of an optimizer's rule is a setting") {
  using test::contains;
  const std::string none = "nothing was thrown";
  CHECK(difference_of<optim::Adam, optim::AdamOptions>({}, {}) == none);
  CHECK(difference_of<optim::Adam, optim::AdamOptions>({.lr = 1}, {.lr = 2}) == none);
  CHECK_THAT((difference_of<optim::Adam, optim::AdamOptions>({}, {.beta1 = 0.8})),
             contains("beta1 0.9, beta2 0.999") && contains("beta1 0.8, beta2 0.999"));
  CHECK_THAT((difference_of<optim::AdamW, optim::AdamWOptions>({}, {.weight_decay = 0.5})),
             contains("weight_decay 0.01") && contains("weight_decay 0.5"));
  CHECK_THAT((difference_of<optim::SGD, optim::SGDOptions>({.momentum = 0.9},
                                                           {.momentum = 0.9, .nesterov = true})),
             contains("nesterov 1"));
  CHECK_THAT((difference_of<optim::RMSprop, optim::RMSpropOptions>({}, {.alpha = 0.5})),
             contains("alpha 0.99") && contains("alpha 0.5"));
  CHECK_THAT((difference_of<optim::Muon, optim::MuonOptions>({}, {.newton_schulz_steps = 4})),
             contains("newton_schulz_steps 5, beta1") || contains("newton_schulz_steps 5; beta1"));
  CHECK_THAT((difference_of<optim::Adafactor, optim::AdafactorOptions>({}, {.eps1 = 1e-15})),
             contains("eps1 unset") && contains("eps1 1e-15"));
  CHECK_THAT(
      (difference_of<optim::ScheduleFreeAdamW, optim::ScheduleFreeAdamWOptions>({}, {.r = 1})),
      contains("r 0,") && contains("r 1,"));
  const auto scaled = [](const optim::DynamicLossScale& o) {
    return optim::StepOptions{.loss_scale = optim::LossScale::dynamic(o)};
  };
  CHECK_THAT((difference_of<optim::Adam, optim::AdamOptions>({}, {}, scaled({}),
                                                             scaled({.growth_interval = 100}))),
             contains("times 2 after 2000 steps") && contains("times 2 after 100 steps"));
  CHECK(difference_of<optim::Adam, optim::AdamOptions>({}, {}, {.max_skips = 3},
                                                       optim::StepOptions{.max_skips = 4}) == none);
}

std::map<std::string, std::vector<double>> state_of(const optim::Optimizer& opt) {
  std::map<std::string, std::vector<double>> out;
  for (const auto& [name, t] : opt.state())
    if (t.dtype() == f32 && t.rank() > 0) out[name] = values_of(t);
  return out;
}

/// Saves a run of `one`, and loads it into `other`, which has trained too, with other settings.
/// Without that permission the error names `part` and the option. Returns the loaded state.
template <class Optimizer, class Options>
std::map<std::string, std::vector<double>> loaded_state(const Options& one, const Options& other,
                                                        const optim::StepOptions& step,
                                                        const optim::StepOptions& other_step,
                                                        const std::string& part) {
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net net, again;
  Optimizer opt(net.parameters(), one, step), loaded(again.parameters(), other, other_step);
  train(net, opt, 2);
  train(again, loaded, 3);
  io::save_run(path, {net, opt});
  const std::string said = message_of([&] { io::load_run(path, {again, loaded}); });
  INFO(said);
  CHECK(said.find("parameters.0." + part) != std::string::npos);
  CHECK(said.find("LoadRunOptions::other_settings") != std::string::npos);
  io::load_run(path, {again, loaded}, {.other_settings = true});
  CHECK(bits_of(io::state_of(again)) == bits_of(io::state_of(net)));
  auto out = state_of(loaded);
  auto saved = state_of(opt);
  for (const auto& [name, values] : saved)
    if (out.contains(name)) CHECK(out[name] == values);
  out["weight"] = values_of(net.fc.weight);
  train(again, loaded, 1);
  CHECK(loaded.last_report().applied());
  return out;
}

TEST_CASE("run: other settings may switch a part of the state on or off") {
  manual_seed(3);
  const std::vector<double> zero(15, 0);
  using optim::SGD;
  using optim::SGDOptions;
  const SGDOptions plain{.lr = 0.1}, heavy{.lr = 0.1, .momentum = 0.9};
  const std::string ema = "parameters.0.ema", momentum = "parameters.0.momentum";
  auto state = loaded_state<SGD>(plain, plain, {}, {.ema = 0.9}, "ema");
  CHECK(state[ema] == state["weight"]);
  CHECK_FALSE(loaded_state<SGD>(plain, plain, {.ema = 0.9}, {}, "ema").contains(ema));
  CHECK(loaded_state<SGD>(plain, heavy, {}, {}, "momentum")[momentum] == zero);
  CHECK_FALSE(loaded_state<SGD>(heavy, plain, {}, {}, "momentum").contains(momentum));
  // Both at once, and the state that both have is the file's.
  state = loaded_state<SGD>(heavy, heavy, {}, {.ema = 0.9}, "ema");
  CHECK(state[ema] == state["weight"]);
  CHECK(state[momentum] != zero);
  using optim::Adam;
  using optim::AdamOptions;
  state = loaded_state<Adam>(AdamOptions{}, AdamOptions{.amsgrad = true}, {}, {},
                             "largest_second_moment");
  CHECK(state["parameters.0.largest_second_moment"] == zero);
  CHECK(state["parameters.0.second_moment"] != zero);
}

TEST_CASE("run: the settings of groups are compared group by group") {
  const TempFolder folder;
  const std::string path = folder.file("run");
  nn::Linear net(3, 2);
  const auto groups = [&](double first, double second) {
    return std::vector<optim::ParamGroup>{
        {.parameters = {net.weight}, .weight_decay = first},
        {.parameters = {net.bias}, .lr_scale = 2, .weight_decay = second}};
  };
  {
    optim::AdamW opt(groups(0.1, 0));
    io::save_run(path, {net, opt});
    io::load_run(path, {net, opt});
  }
  optim::AdamW swapped(groups(0, 0.1));
  const std::string said = message_of([&] { io::load_run(path, {net, swapped}); });
  INFO(said);
  CHECK(
      said.find("weight_decay 0.1; beta1 0.9, beta2 0.999, eps 1e-08, weight_decay 0, lr_scale 2\""
                " in the file") != std::string::npos);
}

TEST_CASE(
    "[S43] run: another precision of an optimizer's states is refused, and nothing is written") {
  manual_seed(3);
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net net;
  optim::Adam opt(net.parameters(), {.lr = 1e-3});
  train(net, opt, 2);
  io::save_run(path, {net, opt});
  Net again;
  optim::Adam small(again.parameters(),
                    {.lr = 1e-3, .state = optim::StatePrecision::bits8, .min_8bit_size = 0});
  const std::string before = bits_of(io::state_of(again));
  const std::string said = message_of([&] {
    io::load_run(path, {again, small}, {.other_settings = true});
  });
  INFO(said);
  CHECK(said.find("first_moment") != std::string::npos);
  CHECK(bits_of(io::state_of(again)) == before);
}

TEST_CASE("run: what an optimizer's state restores is no setting: rates that were set, cycles") {
  manual_seed(5);
  const TempFolder folder;
  const std::string path = folder.file("run");
  const optim::StepOptions steps = {.accumulate = {{0, 4}, {2, 1}}};
  Net net, again;
  optim::Adam opt(net.parameters(), {.lr = 1e-3}, steps);
  opt.set_epoch(2);
  opt.set_lr(5e-4);
  train(net, opt, 2);
  io::save_run(path, {net, opt});
  optim::Adam other(again.parameters(), {.lr = 1e-3}, steps);
  io::load_run(path, {again, other});
  CHECK(other.lr() == 5e-4);
  CHECK(other.cycle_length() == 1);
  // Another length of later cycles is no difference either.
  Net third;
  optim::Adam longer(third.parameters(), {.lr = 1e-3}, {.accumulate = 8});
  io::load_run(path, {third, longer});
  CHECK(bits_of(io::state_of(third)) == bits_of(io::state_of(net)));
}

TEST_CASE("run: averaged weights are not saved as the run's") {
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net net;
  optim::Adam opt(net.parameters(), {}, {.ema = 0.9});
  train(net, opt, 1);
  const optim::AveragedWeights averaged(opt);
  CHECK_THROWS_WITH(io::save_run(path, {net, opt}),
                    "[RunPart] the weights of the optimizer \"optim\" are their moving averages at "
                    "the moment; hint: end the scope of AveragedWeights first");
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("[S33] run: a loader of other data is refused, one of another batch size is not") {
  const TempFolder folder;
  const std::string path = folder.file("run");
  const data::TensorDataset set({zeros({10, 2})});
  data::Loader loader(set, {.batch = 3, .shuffle = true, .seed = 4});
  loader.seek({2, 6});
  io::save_run(path, {loader});
  data::Loader other(set, {.batch = 3, .shuffle = true, .seed = 5});
  const std::string said = message_of([&] { io::load_run(path, {other}); });
  INFO(said);
  CHECK(said.find("\"loader.order\" is \"10 samples, seed 4, shuffled in 16 rounds\" in the "
                  "file, and \"10 samples, seed 5, shuffled in 16 rounds\" here") !=
        std::string::npos);
  CHECK(other.position() == data::LoaderPosition{});
  data::Loader wider(set, {.batch = 5, .shuffle = true, .seed = 4, .workers = 1});
  io::load_run(path, {wider});
  CHECK(wider.position() == data::LoaderPosition{2, 6});
}

TEST_CASE("run: a backward() that is running or has failed is no moment to save, but one to load") {
  manual_seed(7);
  const TempFolder folder;
  const std::string path = folder.file("run");
  nn::Linear net(3, 2);
  optim::Adam opt(net.parameters(), {.lr = 1e-2}, {.accumulate = 2});
  const auto loss = [&] { return mse_loss(net(ones({4, 3})), zeros({4, 2})); };
  const auto finish = [&] {
    opt.backward(loss());
    opt.step();
    return bits_of(io::state_of(net));
  };
  opt.backward(loss());
  opt.step();
  io::save_run(path, {net, opt});
  const std::string saved = test::read_file(path);
  const std::string after = finish();
  io::load_run(path, {net, opt});

  const Loss hooked = loss();
  std::string while_saving, while_loading;
  add_hook(hooked.sum, [&](const Tensor&) -> Tensor {
    while_saving = message_of([&] { io::save_run(path, {net, opt}); });
    while_loading = message_of([&] { io::load_run(path, {net, opt}); });
    throw std::runtime_error("the hook fails");
  });
  CHECK_THROWS_WITH(opt.backward(hooked), test::contains("the hook fails"));
  for (const std::string& said : {while_saving, while_loading})
    CHECK(
        said ==
        "[RunPart] a backward() of the optimizer \"optim\" is running; hint: save and load when it "
        "has returned");
  CHECK_THROWS_WITH(io::save_run(path, {net, opt}), test::contains("has failed half-way"));
  CHECK_THROWS_WITH(opt.step(), test::contains("has failed half-way"));
  CHECK(test::read_file(path) == saved);

  // The file's cycle takes the place of the one that failed.
  io::load_run(path, {net, opt});
  io::save_run(path, {net, opt});
  CHECK(test::read_file(path) == saved);
  CHECK(finish() == after);
}

TEST_CASE("run: gradients that a loaded cycle does not have are zero in the optimizer's state") {
  const TempFolder folder;
  const std::string path = folder.file("run");
  nn::Linear net(3, 2);
  optim::Adam opt(net.parameters(), {.lr = 1e-2}, {.accumulate = 2});
  io::save_run(path, {net, opt});
  const std::string state = bits_of(opt.state());
  opt.backward(mse_loss(net(ones({4, 3})), zeros({4, 2})));
  io::load_run(path, {net, opt});
  CHECK(bits_of(opt.state()) == state);
}

TEST_CASE("run: an optional part may be missing in the file, as a whole") {
  manual_seed(6);
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net net;
  optim::Adam opt(net.parameters(), {.lr = 1e-3}, {.accumulate = 2});
  train(net, opt, 3);
  const std::string weights = bits_of(io::state_of(net));
  io::save_run(path, {net});

  // A file of the weights alone: the optimizer stays as it is, and takes the weights.
  Net again;
  optim::Adam fresh(again.parameters(), {.lr = 1e-3}, {.accumulate = 2});
  double best = 3;
  nn::Linear head(2, 2);
  Generator noise(4);
  const std::string head_before = bits_of(io::state_of(head));
  const std::vector<io::RunPart> parts = {
      again, io::optional_part(fresh), io::optional_part({"best", best}),
      io::optional_part({"head", head}), io::optional_part({"rng", noise})};
  const std::string said = message_of([&] { io::load_run(path, {again, fresh}); });
  INFO(said);
  CHECK(said.find("\"optim.kind\" is missing in the file") != std::string::npos);
  io::load_run(path, parts);
  CHECK(bits_of(io::state_of(again)) == weights);
  CHECK(best == 3);
  CHECK(bits_of(io::state_of(head)) == head_before);
  CHECK(fresh.cycle_position() == 0);
  train(again, fresh, 2);
  CHECK(fresh.last_report().applied_steps() == 1);

  // It is saved, and then it is loaded.
  best = 0.5;
  io::save_run(path, parts);
  CHECK(entries_of(path).contains("best"));
  CHECK(entries_of(path).contains("optim.step_state"));
  const std::string saved = test::read_file(path);
  best = 9;
  train(again, fresh, 1);
  io::load_run(path, parts);
  CHECK(best == 0.5);
  io::save_run(path, parts);
  CHECK(test::read_file(path) == saved);

  // A part of a part is a difference, and so is an entry of another kind.
  double bias = 1;
  std::int64_t other = 1;
  io::save_run(path, {net, {"head.bias", bias}, {"best", other}});
  const std::string half = message_of([&] { io::load_run(path, parts); });
  INFO(half);
  CHECK(half.find("\"head.weight\" is missing in the file") != std::string::npos);
  CHECK(half.find("\"best\" is [] i64 in the file") != std::string::npos);
  CHECK(half.find("optim") == std::string::npos);
  CHECK(best == 0.5);
}

TEST_CASE("run: names are used once, and firn's own are reserved") {
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net a, b;
  std::int64_t n = 0;
  CHECK_THROWS_WITH(
      io::save_run(path, {a, b}),
      "[save_run] two parts of the run have a \"fc.weight\"; hint: give each a name of "
      "its own: {\"name\", part}");
  CHECK_THROWS_WITH(
      io::save_run(path, {{"firn.n", n}}),
      "[save_run] the name \"firn.n\" begins with \"firn.\", which is reserved; hint: "
      "give the part another name");
  CHECK_THROWS_AS(io::RunPart("", n), Error);
  CHECK_THROWS_AS(io::RunPart("x", Tensor()), Error);
  CHECK_FALSE(std::filesystem::exists(path));
  io::save_run(path, {{"a", a}, {"b", b}});
  CHECK(entries_of(path).contains("b.fc.weight"));
}

TEST_CASE("run: an object is given once, and one that was moved from not at all") {
  const TempFolder folder;
  const std::string path = folder.file("run.safetensors");
  nn::Linear net(2, 3);
  std::int64_t number = 1;
  const Tensor t = ones({3});
  const auto same = test::contains("is the same object as");
  CHECK_THROWS_WITH(io::save_run(path, {{"a", net}, {"b", net}}), same);
  CHECK_THROWS_WITH(io::save_run(path, {{"a", number}, {"b", number}}), same);
  CHECK_THROWS_WITH(io::save_run(path, {{"a", t}, {"b", t}}), same);
  CHECK_THROWS_WITH(io::save_run(path, {net, net}),
                    "[save_run] the part with \"weight\" is given twice; hint: name each object "
                    "once");
  CHECK_THROWS_WITH(io::save_run("", {net}), "[save_run] the path is empty; hint: name a file");
  CHECK_THROWS_WITH(io::load_run(path, {net}),
                    "[load_run] " + path +
                        ": cannot be opened: No such file or directory; hint: check the path; one "
                        "without a leading / begins at the current folder");
  CHECK_THROWS_WITH(io::load_run("", {net}), "[load_run] the path is empty; hint: name a file");
  const nn::Linear moved = std::move(net);
  CHECK_THROWS_WITH(io::save_run(path, {net}), test::contains("was moved from"));  // NOLINT
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("run: what is no saved run, or of another version, is refused") {
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net net;
  io::save_safetensors(path, io::state_of(net));
  const std::string said = message_of([&] { io::load_run(path, {net}); });
  INFO(said);
  CHECK(said.find("has no \"firn.run\"") != std::string::npos);
  CHECK_THROWS_AS(io::load_run(folder.file("absent"), {net}), IoError);
}

TEST_CASE(
    "[S32] bitflip: each of 10,000 in a saved run is found, every truncation too, and nothing is "
    "written",
    "[bitflip]") {
  manual_seed(4);
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net net;
  optim::Adam opt(net.parameters(), {.lr = 1e-3}, {.accumulate = 2});
  train(net, opt, 3);
  io::save_run(path, {net, opt});
  const std::string whole = test::read_file(path);
  const std::string before = bits_of(io::state_of(net)) + bits_of(opt.state());
  const std::size_t bits = whole.size() * 8;
  constexpr std::size_t kFlips = 10'000;
  std::size_t found = 0, tried = 0;
  for (std::size_t i = 0; i < kFlips; ++i) {
    const std::size_t bit = i * bits / kFlips;
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    test::write_file(path, damaged);
    ++tried;
    try {
      io::load_run(path, {net, opt});
    } catch (const IoError&) {
      ++found;
      continue;
    }
    INFO("bit " << bit << " of " << bits);
    CHECK(false);
  }
  CHECK(found == tried);
  for (std::size_t length = 0; length < whole.size(); length += 1 + whole.size() / 500) {
    test::write_file(path, whole.substr(0, length));
    CHECK_THROWS_AS(io::load_run(path, {net, opt}), IoError);
  }
  CHECK(bits_of(io::state_of(net)) + bits_of(opt.state()) == before);
  test::write_file(path, whole);
  io::load_run(path, {net, opt});
}

}  // namespace firn::testing
