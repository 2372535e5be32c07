#include "firn/onnx/export.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/ops/ops.h"
#include "io/file/atomic_file.h"
#include "nn/tree.h"
#include "onnx/graph.h"
#include "onnx/model.h"
#include "onnx/rules.h"
#include "onnx/trace.h"
#include "tensor/impl.h"

namespace firn::io {
namespace {

using namespace onnx;

/// Returns the names of inputs or outputs: the given ones, or "input", "input_1", ...
std::vector<std::string> ends(const char* what, const std::vector<std::string>& given,
                              std::size_t count) {
  FIRN_CHECK(given.empty() || given.size() == count, kExport, "name each of them, or none",
             "{} names for {} {}s", given.size(), count, what);
  if (!given.empty()) return given;
  if (count == 1) return {what};
  std::vector<std::string> out;
  for (std::size_t i = 1; i <= count; ++i) out.push_back(fmt::format("{}_{}", what, i));
  return out;
}

void check_names(std::vector<std::string> names, const std::vector<NamedTensor>& named) {
  for (const NamedTensor& n : named) names.push_back(n.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  FIRN_CHECK(twice == names.end(), kExport, "give .inputs and .outputs other names",
             "\"{}\" names two of the inputs, outputs and parameters", *twice);
  FIRN_CHECK(names.empty() || !names.front().empty(), kExport, "give each a name",
             "an input or output has an empty name");
}

/// Returns `n` rows of x from row `first` on, with the last row repeated.
Tensor rows(const Tensor& x, std::int64_t n, std::int64_t first) {
  if (x.rank() == 0) return clone(x);
  std::vector<std::int64_t> from;
  for (std::int64_t i = 0; i < n; ++i) from.push_back(std::min(first + i, x.size(0) - 1));
  const Tensor y = index_select(x, 0, tensor(from, {n}, x.device()));
  return x.is_channels_last() && x.rank() >= 3 ? channels_last(y) : y;
}

std::vector<Tensor> batch_of(const std::vector<Tensor>& inputs, std::int64_t n,
                             std::int64_t first) {
  const NoGrad guard;
  std::vector<Tensor> out;
  for (const Tensor& x : inputs) out.push_back(rows(x.detach(), n, first));
  return out;
}

/// Returns the size of the examples' batch; 0 if no input has an axis.
std::int64_t batch_size(const std::vector<Tensor>& inputs) {
  std::int64_t n = 0;
  for (const Tensor& x : inputs) {
    if (x.rank() == 0) continue;
    FIRN_CHECK(x.size(0) > 0, kExport, "give one row at least", "the input {} has no rows",
               describe(x));
    FIRN_CHECK(n == 0 || n == x.size(0), kExport,
               "give all inputs one batch, or set .dynamic_batch = false",
               "inputs have {} and {} rows, and axis 0 is to be the batch", n, x.size(0));
    n = x.size(0);
  }
  return n;
}

/// Runs f on `n` of the examples' rows. If the model fails, the number of rows may be the cause.
BatchRun run(const Function& f, const std::vector<Tensor>& inputs,
             const std::vector<NamedTensor>& named, std::int64_t n, std::int64_t first) try {
  return {trace(f, batch_of(inputs, n, first), named), n};
} catch (const OutOfMemory&) {
  throw;
} catch (const Error& e) {
  if (e.op() == kExport || n == batch_size(inputs)) throw;
  throw Error(kExport, fmt::format("the model fails for a batch of {}: {}", n, e.what()),
              "{.dynamic_batch = false} exports it for the batch of the examples");
}

Model model_of(const Function& f, const std::vector<Tensor>& inputs,
               const std::vector<NamedTensor>& named, bool dynamic) {
  const std::int64_t n = dynamic ? batch_size(inputs) : 0;
  if (n == 0) {
    std::vector<Tensor> copies;
    const NoGrad guard;
    for (const Tensor& x : inputs)
      copies.push_back(x.is_channels_last() ? channels_last(x.detach().clone())
                                            : x.detach().clone());
    return merge({trace(f, copies, named), 1});
  }
  // A batch of 1 would broadcast. The second batch has only the last row, so that values computed
  // from elements on the host differ too.
  const std::int64_t n1 = std::max<std::int64_t>(n, 2), n2 = n1 + 1;
  // Half of the batch is equal for two neighbouring sizes, so the third size is far from them. It
  // is above a small batch and, to save memory, below a larger one.
  const std::int64_t n3 = n1 < 8 ? 4 * n1 + 3 : 3;
  BatchRun one = run(f, inputs, named, n1, 0);
  const std::array<BatchRun, 2> others = {run(f, inputs, named, n2, n),
                                          run(f, inputs, named, n3, n / 2)};
  return merge(std::move(one), others);
}

}  // namespace

void export_onnx(const std::string& path, const Function& f, const std::vector<Tensor>& inputs,
                 const OnnxOptions& options) try {
  refuse_dry_run(kExport);
  require_function(kExport, f, "give a function of the inputs");
  for (const Tensor& x : inputs) {
    require_defined(kExport, x);
    onnx_dtype(x.dtype());
  }
  std::vector<NamedTensor> named;
  std::optional<nn::detail::EvalScope> eval;
  if (options.module) {
    nn::detail::require_members(kExport, *options.module);
    eval.emplace(nn::detail::tree_of(*options.module));
    named = options.module->named_parameters();
    for (NamedTensor& b : options.module->named_buffers()) named.push_back(std::move(b));
  }
  const std::vector<std::string> in = ends("input", options.inputs, inputs.size());
  const Model model = model_of(f, inputs, named, options.dynamic_batch);
  const std::vector<std::string> out = ends("output", options.outputs, model.trace.outputs.size());
  std::vector<std::string> all = in;
  all.insert(all.end(), out.begin(), out.end());
  check_names(all, named);

  const NoGrad guard;
  const std::array<std::string, 2> parts = graph_of(model, in, out).encode(options.doc);
  AtomicFile file(kExport, path);
  for (const std::string& bytes : parts) file.write(bytes.data(), bytes.size());
  file.commit();
}
FIRN_OUT_OF_MEMORY(kExport)

void export_onnx(const std::string& path, nn::Module& model, const Tensor& input,
                 const OnnxOptions& options) {
  OnnxOptions with = options;
  FIRN_CHECK(!with.module || with.module == &model, kExport, "leave .module out",
             "the model is given, and .module is another one");
  with.module = &model;
  export_onnx(
      path, [&model](const std::vector<Tensor>& in) { return std::vector<Tensor>{model(in[0])}; },
      {input}, with);
}

}  // namespace firn::io
