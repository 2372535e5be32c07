// A training whose blocks are checkpointed is the plain one to the bit: losses, gradients, weights,
// running statistics and the random stream after it.
#include <optional>
#include <string>

#include "recompute/models.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;

namespace {

struct Run {
  std::vector<double> losses, values;
  std::uint64_t offset = 0;
  bool operator==(const Run&) const = default;
};

struct Setting {
  const char* precision;  ///< f32, f16, bf16: of the model; amp: f32 under autocast to bf16
  std::optional<CheckpointOptions> checkpoint = {};
  bool nested = false;
  int threads = 1;
};

/// Four micro-steps in cycles of two.
template <class Net>
Run run_training(const Setting& s, const Shape& sample) {
  const Threads threads(s.threads);
  const Quiet quiet;
  manual_seed(3);
  Net net;
  const std::string precision = s.precision;
  const DType dtype = precision == "f16" ? f16 : precision == "bf16" ? bf16 : f32;
  net.to(dtype);
  for (auto& block : net.blocks) {
    block.set_checkpoint(s.checkpoint);
    if (!s.nested) continue;
    for (const nn::NamedModule& m : block.named_modules())
      if (m.name == "up" || m.name == "second" || m.name == "mlp" || m.name == "drop")
        m.module->set_checkpoint(s.checkpoint);
  }
  optim::StepOptions options{.accumulate = 2, .clip_norm = 1.0};
  if (dtype == f16) options.loss_scale = optim::LossScale::dynamic({});
  optim::AdamW opt(net.parameters(), {.lr = 1e-2}, options);
  Run run;
  for (int i = 0; i < 4; ++i) {
    const Tensor x = randn(sample).to(dtype).set_requires_grad();
    Loss loss;
    {
      std::optional<Autocast> guard;
      if (precision == "amp") guard.emplace(bf16);
      const Tensor y = net(x);
      loss = cross_entropy(y, zeros({y.size(0)}, i64));
    }
    opt.backward(loss);
    run.losses.push_back(loss.item());
    for (const double v : values_of(x.grad())) run.values.push_back(v);
    for (const Tensor& p : net.parameters())
      if (p.grad().defined())
        for (const double v : values_of(p.grad())) run.values.push_back(v);
    opt.step();
  }
  for (const Tensor& p : net.parameters())
    for (const double v : values_of(p)) run.values.push_back(v);
  for (const NamedTensor& b : net.named_buffers())
    for (const double v : values_of(b.tensor)) run.values.push_back(v);
  run.offset = default_generator().get().offset;
  return run;
}

template <class Net>
void check(const char* what, const Shape& sample) {
  // On a device, which the simulator makes slow, one setting stands for several.
  const bool all = default_device().is_cpu();
  for (const char* precision : {"f16", "amp", "f32", "bf16"}) {
    if (!all && std::string(precision) != "f16" && std::string(precision) != "amp") continue;
    const Run plain = run_training<Net>({.precision = precision}, sample);
    REQUIRE(plain.values.size() > 100);
    for (const Keep keep : {Keep::inputs, Keep::products})
      for (const bool nested : {false, true})
        for (const int threads : {1, 3}) {
          if (!all && (!nested || threads > 1)) continue;
          CAPTURE(what, precision, keep == Keep::products, nested, threads);
          const Run got = run_training<Net>({.precision = precision,
                                             .checkpoint = CheckpointOptions{.keep = keep},
                                             .nested = nested,
                                             .threads = threads},
                                            sample);
          CHECK(got.losses == plain.losses);
          CHECK(got.values == plain.values);
          CHECK(got.offset == plain.offset);
        }
  }
}

}  // namespace

TEST_CASE("[S35] recompute: a transformer with dropout trains the same to the bit", "[recompute]") {
  check<Transformer>("transformer", {2, 6, 16});
}
TEST_CASE("[S35] recompute: a convolutional network with BatchNorm trains the same to the bit",
          "[recompute]") {
  check<ConvNet>("convolutions", {3, 1, 6, 6});
}
TEST_CASE("recompute: dense layers with shortcuts train the same to the bit", "[recompute]") {
  check<DenseNet>("dense", {5, 8});
}
