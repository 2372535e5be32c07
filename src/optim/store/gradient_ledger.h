// Which parameters have received a gradient in the cycle: what autograd has counted, what the
// optimizer has taken note of, and what the device was told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "kernels/optim.h"

namespace firn::optim {

/// One entry per parameter, in their order. Leaf::touched counts the contributions of all backward
/// passes. The ledger notes the counts after each pass of the optimizer, so a difference means that
/// a gradient came another way.
class GradientLedger {
 public:
  using Counts = std::vector<std::uint32_t>;

  GradientLedger() = default;
  /// Allocates the flags on `device`. No parameter has received a gradient. `op` is for errors.
  GradientLedger(std::string op, std::vector<Ref<autograd::Leaf>> leaves, Device device);

  /// u8 [parameters] in device memory: 1 if the parameter has received a gradient.
  const Tensor& flags() const noexcept { return flags_; }

  /// How many parameters there are.
  std::size_t size() const noexcept { return leaves_.size(); }
  /// Whether autograd has added a gradient to parameter i in this cycle.
  bool received(std::size_t i) const noexcept { return leaves_[i]->touched > 0; }
  /// The same, as of the last note().
  bool noted(std::size_t i) const noexcept { return noted_[i] > 0; }
  /// For each parameter 1 if noted(), else 0.
  std::vector<std::uint8_t> noted() const;
  bool any_noted() const noexcept;
  /// Whether a gradient came to parameter i after the last note().
  bool has_unnoted(std::size_t i) const noexcept {
    return received(i) && leaves_[i]->touched != noted_[i];
  }

  /// Takes note of all that backward passes have added so far.
  void note() noexcept;
  /// Parameters whose flag is 1 have received a gradient, on this rank or on another one.
  void receive_from_ranks(std::span<const std::uint8_t> flags) noexcept;
  /// No parameter has received a gradient. The arenas keep their old numbers: the first
  /// contribution to each gradient will overwrite them.
  void begin_cycle();
  /// Whether the gradient of parameter i holds numbers of an earlier cycle. The caller then zeroes
  /// it, and the answer is false until the next cycle.
  bool take_stale(std::size_t i) noexcept;

  /// Writes what was noted to the flags. Returns false, without a launch, if they hold it already.
  bool tell_device(const kernels::StepMemory& memory, Stream stream);
  /// A replayed graph has written the flags.
  void assume_told() { told_ = noted(); }
  /// Reads the flags if they were written from outside, as part of a state that was copied in.
  /// Returns whether they were.
  bool adopt();

  /// The memory of parameter i, which has received none in this cycle, holds numbers all the same.
  void spoil(std::size_t i) noexcept { stale_[i] = 1; }

  // ---- Captured backward passes, whose replays autograd does not see ----

  /// How many contributions each parameter has received in the cycle.
  Counts contributions() const;
  /// A replayed pass has taken the contributions from `before` to `after`. Throws Error, with the
  /// parameter as `label` names it, if the replay stores a first contribution that was captured as
  /// an addition, or the reverse.
  template <class Label>
  void receive(const Counts& before, const Counts& after, const Label& label);
  /// The counts are these again. What the flags hold is not known.
  void put_back(const Counts& contributions) noexcept;

  // ---- Quanta that go on in turns ----

  struct Place {
    Counts received, noted;
  };
  /// What is counted so far. From now on the counts are those of `next`; one that is empty has
  /// received nothing.
  Place exchange(const Place& next);

 private:
  void refuse_replay(const std::string& label, bool captured, bool now) const;

  std::string op_;
  std::vector<Ref<autograd::Leaf>> leaves_;
  Counts noted_;                    ///< Leaf::touched at the last note()
  std::vector<std::uint8_t> told_;  ///< what flags_ holds
  std::vector<std::uint8_t> stale_;
  Tensor flags_;
  std::uint32_t version_ = 0;  ///< of flags_ at the last look
};

template <class Label>
void GradientLedger::receive(const Counts& before, const Counts& after, const Label& label) {
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (after[i] != before[i] && received(i) != (before[i] > 0))
      refuse_replay(label(i), before[i] > 0, received(i));
    leaves_[i]->touched += after[i] - before[i];
  }
  note();
}

}  // namespace firn::optim
