// One of each thing that a call in a plan could change, and what can be seen of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "firn/runtime/storage.h"

namespace firn::testing {

struct PlannedNet : nn::Module {
  nn::Linear in{4, 6};
  nn::BatchNorm1d norm{6, {.accumulation = nn::BatchNormMode::per_step}};
  nn::Dropout drop{0.25, {.seed = 3}};
  nn::SpectralNorm<nn::Linear> out{nn::Linear(6, 3)};
  FIRN_MEMBERS(in, norm, drop, out)
  Tensor forward(const Tensor& x) override { return out(drop(relu(norm(in(x))))); }
};

struct PlannedBlock : nn::Module {
  nn::Linear a{4, 4};
  FIRN_MEMBERS(a)
  Tensor forward(const Tensor& x) override { return x + a(x); }
};

/// Nothing trains it.
struct PlannedBlocks : nn::Module {
  std::vector<PlannedBlock> blocks = std::vector<PlannedBlock>(2);
  nn::BatchNorm1d norm{4};
  FIRN_MEMBERS(blocks, norm)
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (PlannedBlock& b : blocks) h = b(h);
    return norm(h);
  }
};

/// In the middle of a cycle, of an epoch and of a metric's batches; weights were written since the
/// last step.
class PlannedWorld {
 public:
  PlannedWorld();
  /// A micro-step of the network, and a call of step().
  void train();
  Loss loss(std::int64_t first = 0, std::int64_t last = 8);
  /// Everything, a line a thing.
  std::vector<std::string> seen();
  /// Names and sizes of the files in the folder.
  std::vector<std::string> files() const;
  /// After some steps of all: what a plan has left behind would show here.
  std::vector<std::string> later();

  struct Seeded {
    Seeded() { manual_seed(2); }
  } seeded;  ///< before weights are drawn
  test::TempFolder folder;
  PlannedNet net;
  PlannedBlocks blocks;
  Tensor x, y, number, mask, leaf, other_leaf, integers, activation;
  int leaf_hook = 0, hooked = 0;
  nn::HookId module_hook = 0;
  int module_hooked = 0;
  std::optional<optim::LossScaler> scaler;
  std::unique_ptr<optim::AdamW> opt, shared;
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<data::ResidentBatches> batches;
  metrics::Accuracy accuracy;
  metrics::Auroc auroc;
  metrics::Confusion confusion{{.classes = 3}};
  metrics::Mistakes mistakes{{.height = 2, .width = 2}};
  metrics::MeanLoss mean;
  optim::Plateau plateau{{.patience = 0}};
  Generator generator{5};
  std::optional<RollbackPoint> start;  ///< before the last changes
  std::optional<data::RecordWriter> records;
  std::optional<io::Checkpoints> checkpoints;
  std::optional<train::RunLog> log;
};

}  // namespace firn::testing
