// A product that a graph captures before anything of it has run: the library's first call, its
// search and its first launch inside a capture. Each runs in its own process.
#include <cmath>
#include <string>
#include <vector>

#include "bench/gpu/probe/probes.h"
#include "bench/gpu/probe/product.h"
#include "firn/firn.h"

namespace probe {
namespace {

using firn::DType;

constexpr std::int64_t kRows = 64, kOut = 512, kIn = 784;

/// The first action that happens inside the capture.
enum class Inside { handle, search, launch, nothing };

/// Replays the graph and checks the result.
std::string replayed(cudaGraph_t graph, Product& product, cudaStream_t stream) {
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiateWithFlags(&executable, graph, 0), "cudaGraphInstantiateWithFlags");
  check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  const float first = product.d().values(1, DType::f16)[0];
  return first == static_cast<float>(kIn) ? "replay right"
                                          : "replay WRONG (" + std::to_string(first) + ")";
}

void captured(Line& line, Inside inside) {
  Product product({.in = DType::f16,
                   .out = DType::f16,
                   .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                   .m = kOut,
                   .n = kRows,
                   .k = kIn,
                   .transpose_a = true});
  product.a().put(std::vector<float>(kOut * kIn, 1.0f), DType::f16);
  product.b().put(std::vector<float>(kRows * kIn, 1.0f), DType::f16);
  const WorkStream stream;
  cublasLtHandle_t handle = nullptr;
  Found found;
  if (inside != Inside::handle) handle = new_handle();
  if (inside == Inside::launch || inside == Inside::nothing) found = product.search(handle);
  if (inside == Inside::nothing) {
    line.add("run " + name_of(product.run(handle, found, stream.get())) + ",");
    stream.wait();
  }
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  // An error is printed, and the capture is ended nevertheless.
  try {
    if (inside == Inside::handle) {
      handle = new_handle();
      line.add("handle SUCCESS,");
    }
    if (inside == Inside::handle || inside == Inside::search) {
      found = product.search(handle);
      line.add("heuristic " + name_of(found.status) + ", " + std::to_string(found.count) +
               " found,");
    }
    line.add("product " + name_of(product.run(handle, found, stream.get())) + ",");
  } catch (const std::exception& e) {
    line.add(std::string(e.what()) + ",");
  }
  const Recorded recorded = end_capture(stream.get());
  line.add(std::string("end of the capture ") + cudaGetErrorName(recorded.status) + ",");
  if (!recorded.graph) return line.add("no graph");
  line.add(nodes_of(recorded.graph) + ",");
  line.add(replayed(recorded.graph, product, stream.get()));
}

/// Captures the product through firn's own graph, which requires a run before the capture.
void captured_by_firn(Line& line) {
  const firn::Device device = firn::Device::cuda();
  const firn::Tensor x = firn::ones({kRows, kIn}, firn::f16, device);
  const firn::Tensor w = firn::ones({kIn, kOut}, firn::f16, device);
  firn::synchronize(device);
  const firn::NoGrad guard;
  firn::Tensor y;
  const auto capture = [&] {
    return firn::graph::Graph::capture(device, [&] { y = matmul(x, w); });
  };
  try {
    capture();
    line.add("captured without a run,");
  } catch (const firn::Error&) {
    line.add("refused without a run,");
  }
  y = matmul(x, w);
  const auto graph = capture();
  line.add(graph.summary() + ",");
  const double sum = y.to(firn::f32).sum().item();
  const double wanted = static_cast<double>(kRows * kOut * kIn);
  line.add(std::abs(sum - wanted) <= 1e-3 * wanted ? "result right"
                                                   : "result WRONG (" + std::to_string(sum) + ")");
}

}  // namespace

void add_captures(std::vector<Step>& steps) {
  const auto add = [&](const char* name, Inside inside) {
    steps.push_back({std::string("capture of ") + name,
                     [inside](Line& line) { captured(line, inside); }, true});
  };
  add("handle, heuristic and product", Inside::handle);
  add("heuristic and product", Inside::search);
  add("a first product", Inside::launch);
  add("a product after a run", Inside::nothing);
  steps.push_back({"capture of a first matmul by firn", captured_by_firn, true});
}

}  // namespace probe
