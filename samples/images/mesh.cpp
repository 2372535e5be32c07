#include "mesh.h"

#include <array>
#include <optional>
#include <vector>

#include "firn/dist/parallel/functions.h"
#include "firn/dist/parallel/layers.h"
#include "firn/firn.h"
#include "firn/nn/layers/linear.h"
#include "models.h"

namespace sample {

using firn::Tensor;
namespace dist = firn::dist;
namespace nn = firn::nn;

namespace {

/// A parameter of the whole model: its layer, and the axis that the ranks shard (-1: not sharded).
struct Place {
  int layer, axis;
};
/// In the order of parameters(): weight and bias of each layer.
constexpr std::array<Place, 6> kPlaces{{{0, 0}, {0, 0}, {1, 1}, {1, -1}, {2, -1}, {2, -1}}};
constexpr int kLayers = 3;

/// Returns this rank's shard of `whole`.
Tensor part_of(const Tensor& whole, int axis, const dist::Group& tp) {
  if (axis < 0) return whole;
  const std::int64_t n = whole.size(axis) / tp.size();
  return whole.slice(axis, n * tp.rank(), n * (tp.rank() + 1));
}

/// Gathers the shards of all ranks.
Tensor gathered(const Tensor& part, int axis, const dist::Group& tp) {
  if (axis < 0) return part;
  if (axis == part.rank() - 1) return dist::gather_from_ranks(part, tp);
  return dist::gather_from_ranks(part.transpose(0, 1), tp).transpose(0, 1);
}

}  // namespace

/// The layers of one stage. All stages draw the weights of all layers, as the whole model does.
struct ShardedMlp::Stage : nn::Module {
  std::optional<dist::ColumnParallelLinear> hidden1;
  std::optional<dist::RowParallelLinear> hidden2;
  std::optional<nn::Linear> logits;
  FIRN_MEMBERS(hidden1, hidden2, logits)

  explicit Stage(const dist::Mesh& mesh) : stages(mesh.pp().size()), stage(mesh.pp().rank()) {
    hidden1.emplace(mesh.tp(), kMlpSizes[0], kMlpSizes[1]);
    hidden2.emplace(mesh.tp(), kMlpSizes[1], kMlpSizes[2]);
    logits.emplace(kMlpSizes[2], kMlpSizes[3]);
    if (stage_of(0) != stage) hidden1.reset();
    if (stage_of(1) != stage) hidden2.reset();
    if (stage_of(2) != stage) logits.reset();
  }
  /// A cut between the two hidden layers sends each rank's shard of the activation.
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    if (hidden1) h = firn::relu((*hidden1)(firn::flatten(h, 1)));
    if (hidden2) h = firn::relu((*hidden2)(h));
    return logits ? (*logits)(h) : h;
  }
  int stage_of(int layer) const { return ((layer + 1) * stages - 1) / kLayers; }
  /// Returns this stage's shard of parameter `index` of the whole model; undefined if another stage
  /// has it.
  Tensor parameter(std::size_t index) const {
    const auto before = static_cast<std::size_t>(2 * (kLayers * stage / stages));
    const std::vector<Tensor> mine = parameters();
    return index < before || index - before >= mine.size() ? Tensor() : mine[index - before];
  }

  int stages, stage;
};

ShardedMlp::ShardedMlp(const Options& o, const dist::Group& group)
    : fresh_(o),
      mesh_(group, {.dp = o.copies(), .tp = o.tensor_parallel, .pp = o.pipeline}),
      stage_(std::make_unique<Stage>(mesh_)),
      pipeline_(mesh_, *stage_) {
  stage_->to(group.device());
  stage_->to(model_dtype(o.precision));
  stage_->set_autocast(autocast_dtype(o.precision));
  fresh_.load.clear();
  for (std::size_t i = 0; i < kLayers; ++i)
    num_parameters_ += (kMlpSizes[i] + 1) * kMlpSizes[i + 1];
  if (o.load.empty()) return;
  const firn::NoGrad guard;
  const auto model = make_model("mlp", o, group.device());
  const std::vector<Tensor> from = model->parameters();
  for (std::size_t i = 0; i < kPlaces.size(); ++i)
    if (Tensor to = stage_->parameter(i); to.defined())
      to.copy_(part_of(from[i], kPlaces[i].axis, mesh_.tp()));
}

ShardedMlp::~ShardedMlp() = default;

nn::Module& ShardedMlp::stage() noexcept { return *stage_; }

std::unique_ptr<nn::Module> ShardedMlp::whole() const {
  const firn::NoGrad guard;
  auto model = make_model("mlp", fresh_, mesh_.all().device());
  std::vector<Tensor> to = model->parameters();
  for (std::size_t i = 0; i < kPlaces.size(); ++i) {
    const Tensor part = stage_->parameter(i);
    const Tensor all = part.defined() ? gathered(part, kPlaces[i].axis, mesh_.tp()).contiguous()
                                      : firn::empty_like(to[i]);
    mesh_.pp().broadcast(all, stage_->stage_of(kPlaces[i].layer));
    to[i].copy_(all);
  }
  return model;
}

}  // namespace sample
