#include "optim/exact/exact_step.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "firn/ops/losses.h"
#include "kernels/optim.h"
#include "optim/calls/scopes.h"
#include "optim/exact/interleaved.h"
#include "optim/impl.h"
#include "runtime/graph/draw_tape.h"

namespace firn::optim {

void add_exact_mode(OptimizerImpl& step) {
  step.extension = std::make_unique<ExactStep>(step, std::move(step.extension));
}

std::int64_t ExactStep::chunks() const noexcept {
  return 1 + (step.call.batch - 1) / step.options.exact.chunk;
}

// ---- Micro-steps ----

void ExactStep::check_call(Call call) const {
  FIRN_CHECK(call != Call::backward || in_chunk_, step.store.op(),
             "call run_batch(samples, micro_batch, loss), which cuts the batch into chunks",
             "backward() in exact mode: which chunk the loss is of is not known");
  const auto& loaded = sums_.loaded();
  FIRN_CHECK(call == Call::backward || !loaded, step.store.op(),
             "go on with it in run_batch(), or drop it with zero_grad()",
             "{} while a part of a batch of {} samples is loaded",
             call == Call::step ? "step()" : "flush()", loaded->samples);
  StepExtension::check_call(call);
}

void ExactStep::begin_micro_step() {
  const bool first = step.at.micro_steps == 0 && !runtime::dry_run();
  if (first && (step.store.device().is_cpu() || !sums_.in_memory()))
    step.now.sums_before = step.loss_sums();
  StepExtension::begin_micro_step();
}

void ExactStep::run_pass(const Pass& pass) {
  if (!pass.has_samples()) return pass.begin({});  // micro-steps with all ranks follow
  StepExtension::run_pass(pass);
}

void ExactStep::run_micro_steps(std::int64_t count, const MicroSteps& micro_step) {
  for (std::int64_t i = 0; i < count; ++i) micro_step(i);  // the others' chunks run within one
}

bool ExactStep::nothing_to_flush() { return step.at.micro_steps == 0; }

void ExactStep::combine() {
  GradientLedger& ledger = step.store.ledger();
  std::vector<std::uint8_t> received = sums_.received();
  if (runtime::dry_run()) return ledger.receive_from_ranks(received);
  const Phase before = std::exchange(step.now.phase, Phase::failed);
  announce(Event::end, received);
  const CycleSums sums = sums_.finish(step.store, copies());
  end_exchange();
  if (!sums_.in_memory()) step.set_loss_sums(sums.after(step.now.sums_before));
  step.hooks.now_and_at_replay([received = std::move(received)](OptimizerImpl& i) {
    i.store.ledger().receive_from_ranks(received);
  });
  if (step.hooks.capturing())
    step.hooks.at_replay([memory = sums_.memory()](OptimizerImpl&) {});  // the graph keeps it alive
  step.now.phase = before;
}

void ExactStep::drop_cycle() {
  StepExtension::drop_cycle();
  restore_totals([this] { return sums_.in_memory() ? sums_.before() : step.now.sums_before; });
  if (!runtime::dry_run()) sums_.forget();
}

void ExactStep::state_adopted() {
  if (step.store.device().is_cpu()) step.now.sums_before = step.loss_sums();
  StepExtension::state_adopted();
}

std::function<void()> ExactStep::keep() {
  return [this, in_chunk = in_chunk_, between = between_, next = StepExtension::keep()] {
    in_chunk_ = in_chunk;
    between_ = between;
    if (next) next();
  };
}

// ---- A batch ----

namespace {

/// Makes the random numbers of chunk q, which depend on q and the cycle's key alone.
Generator generator_of(RandomKey cycle, std::int64_t q) noexcept {
  const Generator of_cycle = Generator::of_thread(cycle.seed, cycle.offset + 1);
  return Generator::of_thread(of_cycle.get().seed, static_cast<std::uint64_t>(q) + 1);
}

/// While alive, this thread draws the random numbers of chunk q. A captured graph keeps the
/// generator alive.
class NumbersOfChunk {
 public:
  NumbersOfChunk(const OptimizerImpl& step, RandomKey cycle, std::int64_t q)
      : generator_(std::make_shared<Generator>(generator_of(cycle, q))) {
    step.hooks.at_replay([generator = generator_, q](OptimizerImpl& i) {
      *generator = generator_of(*i.extension->random_of_cycle(), q);
    });
  }
  NumbersOfChunk(const NumbersOfChunk&) = delete;
  NumbersOfChunk& operator=(const NumbersOfChunk&) = delete;

