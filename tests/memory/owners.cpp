// The trainings of the sample: at every operation, owners and modules add up to the allocator's
// total.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../samples/images/models.h"
#include "autograd/op_mode.h"
#include "memory/sums.h"
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/values.h"

using namespace firn;
using firn::testing::adds_up;

namespace {

/// Looks at the accounts after each operation of a forward pass.
class Looker final : public autograd::OpListener {
 public:
  ~Looker() override { stop(); }
  void ran(const char* op, std::span<const Tensor* const>, const Tensor&) override { look(op); }
  void look(const char* op) {
    ++looks;
    const MemoryReport r = memory_report();
    if (!adds_up(r) && wrong.empty()) wrong = op;
    for (const auto& m : r.modules) paths.insert(m.path);
  }
  int looks = 0;
  std::string wrong;  ///< the first operation after which they did not add up
  std::set<std::string> paths;
};

/// Whether the blocks, each of which has one owner and one module, make the totals after every
/// allocation and every release, those of backward passes and steps included.
bool blocks_make_totals(const MemoryTimeline& timeline) {
  const std::vector<std::size_t> totals = timeline.totals();
  std::vector<std::size_t> change(totals.size());  // modulo 2^64
  for (const MemoryTimeline::Block& b : timeline.blocks()) {
    change[b.born] += b.bytes;
    if (b.died > 0) change[b.died] -= b.bytes;
  }
  std::size_t now = 0;
  for (std::size_t i = 0; i < totals.size(); ++i)
    if ((now += change[i]) != totals[i]) return false;
  return true;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name, const nn::Module& net) {
  const optim::StepOptions step{.accumulate = 2, .ema = 0.9};
  const auto parameters = net.named_parameters();
  if (name == "8 bits")
    return std::make_unique<optim::AdamW>(
        parameters,
        optim::AdamWOptions{.state = optim::StatePrecision::bits8, .min_8bit_size = 256}, step);
  if (name == "muon")
    return std::make_unique<optim::Muon>(parameters, optim::MuonOptions{.flatten = true}, step);
  if (name == "adafactor")
    return std::make_unique<optim::Adafactor>(parameters, optim::AdafactorOptions{}, step);
  return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{}, step);
}

struct Setting {
  std::string model, precision, optimizer = "adamw", recompute = "nothing";
};

void train_and_look(const Setting& s) {
  CAPTURE(s.model, s.precision, s.optimizer, s.recompute);
  manual_seed(1);
  sample::Options o;
  o.precision = s.precision;
  o.recompute = s.recompute;
  const auto net = sample::make_model(s.model, o, default_device());
  const auto opt = make_optimizer(s.optimizer, *net);
  const Tensor x = randn({2, 784}).to(sample::model_dtype(s.precision));
  const Tensor y = zeros({2}, i64);
  reset_peak_memory();
  const MemoryTimeline timeline;
  Looker looker;
  const auto loss = [&] {
    std::optional<Autocast> guard;
    if (s.precision == "amp-bf16") guard.emplace(bf16);
    return cross_entropy((*net)(x), y);
  };
  for (int i = 0; i < 4; ++i) {
    opt->backward(loss());
    looker.look("backward");
    opt->step();
    looker.look("step");
  }
  {
    const optim::AveragedWeights averages(*opt);
    const NoGrad guard;
    net->eval();
    loss();
    looker.look("a test with averaged weights");
  }
  CHECK(looker.wrong == "");
  CHECK(looker.looks >= 4 * 5);
  CHECK(looker.paths.size() >= 2);
  CHECK(blocks_make_totals(timeline));
  const MemoryStats stats = memory_stats();
  const bool half = sample::model_dtype(s.precision) != f32;
  CHECK((stats.of(Owner::masters).current > 0) == half);
  CHECK((stats.of(Owner::recomputed).peak > 0) == (s.recompute != "nothing"));
  CHECK(stats.of(Owner::optimizer).current > 0);
}

}  // namespace

TEST_CASE("memory_owners: owners and modules of the sample's trainings add up at every operation",
          "[memory][once]") {
  for (const char* model : {"mlp", "cnn", "resnet"}) {
    for (const char* precision : {"fp32", "fp16", "bf16", "amp-bf16"}) {
      if (firn::testing::on_slow_device() && model + std::string(precision) != "mlpfp16") continue;
      train_and_look({.model = model, .precision = precision});
    }
  }
  train_and_look({.model = "mlp", .precision = "fp16", .optimizer = "muon"});
  if (firn::testing::on_slow_device()) return;
  train_and_look({.model = "resnet", .precision = "bf16", .recompute = "all"});
  for (const char* optimizer : {"8 bits", "adafactor"})
    train_and_look({.model = "mlp", .precision = "fp16", .optimizer = optimizer});
  train_and_look({.model = "resnet", .precision = "bf16", .recompute = "cheap"});
}

TEST_CASE("memory_owners: what OutOfMemory says, word by word", "[memory][host]") {
  struct Block : nn::Module {
    nn::Linear fc{64, 64};
    FIRN_MEMBERS(fc)
    Tensor forward(const Tensor& x) override { return relu(fc(x)); }
  };
  struct Net : nn::Module {
    std::vector<Block> blocks{2};
    nn::Linear head{64, 10};
    FIRN_MEMBERS(blocks, head)
    Tensor forward(const Tensor& x) override { return head(blocks[1](blocks[0](x))); }
  };
  Net net;
  optim::AdamW opt(net.parameters());
  const Tensor x = zeros({256, 64});
  const Tensor y = net(x);
  release_cached_memory();
  REQUIRE(memory_stats().total.current == 356'928);  // nothing else is alive
  set_memory_limit(400'000);
  std::string text;
  try {
    zeros({1024, 64});
  } catch (const OutOfMemory& e) {
    text = e.what();
  }
  set_memory_limit(0);
  CHECK(
      text ==
      "[allocate] the limit is reached: 262144 bytes on cpu, with 356928 bytes in use and 356928 "
      "held from the system, limit 400000\n"
      "  in use: activations 202.1 KiB, optimizer 74.5 KiB, weights 36 KiB, gradients 36 KiB\n"
      "  by module: Net.blocks.0 64 KiB, Net.blocks.1 64 KiB, Net.head 10 KiB\n"
      "  largest: 64 KiB activations of relu in Net.blocks.1, 64 KiB activations of relu in "
      "Net.blocks.0, 64 KiB activations of zeros, 36 KiB optimizer of optimizer, 36 KiB optimizer "
      "of optimizer; hint: use a smaller batch, or release tensors that are not needed");
}
