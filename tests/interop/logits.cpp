// firn's side of `scripts/interop safetensors`: the logits of a model of the sample.
//   firn_logits MODEL WEIGHTS IMAGES OUT
// WEIGHTS and IMAGES are safetensors files; IMAGES has "images", f32 [n, 28, 28]. OUT gets "f32"
// and "f64": the logits computed in these dtypes, of the same weights.
#include <cstdio>
#include <exception>
#include <vector>

#include "firn/firn.h"
#include "samples/images/models.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: firn_logits MODEL WEIGHTS IMAGES OUT\n");
    return 2;
  }
  try {
    sample::Options options;
    options.load = argv[2];
    const auto model = sample::make_model(argv[1], options, firn::Device::cpu());
    const firn::Tensor images = firn::io::SafetensorsFile(argv[3]).read("images");
    const firn::NoGrad guard;
    model->eval();
    std::vector<firn::NamedTensor> logits = {{"f32", (*model)(images)}};
    model->to(firn::f64);
    logits.push_back({"f64", (*model)(images.to(firn::f64))});
    firn::io::save_safetensors(argv[4], logits);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "firn_logits: %s\n", e.what());
    return 1;
  }
}
