// firn's side of `scripts/interop onnx`: exports models and computes their outputs.
//   firn_onnx_models FOLDER
// writes FOLDER/NAME.onnx, exported from a batch of 3, and for each batch size B the inputs and
// outputs NAME.B.in.K.npy and NAME.B.out.K.npy. It prints a line for each model: name, tolerance,
// batch sizes, numbers of inputs and outputs.
#include "interop/onnx/models.h"

#include <cstdio>
#include <exception>

using firn::Tensor;
using firn::interop::OnnxModel;

namespace {

constexpr std::int64_t kExample = 3, kBatches[] = {3, 1, 7};

void write(const std::string& folder, const OnnxModel& m) {
  firn::manual_seed(7);
  firn::io::export_onnx(folder + "/" + m.name + ".onnx", m.f, m.inputs(kExample),
                        {.module = m.module.get()});
  std::size_t ins = 0, outs = 0;
  if (m.module) m.module->eval();
  const firn::NoGrad guard;
  for (const std::int64_t n : kBatches) {
    const auto inputs = m.inputs(n);
    const auto outputs = m.f(inputs);
    const std::string stem = folder + "/" + m.name + "." + std::to_string(n);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      firn::io::write_npy(stem + ".in." + std::to_string(i) + ".npy", inputs[i]);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      firn::io::write_npy(stem + ".out." + std::to_string(i) + ".npy", outputs[i]);
    ins = inputs.size();
    outs = outputs.size();
  }
  std::printf("%s %g 3,1,7 %zu %zu\n", m.name.c_str(), m.tolerance, ins, outs);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: firn_onnx_models FOLDER\n");
    return 2;
  }
  int failed = 0;
  for (const auto& models : {firn::interop::network_models(), firn::interop::operation_models()}) {
    for (const OnnxModel& m : models) {
      try {
        write(argv[1], m);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "firn_onnx_models: %s: %s\n", m.name.c_str(), e.what());
        failed = 1;
      }
    }
  }
  return failed;
}
