// Prepares a model according to --precision, --load, --recompute and --exact.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "firn/nn/module.h"
#include "firn/ops/autocast.h"
#include "program/options.h"

namespace sample {

/// Returns the dtype in which --precision holds parameters and gives samples to the model.
firn::DType model_dtype(const std::string& precision);
/// Returns the dtype in which --precision computes, if it differs from that of the parameters.
std::optional<firn::DType> autocast_dtype(const std::string& precision);

/// While it exists, operations run in --precision.
class PrecisionScope {
 public:
  explicit PrecisionScope(const std::string& precision) {
    if (const auto t = autocast_dtype(precision)) guard_.emplace(*t);
  }

 private:
  std::optional<firn::Autocast> guard_;
};

/// Returns model(x), computed in --precision.
firn::Tensor output_of(firn::nn::Module& model, const firn::Tensor& x,
                       const std::string& precision);

/// Returns the model on `device`, with parameters in the dtype of --precision. It has the weights
/// of --load if given, the checkpoints of --recompute, and batch norms that --exact allows. Throws
/// IoError if the file belongs to another model.
std::unique_ptr<firn::nn::Module> prepared(std::unique_ptr<firn::nn::Module> model,
                                           const Options& options, firn::Device device);

/// Sets checkpoints of the model's blocks as --recompute names them: nothing, cheap or all. A model
/// without blocks accepts only "nothing".
void set_recompute(firn::nn::Module& model, const std::string& recompute);

}  // namespace sample
