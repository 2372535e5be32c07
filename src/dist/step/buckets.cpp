#include "dist/step/buckets.h"

#include <exception>
#include <utility>

#include "base/check.h"

namespace firn::optim {

GradientBuckets::GradientBuckets(const BucketLayout& layout)
    : layout_(layout), store_(layout.store()) {
  const auto& buckets = layout_.buckets();
  bucket_of_.resize(store_.ledger().size());
  for (std::size_t b = 0; b < buckets.size(); ++b)
    for (const std::size_t i : buckets[b].parameters) {
      bucket_of_[i] = b;
      parameters_.emplace(&store_.leaf(i), i);
      store_.leaf(i).reserve_extras();
    }
  memory_.resize(buckets.size());
  open_.resize(buckets.size());
  any_.resize(buckets.size());
  for (std::size_t i = 0; i < bucket_of_.size(); ++i) store_.leaf(i).set_collector(this);
}

GradientBuckets::~GradientBuckets() {
  for (std::size_t i = 0; i < bucket_of_.size(); ++i) {
    store_.leaf(i).set_collector(nullptr);
    store_.leaf(i).awaited = 0;
  }
}

std::vector<std::uint8_t> GradientBuckets::expect(const Tensor& output) {
  for (std::size_t i = 0; i < bucket_of_.size(); ++i) store_.leaf(i).awaited = 0;
  if (output.defined()) autograd::await_gradients(output);
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i < bucket_of_.size(); ++i) out.push_back(store_.leaf(i).awaited > 0);
  return out;
}

void GradientBuckets::begin_pass(std::span<const std::uint8_t> expected, Take prepare, Take take) {
  const auto& buckets = layout_.buckets();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    open_[b] = any_[b] = 0;
    for (const std::size_t i : buckets[b].parameters) {
      if (store_.leaf(i).awaited > 0) ++open_[b];
      any_[b] |= expected[i];
    }
  }
  prepare_ = std::move(prepare);
  take_ = std::move(take);
  next_ = 0;
  lost_ = false;
  running_ = true;
}

void GradientBuckets::end_pass(bool failed) {
  struct End {
    GradientBuckets& self;
    ~End() {
      for (std::size_t b = 0; b < self.memory_.size(); ++b) self.take_back(b);
      self.running_ = false;
      self.prepare_ = self.take_ = nullptr;
    }
  } const end{*this};
  const auto free = [this] {  // the gradients are useless, and their memory may be needed
    for (std::size_t b = next_; b < memory_.size(); ++b) take_back(b);
  };
  if (failed) free();
  std::exception_ptr failure;
  while (!lost_ && next_ < memory_.size()) {
    try {
      exchange_next();
    } catch (...) {
      if (failed) lost_ = true;
      if (lost_) throw;
      failed = true;
      failure = std::current_exception();
      free();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void GradientBuckets::begin(autograd::Leaf& leaf) {
  const std::size_t i = parameters_.at(&leaf), b = bucket_of_[i];
  FIRN_CHECK(running_, store_.op(), "call opt.backward(loss)",
             "a backward() that is not the optimizer's reaches {}, whose gradient is sharded over "
             "ranks",
             store_.label(i));
  FIRN_CHECK(b >= next_ && any_[b], store_.op(), "set DistributeOptions::zero to 1",
             "the gradient of {} was exchanged already, and a backward() inside of a hook or of a "
             "custom function adds to it",
             store_.label(i));
  const Bucket& bucket = layout_.buckets()[b];
  memory_[b] = layout_.gradient_memory(bucket);
  for (const std::size_t other : bucket.parameters)
    store_.leaf(other).arena = layout_.gradient_in(bucket, memory_[b], other);
}

void GradientBuckets::finish(autograd::Leaf& leaf) {
  if (!running_) return;
  --open_[bucket_of_[parameters_.at(&leaf)]];
  while (next_ < memory_.size() && open_[next_] == 0) exchange_next();
}

void GradientBuckets::exchange_next() {
  const std::size_t b = next_;
  const Bucket& bucket = layout_.buckets()[b];
  if (any_[b] && !memory_[b].defined()) memory_[b] = layout_.gradient_memory(bucket);
  prepare_(bucket, memory_[b]);
  ++next_;
  lost_ = true;  // if it throws, the other ranks are at another point
  const Tensor memory = memory_[b];
  take_back(b);
  take_(bucket, memory);
  lost_ = false;
}

void GradientBuckets::take_back(std::size_t b) noexcept {
  for (const std::size_t i : layout_.buckets()[b].parameters) store_.leaf(i).arena = Tensor();
  memory_[b] = Tensor();
}

}  // namespace firn::optim
