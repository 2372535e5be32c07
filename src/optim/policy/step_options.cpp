#include "firn/optim/step_options.h"

#include "base/check.h"

namespace firn::optim {
namespace {

constexpr const char* kOne = "1 makes a step of every micro-step";

}  // namespace

Accumulate::Accumulate(std::int64_t n) {
  FIRN_CHECK(n >= 1, "Accumulate", kOne, "{} micro-steps make no cycle", n);
  of_epoch_ = [n](std::int64_t) { return n; };
}

Accumulate::Accumulate(std::initializer_list<std::pair<std::int64_t, std::int64_t>> by_epoch)
    : Accumulate(std::vector<std::pair<std::int64_t, std::int64_t>>(by_epoch)) {}

Accumulate::Accumulate(std::vector<std::pair<std::int64_t, std::int64_t>> by_epoch) {
  FIRN_CHECK(!by_epoch.empty() && by_epoch.front().first == 0, "Accumulate", "begin with {0, n}",
             "the first epoch of the list is {}",
             by_epoch.empty() ? "missing" : std::to_string(by_epoch.front().first));
  for (std::size_t i = 0; i < by_epoch.size(); ++i) {
    FIRN_CHECK(by_epoch[i].second >= 1, "Accumulate", kOne,
               "{} micro-steps make no cycle (from epoch {})", by_epoch[i].second,
               by_epoch[i].first);
    FIRN_CHECK(i == 0 || by_epoch[i].first > by_epoch[i - 1].first, "Accumulate",
               "list the epochs in increasing order, each once", "epoch {} follows epoch {}",
               by_epoch[i].first, by_epoch[i - 1].first);
  }
  of_epoch_ = [by_epoch = std::move(by_epoch)](std::int64_t epoch) {
    std::int64_t n = by_epoch.front().second;
    for (const auto& [from, value] : by_epoch)
      if (epoch >= from) n = value;
    return n;
  };
}

void Accumulate::require_function() const {
  firn::require_function("Accumulate", of_epoch_, "give a function of the epoch, or a number");
}

std::int64_t Accumulate::at(std::int64_t epoch) const {
  const std::int64_t n = of_epoch_(epoch);
  FIRN_CHECK(n >= 1, "Accumulate", kOne, "{} micro-steps make no cycle (epoch {})", n, epoch);
  return n;
}

}  // namespace firn::optim
