// The table of products: cuBLASLt's algorithms for the three products of a layer, with each
// epilogue that firn uses.
#include <string>
#include <vector>

#include "bench/gpu/probe/probes.h"
#include "bench/gpu/probe/product.h"

namespace probe {
namespace {

using firn::DType;

/// A layer x [rows, in] -> y [rows, out].
struct Layer {
  std::int64_t rows, out, in;
};
/// The layers of the sample's MLP with 64 images, 784-512-512-10, whose last layer has a leading
/// dimension of 10. Then layers with an inner axis of 1, one output, and one row.
constexpr Layer kLayers[] = {{64, 512, 784}, {64, 512, 512}, {64, 10, 512},
                             {64, 512, 1},   {64, 1, 512},   {1, 512, 512}};
constexpr int kWidth = 17;  // width of a column

/// The products y = x w^T, dx = dy w, dw = dy^T x.
enum class Pass { forward, data_gradient, weight_gradient };

struct Row {
  const char* name;
  Pass pass;
  cublasLtEpilogue_t epilogue;
  bool wide = false;  ///< f32 results of 16-bit operands
};
constexpr Row kRows[] = {
    {"y", Pass::forward, CUBLASLT_EPILOGUE_DEFAULT},
    {"y BIAS", Pass::forward, CUBLASLT_EPILOGUE_BIAS},
    {"y RELU", Pass::forward, CUBLASLT_EPILOGUE_RELU},
    {"y RELU_BIAS", Pass::forward, CUBLASLT_EPILOGUE_RELU_BIAS},
    {"y RELU_AUX", Pass::forward, CUBLASLT_EPILOGUE_RELU_AUX},
    {"y RELU_AUX_BIAS", Pass::forward, CUBLASLT_EPILOGUE_RELU_AUX_BIAS},
    {"y GELU", Pass::forward, CUBLASLT_EPILOGUE_GELU},
    {"y GELU_BIAS", Pass::forward, CUBLASLT_EPILOGUE_GELU_BIAS},
    {"y GELU_AUX", Pass::forward, CUBLASLT_EPILOGUE_GELU_AUX},
    {"y GELU_AUX_BIAS", Pass::forward, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
    {"dx", Pass::data_gradient, CUBLASLT_EPILOGUE_DEFAULT},
    {"dx DRELU", Pass::data_gradient, CUBLASLT_EPILOGUE_DRELU},
    {"dx DGELU", Pass::data_gradient, CUBLASLT_EPILOGUE_DGELU},
    {"dw", Pass::weight_gradient, CUBLASLT_EPILOGUE_DEFAULT},
    {"dw BGRADB", Pass::weight_gradient, CUBLASLT_EPILOGUE_BGRADB},
    {"dw f32", Pass::weight_gradient, CUBLASLT_EPILOGUE_DEFAULT, true},
    {"dw f32 BGRADB", Pass::weight_gradient, CUBLASLT_EPILOGUE_BGRADB, true},
};

/// Returns the column-major problem, as firn's dense layers call it: row-major [r, c] is
/// column-major [c, r].
Problem problem_of(const Row& row, const Layer& l, DType t) {
  Problem p{.in = t,
            .out = row.wide ? DType::f32 : t,
            .epilogue = row.epilogue,
            .m = l.out,
            .n = l.rows,
            .k = l.in};
  switch (row.pass) {
    case Pass::forward:
      p.transpose_a = true;
      break;
    case Pass::data_gradient:
      p.m = l.in;
      p.k = l.out;
      break;
    case Pass::weight_gradient:
      p.m = l.in;
      p.n = l.out;
      p.k = l.rows;
      p.transpose_b = true;
      break;
  }
  return p;
}

cublasLtHandle_t shared_handle() {
  static const cublasLtHandle_t handle = new_handle();  // retried after an exception
  return handle;
}

std::string cell(const Row& row, const Layer& layer, DType t) {
  const cublasLtHandle_t handle = shared_handle();
  const Product product(problem_of(row, layer, t));
  const Found found = product.search(handle);
  if (found.count == 0)
    return found.status == CUBLAS_STATUS_SUCCESS ? "none found" : name_of(found.status);
  std::string text =
      std::to_string(found.count) + (found.second_search ? "s " : " ") + describe(found);
  const WorkStream stream;
  if (const auto status = product.run(handle, found, stream.get()); status != CUBLAS_STATUS_SUCCESS)
    return text + " " + name_of(status);
  stream.wait();
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  const auto status = product.run(handle, found, stream.get());
  const Recorded recorded = end_capture(stream.get());
  if (status != CUBLAS_STATUS_SUCCESS) return text + " captured: " + name_of(status);
  check(recorded.status, "cudaStreamEndCapture");
  text += " " + nodes_of(recorded.graph);
  check(cudaGraphDestroy(recorded.graph), "cudaGraphDestroy");
  return text;
}

void legend(Line& line) {
  line.add("algorithms found of " + std::to_string(kAsked) +
           " asked for (s: only with a split of the inner axis), then the first one's "
           "number/tile/stages/splits+workspace, then the nodes of a captured product");
}

void shapes(Line& line) {
  for (const Layer& l : kLayers)
    line.cell(
        [&] {
          return std::to_string(l.rows) + "x" + std::to_string(l.out) + "x" + std::to_string(l.in);
        },
        kWidth);
}

std::string padded(std::string s, std::size_t width) {
  if (s.size() < width) s.resize(width, ' ');
  return s;
}

}  // namespace

void add_products(std::vector<Step>& steps) {
  steps.push_back({"products", legend});
  steps.push_back({padded("rows x out x in", 19), shapes});
  for (const DType t : {DType::f16, DType::bf16, DType::f32}) {
    for (const Row& row : kRows) {
      if (row.wide && t == DType::f32) continue;
      steps.push_back(
          {padded(std::string(firn::to_string(t)) + " " + row.name, 19), [&row, t](Line& line) {
             for (const Layer& l : kLayers) line.cell([&] { return cell(row, l, t); }, kWidth);
           }});
    }
  }
}

}  // namespace probe