 private:
  std::shared_ptr<Generator> generator_;
  GeneratorScope scope_{*generator_};
  runtime::OnlyGenerator only_{*generator_};
};

}  // namespace

/// While alive, backward() is that of chunk i of this rank, and its gradients go where the tree
/// keeps them.
class BackwardOfChunk {
 public:
  BackwardOfChunk(ExactStep& exact, InterleavedChunks* interleaved, std::int64_t i)
      : exact_(exact),
        interleaved_(interleaved && interleaved->exchanged() ? interleaved : nullptr),
        i_(i) {
    try {
      if (interleaved_) {
        place_ = exact.sums().place_beside(store());
        interleaved_->collect_into(i, place_);
      } else {
        const auto place = exact.sums().place();
        place_.assign(place.begin(), place.end());
        if (!place_.empty()) store().collect_into(place_);
      }
    } catch (...) {  // no memory
      store().collect_here();
      throw;
    }
    exact_.in_chunk_ = true;
  }
  ~BackwardOfChunk() {
    exact_.in_chunk_ = false;
    if (interleaved_)
      interleaved_->collect_into(i_, {});
    else if (!place_.empty())
      store().collect_here();
  }
  BackwardOfChunk(const BackwardOfChunk&) = delete;
  BackwardOfChunk& operator=(const BackwardOfChunk&) = delete;

  void fill_gaps() const {
    if (place_.empty())
      store().zero_missing_gradients();
    else
      store().zero_missing_in(place_);
  }
  /// The memory of the gradient, if the chunk is interleaved with others; else empty.
  std::vector<Tensor> beside() const { return interleaved_ ? place_ : std::vector<Tensor>(); }

 private:
  ParamStore& store() const noexcept { return exact_.step.store; }

  ExactStep& exact_;
  InterleavedChunks* interleaved_;  ///< null: the chunk runs alone
  std::int64_t i_;
  std::vector<Tensor> place_;
};

/// While alive, the batch can be saved. Random numbers that are drawn meanwhile are undone, because
/// their count depends on the number of ranks.
class BetweenChunks {
 public:
  explicit BetweenChunks(ExactStep& exact) noexcept : exact_(exact), random_(default_generator()) {
    exact.between_ = random_.get();
  }
  ~BetweenChunks() {
    random_.set(*exact_.between_);
    exact_.between_.reset();
  }
  BetweenChunks(const BetweenChunks&) = delete;
  BetweenChunks& operator=(const BetweenChunks&) = delete;

