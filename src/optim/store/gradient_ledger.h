// GradientLedger knows which parameters have received a gradient in the cycle. It has autograd's
// counts, the counts that the optimizer has noted, and the flags on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "kernels/optim.h"

namespace firn::optim {

/// Has one entry per parameter, in their order. Leaf::touched counts the contributions of all
/// backward passes. The ledger notes the counts after each pass of the optimizer. So a difference
/// means that a gradient came from another pass.
class GradientLedger {
 public:
  using Counts = std::vector<std::uint32_t>;
  /// Contributions that autograd has counted, and those of them that were noted.
  struct Place {
    Counts received, noted;
  };

  GradientLedger() = default;
  /// Allocates the flags on `device`, with no gradient received. Errors name `op`.
  GradientLedger(std::string op, std::vector<Ref<autograd::Leaf>> leaves, Device device);

  /// u8 [parameters] in device memory: 1 if the parameter has received a gradient.
  const Tensor& flags() const noexcept { return flags_; }

  /// Number of parameters.
  std::size_t size() const noexcept { return leaves_.size(); }
  /// Returns true if autograd has added a gradient to parameter i in this cycle.
  bool received(std::size_t i) const noexcept { return leaves_[i]->touched > 0; }
  /// Returns true if it had by the last note().
  bool noted(std::size_t i) const noexcept { return noted_[i] > 0; }
  /// Returns for each parameter 1 if noted(), else 0.
  std::vector<std::uint8_t> noted() const;
  bool any_noted() const noexcept;
  /// Returns true if parameter i has received a gradient since the last note().
  bool has_unnoted(std::size_t i) const noexcept {
    return received(i) && leaves_[i]->touched != noted_[i];
  }

  /// Notes all contributions of backward passes so far.
  void note() noexcept;
  /// Marks the parameters whose flag is 1 as having received a gradient, on this rank or another
  /// one.
  void receive_from_ranks(std::span<const std::uint8_t> flags) noexcept;
  /// Resets the counts. The arenas keep their old values, which the first contribution to each
  /// gradient will overwrite.
  void begin_cycle();
  /// Returns true if the gradient of parameter i holds values of an earlier cycle. The caller must
  /// then zero it, and later calls return false until the next cycle.
  bool take_stale(std::size_t i) noexcept;

  /// Writes the noted counts to the flags. Returns false, without a launch, if the flags hold them
  /// already.
  bool report_to_device(const kernels::StepMemory& memory, Stream stream);
  /// Notes that a replayed graph has written the flags.
  void assume_reported() noexcept;
  /// Reads the flags if they were written from outside, as part of a state that was copied in.
  /// Returns true if they were.
  bool adopt();

  /// Marks the gradient of parameter i, which has received none in this cycle, as holding values.
  void spoil(std::size_t i) noexcept { stale_[i] = 1; }

  // ---- Captured backward passes, whose replays autograd does not see ----

  /// Returns the number of contributions that each parameter has received in the cycle.
  Counts contributions() const;
  Place place() const { return {contributions(), noted_}; }
  /// Adds the contributions of a replayed pass, from `before` to `after`. Throws Error, with the
  /// parameter as `label` names it, if the replay stores a first contribution that was captured as
  /// an addition, or the reverse.
  template <class Label>
  void receive(const Counts& before, const Counts& after, const Label& label);
  /// Restores the counts, and notes them. The contents of the flags are unknown afterwards.
  void put_back(const Counts& contributions) noexcept;
  /// Restores the counts, of which some may not be noted.
  void put_back(const Place& place) noexcept;

  // ---- Chunks that are interleaved ----

  /// Returns the counts so far, and replaces them by those of `next`. An empty one has received
  /// nothing.
  Place exchange(const Place& next);

 private:
  void refuse_replay(const std::string& label, bool captured, bool now) const;
  /// Notes that the contents of the flags are not known.
  void forget_reported() noexcept;

  std::string op_;
  std::vector<Ref<autograd::Leaf>> leaves_;
  Counts noted_;                        ///< Leaf::touched at the last note()
  std::vector<std::uint8_t> reported_;  ///< contents of flags_
  std::vector<std::uint8_t> stale_;
  Tensor flags_;
  std::uint32_t version_ = 0;  ///< version of flags_ at the last adopt()
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
