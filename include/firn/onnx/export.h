// Writing models in the ONNX format (https://onnx.ai), which other programs and runtimes read.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "firn/nn/module.h"
#include "firn/tensor.h"

namespace firn::io {

struct OnnxOptions {
  /// Names in the file. Default: "input", or "input_1", "input_2", ... if there are several, and
  /// likewise "output" or "output_1", ...
  std::vector<std::string> inputs = {}, outputs = {};
  /// True: axis 0 of every input is the batch, and the file accepts a batch of any size. Sizes that
  /// follow from it are symbolic: "batch", "batch*4". Inputs without axes do not change.
  bool dynamic_batch = true;
  std::string doc = {};  ///< a text for readers of the file
  /// The module that the function calls. The file names its parameters and buffers as the module
  /// does, and it runs in evaluation mode.
  nn::Module* module = nullptr;
};

/// Runs the model on one example input, in evaluation mode, without gradients and outside any
/// Autocast guard. Writes the recorded operations as an ONNX model of opset 17. Fused operations
/// become several nodes. Parameters and buffers become initializers under their names in the module
/// tree ("encoder.0.weight"), and nodes are named after the module that runs them.
///
/// With dynamic_batch the model runs three times, on batches of three sizes made of the example's
/// rows, one of them much larger. A size that differs must be a multiple of the batch's size. Only
/// the batch may vary; other axes, such as the length of a sequence, keep the example's size. The
/// modes of the modules and the random streams are restored afterwards, so no other thread may call
/// or export the module meanwhile. Inputs and parameters may be on any device.
///
/// dtypes: f32, f16, f64, i64, i32, u8 and bool; bf16 throws. The file replaces an old one
/// atomically, as save_safetensors() does it. It has at most 2 GiB.
///
/// Throws Error, naming operation and module, for an operation that ONNX cannot express, such as a
/// loss or one that draws random numbers. Throws Error for an operation that writes to a parameter
/// or buffer or through a view. Throws Error if the runs differ in more than such sizes. A model
/// must not let the batch's size decide what it computes, nor take a part of the batch, such as its
/// first half. Values that a program reads to the host (item(), to_vector()) and gives back as
/// numbers are constants of the file. Throws IoError if the file cannot be written.
void export_onnx(const std::string& path, nn::Module& model, const Tensor& input,
                 const OnnxOptions& options = {});
/// Exports a function of several tensors in the same way:
///
///   io::export_onnx("net.onnx", [&](const std::vector<Tensor>& in) {
///     return std::vector<Tensor>{net(in[0], in[1])};
///   }, {q, k}, {.inputs = {"q", "k"}, .module = &net});
void export_onnx(const std::string& path,
                 const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
                 const std::vector<Tensor>& inputs, const OnnxOptions& options = {});

}  // namespace firn::io
