// Muon and Adafactor: every step beside that of their published algorithms
// (tests/goldens/optim/optim_matrix.py), and what Muon does with the parameters that are no hidden
// matrices.
#include <cmath>
#include <memory>

#include "optim/golden_runs.h"
#include "optim_rules/every_rule.h"

namespace firn::testing {
namespace {

using optim::Adafactor;
using optim::AdafactorOptions;
using optim::Muon;
using optim::MuonOptions;
using optim::MuonScale;

const std::vector<Shape> kShapes = {{4, 6}, {7, 3}, {5}, {3, 2, 2, 2}};

// The 74 values of the golden problem. With `channels_last` the last one is.
std::vector<Tensor> split(const std::vector<double>& v, DType dtype, bool channels_last) {
  std::vector<Tensor> out;
  auto at = v.begin();
  for (const Shape& shape : kShapes) {
    const auto end = at + shape.product();
    out.push_back(make({at, end}, shape, dtype));
    at = end;
  }
  if (channels_last) out.back() = out.back().channels_last();
  return out;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const GoldenRun& r,
                                                 const std::vector<Tensor>& parameters) {
  const optim::StepOptions step{.clip_norm = r.get("clip_norm", 0)};
  if (r.algorithm == "Adafactor") {
    AdafactorOptions o{.lr = r.get("lr", 0),
                       .beta2_decay = r.get("beta2_decay", -0.8),
                       .eps2 = r.get("eps2", 1e-3),
                       .clip = r.get("clip", 1),
                       .weight_decay = r.get("weight_decay", 0)};
    if (r.options.contains("eps1")) o.eps1 = r.get("eps1", 0);
    return std::make_unique<Adafactor>(parameters, o, step);
  }
  REQUIRE(r.algorithm == "Muon");
  MuonOptions o{.lr = r.get("lr", 0),
                .momentum = r.get("momentum", 0.95),
                .nesterov = r.get("nesterov", 1) != 0,
                .weight_decay = r.get("weight_decay", 0.1),
                .scale = r.get("match", 0) != 0 ? MuonScale::match_rms_adamw : MuonScale::original,
                .newton_schulz_steps = static_cast<std::int64_t>(r.get("newton_schulz_steps", 5)),
                .flatten = true,
                .adamw_lr_scale = r.get("adamw_lr_scale", 1)};
  const bool one = r.get("one", 0) != 0;
  o.hidden = [one](const NamedTensor& p) {
    return one ? p.tensor.shape() == kShapes[0] : p.tensor.rank() > 1;
  };
  return std::make_unique<Muon>(parameters, o, step);
}

TEST_CASE("every step of Muon and of Adafactor is the published algorithm's") {
  const GoldenRuns goldens = read_runs("optim_matrix.safetensors");
  REQUIRE(goldens.runs.size() == 9);
  for (const GoldenRun& run : goldens.runs)
    for (const DType dtype : {f32, f64})
      for (const bool channels_last : {false, true}) {
        // Adafactor's factors are of the last two axes, whatever their order in memory.
        const auto of = [&](const char* key) {
          return split(goldens.data.at(key), dtype, channels_last);
        };
        const std::vector<Tensor> goal = of("goal"), curve = of("curve");
        std::vector<Tensor> weights = of("initial");
        for (Tensor& w : weights) w.set_requires_grad();
        const auto opt = make_optimizer(run, weights);
        REQUIRE(run.steps.size() == 12);
        for (std::size_t step = 1; step <= run.steps.size(); ++step) {
          Tensor loss;
          for (std::size_t i = 0; i < weights.size(); ++i) {
            if (i == 1 && static_cast<double>(step) < run.get("b_from", 0)) continue;
            const Tensor part = sum(0.5 * curve[i] * square(weights[i] - goal[i]));
            loss = loss.defined() ? loss + part : part;
          }
          opt->backward(loss);
          REQUIRE(opt->step());
          std::vector<double> got;
          for (const Tensor& w : weights)
            for (const double v : values_of(w)) got.push_back(v);
          expect_close(run.title + ", " + to_string(dtype) + ", step " + std::to_string(step), got,
                       run.steps[step - 1], dtype == f64 ? 1e-12 : 1e-5);
        }
      }
}

TEST_CASE("an update of Muon is near orthogonal, whatever the size of the gradient") {
  Rng rng(4);
  for (const Shape& shape : {Shape{8, 8}, Shape{5, 12}, Shape{12, 5}})
    for (const double size : {1e-6, 1.0, 1e6}) {
      CAPTURE(to_string(shape), size);
      const Tensor w = zeros(shape, f32).set_requires_grad();
      Muon opt(std::vector<Tensor>{w}, {.lr = 1, .weight_decay = 0});
      std::vector<double> g = rng.uniforms(shape.product(), -size, size);
      opt.backward(objective(w, g));
      REQUIRE(opt.step().applied());
      const double ratio =
          std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / static_cast<double>(shape[1])));
      const Tensor o = w.detach() / ratio;
      // The squares of its singular values add up to about their number.
      const double least = static_cast<double>(std::min(shape[0], shape[1]));
      const double squares = sum(square(o)).item();
      CHECK(squares > 0.4 * least);
      CHECK(squares < 1.5 * least);
      // It goes against the gradient.
      CHECK(sum(o * make(g, shape, f32)).item() < 0);
    }
}