 private:
  ExactStep& exact_;
  Generator& random_;
};

Loss ExactStep::loss_of_chunk(std::int64_t q, std::int64_t samples, const LossOf& loss) const {
  const std::int64_t size = step.options.exact.chunk;
  const NumbersOfChunk numbers(step, sums_.random(), q);
  return loss(q * size, std::min(samples, (q + 1) * size));
}

void ExactStep::run_chunk(std::int64_t q, std::int64_t samples, const LossOf& loss,
                          InterleavedChunks* interleaved, std::int64_t i) {
  const std::string& op = step.store.op();
  const std::int64_t size = step.options.exact.chunk;
  const NumbersOfChunk numbers(step, sums_.random(), q);
  const autograd::CouplingScope coupling;
  const Loss value = loss(q * size, std::min(samples, (q + 1) * size));
  FIRN_CHECK(coupling.layer.empty() || (chunks() == 1 && !copies()), op,
             "use nn::convert_batch_norm(net, nn::BatchNormMode::whole_batch), or "
             "nn::convert_to_group_norm(net, groups), or call eval()",
             "{}, and exact mode computes chunks of {} "
             "samples",
             coupling.layer, size);
  FIRN_CHECK(!value.coupled || chunks() == 1, op, "make the chunk as large as the batch",
             "the loss couples the samples of its batch, and exact mode computes chunks of {} "
             "samples",
             size);
  const bool in_memory = sums_.in_memory() || runtime::dry_run();
  if (step.at.micro_steps > 0 && !in_memory) step.set_loss_sums(step.now.sums_before);
  std::vector<Tensor> beside;
  {
    const BackwardOfChunk scope(*this, interleaved, i);
    step.add_loss(value);
    scope.fill_gaps();
    beside = scope.beside();
  }
  sums_.take(step.store,
             in_memory ? CycleSums() : CycleSums::of(step.loss_sums(), step.now.sums_before),
             std::move(beside));
  step.hooks.now_and_at_replay([](OptimizerImpl& of) { of.store.ledger().begin_cycle(); });
}

StepReport ExactStep::run_batch(std::int64_t samples, std::int64_t, const LossOf& loss,
                                const MicroSteps& between) {
  const std::string& op = step.store.op();
  constexpr std::int64_t kMostChunks = std::int64_t{1} << 24;  // each has an entry of work
  FIRN_CHECK(chunks() <= kMostChunks, op, "set a larger chunk",
             "a batch of {} samples has {} chunks of {}, more than {}", samples, chunks(),
             step.options.exact.chunk, kMostChunks);
  const auto& loaded = sums_.loaded();
  FIRN_CHECK(!loaded || runtime::dry_run() || loaded->samples == samples, op,
             "go on with the batch that was saved half-way, or drop it with zero_grad()",
             "a batch of {} samples, and the run was saved in one of {}", samples, loaded->samples);
  const StepReport report =
      step.run_cycle(1, [&](std::int64_t) { run_chunks(samples, loss, between); });
  if (!runtime::dry_run()) sums_.forget();
  return report;
}

void ExactStep::run_chunks(std::int64_t samples, const LossOf& loss, const MicroSteps& between) {
  const bool whole = autograd::NeedsWholeBatch::count.load(std::memory_order_relaxed) > 0;
  if (runtime::dry_run())  // drops the sums without memory, even if it fails
    runtime::at_dry_end(&sums_, [this, owner = step.hooks.handle()] {
      if (owner.lock()) sums_.drop();
    });
  cycle_drawn();
  const auto lock_step = sums_.begin(step.store, chunks(), copies(), between || whole);
  if (!sums_.in_memory())
    runtime::refuse_capture(step.store.op().c_str(), step.store.device(),
                            "several ranks, layers that are normalised by the whole batch, "
                            "MicroBatch::between and a batch that was loaded need the host");
  step.hooks.at_replay([](OptimizerImpl& i) { i.extension->draw_for_cycle(); });
  if (lock_step.mine == 0) step.no_samples();
  const auto after = [&](std::int64_t i) {
    if (!between || i + 1 >= lock_step.most || runtime::dry_run()) return;
    const BetweenChunks scope(*this);
    between(i + 1);
  };
  // Chunks with sharded gradients exchange these one after another, so they cannot be interleaved.
  if (whole && !step.store.gradients_sharded())
    return run_interleaved(lock_step, samples, loss, between, after);
  const std::int64_t own = std::min(share_of(chunks()).first, chunks() - 1);
  const OthersScope others(step, [&] { return loss_of_chunk(own, samples, loss); });
  for (std::int64_t i = 0; i < std::max<std::int64_t>(lock_step.most, 1); ++i) {
    if (i < lock_step.mine)
      run_chunk(sums_.next(step.store), samples, loss);
    else if (i < lock_step.most)
      idle_micro_step();
    after(i);
  }
}

void ExactStep::run_interleaved(const ExactSums::LockStep& lock_step, std::int64_t samples,
                                const LossOf& loss, const MicroSteps& between,
                                const MicroSteps& after) {
  InterleavedChunks interleaved(step, in_chunk_, lock_step.mine,
                                between           ? "MicroBatch::between is called between chunks"
                                : sums_.goes_on() ? "the run was saved half-way in the batch"
                                                  : nullptr);
  std::int64_t q = -1;
  interleaved.run(
      [&](std::int64_t i) {
        q = interleaved.exchanged() ? q + 1 : sums_.next(step.store);
        run_chunk(q, samples, loss, &interleaved, i);
      },
      after);
  for (std::int64_t i = lock_step.mine; i < lock_step.most && !interleaved.exchanged(); ++i)
    after(i);
}

}  // namespace firn::optim
