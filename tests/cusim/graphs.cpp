// Graphs made by capture. A launch is one piece of work of its stream; in lazy mode its nodes run
// in a random order that their dependencies allow.
#include <algorithm>

#include "engine/engine.h"
#include "runtime.h"
#include "streams.h"

CUgraph_st::~CUgraph_st() {
  for (CUgraphNode_st* node : nodes) delete node;
}

namespace cusim {
namespace {

void run_graph(const CUgraphExec_st& graph) {
  const std::size_t count = graph.work.size();
  std::vector<bool> done(count, false);
  const auto ready = [&](std::size_t i) {
    if (done[i]) return false;
    return std::all_of(graph.after[i].begin(), graph.after[i].end(),
                       [&](std::size_t j) { return bool(done[j]); });
  };
  for (std::size_t step = 0; step < count && sticky_error == cudaSuccess; ++step) {
    std::size_t next = step;  // the order of recording is one that is allowed
    if (config().lazy_streams) {
      std::vector<std::size_t> choice;
      for (std::size_t i = 0; i < count; ++i) {
        if (ready(i)) choice.push_back(i);
      }
      next = choice[choice.size() == 1 ? 0 : random_number() % choice.size()];
    }
    graph.work[next].run();
    done[next] = true;
  }
}

}  // namespace

std::string describe(cudaGraph_t graph) {
  std::string text;
  for (const CUgraphNode_st* node : graph->nodes) text += node->work.text + "\n";
  return text;
}

}  // namespace cusim

using namespace cusim;

extern "C" {

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call<WhenInjected::run>("cudaGraphDestroy", cudaErrorUnknown, [&] {
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return call("cudaGraphGetNodes", cudaErrorInvalidValue, [&] {
    if (!graph || !count) return cudaErrorInvalidValue;
    if (!nodes) {
      *count = graph->nodes.size();
      return cudaSuccess;
    }
    for (std::size_t i = 0; i < *count; ++i) {
      nodes[i] = i < graph->nodes.size() ? graph->nodes[i] : nullptr;
    }
    *count = std::min(*count, graph->nodes.size());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return call("cudaGraphNodeGetType", cudaErrorInvalidValue, [&] {
    *type = node->work.type;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return call("cudaGraphInstantiate", cudaErrorMemoryAllocation, [&] {
    if (!graph) return cudaErrorInvalidValue;
    *executable = new CUgraphExec_st;
    for (const CUgraphNode_st* node : graph->nodes) {
      (*executable)->work.push_back(node->work);
      auto& after = (*executable)->after.emplace_back();
      for (const CUgraphNode_st* before : node->after) {
        const auto found = std::find(graph->nodes.begin(), graph->nodes.end(), before);
        after.push_back(static_cast<std::size_t>(found - graph->nodes.begin()));
      }
    }
    return cudaSuccess;
  });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return call("cudaGraphUpload", cudaErrorMemoryAllocation, [] { return cudaSuccess; });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphLaunch", cudaErrorInvalidValue, [&] {
    if (!executable) return cudaErrorInvalidValue;
    ++stats().graph_launches;
    return push(stream, {cudaGraphNodeTypeGraph, [=] { run_graph(*executable); }, "graph"});
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return call<WhenInjected::run>("cudaGraphExecDestroy", cudaErrorUnknown, [&] {
    drain_all();  // a launch of it may be queued
    delete executable;
    return cudaSuccess;
  });
}

}  // extern "C"
