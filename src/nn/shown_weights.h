// Which values a module's weights show, where its optimizer keeps two sets of them: those of
// training in training mode, averaged ones in evaluation mode (autograd/weight_modes.h).
#pragma once

#include "firn/nn/module.h"

namespace firn::nn::detail {

/// The weights of `root` and of all below it are those of its mode. Inside the call of a module
/// nothing happens: there the outermost module's mode counts.
void show_weights(const Module& root);
/// The same with those of training, whatever the mode.
void show_training_weights(const Module& root);

}  // namespace firn::nn::detail
