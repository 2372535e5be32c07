// Writing models in the ONNX format (https://onnx.ai), which other programs and runtimes read.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "firn/nn/module.h"
#include "firn/tensor.h"

namespace firn::io {

struct OnnxOptions {
  /// Names in the file. Default: "input", or "input_1", "input_2", ... of several; the outputs
  /// "output" in the same way.
  std::vector<std::string> inputs = {}, outputs = {};
  /// Axis 0 of every input is the batch, and the file takes one of any size. Sizes that follow from
  /// it are symbolic: "batch", "batch*4". Inputs without axes are left as they are.
  bool dynamic_batch = true;
  std::string doc = {};  ///< a text for who opens the file
  /// The module that the function calls: its parameters and buffers get their names, and it runs in
  /// evaluation mode.
  nn::Module* module = nullptr;
};

/// Runs the model on one example input, in evaluation mode, without gradients and outside of any
/// Autocast guard, and writes what it did as an ONNX model of opset 17. Fused operations become
/// several nodes. Parameters and buffers become initializers under their names in the module tree
/// ("encoder.0.weight"), and nodes are named after the module that runs them.
///
/// With dynamic_batch the model runs three times, on batches of three sizes made of the example's
/// rows, one of them far off: a size that differs is a multiple of the batch's. Only the batch may
/// vary; other axes, such as the length of a sequence, keep the example's size. The modes of the
/// modules and the random streams are as before afterwards, so no other thread may call or export
/// the module meanwhile. Inputs and parameters may be on any device.
///
/// dtypes: f32, f16, f64, i64, i32, u8 and bool; bf16 throws. The file replaces an old one
/// atomically, as save_safetensors() does it. It has at most 2 GiB.
///
/// Throws Error, naming operation and module, for an operation that ONNX cannot express (a loss,
/// one that draws random numbers), for one that writes to a parameter or buffer or
/// through a view, and if the runs differ in more than such sizes: a model must neither decide by
/// the batch's size what it computes, nor take a part of the batch, such as its first half. What a
/// program reads to the host (item(), to_vector()) and gives back as a number is a constant of the
/// file. Throws IoError if the file cannot be written.
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
