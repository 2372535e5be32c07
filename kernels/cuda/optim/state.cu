// Kernels on the optimizer's state: the beginning of a micro-step, and the work of single threads.
#include "kernels/cuda/device/pending_gradient.cuh"
#include "kernels/cuda/optim/arena.cuh"
#include "kernels/math/macros.h"

namespace firn::kernels::cuda {
namespace {

constexpr int kOneWarp = 32;
/// Largest number of blocks of optim_begin: there is seldom anything to multiply.
constexpr std::int64_t kMaxBeginBlocks = 512;

// ---- The beginning of a micro-step ----

struct Gradients {
  ArenaChunks chunks;  ///< not used
  void* data;
  std::int64_t quads;
  bool wide;
};
using GradientList = ArenaList<Gradients, 60>;

template <class T>
__device__ void multiply(void* data, std::int64_t quads, double factor) {
  const std::int64_t step = grid_threads();
  for (std::int64_t q = global_thread(); q < quads; q += step) {
    Quad<T> g = quad_at<T>(data, q);
    for (int i = 0; i < 4; ++i) g.lane[i] = static_cast<T>(static_cast<double>(g.lane[i]) * factor);
    quad_at<T>(data, q) = g;
  }
}

__global__ void begin_kernel(const __grid_constant__ GradientList gradients,
                             PendingPointers pending, bool commits) {
  __shared__ double factor;
  if (threadIdx.x == 0) {
    math::LossSums s;
    pending.compute(s);
    factor = s.reexpress;
  }
  __syncthreads();
  if (factor != 1) {
    for (int i = 0; i < gradients.count; ++i) {
      const Gradients& g = gradients.arenas[i];
      if (g.wide) {
        multiply<double>(g.data, g.quads, factor);
      } else {
        multiply<float>(g.data, g.quads, factor);
      }
    }
  }
  if (commits) pending.commit();
}

// ---- One thread's work ----

__global__ void reset_kernel(StepPointers m) {
  if (threadIdx.x == 0) math::reset_cycle(*m.state);
}

__global__ void set_schedule_kernel(StepPointers m, const __grid_constant__ math::ScheduleTable t) {
  auto* schedule = const_cast<math::ScheduleTable*>(m.schedule);
  for (int i = static_cast<int>(threadIdx.x); i < math::kMaxSchedulePieces; i += kOneWarp)
    schedule->pieces[i] = t.pieces[i];
  if (threadIdx.x != 0) return;
  schedule->count = t.count;
  math::set_schedule(*m.state, t);
}

__global__ void set_scale_kernel(math::ScalerState* scaler, math::ScalePolicy policy,
                                 double scale) {
  if (threadIdx.x == 0) math::set_scale(*scaler, policy, scale);
}

/// The states of optimizers that step together.
struct Partners {
  math::StepState* states[kMaxSharing];
  int count;
};

__global__ void join_kernel(const __grid_constant__ Partners partners) {
  if (threadIdx.x != 0) return;
  bool found = false;
  for (int i = 0; i < partners.count; ++i)
    found = found || partners.states[i]->decision == math::StepStatus::skipped_non_finite;
  if (!found) return;
  for (int i = 0; i < partners.count; ++i)
    if (math::StepState& s = *partners.states[i]; s.decision == math::StepStatus::applied)
      s.decision = math::StepStatus::skipped_partner;
}

__global__ void move_scale_kernel(const __grid_constant__ Partners partners,
                                  math::ScalerState* scaler, math::ScalePolicy policy) {
  if (threadIdx.x != 0) return;
  math::ScaleVotes votes;
  for (int i = 0; i < partners.count; ++i) math::vote(votes, *partners.states[i]);
  math::settle_scale(*scaler, policy, votes);
}

Partners partners_of(const char* op, std::span<const StepMemory> memories) {
  if (memories.size() > static_cast<std::size_t>(kMaxSharing))
    throw Error(op,
                std::to_string(memories.size()) +
                    " optimizers share a loss scale; a device has "
                    "room for " +
                    std::to_string(kMaxSharing),
                "give parameters that are updated alike to one optimizer");
  Partners out{};
  for (const StepMemory& m : memories) out.states[out.count++] = m.state.as<math::StepState>();
  return out;
}

// ---- Which parameters have a gradient ----

/// A run of flags as a kernel's parameter: nothing is copied from the host's memory later, so the
/// call needs no wait and can be captured.
struct Flags {
  static constexpr std::int64_t kCount = 960 * 32;
  std::uint32_t words[kCount / 32];
};

__global__ void set_touched_kernel(std::uint8_t* touched, std::int64_t n,
                                   const __grid_constant__ Flags flags) {
  for (std::int64_t i = global_thread(); i < n; i += grid_threads())
    touched[i] = (flags.words[i / 32] >> (i % 32)) & 1u;
}

// ---- Weights that were written from outside ----

template <class H>
__global__ void adopt_weights_kernel(const H* weight, float* master, std::int64_t n) {
  for (std::int64_t i = global_thread(); i < n; i += grid_threads()) {
    H rounded;
    narrow(master[i], rounded);
    if (widen(weight[i]) != widen(rounded)) master[i] = widen(weight[i]);
  }
}

}  // namespace

void optim_adopt_weights(const ConstView& weight, const View& master, Stream stream) {
  constexpr const char* kOp = "optim_adopt_weights";
  const std::int64_t n = weight.numel();
  if (weight.dtype == DType::f16) {
    gpu::launch(kOp, adopt_weights_kernel<__half>, grid_for(n), dim3(kBlock), 0, stream,
                static_cast<const __half*>(weight.data), master.as<float>(), n);
  } else {
    gpu::launch(kOp, adopt_weights_kernel<__nv_bfloat16>, grid_for(n), dim3(kBlock), 0, stream,
                static_cast<const __nv_bfloat16*>(weight.data), master.as<float>(), n);
  }
}

void optim_begin(const PendingGradient& pending, std::span<const OptimizerArena> arenas,
                 Stream stream) {
  if (!pending.policy.scaled) arenas = {};  // the unit is always 1
  do {
    std::int64_t most = 0;
    const auto list = list_of<GradientList>(arenas, [&](const OptimizerArena& a) {
      Gradients g{};
      g.data = a.grad.data;
      g.quads = a.grad.numel() / 4;
      g.wide = a.grad.dtype == DType::f64;
      most = std::max(most, g.quads);
      return g;
    });
    arenas = arenas.subspan(static_cast<std::size_t>(list.count));
    const auto blocks = std::clamp<std::int64_t>(math::ceil_div(most, kBlock), 1, kMaxBeginBlocks);
    gpu::launch("optim_begin", begin_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kBlock), 0,
                stream, list, PendingPointers(&pending), arenas.empty());
  } while (!arenas.empty());
}

