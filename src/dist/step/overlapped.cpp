#include "dist/step/overlapped.h"

#include <exception>

#include "autograd/cycle.h"
#include "base/check.h"
#include "optim/impl.h"
#include "optim/store/flat.h"

namespace firn::optim {

OverlappedSums::OverlappedSums(ParamStore& store, const autograd::Peers& peers)
    : store_(store), peers_(peers), pieces_(pieces_of(store)), open_(pieces_.size()) {
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    gradients_.push_back(part_of(store_.gradients()[pieces_[p].arena], pieces_[p].range));
    for (const std::size_t i : pieces_[p].parameters) {
      piece_of_.emplace(&store_.leaf(i), p);
      store_.leaf(i).reserve_extras();
    }
  }
}

void OverlappedSums::begin_pass(const Tensor& output, double factor) {
  factor_ = factor;
  next_ = 0;
  for (std::size_t i = 0; i < store_.ledger().size(); ++i) {
    store_.leaf(i).set_collector(this);
    store_.leaf(i).awaited = 0;
  }
  if (output.defined()) autograd::await_gradients(output);
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    open_[p] = 0;
    for (const std::size_t i : pieces_[p].parameters) open_[p] += store_.leaf(i).awaited > 0;
  }
}

void OverlappedSums::end_pass() {
  struct End {
    ParamStore& store;
    ~End() {
      for (std::size_t i = 0; i < store.ledger().size(); ++i) {
        store.leaf(i).set_collector(nullptr);
        store.leaf(i).awaited = 0;
      }
    }
  } const end{store_};
  while (next_ < pieces_.size()) exchange_next();
  peers_.end();
}

void OverlappedSums::begin(autograd::Leaf&) {}  // leaves have their memory

void OverlappedSums::finish(autograd::Leaf& leaf) {
  --open_[piece_of_.at(&leaf)];
  while (next_ < pieces_.size() && open_[next_] == 0) exchange_next();
}

void OverlappedSums::exchange_next() {
  const Tensor& sum = gradients_[next_];
  const Bucket& piece = pieces_[next_++];
  GradientLedger& ledger = store_.ledger();
  for (const std::size_t i : piece.parameters) {
    if (ledger.received(i)) continue;
    const Tensor& gradient = store_.leaf(i).arena;
    zero_bytes(gradient.impl()->data(), gradient.device(), gradient.bytes());
    ledger.spoil(i);  // other ranks may have some
  }
  if (factor_ != 1) scale_gradient(sum, factor_, store_.stream());
  peers_.begin_all_reduce(sum);
}

// ---- The step ----

void OverlappedStep::run_pass(const Pass& pass) {
  const bool last =
      step.call.batch > 0 && step.at.micro_steps == call_.planned && !runtime::dry_run();
  if (!last) return ReplicatedStep::run_pass(pass);
  pass.begin();
  const RankRecord mine = record_of_pass(autograd::Outcome::done);
  const double of_all = sum_of(exchange_records(mine)).unit;
  call_.failure_reported = true;  // if this fails, all ranks agree on that
  std::exception_ptr failure;
  try {
    {
      const autograd::CycleScope cycle(step);
      sums_.begin_pass(pass.output(), of_all / mine.sums.unit);
    }
    if (pass.has_samples()) pass.run(true);
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    sums_.end_pass();
    peers().agree(step.store.op().c_str(), autograd::outcome_of(failure));
  } catch (...) {
    // Report this rank's own failure, unless another rank has ended the cycle for all.
    if (!failure || autograd::outcome_of(failure) == autograd::Outcome::out_of_memory) throw;
  }
  if (failure) std::rethrow_exception(failure);
  call_.exchanged = true;
  await_failure();  // the others wait for the end of the cycle
}

void OverlappedStep::add_gradients(double unit, double of_all) {
  if (!call_.exchanged) ReplicatedStep::add_gradients(unit, of_all);
}

}  // namespace firn::optim
