// Models are structs with their layers as members and a forward.
#include "models.h"

#include <array>

#include "firn/firn.h"
#include "firn/io/safetensors.h"
#include "firn/nn/linear.h"

namespace sample {

using firn::Tensor;
namespace nn = firn::nn;

namespace {

struct Mlp : nn::Module {
  nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};
  FIRN_MEMBERS(fc1, fc2, fc3)
  Tensor forward(const Tensor& x) override {
    return firn::mlp(firn::flatten(x, 1), std::array<Tensor, 3>{fc1.weight, fc2.weight, fc3.weight},
                     std::array<Tensor, 3>{fc1.bias, fc2.bias, fc3.bias});
  }
};

}  // namespace

firn::DType model_dtype(const std::string& precision) {
  if (precision == "fp16") return firn::f16;
  return precision == "bf16" ? firn::bf16 : firn::f32;
}

std::int64_t test_batch(const std::string& model) { return model == "mlp" ? 1000 : 250; }

std::unique_ptr<nn::Module> make_model(const Options& o, firn::Device device) {
  std::unique_ptr<nn::Module> model;
  if (o.model == "mlp") model = std::make_unique<Mlp>();
  if (!model) throw firn::Error("make_model", "no model is called " + o.model, "use --model mlp");
  model->to(model_dtype(o.precision));
  if (!o.load.empty()) firn::io::load_safetensors(o.load, *model);
  model->to(device);
  return model;
}

}  // namespace sample