void optim_join(std::span<const StepMemory> memories, Stream stream) {
  constexpr const char* kOp = "optim_join";
  gpu::launch(kOp, join_kernel, dim3(1), dim3(kOneWarp), 0, stream, partners_of(kOp, memories));
}

void optim_move_scale(std::span<const StepMemory> memories, const math::ScalePolicy& policy,
                      Stream stream) {
  constexpr const char* kOp = "optim_move_scale";
  gpu::launch(kOp, move_scale_kernel, dim3(1), dim3(kOneWarp), 0, stream,
              partners_of(kOp, memories), memories.front().scaler.as<math::ScalerState>(), policy);
}

void optim_set_touched(const StepMemory& memory, std::span<const std::uint8_t> touched,
                       Stream stream) {
  std::uint8_t* to = memory.touched.as<std::uint8_t>();
  while (!touched.empty()) {
    const auto part = touched.first(std::min<std::size_t>(touched.size(), Flags::kCount));
    Flags flags{};
    for (std::size_t i = 0; i < part.size(); ++i)
      flags.words[i / 32] |= static_cast<std::uint32_t>(part[i] != 0) << (i % 32);
    const auto n = static_cast<std::int64_t>(part.size());
    gpu::launch("optim_set_touched", set_touched_kernel, grid_for(n), dim3(kBlock), 0, stream, to,
                n, flags);
    touched = touched.subspan(part.size());
    to += n;
  }
}

void optim_reset(const StepMemory& memory, Stream stream) {
  gpu::launch("optim_reset", reset_kernel, dim3(1), dim3(kOneWarp), 0, stream, pointers_of(memory));
}

void optim_set_schedule(const StepMemory& memory, const math::ScheduleTable& schedule,
                        Stream stream) {
  gpu::launch("optim_set_schedule", set_schedule_kernel, dim3(1), dim3(kOneWarp), 0, stream,
              pointers_of(memory), schedule);
}

void optim_set_scale(const StepMemory& memory, double scale, const math::ScalePolicy& policy,
                     Stream stream) {
  gpu::launch("optim_set_scale", set_scale_kernel, dim3(1), dim3(kOneWarp), 0, stream,
              memory.scaler.as<math::ScalerState>(), policy, scale);
}

}  // namespace firn::kernels::cuda
