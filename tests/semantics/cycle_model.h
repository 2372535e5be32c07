// The rules of a cycle and of the dynamic loss scale once more, for one parameter under SGD: plain
// code without units, arenas or kernels, to compare an optimizer with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "firn/optim/optim.h"

namespace firn::testing {

class CycleModel {
 public:
  enum class Status { accumulating, applied, skipped_empty, skipped_non_finite };
  using ByEpoch = std::vector<std::pair<std::int64_t, std::int64_t>>;

  CycleModel(ByEpoch accumulate, const optim::DynamicLossScale& scaler, double start)
      : w(start),
        scale(scaler.init),
        accumulate_(std::move(accumulate)),
        options_(scaler),
        tolerance_(scaler.hysteresis) {}

  double w, scale;
  std::int64_t applied = 0, skipped = 0, micro_steps = 0;
  std::int64_t skips_in_row = 0;  // for a gradient that was not finite
  double weight = 0;              // of the cycle; after its end, of the last one

  /// 0.1, halved every third applied step.
  double lr() const { return 0.1 * std::pow(0.5, std::floor(static_cast<double>(applied) / 3)); }
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }
  void set_scale(double value) {
    scale = value;
    clean_ = 0;
    tolerance_ = options_.hysteresis;
  }
  void zero_grad() { begin_cycle(); }

  void backward(double gradient, double sample_weight, bool finite) {
    open_cycle();
    ++micro_steps;
    due_call_ = true;
    cycle_weight_ += sample_weight;
    sum_ += gradient;
    finite_ = finite_ && finite;
  }

  Status step() {
    if (!due_call_) return Status::accumulating;  // no backward() since the last call
    due_call_ = false;
    return ++calls_ < due_ ? Status::accumulating : end();
  }

  Status flush(optim::Partial partial) {
    if (partial == optim::Partial::apply && micro_steps > 0) return end();
    if (partial == optim::Partial::drop) begin_cycle();
    return Status::accumulating;
  }

 private:
  // The first thing that happens in a cycle fixes how many calls of step() make it.
  void open_cycle() {
    if (due_ > 0) return;
    for (const auto& [from, steps] : accumulate_)
      if (from <= epoch_) due_ = steps;
  }

  Status end() {
    weight = cycle_weight_;
    Status status = Status::applied;
    if (weight == 0) {
      status = Status::skipped_empty;
    } else if (!finite_) {
      status = Status::skipped_non_finite;
      ++skips_in_row;
    } else {
      w -= lr() * sum_ / weight;
      skips_in_row = 0;
    }
    ++(status == Status::applied ? applied : skipped);
    if (status != Status::skipped_empty) move_scale(status == Status::applied);
    begin_cycle();
    return status;
  }

  void move_scale(bool clean) {
    if (clean) {
      if (options_.refill == optim::HysteresisRefill::on_clean_step)
        tolerance_ = options_.hysteresis;
      if (++clean_ < options_.growth_interval) return;
      clean_ = 0;
      tolerance_ = options_.hysteresis;
      if (scale * options_.growth_factor <= options_.max) scale *= options_.growth_factor;
    } else {
      clean_ = 0;
      if (--tolerance_ <= 0) scale = std::max(scale * options_.backoff_factor, options_.min);
    }
  }

  void begin_cycle() {
    micro_steps = due_ = calls_ = 0;
    cycle_weight_ = sum_ = 0;
    finite_ = true;
    due_call_ = false;
  }

  ByEpoch accumulate_;
  optim::DynamicLossScale options_;
  std::int64_t tolerance_, clean_ = 0, due_ = 0, calls_ = 0, epoch_ = 0;
  double cycle_weight_ = 0, sum_ = 0;
  bool finite_ = true, due_call_ = false;
};

}  // namespace firn::testing
