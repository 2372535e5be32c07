// This file has no command line, so that tests can use the samples' models.
#include "program/model.h"

#include <utility>

#include "firn/firn.h"
#include "firn/io/safetensors.h"
#include "firn/nn/layers/batch_norm.h"

namespace sample {

namespace nn = firn::nn;

firn::DType model_dtype(const std::string& precision) {
  if (precision == "fp16") return firn::f16;
  return precision == "bf16" ? firn::bf16 : firn::f32;
}

std::optional<firn::DType> autocast_dtype(const std::string& precision) {
  if (precision == "amp-fp16") return firn::f16;
  if (precision == "amp-bf16") return firn::bf16;
  return std::nullopt;
}

firn::Tensor output_of(nn::Module& model, const firn::Tensor& x, const std::string& precision) {
  const PrecisionScope scope(precision);
  return model(x);
}

std::unique_ptr<nn::Module> prepared(std::unique_ptr<nn::Module> model, const Options& o,
                                     firn::Device device) {
  model->to(model_dtype(o.precision));
  if (!o.load.empty()) firn::io::load_safetensors(o.load, *model);
  model->to(device);
  if (o.recompute != "auto") set_recompute(*model, o.recompute);
  if (o.exact > 0) nn::convert_batch_norm(*model, nn::BatchNormMode::whole_batch);
  return model;
}

void set_recompute(nn::Module& model, const std::string& recompute) {
  nn::checkpoint_nothing(model);
  if (recompute != "nothing")
    nn::checkpoint_blocks(model,
                          {.keep = recompute == "all" ? firn::Keep::inputs : firn::Keep::products});
}

}  // namespace sample
