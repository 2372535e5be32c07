// The language model of models.h in stages, and how it is trained over a mesh: what tests of
// pipelines on every kind of device share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dist/parallel/models.h"
#include "firn/dist/parallel/pipeline.h"

namespace firn::testing {

inline constexpr int kBlocks = 4;

/// The layers of one stage: stage s of p has blocks [4 s/p, 4 (s + 1)/p). Every stage draws the
/// weights of all.
struct GptStage : nn::Module {
  dist::Group tp;
  std::optional<dist::VocabParallelEmbedding> embed;
  std::vector<ParallelBlock> blocks;
  std::optional<nn::LayerNorm> norm;
  std::optional<dist::ColumnParallelLinear> head;
  int first_block = 0;
  bool poisoned = false;  ///< the embedding's gradient is infinite
  std::function<void()> before = [] {};
  FIRN_MEMBERS(embed, blocks, norm, head)

  GptStage(const dist::Mesh& mesh, DType dtype) : tp(mesh.tp()) {
    manual_seed(4);
    const int p = mesh.pp().size(), s = mesh.pp().rank();
    embed.emplace(tp, 12, 16);
    for (int b = 0; b < kBlocks; ++b) {
      ParallelBlock block(tp, 0);
      if (b / (kBlocks / p) == s) blocks.push_back(block);
    }
    norm.emplace(16);
    head.emplace(tp, 16, 12, dist::ColumnParallelOptions{.bias = false});
    first_block = s * (kBlocks / p);
    if (s > 0) embed.reset();
    if (s < p - 1) {
      norm.reset();
      head.reset();
    }
    to(dtype);
    to(tp.device());
  }
  Tensor forward(const Tensor& x) override {
    before();
    Tensor h = x;
    if (embed) h = (*embed)(x);
    if (poisoned) add_hook(h, [](const Tensor& grad) { return grad * HUGE_VAL; });
    for (auto& b : blocks) h = b(h);
    return head ? (*head)((*norm)(h)) : h;
  }
  /// The parameters by their names in the whole model.
  std::vector<NamedTensor> named() const {
    std::vector<NamedTensor> out = named_parameters();
    for (NamedTensor& p : out)
      if (p.name.starts_with("blocks.")) {
        const int b = p.name[7] - '0' + first_block;
        p.name[7] = static_cast<char>('0' + b);
      }
    return out;
  }
};

struct StageSetting {
  DType dtype = f64;
  std::int64_t samples = 13, micro_batch = 2;
  optim::StepOptions step = {.clip_norm = 0.5};
  int steps = 10;
  int poisoned_step = -1;
};

struct StageRun {
  std::string reports;
  std::vector<double> losses, norms, rounded;
  std::vector<NamedTensor> weights;
  double distance = 0;
  std::int64_t in_flight = 0;
};

inline StageRun train_stages(const dist::Group& all, const dist::MeshSizes& sizes,
                             const StageSetting& s = {}, const std::vector<NamedTensor>& one = {}) {
  const dist::Mesh mesh(all, sizes);
  GptStage stage(mesh, s.dtype);
  optim::AdamW opt(stage.parameters(), {.lr = 1e-2, .eps = 1e-5, .weight_decay = 0.01}, s.step);
  dist::distribute(opt, mesh);
  dist::Pipeline pipeline(mesh, stage);
  StageRun out;
  for (int i = 0; i < s.steps; ++i) {
    stage.poisoned = i == s.poisoned_step && stage.embed;
    const Tensor ids = tokens(s.samples, static_cast<std::uint64_t>(i)).to(all.device());
    const auto report = pipeline.run_batch(
        opt, s.samples, s.micro_batch,
        [&](std::int64_t first, std::int64_t last) {
          return ids.slice(0, first, last).slice(1, 0, 6);
        },
        [&](const Tensor& logits, std::int64_t first, std::int64_t last) {
          return dist::vocab_parallel_cross_entropy(
              logits, ids.slice(0, first, last).slice(1, 1, 7), mesh.tp());
        });
    out.reports += fmt::format("{} {} {} {:a} {:a} {:a} {}\n", static_cast<int>(report.status()),
                               report.applied_steps(), report.skipped_steps(), report.norm(),
                               report.loss(), report.loss_scale(), report.micro_steps());
    out.losses.push_back(report.loss());
    out.norms.push_back(report.norm());
    out.in_flight = std::max(out.in_flight, pipeline.most_in_flight());
  }
  const auto totals = opt.loss_totals();
  out.reports += fmt::format("{:a} {:a}", totals.loss, totals.weight);
  std::vector<double> mine, wanted;
  for (const NamedTensor& p : stage.named()) {
    out.weights.push_back({p.name, p.tensor.detach().clone().to(Device::cpu())});
    for (const NamedTensor& w : one) {
      if (w.name != p.name) continue;
      for (const double v : values_of(p.tensor.detach().to(Device::cpu()))) mine.push_back(v);
      for (const double v : values_of(part_of(w, mesh.tp()))) wanted.push_back(v);
    }
  }
  out.distance = mine.empty() ? HUGE_VAL : relative_distance(mine, wanted);
  return out;
}

}  // namespace firn::testing
