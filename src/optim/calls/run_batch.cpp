// Whole cycles over a batch. The size of the micro-batches is planned or given, and halved if
// memory runs out.
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "firn/ops/losses.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/rollback.h"
#include "optim/calls/cycle_planner.h"
#include "optim/impl.h"

namespace firn::optim {
namespace {

void require_batch(const std::string& op, std::int64_t samples, const LossOf& loss) {
  FIRN_CHECK(samples >= 1, op, "give the number of samples of all ranks, 1 or more",
             "a batch of {} samples", samples);
  require_function(op, loss, "give a function that computes the loss of samples [first, last)",
                   "the function of run_batch()");
}

/// Checks that in exact mode a micro-batch consists of whole chunks.
void require_chunks(const std::string& op, const StepOptions& options, std::int64_t samples,
                    std::int64_t micro_batch) {
  const std::int64_t q = options.exact.chunk;
  FIRN_CHECK(q == 0 || micro_batch % q == 0 || micro_batch >= samples, op,
             "give a multiple of the chunk",
             "micro-batches of {} samples do not consist of chunks of {}", micro_batch, q);
}

bool same(const MicroBatch& a, const MicroBatch& b) {
  return a.size == b.size && a.budget == b.budget;
}

/// Returns the largest size whose cycle stays within the budget.
std::int64_t planned_size(Optimizer& optimizer, const std::string& op, Device device,
                          std::int64_t samples, const MicroBatch& ask, const LossOf& loss) {
  const std::size_t limit = memory_stats(device).limit;
  const std::size_t budget = ask.budget > 0 ? ask.budget : limit;
  FIRN_CHECK(budget > 0, op, "give {.size} or {.budget}, or set FIRN_MEMORY_LIMIT",
             "the size of micro-batches is to be planned, and {} has no limit of memory", device);
  CyclePlanner plan(optimizer, samples, budget, ask.split_statistics, loss);
  if (const std::int64_t size = plan.largest(); size > 0) return size;
  throw OutOfMemory(plan.why_not(), plan.last().peak,
                    "give a larger budget; optim::plan_within() also plans what to compute again");
}

/// Throws OutOfMemory again after the cycle was dropped, with advice on what would fit in place of
/// micro-batches of `size`.
[[noreturn]] void advise(Optimizer& optimizer, const std::string& op, Device device,
                         std::int64_t samples, std::int64_t size, const MicroBatch& ask,
                         const LossOf& loss, const OutOfMemory& e) {
  std::string advice, hint = kNoSmallerBatch;
  try {
    const std::int64_t fits = planned_size(
        optimizer, op, device, samples,
        {.budget = memory_stats(device).limit, .split_statistics = ask.split_statistics}, loss);
    advice =
        fmt::format("micro-batches of {} would fit; MicroBatch::within(bytes) plans them", fits);
    hint = "give that size, or release tensors that are not needed";
  } catch (const OutOfMemory& none) {
    advice = none.message();
  } catch (const Error&) {  // the step cannot be planned
    throw OutOfMemory(e.message(), e.requested_bytes(), size > 1 ? e.hint() : hint);
  }
  throw OutOfMemory(fmt::format("{}\n  {}; optim::plan_within() also plans what to compute again",
                                e.message(), advice),
                    e.requested_bytes(), hint);
}

/// While alive, the cycle's report says how the batch was cut.
class CutScope {
 public:
  CutScope(OptimizerImpl& impl, std::int64_t micro_batch, std::int64_t retries) : impl_(impl) {
    impl_.call.cut = {.micro_batch = micro_batch, .retries = retries};
  }
  ~CutScope() { impl_.call.cut = {}; }
  CutScope(const CutScope&) = delete;
  CutScope& operator=(const CutScope&) = delete;

