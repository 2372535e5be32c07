// The scalars of exact mode's chunks on the CPU.
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/optim/arena.h"
#include "kernels/elementwise.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

const math::CycleSums& sums_of(const ConstView& v) {
  return *static_cast<const math::CycleSums*>(v.data);
}
const math::LossSums& before_of(const ConstView& v) {
  return *static_cast<const math::LossSums*>(v.data);
}
math::LossSums& cycle_of(const StepMemory& memory) { return state_of(memory); }

}  // namespace

void optim_note_sums(const StepMemory& memory, const View& before, Stream) {
  *static_cast<math::LossSums*>(before.data) = cycle_of(memory);
}

void optim_take_sums(const StepMemory& memory, const ConstView& before, const View& sums, Stream) {
  *static_cast<math::CycleSums*>(sums.data) =
      math::CycleSums::of(cycle_of(memory), before_of(before));
  cycle_of(memory) = before_of(before);
}

void optim_convert_gradient(const ConstView& sums, const ConstView& of, const View& gradient,
                            Stream stream) {
  const double factor = sums_of(sums).unit / sums_of(of).unit;
  if (factor != 1) FIRN_ISA::axpby(factor, gradient, 0, gradient, stream);
}

void optim_add_sums(const ConstView& more, const View& sums, Stream) {
  static_cast<math::CycleSums*>(sums.data)->add(sums_of(more));
}

void optim_put_sums(const StepMemory& memory, const ConstView& before, const ConstView& sums,
                    Stream) {
  cycle_of(memory) = sums_of(sums).after(before_of(before));
}

}  // namespace firn::kernels::cpu::FIRN_ISA
