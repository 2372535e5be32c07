// The models that --model names.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "firn/nn/module.h"
#include "options.h"

namespace sample {

/// The model named on the command line, on `device`, with parameters in the dtype of --precision
/// and the weights of --load, if there is one. All take images [n, 28, 28] or [n, 784]. Throws
/// IoError if the file belongs to another model.
///   mlp     784-512-512-10, ReLU
///   cnn     convolutions 3x3 of 32 and 64 channels, max-pool 2, dropout, 128-10; no padding
///   resnet  three stages of two basic blocks with 16, 32 and 64 channels, after a 3x3 convolution
///           (the CIFAR networks of He et al. 2015, with n = 2)
std::unique_ptr<firn::nn::Module> make_model(const Options& options, firn::Device device);

/// Checkpoints of the ResNet's blocks as --recompute names them: nothing, cheap or all. Other
/// models have no blocks and must be given nothing.
void set_recompute(firn::nn::Module& model, const std::string& recompute);

/// Inputs, units of the hidden layers, and classes of the mlp.
inline constexpr std::array<std::int64_t, 4> kMlpSizes = {784, 512, 512, 10};

/// The dtype in which --precision holds parameters and gives images to the model.
firn::DType model_dtype(const std::string& precision);
/// The dtype in which --precision computes, if it is not that of the parameters.
std::optional<firn::DType> autocast_dtype(const std::string& precision);

/// Images per batch of the test set: as many as keep a model's activations small.
std::int64_t test_batch(const std::string& model);

}  // namespace sample
