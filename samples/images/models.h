// The models that --model selects.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "firn/nn/module.h"
#include "program/model.h"

namespace sample {

/// Returns the model of this name, as prepared() makes it. All take images [n, 28, 28] or [n, 784].
///   mlp     784-512-512-10, ReLU
///   cnn     convolutions 3x3 of 32 and 64 channels, max-pool 2, dropout, 128-10; no padding
///   resnet  three stages of two basic blocks with 16, 32 and 64 channels, after a 3x3 convolution
///           (the CIFAR networks of He et al. 2015, with n = 2)
std::unique_ptr<firn::nn::Module> make_model(const std::string& name, const Options& options,
                                             firn::Device device);

/// Inputs, units of the hidden layers, and classes of the mlp.
inline constexpr std::array<std::int64_t, 4> kMlpSizes = {784, 512, 512, 10};

}  // namespace sample
