// The beginning and the end of non-elementwise rules, on CUDA devices: their inputs, and their new
// states.
#include "kernels/cuda/optim/arena.cuh"
#include "kernels/math/macros.h"

namespace firn::kernels::cuda {
namespace {

/// Number of blocks of a state in optim_commit.
constexpr std::int64_t kCommitBlocks = 64;

/// W is the type of the weights or masters, T that of the gradients.
template <class T, class W>
__global__ void inputs_kernel(StepPointers m, double lr_scale, std::int32_t parameter,
                              std::int64_t n, const T* __restrict__ gradients,
                              const W* __restrict__ weights, T* __restrict__ gradient,
                              T* __restrict__ weight, T* scalars) {
  const math::StepState& s = *m.state;
  const bool applies = s.decision == math::StepStatus::applied && m.touched[parameter];
  const T factor = static_cast<T>(s.gradient_factor), limit = static_cast<T>(s.value_limit);
  const std::int64_t step = grid_threads();
  for (std::int64_t i = global_thread(); i < n; i += step) {
    gradient[i] = applies ? math::clip_to(gradients[i] * factor, limit) : T(0);
    weight[i] = widen(weights[i]);
  }
  if (global_thread() == 0) {
    scalars[0] = static_cast<T>(s.learning_rate * lr_scale);
    scalars[1] = static_cast<T>(m.counts[parameter] + 1);
  }
}

struct Commit {
  const void* next;
  void* state;
  std::int64_t n;
  std::int32_t parameter;
  bool wide;  ///< true for f64
};
struct CommitList {
  static constexpr std::size_t kCapacity = 96;

  Commit entries[kCapacity];
};
static_assert(sizeof(CommitList) <= 3900);

/// blockIdx.y is the number of the entry.
__global__ void commit_kernel(StepPointers m, const __grid_constant__ CommitList list) {
  const Commit& c = list.entries[blockIdx.y];
  if (m.state->decision != math::StepStatus::applied || !m.touched[c.parameter]) return;
  const auto store = [&](auto* to, const auto* from) {
    const std::int64_t step = grid_threads();
    for (std::int64_t i = global_thread(); i < c.n; i += step) to[i] = from[i];
  };
  if (c.wide) {
    store(static_cast<double*>(c.state), static_cast<const double*>(c.next));
  } else {
    store(static_cast<float*>(c.state), static_cast<const float*>(c.next));
  }
}

}  // namespace

void optim_inputs(const StepMemory& memory, const OptimizerArena& arena,
                  const ParameterRange& range, const View& gradient, const View& weight,
                  const View& scalars, Stream stream) {
  const View& from = arena.master.data ? arena.master : arena.weight;
  const auto launch = [&]<class T, class W>(T, W) {
    gpu::launch("optim_inputs", inputs_kernel<T, W>, grid_for(range.count), dim3(kBlock), 0, stream,
                pointers_of(memory), arena.lr_scale, range.parameter, range.count,
                arena.grad.as<T>() + range.begin, static_cast<const W*>(from.data) + range.begin,
                gradient.as<T>(), weight.as<T>(), scalars.as<T>());
  };
  with_floating(from.dtype, [&]<class W>(W) {
    if constexpr (std::is_same_v<W, double>) {
      launch(double(), W());
    } else {
      launch(float(), W());
    }
  });
}

void optim_commit(const StepMemory& memory, std::span<const StateCommit> states, Stream stream) {
  while (!states.empty()) {
    const auto these = states.first(std::min(states.size(), CommitList::kCapacity));
    states = states.subspan(these.size());
    CommitList list{};
    std::int64_t most = 1;
    for (std::size_t i = 0; i < these.size(); ++i) {
      const StateCommit& s = these[i];
      list.entries[i] = {s.next.data, s.state.data, s.state.numel(), s.parameter,
                         s.state.dtype == DType::f64};
      most = std::max(most, s.state.numel());
    }
    const auto blocks = math::min(math::ceil_div(most, std::int64_t{kBlock}), kCommitBlocks);
    gpu::launch("optim_commit", commit_kernel,
                dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(these.size())),
                dim3(kBlock), 0, stream, pointers_of(memory), list);
  }
}

}  // namespace firn::kernels::cuda