TEST_CASE("the two scales of Muon's learning rate, by name") {
  const auto moved = [](const Shape& shape, MuonScale scale) {
    const Tensor w = zeros(shape, f64).set_requires_grad();
    Muon opt(std::vector<Tensor>{w}, {.lr = 1, .weight_decay = 0, .scale = scale});
    opt.backward(objective(w, Rng(3).uniforms(shape.product(), -1, 1)));
    REQUIRE(opt.step().applied());
    return norm(w.detach()).item();
  };
  for (const Shape& shape : {Shape{12, 3}, Shape{3, 12}}) {
    const double tall = shape[0] == 12 ? 2 : 1;
    CHECK(moved(shape, MuonScale::match_rms_adamw) / moved(shape, MuonScale::original) ==
          Approx(0.2 * std::sqrt(12.0) / tall));
  }
}

TEST_CASE("Muon updates what `hidden` or a group chooses, AdamW the rest") {
  const auto names = [](const optim::Optimizer& opt, int i) {
    std::string out;
    const std::string prefix = "parameters." + std::to_string(i) + ".";
    for (const optim::NamedState& s : opt.state())
      for (const char* name : {"momentum", "first_moment", "second_moment"})
        if (s.name == prefix + name) out += std::string(out.empty() ? "" : " ") + name;
    return out;
  };
  const auto fresh = [](const Shape& shape) { return zeros(shape, f32).set_requires_grad(); };
  const std::string adamw = "first_moment second_moment";
  {
    Muon opt({fresh({3, 4}), fresh({4}), fresh({2, 2, 3, 3}), fresh({})});
    CHECK(names(opt, 0) == "momentum");
    for (const int i : {1, 2, 3}) CHECK(names(opt, i) == adamw);
  }
  {
    Muon opt(std::vector<NamedTensor>{{"embedding", fresh({9, 4})}, {"blocks.0.w", fresh({4, 4})}},
             {.hidden = [](const NamedTensor& p) { return p.name.starts_with("blocks."); }});
    CHECK(names(opt, 0) == adamw);
    CHECK(names(opt, 1) == "momentum");
  }
  {
    Muon opt({{.parameters = {fresh({9, 4})}, .hidden = false}, {.parameters = {fresh({4, 4})}}});
    CHECK(names(opt, 0) == adamw);
    CHECK(names(opt, 1) == "momentum");
    CHECK(mentions(optim::describe(opt), {"Muon for 1 of 2 parameters, AdamW for 1"}));
  }
  // A list without names, and a `hidden` that reads them.
  const Warnings warnings;
  Muon opt({fresh({3, 4}), fresh({4})},
           {.hidden = [](const NamedTensor& p) { return p.name.starts_with("blocks."); }});
  REQUIRE(warnings.texts.size() == 1);
  CHECK(mentions(warnings.texts[0],
                 {"Muon for 0 of 2 parameters, AdamW for 2", "named_parameters()"}));
}

TEST_CASE("the rest of Muon's parameters take the steps of AdamW, to the bit") {
  const std::vector<double> start = Rng(1).uniforms(12, -1, 1), g = Rng(2).uniforms(12, -1, 1);
  const optim::StepOptions step{.loss_scale = optim::LossScale::fixed(8)};
  for (const DType dtype : {f16, f32}) {
    const Tensor a = parameter(start, {12}, dtype), b = parameter(start, {12}, dtype);
    const Tensor matrix = parameter(start, {3, 4}, dtype);
    Muon muon({matrix, a},
              {.lr = optim::cosine(0.1, 9),
               .adamw_lr_scale = 0.25,
               .beta2 = 0.95,
               .adamw_weight_decay = 0.2},
              step);
    optim::AdamW adamw({b}, {.lr = optim::cosine(0.025, 9), .beta2 = 0.95, .weight_decay = 0.2},
                       step);
    for (int i = 0; i < 5; ++i) {
      muon.backward(objective(a, g) + objective(matrix, g));
      adamw.backward(objective(b, g));
      REQUIRE(muon.step().applied());
      REQUIRE(adamw.step().applied());
      CHECK(bits_of(a) == bits_of(b));
    }
    CHECK(values_of(matrix) != start);
  }
}

