// Running statistics of BatchNorm layers for weights that no training has run with.
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/nn/layers/batch_norm.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "nn/layers/batch_statistics.h"
#include "nn/tree.h"

namespace firn::nn {
namespace {

constexpr const char* kOp = "RecomputedStatistics";

}  // namespace

struct RecomputedStatistics::State {
  /// A layer's state outside of the scope. An exchange with the layer throws nothing.
  struct Kept {
    BatchNorm* layer;
    std::string name;
    Buffer mean, var, batches;
    std::shared_ptr<detail::BatchStatistics> statistics;
    BatchNormMode mode;
  };
  std::vector<Kept> all;
  std::shared_ptr<State*> self = std::make_shared<State*>(this);

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    end();
    *self = nullptr;
  }

  /// Gives the layers the buffers of the scope, and keeps theirs.
  void begin() noexcept {
    const std::lock_guard lock(mutex);
    for (Kept& k : all) exchange(k);
    earlier = std::exchange(last, this);
    if (earlier) earlier->later = this;
    begun = true;
  }
  /// Gives back what the scope has kept: to each layer, or to the next scope that has begun in it
  /// and is alive. So scopes may end in any order.
  void end() noexcept {
    const std::lock_guard lock(mutex);
    if (!std::exchange(begun, false)) return;
    for (Kept& k : all) {
      if (Kept* const heir = heir_of(k)) {
        std::swap(heir->mean, k.mean);
        std::swap(heir->var, k.var);
        std::swap(heir->batches, k.batches);
        std::swap(heir->statistics, k.statistics);
      } else {
        exchange(k);
      }
    }
    (later ? later->earlier : last) = earlier;
    if (earlier) earlier->later = later;
    later = earlier = nullptr;
  }

 private:
  /// Exchanges the buffers of the layer with those that are kept.
  static void exchange(Kept& k) noexcept {
    std::swap(k.layer->running_mean, k.mean);
    std::swap(k.layer->running_var, k.var);
    std::swap(k.layer->num_batches_tracked, k.batches);
    std::swap(k.layer->statistics_, k.statistics);
    if (autograd::Leaf* const leaf = autograd::leaf_or_frozen(k.layer->weight))
      leaf->set_member(k.layer->statistics_);
  }
  Kept* heir_of(const Kept& k) const noexcept {
    for (State* s = later; s; s = s->later)
      for (Kept& of_other : s->all)
        if (of_other.layer == k.layer) return &of_other;
    return nullptr;
  }

  bool begun = false;
  State *earlier = nullptr, *later = nullptr;  ///< neighbours among the scopes that are alive
  static inline constinit std::mutex mutex;    ///< guards the list
  static inline constinit State* last = nullptr;
};

RecomputedStatistics::RecomputedStatistics(Module& m, const std::function<void()>& passes) try
    : state_(std::make_shared<State>()) {
  require_function(kOp, passes, "give a function that calls the module");
  detail::require_members(kOp, m);
  State& s = *state_;
  for (const NamedModule& n : m.named_modules()) {
    auto* const layer = dynamic_cast<BatchNorm*>(n.module);
    if (!layer || layer->is_group_norm() || !layer->running_mean.defined()) continue;
    if (autograd::Leaf* const leaf = autograd::leaf_or_frozen(layer->weight))
      leaf->reserve_extras();  // begin() and end() throw nothing then
    const Tensor& mean = layer->running_mean;
    State::Kept kept{.layer = layer,
                     .name = n.name,
                     .mean = Buffer(zeros_like(mean), OnConversion::widen),
                     .var = Buffer(ones_like(mean), OnConversion::widen),
                     .batches = Buffer(zeros({}, DType::i64, mean.device())),
                     .statistics = nullptr,
                     .mode = layer->accumulation_};
    s.all.push_back(std::move(kept));
  }
  // A plan that made the object ends its scope, however long the object lives.
  runtime::at_dry_end(s.self.get(), [self = s.self] {
    if (*self) (*self)->end();
  });
  s.begin();
  for (State::Kept& k : s.all)
    k.layer->statistics_ = std::make_shared<detail::BatchStatistics>(*k.layer, detail::kCumulative);
  struct Modes {
    State& s;
    explicit Modes(State& state) : s(state) {
      for (State::Kept& k : s.all) k.layer->accumulation_ = BatchNormMode::per_micro_batch;
    }
    ~Modes() {
      for (State::Kept& k : s.all) k.layer->accumulation_ = k.mode;
    }
  };
  {
    std::vector<detail::TreeModule> layers(s.all.size());
    for (std::size_t i = 0; i < layers.size(); ++i) layers[i].module = s.all[i].layer;
    const NoGrad guard;
    const Modes modes(s);
    const detail::TrainScope training(layers);
    passes();
  }
  if (runtime::planning()) return;  // counters stay as they are in a plan
  for (const State::Kept& k : s.all)
    FIRN_CHECK(k.layer->num_batches_tracked.item() > 0, kOp,
               "call the module on batches of its training set in the function",
               "the layer \"{}\" has seen no batch", k.name);
}
FIRN_OUT_OF_MEMORY(kOp)

RecomputedStatistics::~RecomputedStatistics() = default;

}  // namespace firn::nn
