// Chooses the values of a module's weights where its optimizer keeps two sets of them: those of
// training in training mode, averaged ones in evaluation mode (autograd/weight_modes.h).
#pragma once

#include "firn/nn/module.h"

namespace firn::nn::detail {

/// Gives `root` and all modules below it the weights of its mode. Inside the call of a module
/// nothing happens: there the outermost module's mode counts.
void show_weights(const Module& root);
/// Gives them the weights of training, whatever the mode.
void show_training_weights(const Module& root);

}  // namespace firn::nn::detail