TEST_CASE("Muon and Adafactor refuse options out of range, and parameters that are no matrices") {
  const Tensor w = parameter({1, 2, 3, 4}, {2, 2});
  const auto muon = [&](const MuonOptions& o) { return error_of([&] { Muon({w}, o); }); };
  CHECK(mentions(muon({.momentum = 1}), {"[Muon] momentum is 1"}));
  CHECK(mentions(muon({.momentum = 0}), {"nesterov needs momentum > 0"}));
  CHECK(mentions(muon({.weight_decay = -1}), {"weight_decay is -1"}));
  CHECK(mentions(muon({.scale = static_cast<MuonScale>(7)}), {"scale is 7"}));
  CHECK(mentions(muon({.newton_schulz_steps = 0}), {"newton_schulz_steps is 0"}));
  CHECK(mentions(muon({.adamw_lr_scale = -1}), {"adamw_lr_scale is -1"}));
  CHECK(mentions(muon({.beta2 = 1}), {"beta2 is 1"}));
  CHECK(mentions(muon({.eps = 0}), {"eps is 0"}));
  CHECK(mentions(muon({.adamw_weight_decay = -1}), {"adamw_weight_decay is -1"}));
  const auto all = [](const NamedTensor&) { return true; };
  const Tensor bias = parameter({1}, {1}), kernel = zeros({2, 2, 3, 3}, f32).set_requires_grad();
  CHECK(mentions(error_of([&] {
                   Muon(std::vector<NamedTensor>{{"fc.bias", bias}}, {.hidden = all});
                 }),
                 {"parameter 0, \"fc.bias\", [1] f32", "is no matrix", "AdamW"}));
  CHECK(mentions(error_of([&] { Muon({kernel}, {.hidden = all}); }), {"is no matrix", "flatten"}));
  CHECK_NOTHROW(Muon({kernel}, {.hidden = all, .flatten = true}));
  CHECK(mentions(error_of([&] { optim::AdamW({{.parameters = {w}, .hidden = true}}); }),
                 {"group 0 sets hidden", "AdamW has none"}));
  const auto adafactor = [&](const AdafactorOptions& o) {
    return error_of([&] { Adafactor({w}, o); });
  };
  CHECK(mentions(adafactor({.beta2_decay = 0.1}), {"[Adafactor] beta2_decay is 0.1"}));
  CHECK(mentions(adafactor({.eps1 = -1}), {"eps1 is -1"}));
  CHECK(mentions(adafactor({.eps2 = -1}), {"eps2 is -1"}));
  CHECK(mentions(adafactor({.clip = 0.5}), {"clip is 0.5"}));
  CHECK(mentions(adafactor({.weight_decay = -1}), {"weight_decay is -1"}));
}

TEST_CASE("[S45] Adafactor takes no eps1 that lets zero gradients make NaN") {
  for (const DType dtype : {f32, f64})
    for (const Shape& shape : {Shape{2, 3}, Shape{4}}) {
      Tensor w = ones(shape, dtype).set_requires_grad();
      for (const double eps1 : {0.0, 1e-200})
        CHECK(mentions(error_of([&] { Adafactor({w}, {.eps1 = eps1}); }), {"[Adafactor] eps1 is"}));
      Adafactor opt({w}, {.eps1 = dtype == f64 ? 1e-150 : 1e-18});
      opt.backward(sum(w * 0.0), 1);
      CHECK(opt.step().applied());
      for (const double value : values_of(w)) CHECK(value == 1);
    }
}

TEST_CASE("Adafactor keeps r + c numbers for r x c weights") {
  const Tensor w = zeros({300, 200}, f32).set_requires_grad();
  const Adafactor opt({w});
  std::int64_t numbers = 0;
  for (const optim::NamedState& s : opt.state())
    if (s.name.ends_with("_variance")) numbers += s.tensor.numel();
  CHECK(numbers == 300 + 200);
}

}  // namespace
}  // namespace firn::testing
