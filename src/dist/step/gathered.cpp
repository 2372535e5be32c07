#include "dist/step/gathered.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "kernels/copy.h"
#include "optim/store/division.h"

namespace firn::optim {
namespace {

/// Returns this rank's shard in a bucket's buffer.
Tensor own_part(const ParamStore::Bucket& b, const Tensor& memory, int rank) {
  const std::int64_t first = b.bounds[static_cast<std::size_t>(rank)];
  return part_of(memory, {first, first + b.kept.size()});
}

}  // namespace

GatheredWeights::GatheredWeights(const ParamStore& store,
                                 std::shared_ptr<const autograd::Peers> peers, Meet meet, Fail fail)
    : store_(store), peers_(std::move(peers)), meet_(std::move(meet)), fail_(std::move(fail)) {
  const auto& buckets = store_.buckets();
  loans_.resize(buckets.size());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    loans_[b].versions.resize(buckets[b].parameters.size());
    for (const std::size_t i : buckets[b].parameters)
      if (store_.weight(i).bytes() > 0) bucket_of_.emplace(&store_.weight(i), b);
  }
  autograd::add_lender(self_);
  for (std::size_t i = 0; i < store_.ledger().size(); ++i)
    if (store_.weight(i).bytes() > 0) store_.weight(i).lend(this);
}

GatheredWeights::~GatheredWeights() {
  drop();
  for (std::size_t i = 0; i < store_.ledger().size(); ++i)
    if (store_.weight(i).bytes() > 0) store_.weight(i).lend(nullptr);
}

void GatheredWeights::fetch(Storage& storage) {
  keep_if_planned();
  const std::size_t b = bucket_of_.at(&storage);
  if (!loans_[b].memory.defined()) bring(b);
  give(b);
}

void GatheredWeights::bring(std::size_t b) {
  const runtime::DoNotSkip really;
  const ParamStore::Bucket& bucket = store_.buckets()[b];
  if (holds_ == 0)
    for (Loan& other : loans_)
      if (!other.here) other.memory = Tensor();
  Tensor memory = take_ahead(b);
  if (!memory.defined()) {
    memory = prepare(b);
    ParamStore::gather_bounds(memory, bucket.bounds, *peers_);
  }
  loans_[b].memory = memory;
  if (peers_->overlaps()) look_ahead(b);
}

Tensor GatheredWeights::prepare(std::size_t b) {
  const ParamStore::Bucket& bucket = store_.buckets()[b];
  Tensor memory;
  try {
    memory = store_.weight_memory(bucket);
  } catch (...) {  // the others learn of it at their next exchange
    fail_(std::current_exception());
    throw;
  }
  if (!runtime::dry_run()) meet_(b);
  if (bucket.kept.size() > 0)
    kernels::copy(store_.kept_weight(bucket).view(),
                  own_part(bucket, memory, peers_->rank()).mutable_view(), store_.stream());
  return memory;
}

Tensor GatheredWeights::take_ahead(std::size_t b) {
  if (!foresight_.ahead) return {};
  const bool is_it = *foresight_.ahead == b;
  foresight_.ahead.reset();
  const Tensor memory = std::exchange(foresight_.memory, Tensor());
  peers_->end();
  return is_it ? memory : Tensor();
}

void GatheredWeights::look_ahead(std::size_t b) {
  Foresight& f = foresight_;
  constexpr std::size_t kMost = std::size_t{1} << 16;  // a program may never end a step
  if (f.now.size() < kMost) f.now.push_back(b);
  const auto begin = f.before.begin() + static_cast<std::ptrdiff_t>(f.place);
  const auto found = std::find(begin, f.before.end(), b);
  if (found == f.before.end()) return;
  f.place = static_cast<std::size_t>(found - f.before.begin()) + 1;
  if (f.place == f.before.size()) return;
  const std::size_t next = f.before[f.place];
  if (loans_[next].memory.defined()) return;
  f.memory = prepare(next);
  f.ahead = next;
  peers_->begin(
      [memory = f.memory, bounds = store_.buckets()[next].bounds](const autograd::Peers& peers) {
        ParamStore::gather_bounds(memory, bounds, peers);
      });
}

void GatheredWeights::end_step() noexcept {
  foresight_.before.swap(foresight_.now);
  foresight_.now.clear();
  foresight_.place = 0;
}

