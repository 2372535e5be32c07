// What changes from step to step is read from device memory: a step's kernels, called again and
// again with the arguments of the first call, as a captured graph would, train like the optimizer.
#include <algorithm>
#include <vector>

#include "firn/firn.h"
#include "kernels/elementwise.h"
#include "kernels/optim.h"
#include "optim/store/param_store.h"
#include "optim/problem.h"
#include "optim/policy/scaler.h"
#include "optim/policy/schedule_table.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;

namespace {

constexpr std::int64_t kElements = 300;
constexpr int kSteps = 30;

const optim::Schedule kRate = optim::warmup(4, optim::cosine(1e-2, 20, 1e-4));

optim::LossScale scale() {
  optim::DynamicLossScale o;
  o.init = 1024;
  o.growth_interval = 5;
  return optim::LossScale::dynamic(o);
}

/// The gradient of step i. Some are finite, as is the loss, but overflow when they are scaled.
std::vector<double> gradient_of(int i) {
  Rng rng(static_cast<std::uint64_t>(i) + 1);
  std::vector<double> g = rng.uniforms(kElements, -1, 1);
  if (i == 7 || i == 8 || i == 19) g[11] = 1e37;
  return g;
}

Tensor start() {
  Rng rng(99);
  return parameter(rng.uniforms(kElements, -1, 1), {kElements});
}

/// One step's launches with arguments that never change.
class Captured {
 public:
  explicit Captured(const Tensor& w)
      : store_("replay", {{{w}, math::Adam{0.9, 0.99, 1e-8, 0.01, true}, 1}}, {}),
        policy_{0.5, 0, 0, optim::policy_of(scale()), {}},
        scaler_(scale(), store_.scaler()),
        leaf_(*autograd::leaf_of(w)) {
    kernels::optim_set_schedule(store_.memory(), optim::table_of(kRate), store_.stream());
  }
  Tensor gradient = zeros({kElements});  ///< the data of the step: written between replays

  void replay() {
    const kernels::StepMemory memory = store_.memory();
    const Stream stream = store_.stream();
    kernels::optim_begin(
        kernels::pending_gradient(memory, policy_, seed_.mutable_view(), loss_.view(), weight_.view()),
        store_.arenas(), stream);
    kernels::binary(math::BinaryOp::mul, broadcast_to(seed_.view(), {kElements}), gradient.view(),
                    scaled_.mutable_view(), math::Args{}, stream);
    kernels::axpby(1, scaled_.view(), 0, leaf_.arena.mutable_view(), stream);
    kernels::optim_norm(memory, store_.arenas(), policy_, stream);
    kernels::optim_update(memory, store_.arenas(), policy_, true, stream);
  }
  /// Which parameters receive a gradient is a property of the graph: told once.
  void touch() {
    leaf_.touched = 1;
    store_.ledger().note();
    store_.ledger().report_to_device(store_.memory(), store_.stream());
  }
  math::StepState state() const { return store_.read_state(); }

 private:
  optim::ParamStore store_;
  math::StepPolicy policy_;
  optim::LossScaler scaler_;
  autograd::Leaf& leaf_;
  Tensor seed_ = zeros({}), loss_ = zeros({}), weight_ = full({}, 4), scaled_ = zeros({kElements});
};

}  // namespace

TEST_CASE("[S25] replaying a step's launches unchanged follows schedule, scale, t and skips") {
  Tensor w = start();
  optim::AdamW opt({w},
                   {.lr = kRate, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01},
                   {.clip_norm = 0.5, .loss_scale = scale()});
  Tensor replayed = start();
  Captured captured(replayed);
  captured.touch();
  std::vector<double> scales;
  for (int i = 0; i < kSteps; ++i) {
    INFO("step " << i);
    const Tensor g = make(gradient_of(i), {kElements}, f32);
    opt.backward(sum(w * g), 4);
    const optim::StepReport report = opt.step();
    copy_(captured.gradient, g);
    captured.replay();

    const math::StepOutcome o = captured.state().last;
    REQUIRE((o.status == math::StepStatus::applied) == report.applied());
    REQUIRE(o.applied == report.applied_steps());
    REQUIRE(o.learning_rate == report.lr());
    REQUIRE(o.norm == report.norm());
    REQUIRE(o.loss_scale == report.loss_scale());
    REQUIRE(bits_of(replayed) == bits_of(w));
    scales.push_back(o.loss_scale);
  }
  // The run was one in which things change: the scale grew and backed off, steps were skipped.
  CHECK(captured.state().skipped == 3);
  CHECK(*std::max_element(scales.begin(), scales.end()) == 2048);
  CHECK(*std::min_element(scales.begin(), scales.end()) == 512);
}