 private:
  OptimizerImpl& impl_;
};

/// Makes a whole cycle in micro-batches of impl.notes.split_size, and halves that as often as
/// memory runs out.
StepReport run_halving(Optimizer& optimizer, std::int64_t samples, const MicroBatch& ask,
                       const LossOf& loss) {
  OptimizerImpl& impl = OptimizerAccess::impl(optimizer);
  const std::string op = impl.store.op();
  const std::int64_t chunk = impl.options.exact.chunk;
  std::optional<RollbackPoint> start;
  const bool capturing = impl.hooks.capturing();
  const bool halve = ask.halve_on_out_of_memory && !capturing;
  if (halve) start.emplace();
  const std::int64_t begun = impl.notes.split_size;
  for (std::int64_t retries = 0;; ++retries) {
    const std::int64_t size = std::min(impl.notes.split_size, samples);
    const autograd::CouplingScope coupling;
    try {
      about_to_change_restored(impl);
      const CutScope cut(impl, chunk > 0 ? std::min(chunk, samples) : size, retries);
      return run_in_parts(optimizer, samples, size, loss, ask.between);
    } catch (const OutOfMemory& e) {
      if (capturing || runtime::dry_run() || (chunk > 0 && !halve)) throw;
      if (!impl.extension->may_try_again()) throw;
      if (!halve) advise(optimizer, op, impl.store.device(), samples, size, ask, loss, e);
      // In exact mode the ranks share one random stream, which the other ranks have not rolled
      // back.
      if (chunk > 0 && impl.extension->copies()) {
        start->roll_back(Rollback::statistics);
        start->roll_back(Rollback::data);
      } else {
        start->roll_back();
      }
      if (chunk > 0)
        throw OutOfMemory(
            fmt::format("{}\n  exact mode computes chunks of {} samples, and nothing smaller; "
                        "checkpoint() and more ranks take less memory",
                        e.message(), chunk),
            e.requested_bytes(), kNoSmallerBatch);
      const bool refused = !coupling.layer.empty() && !ask.split_statistics;
      if (size == 1 || refused) impl.notes.split_size = begun;  // no size has worked
      impl.extension->agree_to_retry(size > 1 && !refused);
      if (size == 1) advise(optimizer, op, impl.store.device(), samples, size, ask, loss, e);
      if (refused)
        throw OutOfMemory(fmt::format("{}\n  {}", e.message(), refusal_to_split(coupling.layer)),
                          e.requested_bytes(), kNoSmallerBatch);
    }
    impl.notes.split_size = size - size / 2;
  }
}

}  // namespace

StepReport Optimizer::run_batch(std::int64_t samples, std::int64_t micro_batch,
                                const LossOf& loss) try {
  Impl& impl = this->impl();
  const std::string& op = impl.store.op();
  impl.require_outside_cycle("run_batch()");
  const auto call = [&] {
    require_batch(op, samples, loss);
    FIRN_CHECK(micro_batch >= 1, op, "give 1 or more; MicroBatch::within(bytes) plans it",
               "{} samples cannot be cut into micro-batches of {}", samples, micro_batch);
    require_chunks(op, impl.options, samples, micro_batch);
    try {
      return run_in_parts(*this, samples, micro_batch, loss);
    } catch (const OutOfMemory& e) {
      if (impl.hooks.capturing() || runtime::dry_run() || impl.options.exact.chunk > 0) throw;
      advise(*this, op, impl.store.device(), samples, std::min(micro_batch, samples), {}, loss, e);
    }
  };
  return impl.extension->whole_call(std::ref(call));
}
FIRN_OUT_OF_MEMORY("run_batch")

namespace {

/// Throws Error unless run_batch() can cut these samples as it is asked to.
void require_cut(const OptimizerImpl& impl, std::int64_t samples, const MicroBatch& ask,
                 const LossOf& loss) {
  const std::string& op = impl.store.op();
  require_batch(op, samples, loss);
  FIRN_CHECK(ask.size >= 0, op, "0 plans the size", "micro-batches of {} samples", ask.size);
  FIRN_CHECK(ask.size == 0 || ask.budget == 0, op, "give one of them",
             "both a size of {} and a budget of {} bytes", ask.size, ask.budget);
  FIRN_CHECK(!ask.between || impl.options.exact.chunk > 0, op, "set StepOptions::exact",
             "MicroBatch::between is called between chunks, and the optimizer has none");
  if (ask.size > 0) require_chunks(op, impl.options, samples, ask.size);
  FIRN_CHECK(!impl.hooks.capturing() || ask.size > 0, op,
             "run the step once before, and give the size it took",
             "a cycle that is captured cannot be planned");
}

}  // namespace

StepReport Optimizer::run_batch(std::int64_t samples, const MicroBatch& ask,
                                const LossOf& loss) try {
  Impl& impl = this->impl();
  impl.require_outside_cycle("run_batch()");
  const auto call = [&] {
    require_cut(impl, samples, ask, loss);
    impl.require_no_cycle();
    if (!same(impl.notes.split, ask) || impl.notes.split_size == 0) {
      impl.notes.split_size = 0;  // in case the plan throws
      const std::int64_t size =
          ask.size > 0
              ? ask.size
              : planned_size(*this, impl.store.op(), impl.store.device(), samples, ask, loss);
      impl.notes.split = ask;
      impl.notes.split_size = size;
    }
    return run_halving(*this, samples, ask, loss);
  };
  return impl.extension->whole_call(std::ref(call));
}
FIRN_OUT_OF_MEMORY("run_batch")

}  // namespace firn::optim
