#include "optim/store/gradient_ledger.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tensor/impl.h"

namespace firn::optim {

GradientLedger::GradientLedger(std::string op, std::vector<Ref<autograd::Leaf>> leaves,
                               Device device)
    : op_(std::move(op)),
      leaves_(std::move(leaves)),
      noted_(leaves_.size()),
      reported_(leaves_.size()),
      stale_(leaves_.size()),
      flags_(zeros({static_cast<std::int64_t>(leaves_.size())}, DType::u8, device)),
      version_(flags_.storage()->version()) {}

std::vector<std::uint8_t> GradientLedger::noted() const {
  std::vector<std::uint8_t> out;
  out.reserve(noted_.size());
  for (const std::uint32_t n : noted_) out.push_back(n > 0);
  return out;
}

bool GradientLedger::any_noted() const noexcept {
  return std::any_of(noted_.begin(), noted_.end(), [](std::uint32_t n) { return n > 0; });
}

void GradientLedger::note() noexcept {
  for (std::size_t i = 0; i < leaves_.size(); ++i) noted_[i] = leaves_[i]->touched;
}

void GradientLedger::receive_from_ranks(std::span<const std::uint8_t> flags) noexcept {
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (flags[i] != 0 && !received(i)) leaves_[i]->touched = 1;
  note();
}

void GradientLedger::begin_cycle() {
  adopt();  // a later adopt() would undo this
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (received(i)) stale_[i] = 1;
    leaves_[i]->touched = 0;
  }
  note();
}

bool GradientLedger::take_stale(std::size_t i) noexcept {
  return !received(i) && std::exchange(stale_[i], 0) != 0;
}

bool GradientLedger::report_to_device(const kernels::StepMemory& memory, Stream stream) {
  const auto agrees = [](std::uint32_t n, std::uint8_t reported) { return (n > 0) == reported; };
  if (std::equal(noted_.begin(), noted_.end(), reported_.begin(), agrees)) return false;
  assume_reported();
  try {
    kernels::optim_set_touched(memory, reported_, stream);
  } catch (...) {
    forget_reported();
    throw;
  }
  return true;
}

bool GradientLedger::adopt() {
  if (flags_.storage()->version() == version_) return false;
  version_ = flags_.storage()->version();
  copy_bytes(reported_.data(), Device::cpu(), flags_.impl()->data(), flags_.device(),
             reported_.size());
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (received(i)) stale_[i] = 1;  // matters only once it has received none
    leaves_[i]->touched = noted_[i] = reported_[i] != 0;
  }
  return true;
}

GradientLedger::Counts GradientLedger::contributions() const {
  Counts out;
  out.reserve(leaves_.size());
  for (const auto& leaf : leaves_) out.push_back(leaf->touched);
  return out;
}

void GradientLedger::put_back(const Counts& contributions) noexcept {
  for (std::size_t i = 0; i < leaves_.size(); ++i) leaves_[i]->touched = contributions[i];
  note();
  forget_reported();
}

void GradientLedger::assume_reported() noexcept {
  for (std::size_t i = 0; i < noted_.size(); ++i) reported_[i] = noted_[i] > 0;
}

void GradientLedger::forget_reported() noexcept {
  std::fill(reported_.begin(), reported_.end(), std::uint8_t{0xff});  // unlike any flag
}

void GradientLedger::put_back(const Place& place) noexcept {
  put_back(place.received);
  std::copy(place.noted.begin(), place.noted.end(), noted_.begin());
}

GradientLedger::Place GradientLedger::exchange(const Place& next) {
  Place before = place();
  const Counts nothing(leaves_.size());
  put_back(next.received.empty() ? nothing : next.received);
  noted_ = next.noted.empty() ? nothing : next.noted;
  return before;
}

void GradientLedger::refuse_replay(const std::string& label, bool captured, bool now) const {
  FIRN_CHECK(false, op_, "record one graph for each place in the cycle, and replay them in turn",
             "a graph was recorded when {}, {} a gradient of this cycle, and replayed when it {}",
             label, captured ? "had" : "did not have", now ? "had one" : "had none");
}

}  // namespace firn::optim
