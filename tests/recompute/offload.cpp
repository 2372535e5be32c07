// What waits in memory of the host or in a file: activations and the optimizer's state. A training
// gives the same bits wherever they are.
#include <cstdlib>
#include <optional>
#include <string>

#include "recompute/models.h"
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;

namespace {

Keep elsewhere() { return default_device().is_cpu() ? Keep::in_file : Keep::on_host; }
optim::StateMemory far_state() {
  return default_device().is_cpu() ? optim::StateMemory::file : optim::StateMemory::host;
}

struct Setting {
  std::optional<Keep> keep = {};
  optim::StateMemory state = optim::StateMemory::device;
  optim::StatePrecision precision = optim::StatePrecision::full;
};

/// Cycles of two with clipping, a schedule, an average, masters and a loss scale that overflows.
template <class Net>
std::vector<double> run_training(const Setting& s, const Shape& sample, DType dtype) {
  const Quiet quiet;
  manual_seed(3);
  Net net;
  net.to(dtype);
  if (s.keep) nn::checkpoint_blocks(net, {.keep = *s.keep});
  optim::StepOptions options{.accumulate = 2, .clip_norm = 1.0, .ema = 0.9};
  if (dtype == f16) options.loss_scale = optim::LossScale::dynamic({.init = 1 << 20});
  options.state_memory = s.state;
  optim::AdamW opt(net.parameters(),
                   {.lr = optim::cosine(1e-2, 5), .state = s.precision, .min_8bit_size = 0},
                   options);
  for (int i = 0; i < 6; ++i) {
    const Tensor x = randn(sample).to(dtype);
    const Tensor y = net(x);
    opt.backward(cross_entropy(y, zeros({y.size(0)}, i64)));
    opt.step();
  }
  std::vector<double> values;
  for (const optim::NamedState& state : opt.state())
    if (is_floating(state.tensor.dtype()))
      for (const double v : values_of(state.tensor)) values.push_back(v);
  return values;
}

}  // namespace

TEST_CASE("offload: activations that wait elsewhere change no bit", "[recompute]") {
  for (const DType dtype : {f32, f16}) {
    if (on_slow_device() && dtype == f32) continue;
    CAPTURE(dtype);
    CHECK(run_training<Transformer>({elsewhere()}, {2, 6, 16}, dtype) ==
          run_training<Transformer>({}, {2, 6, 16}, dtype));
    CHECK(run_training<ConvNet>({elsewhere()}, {3, 1, 6, 6}, dtype) ==
          run_training<ConvNet>({}, {3, 1, 6, 6}, dtype));
    CHECK(run_training<DenseNet>({elsewhere()}, {5, 8}, dtype) ==
          run_training<DenseNet>({}, {5, 8}, dtype));
    CHECK(run_training<DenseNet>({Keep::in_file}, {5, 8}, dtype) ==
          run_training<DenseNet>({}, {5, 8}, dtype));
  }
}

TEST_CASE("offload: state that is elsewhere changes no bit", "[recompute]") {
  for (const DType dtype : {f32, f16})
    for (const auto precision : {optim::StatePrecision::full, optim::StatePrecision::bits8}) {
      if (on_slow_device() && (dtype == f16) != (precision == optim::StatePrecision::full))
        continue;
      CAPTURE(dtype, static_cast<int>(precision));
      const std::size_t before = memory_stats().of(Owner::optimizer).current;
      CHECK(run_training<Transformer>({{}, far_state(), precision}, {2, 6, 16}, dtype) ==
            run_training<Transformer>({{}, optim::StateMemory::device, precision}, {2, 6, 16},
                                      dtype));
      CHECK(memory_stats().of(Owner::optimizer).current == before);
    }
  nn::Linear layer(64, 64);
  const std::size_t before = memory_stats().total.current;
  const optim::AdamW opt(layer.parameters(), {}, {.state_memory = far_state()});
  // The device holds the gradients and small tables, and neither of the two moments.
  CHECK(memory_stats().total.current - before < 2 * 4 * 64 * 65);
}

TEST_CASE("offload: kept graphs, shared storages and mixtures", "[recompute]") {
  const Tensor x = randn({4, 8}).set_requires_grad();
  const auto inner = [](const Tensor& t) { return exp(tanh(t)); };
  const auto gradient = [&](const Tensor& y, int passes) {
    std::vector<double> all;
    for (int i = 0; i < passes; ++i) {
      x.set_grad({});
      backward(y, {.retain_graph = i + 1 < passes});
      for (const double v : values_of(x.grad())) all.push_back(v);
    }
    return all;
  };
  for (const Keep outside : {elsewhere(), Keep::inputs, Keep::products})
    for (const Keep inside : {elsewhere(), Keep::inputs, Keep::products}) {
      const auto f = [&](const Tensor& t) {
        const auto parts = split(tanh(t), 4, 1);
        const Tensor h = checkpoint({.keep = inside}, inner, parts[0] * parts[1]);
        return exp(h) * h * parts[1];
      };
      const auto plain = [&](const Tensor& t) {
        const auto parts = split(tanh(t), 4, 1);
        const Tensor h = inner(parts[0] * parts[1]);
        return exp(h) * h * parts[1];
      };
      for (const int passes : {1, 3})
        CHECK(gradient(checkpoint({.keep = outside}, f, x).sum(), passes) ==
              gradient(plain(x).sum(), passes));
      const Tensor unused = checkpoint({.keep = outside}, f, x);
    }
}

TEST_CASE("offload: what cannot be is refused by name", "[recompute]") {
  const Tensor x = randn({4}).set_requires_grad();
  nn::Linear layer(4, 4);
  const bool cpu = default_device().is_cpu();
  if (cpu) {
    CHECK_THAT(error_of([&] {
                 checkpoint(
                     {.keep = Keep::on_host}, [](const Tensor& t) { return exp(t); }, x);
               }),
               test::contains("in_file"));
  }
  const auto wrong = cpu ? optim::StateMemory::host : optim::StateMemory::file;
  CHECK_THAT(error_of([&] { optim::AdamW(layer.parameters(), {}, {.state_memory = wrong}); }),
             test::contains("StateMemory::"));
  optim::AdamW opt(layer.parameters());  // the layer is free
  if (!cpu) return;
  ::setenv("FIRN_OFFLOAD_DIR", "/nowhere", 1);
  nn::Linear other(4, 4);
  CHECK_THAT(error_of([&] {
               optim::AdamW(other.parameters(), {}, {.state_memory = optim::StateMemory::file});
             }),
             test::contains("/nowhere") && test::contains("FIRN_OFFLOAD_DIR"));
  ::unsetenv("FIRN_OFFLOAD_DIR");
}