void GatheredWeights::give(std::size_t b) noexcept {
  Loan& loan = loans_[b];
  const ParamStore::Bucket& bucket = store_.buckets()[b];
  for (std::size_t j = 0; j < bucket.parameters.size(); ++j) {
    const std::size_t i = bucket.parameters[j];
    Storage& weight = store_.weight(i);
    if (weight.bytes() == 0) continue;
    weight.come(loan.memory.storage(), store_.weight_offset(bucket, i));
    loan.versions[j] = weight.version();
  }
  loan.here = true;
  loan.depth = thread_context.reading ? thread_context.reading->depth : 0;
}

void GatheredWeights::keep_writes(std::size_t b) {
  Loan& loan = loans_[b];
  const ParamStore::Bucket& bucket = store_.buckets()[b];
  const auto version = [&](std::size_t j) { return store_.weight(bucket.parameters[j]).version(); };
  bool written = false;
  for (std::size_t j = 0; j < bucket.parameters.size(); ++j)
    written = written || loan.versions[j] != version(j);
  if (!written) return;
  if (bucket.kept.size() > 0)
    kernels::copy(own_part(bucket, loan.memory, peers_->rank()).view(),
                  store_.kept_weight(bucket).mutable_view(), store_.stream());
  for (std::size_t j = 0; j < bucket.parameters.size(); ++j) loan.versions[j] = version(j);
}

void GatheredWeights::keep_writes() {
  keep_if_planned();
  for (std::size_t b = 0; b < loans_.size(); ++b)
    if (loans_[b].here) keep_writes(b);
}

void GatheredWeights::take_back(std::size_t b) noexcept {
  for (const std::size_t i : store_.buckets()[b].parameters)
    if (store_.weight(i).bytes() > 0) store_.weight(i).go();
  loans_[b].here = false;
}

void GatheredWeights::end_of_scope(int depth) noexcept {
  if (holds_ > 0) return;
  try {
    keep_if_planned();
    for (std::size_t b = 0; b < loans_.size(); ++b) {
      if (!loans_[b].here || loans_[b].depth < depth) continue;
      keep_writes(b);
      take_back(b);
    }
  } catch (const std::exception&) {  // NOLINT: weights stay here until the next scope ends
  }
}

void GatheredWeights::drop() noexcept {
  for (std::size_t b = 0; b < loans_.size(); ++b) {
    if (loans_[b].here) take_back(b);
    loans_[b].memory = Tensor();
  }
  try {
    take_ahead(loans_.size());
  } catch (const std::exception&) {  // NOLINT: the next exchange throws it again
  }
}

void GatheredWeights::release() {
  if (holds_ > 0) return;
  keep_if_planned();
  keep_writes();
  drop();
}

std::shared_ptr<void> GatheredWeights::hold() {
  ++holds_;
  std::shared_ptr<void> out(this, [self = std::weak_ptr(self_)](void*) {
    const auto alive = self.lock();
    if (!alive) return;
    auto& lent = static_cast<GatheredWeights&>(**alive);
    if (--lent.holds_ > 0) return;
    lent.end_of_scope(0);
    for (Loan& loan : lent.loans_) loan.memory = Tensor();
  });
  for (std::size_t b = 0; b < loans_.size(); ++b) {
    if (!loans_[b].memory.defined()) bring(b);
    if (!loans_[b].here) give(b);
  }
  return out;
}

void GatheredWeights::keep_if_planned() {
  if (!runtime::planning()) [[likely]]
    return;
  runtime::at_dry_end(this, [self = std::weak_ptr(self_), loans = loans_, foresight = foresight_] {
    const auto alive = self.lock();
    if (!alive) return;
    auto& lent = static_cast<GatheredWeights&>(**alive);
    lent.foresight_.ahead.reset();  // it belongs to the plan, which has begun no exchange
    lent.drop();
    lent.foresight_ = foresight;
    lent.loans_ = loans;
    for (std::size_t b = 0; b < loans.size(); ++b) {
      if (!loans[b].here) continue;
      lent.give(b);
      lent.loans_[b].depth = loans[b].depth;
      lent.loans_[b].versions =
          loans[b].versions;  // so writes from before the plan are still copied
    }
  });
}

}  // namespace firn::optim
