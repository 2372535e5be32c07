// An optimizer whose rule is a function of yours.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"
#include "firn/tensor.h"

namespace firn::optim {

/// Input of a custom rule for the update of one parameter. All tensors are f32, or f64 for f64
/// parameters, on the parameter's device. They are copies: the function may write them in place.
struct CustomInput {
  Tensor weight;    ///< the f32 master, for f16 and bf16 parameters
  Tensor gradient;  ///< gradient of the mean loss, un-scaled and clipped; the weight's shape
  std::vector<Tensor> states;  ///< in the order of CustomOptions::states
  Tensor lr;                   ///< []: learning rate of this step and group
  Tensor t;                    ///< []: updates of this parameter, this one included: 1 at the first
  double weight_decay;         ///< weight decay of its group; the rule applies it
  std::int64_t parameter;      ///< its number in Optimizer::parameters()
  std::string name;            ///< empty: not known
};

/// Result of a custom rule: the new weight, and the new states in the same order. Shapes, dtype and
/// device are those of the input.
struct CustomUpdate {
  Tensor weight;                    ///< the new weight
  std::vector<Tensor> states = {};  ///< the new states, in the order of CustomOptions::states
};

/// A tensor that is kept between steps, one for each parameter.
struct CustomState {
  std::string name;    ///< name in Optimizer::state()
  double initial = 0;  ///< value that fills it at first
  /// Returns its shape for a weight's; empty: the weight's own.
  std::function<Shape(const Shape& weight)> shape = {};
};

struct CustomOptions {
  Schedule lr = 1e-2;                    ///< a number, or a schedule over applied steps
  double weight_decay = 0;               ///< 0 or more: the rule receives it, and groups may set it
  std::vector<CustomState> states = {};  ///< tensors that the rule keeps for each parameter
  std::function<CustomUpdate(const CustomInput& in)> update = {};  ///< the rule; required
};

/// A rule that is written with firn's operations. Accumulation, averaging, masters, loss scaling,
/// clipping, skipped steps, moving averages, schedules and saving are those of every optimizer.
///
///   optim::Custom opt(net.parameters(),
///                     {.lr = 0.1,
///                      .states = {{"momentum"}},
///                      .update = [](const optim::CustomInput& in) -> optim::CustomUpdate {
///                        const Tensor b = 0.9 * in.states[0] + in.gradient;
///                        return {in.weight - in.lr * b, {b}};
///                      }});
///
/// The function runs for every parameter that has received a gradient, without recording and
/// without autocast. It also runs in steps that turn out to be skipped: the device decides that.
/// Its gradients are zeros then, and its result is dropped. So it must depend on its input alone. A
/// captured graph replays the operations, and does not call the function. Calls of its own
/// optimizer that change the cycle, and those that read or write the state, throw Error in it.
///
/// The constructor runs it once for every parameter by shapes alone, as plan_memory() does, and
/// reserves memory for its operations and its result. A step then allocates nothing, if the
/// function asks for the same each time. Tensors that it keeps beyond the call keep their part of
/// the reserve, and later steps allocate the missing part.
///
/// The constructor and step() throw Error if the result does not fit, and pass on the function's
/// exceptions. All is then as before, cycle included: call step() again, or zero_grad(). The
/// constructor also throws Error for an empty function, and for states whose names are empty, taken
/// or have a dot.
class Custom : public OptimizerOf<CustomOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<CustomOptions>;

}  // namespace firn::optim
