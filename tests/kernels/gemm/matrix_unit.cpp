// Layers on the matrix unit, which software computes where a CPU lacks it, against widened factors.
#include <cmath>
#include <functional>
#include <vector>

#include "firn/firn.h"
#include "kernels/gemm/tile_unit.h"
#include "kernels/settings/isa.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

using kernels::cpu::Isa;

/// While alive, kernels choose what they would on a CPU of this level.
class OnIsa {
 public:
  explicit OnIsa(Isa isa)
      : before_(kernels::cpu::detail::chosen_isa.exchange(static_cast<std::uint8_t>(isa))) {}
  ~OnIsa() { kernels::cpu::detail::chosen_isa = before_; }
  OnIsa(const OnIsa&) = delete;
  OnIsa& operator=(const OnIsa&) = delete;

 private:
  std::uint8_t before_;
};

/// A function of tensors in one 16-bit dtype, and what it is called with.
struct Layer {
  const char* name;
  std::vector<Shape> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> run;
};

std::vector<Layer> layers() {
  using Inputs = std::vector<Tensor>;
  return {
      {"a layer of few samples",
       {{16, 100}, {72, 100}},
       [](const Inputs& x) { return linear(x[0], x[1]); }},
      {"a layer of many samples",
       {{150, 70}, {40, 70}, {40}},
       [](const Inputs& x) { return linear(x[0], x[1], x[2]); }},
      {"two layers",
       {{33, 50}, {64, 50}, {10, 64}},
       [](const Inputs& x) { return linear(gelu(linear(x[0], x[1])), x[2]); }},
      {"products in a batch",
       {{3, 20, 40}, {3, 40, 33}},
       [](const Inputs& x) { return matmul(x[0], x[1]); }},
      {"attention",
       {{2, 3, 37, 24}, {2, 3, 45, 24}, {2, 3, 45, 32}},
       [](const Inputs& x) { return attention(x[0], x[1], x[2]); }},
  };
}

/// The result and the gradients of all inputs.
std::vector<Tensor> both_passes(const Layer& layer, DType dtype) {
  manual_seed(31);
  std::vector<Tensor> inputs;
  for (const Shape& shape : layer.inputs) {
    inputs.push_back(cast(randn(shape), dtype));
    inputs.back().set_requires_grad();
  }
  const Tensor y = layer.run(inputs);
  std::vector<Tensor> out =
      grad({y}, inputs, {.initial_gradients = {cast(randn(y.shape()), dtype)}});
  out.insert(out.begin(), y.detach());
  return out;
}

/// Whether the unit has worked since `before` instructions were computed, as far as can be told.
bool has_worked_since(std::uint64_t before) {
  return kernels::cpu::machine_isa() >= Isa::amx_bf16 || TileUnit::computed() > before;
}

double distance(const Tensor& a, const Tensor& b) {
  const Tensor x = cast(a, f64), y = cast(b, f64);
  return std::sqrt(square(x - y).sum().item() / square(y).sum().item());
}

}  // namespace

TEST_CASE("gemm16: layers on the matrix unit give what widened factors give", "[host]") {
  if (!TileUnit::possible()) {
    WARN("skipped: this CPU has no AVX512-BF16");
    return;
  }
  for (const DType dtype : {bf16, f16}) {
    for (const Layer& layer : layers()) {
      std::vector<Tensor> widened, one, two;
      {
        const OnIsa isa(Isa::avx512);
        widened = both_passes(layer, dtype);
      }
      const std::uint64_t before = TileUnit::computed();
      {
        const TileUnit tiles;
        const OnIsa isa(Isa::amx_bf16);
        const Threads alone(1);
        one = both_passes(layer, dtype);
        const Threads pair(2);
        two = both_passes(layer, dtype);
      }
      INFO(layer.name << ", " << to_string(dtype));
      CHECK(has_worked_since(before));
      REQUIRE(one.size() == widened.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        INFO((i == 0 ? "the result" : "gradient ") << i);
        CHECK(distance(one[i], widened[i]) <= epsilon_of(dtype));
        CHECK(one[i].to_vector<float>() == two[i].to_vector<float>());
      }
    }
  }
}

TEST_CASE("gemm16: f16 and bf16 trainings on the matrix unit go as in f32", "[host]") {
  if (!TileUnit::possible()) {
    WARN("skipped: this CPU has no AVX512-BF16");
    return;
  }
  const TileUnit tiles;
  const OnIsa isa(Isa::amx_bf16);
  const auto last_loss = [](DType dtype) {
    manual_seed(32);
    nn::MLP net({20, 48, 4});
    net.to(dtype);
    optim::SGD opt(net.parameters(), {.lr = 0.5}, {.accumulate = 2});
    const Tensor x = randn({32, 20}), y = argmax(slice(x, 1, 0, 4), 1);
    double loss = 0;
    for (int step = 0; step < 120; ++step) {
      const std::int64_t first = step % 2 * 16;
      opt.backward(cross_entropy(net(cast(slice(x, 0, first, first + 16), dtype)),
                                 slice(y, 0, first, first + 16)));
      if (const optim::StepReport report = opt.step(); report.applied()) loss = report.loss();
    }
    return loss;
  };
  const double f32_loss = last_loss(f32);
  CHECK(f32_loss < 0.2);
  for (const DType dtype : {bf16, f16}) {
    const std::uint64_t before = TileUnit::computed();
    INFO(to_string(dtype));
    CHECK(std::abs(last_loss(dtype) - f32_loss) < 0.02);
    CHECK(has_worked_since(before));
  }
}

}  // namespace firn::testing
