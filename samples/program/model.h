// A model as --precision, --load, --recompute and --exact want it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "firn/nn/module.h"
#include "firn/ops/autocast.h"
#include "program/options.h"

namespace sample {

/// The dtype in which --precision holds parameters and gives samples to the model.
firn::DType model_dtype(const std::string& precision);
/// The dtype in which --precision computes, if it is not that of the parameters.
std::optional<firn::DType> autocast_dtype(const std::string& precision);

/// While it lives, ops are those of --precision.
class PrecisionScope {
 public:
  explicit PrecisionScope(const std::string& precision) {
    if (const auto t = autocast_dtype(precision)) guard_.emplace(*t);
  }

 private:
  std::optional<firn::Autocast> guard_;
};

/// model(x) in --precision.
firn::Tensor output_of(firn::nn::Module& model, const firn::Tensor& x,
                       const std::string& precision);

/// The model on `device`, with parameters in the dtype of --precision, the weights of --load if
/// there is one, the checkpoints of --recompute, and batch norms that --exact allows. Throws
/// IoError if the file belongs to another model.
std::unique_ptr<firn::nn::Module> prepared(std::unique_ptr<firn::nn::Module> model,
                                           const Options& options, firn::Device device);

/// Checkpoints of the model's blocks as --recompute names them: nothing, cheap or all. A model
/// without blocks must be given nothing.
void set_recompute(firn::nn::Module& model, const std::string& recompute);

}  // namespace sample
