// Connectionist temporal classification on CUDA devices. A block takes a sequence and goes from
// step to step; its threads take the states. Backward first finds the probability of every state at
// every step, then all steps make their gradient at once, without atomics on numbers.
#include "kernels/sequence/ctc.h"

#include <algorithm>

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/fault.cuh"

namespace firn::kernels::cuda {
namespace {

using math::has_no_path;

constexpr int kRowThreads = 128;

/// Log-probabilities of any strides.
template <class T>
struct LogProbabilities {
  using C = ComputeOf<T>;
  const T* data;
  std::int64_t steps, n, classes, by_step, by_sequence, by_class;

  explicit LogProbabilities(const ConstView& x)
      : data(x.as<T>()),
        steps(x.shape[0]),
        n(x.shape[1]),
        classes(x.shape[2]),
        by_step(x.strides[0]),
        by_sequence(x.strides[1]),
        by_class(x.strides[2]) {}
  __device__ C at(std::int64_t t, std::int64_t i, std::int64_t c) const {
    return widen(data[t * by_step + i * by_sequence + c * by_class]);
  }
};

/// Targets and lengths, and the sites of their faults.
struct Sequences {
  const std::int64_t *labels, *starts, *input_lengths, *target_lengths;
  std::int64_t all_labels, longest, blank;
  bool zero_infinity;
  FaultSite bad_label, is_blank, bad_input_length, bad_target_length;

  explicit Sequences(const CtcTargets& t)
      : labels(t.labels.as<std::int64_t>()),
        starts(t.starts.as<std::int64_t>()),
        input_lengths(t.input_lengths.as<std::int64_t>()),
        target_lengths(t.target_lengths.as<std::int64_t>()),
        all_labels(t.labels.numel()),
        longest(t.longest),
        blank(t.blank),
        zero_infinity(t.zero_infinity),
        bad_label(fault_site(t.op, "label", t.labels.device)),
        is_blank(fault_site(t.op, "a label is the blank", t.labels.device)),
        bad_input_length(fault_site(t.op, "input length", t.labels.device)),
        bad_target_length(fault_site(t.op, "target length", t.labels.device)) {}

  /// True if sequence i lies within log-probabilities and labels. All threads of a block call it,
  /// and get one answer. Records faults if `raises`.
  __device__ bool are_good(std::int64_t i, std::int64_t steps, std::int64_t classes,
                           bool raises) const {
    const bool speaks = raises && threadIdx.x == 0;
    const std::int64_t length = input_lengths[i], count = target_lengths[i], start = starts[i];
    if (length < 0 || length > steps) {
      if (speaks) raise_fault(bad_input_length, i, length, steps + 1);
      return false;
    }
    if (count < 0 || count > longest || start < 0 || start > all_labels - count) {
      if (speaks) raise_fault(bad_target_length, i, count, longest + 1);
      return false;
    }
    __shared__ int numbers[kWarp];
    int bad = 0;
    for (std::int64_t j = threadIdx.x; j < count; j += blockDim.x) {
      const std::int64_t label = labels[start + j];
      if (label >= 0 && label < classes && label != blank) continue;
      bad = 1;
      if (!raises) continue;
      if (label == blank) {
        raise_fault(is_blank, start + j, label, -1);
      } else {
        raise_fault(bad_label, start + j, label, classes);
      }
    }
    return block_fold(bad, 0, numbers, Add()) == 0;
  }
  __device__ math::CtcTarget target(std::int64_t i) const {
    return {labels + starts[i], target_lengths[i], blank};
  }
};

/// [n, rows, states]: row t % rows of a sequence holds the states of step t.
template <class C>
struct States {
  C* data;
  std::int64_t rows, states;

  __device__ C* row(std::int64_t i, std::int64_t t) const {
    return data + (i * rows + t % rows) * states;
  }
};

template <class T, class C = ComputeOf<T>>
__global__ void alpha_kernel(LogProbabilities<T> x, Sequences in, States<C> alpha, C* terms) {
  for (std::int64_t i = blockIdx.x; i < x.n; i += gridDim.x) {
    if (!in.are_good(i, x.steps, x.classes, true)) {
      if (threadIdx.x == 0) terms[i] = static_cast<C>(NAN);
      continue;
    }
    const math::CtcTarget target = in.target(i);
    const std::int64_t states = target.states(), length = in.input_lengths[i];
    if (target.count <= length) {
      for (std::int64_t t = 0; t < length; ++t) {
        C* const row = alpha.row(i, t);
        const C* const before = t > 0 ? alpha.row(i, t - 1) : nullptr;
        for (std::int64_t s = threadIdx.x; s < states; s += blockDim.x) {
          const C now = x.at(t, i, target.label(s));
          row[s] = t > 0 ? target.next_alpha(s, before, now) : target.first_alpha(s, now);
        }
        __syncthreads();
      }
    }
    if (threadIdx.x == 0) {
      const C* const last = alpha.row(i, length > 0 ? length - 1 : 0);
      const C term = target.term(length, last);
      terms[i] = has_no_path(term) && in.zero_infinity ? C(0) : term;
    }
  }
}

/// Computes beta [n, 2, states], and `found`, the probability of every state at every step, in
/// alpha's shape. In `terms` infinity stays, and a bad sequence gets NaN.
template <class T, class C = ComputeOf<T>>
__global__ void states_kernel(LogProbabilities<T> x, Sequences in, States<const C> alpha,
                              States<C> beta, States<C> found, C* terms) {
  for (std::int64_t i = blockIdx.x; i < x.n; i += gridDim.x) {
    const bool good = in.are_good(i, x.steps, x.classes, false);
    if (!good) {
      if (threadIdx.x == 0) terms[i] = static_cast<C>(NAN);
      continue;
    }
    const math::CtcTarget target = in.target(i);
    const std::int64_t states = target.states(), length = in.input_lengths[i];
    const C term = target.term(length, alpha.row(i, length > 0 ? length - 1 : 0));
    if (threadIdx.x == 0) terms[i] = term;
    if (has_no_path(term)) continue;
    for (std::int64_t t = length - 1; t >= 0; --t) {
      C* const row = beta.row(i, t);
      const C *const after = beta.row(i, t + 1), *const a = alpha.row(i, t);
      C* const p = found.row(i, t);
      for (std::int64_t s = threadIdx.x; s < states; s += blockDim.x) {
        const C b = t + 1 < length ? target.next_beta(s, after) : target.template last_beta<C>(s);
        p[s] = math::exp(a[s] + b + term);
        row[s] = b + x.at(t, i, target.label(s));
      }
      __syncthreads();
    }
  }
}

/// dx [steps, n, classes], contiguous, of any floating dtype.
struct Gradient {
  void* data;
  DType dtype;
  float beta;

  template <class C>
  __device__ void add(std::int64_t at, C value) const {
    if (beta != 0) value += static_cast<C>(beta) * load_element<C>(data, dtype, at);
    store_element(value, data, dtype, at);
  }
};

/// A block makes the gradient of one step of one sequence. `found` is as in states_kernel().
template <class T, class C = ComputeOf<T>>
__global__ void gradient_kernel(LogProbabilities<T> x, Sequences in, States<const C> found,
                                const C* terms, const C* dterms, std::int64_t dterms_stride,
                                Gradient dx) {
  constexpr std::int64_t kPart = 16384;  // classes at a time
  __shared__ unsigned is_label[kPart / 32];
  __shared__ C numbers[kWarp];
  for (std::int64_t r = blockIdx.x; r < x.steps * x.n; r += gridDim.x) {
    const std::int64_t t = r / x.n, i = r % x.n, to = r * x.classes;
    const C term = terms[i];
    const bool bad = term != term, counts = t < in.input_lengths[i], none = has_no_path(term);
    if (bad || none || !counts) {
      const bool unknown = bad || (none && counts && !in.zero_infinity);
      for (std::int64_t c = threadIdx.x; c < x.classes; c += blockDim.x)
        dx.add(to + c, unknown ? static_cast<C>(NAN) : C(0));
      continue;
    }
    const math::CtcTarget target = in.target(i);
    const C g = dterms[i * dterms_stride];
    const C* const p = found.row(i, t);
    for (std::int64_t begin = 0; begin < x.classes; begin += kPart) {
      const std::int64_t size = x.classes - begin < kPart ? x.classes - begin : kPart;
      const auto holds = [=](std::int64_t c) { return c >= begin && c < begin + size; };
      __syncthreads();  // the previous part may still be read
      for (std::int64_t w = threadIdx.x; w * 32 < size; w += blockDim.x) is_label[w] = 0;
      __syncthreads();
      for (std::int64_t s = threadIdx.x; s < target.states(); s += blockDim.x) {
        const std::int64_t c = target.label(s) - begin;
        if (c >= 0 && c < size) atomicOr(&is_label[c / 32], 1u << (c % 32));
      }
      __syncthreads();
      for (std::int64_t c = threadIdx.x; c < size; c += blockDim.x)
        if ((is_label[c / 32] >> (c % 32) & 1u) == 0)
          dx.add(to + begin + c, g * math::exp(x.at(t, i, begin + c)));
      // The first of equal labels adds up the probabilities of all of them.
      for (std::int64_t j = threadIdx.x; j < target.count; j += blockDim.x) {
        const std::int64_t label = target.labels[j];
        bool first = holds(label);
        for (std::int64_t k = 0; first && k < j; ++k) first = target.labels[k] != label;
        if (!first) continue;
        C q = 0;
        for (std::int64_t k = j; k < target.count; ++k)
          if (target.labels[k] == label) q += p[2 * k + 1];
        dx.add(to + label, g * (math::exp(x.at(t, i, label)) - q));
      }
      if (!holds(target.blank)) continue;
      C q = 0;
      for (std::int64_t s = 2 * static_cast<std::int64_t>(threadIdx.x); s < target.states();
           s += 2 * static_cast<std::int64_t>(blockDim.x))
        q += p[s];
      q = block_fold(q, C(0), numbers, Add());
      if (threadIdx.x == 0)
        dx.add(to + target.blank, g * (math::exp(x.at(t, i, target.blank)) - q));
    }
  }
}

dim3 blocks(std::int64_t tasks) {
  return dim3(static_cast<unsigned>(
      std::clamp<std::int64_t>(tasks, 1, max_blocks().load(std::memory_order_relaxed))));
}
/// Returns threads for this number of states, in whole warps.
dim3 threads(std::int64_t states) {
  return dim3(static_cast<unsigned>(
      std::clamp<std::int64_t>(math::ceil_div(states, kWarp) * kWarp, kWarp, kBlock)));
}

}  // namespace

void ctc(const ConstView& x, const CtcTargets& targets, const View& terms, const View& alpha,
         Stream stream) {
  const std::int64_t n = x.shape[1];
  if (n == 0) return;
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const States<C> states{alpha.as<C>(), alpha.shape[1], alpha.shape[2]};
    gpu::launch("ctc", alpha_kernel<T>, blocks(n), threads(alpha.shape[2]), 0, stream,
                LogProbabilities<T>(x), Sequences(targets), states, terms.as<C>());
  });
}

void ctc_backward(const ConstView& dterms, const ConstView& x, const CtcTargets& targets,
                  const ConstView& alpha, const View& dx, float beta, Stream stream) {
  const std::int64_t steps = x.shape[0], n = x.shape[1], most = alpha.shape[2];
  if (x.numel() == 0) return;
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const runtime::Workspace memory(
        static_cast<std::size_t>(n * (steps + 2) * most + n) * sizeof(C), stream);
    C* const found = memory.as<C>();
    C *const rolling = found + n * steps * most, *const terms = rolling + n * 2 * most;
    const LogProbabilities<T> in(x);
    const Sequences sequences(targets);
    gpu::launch("ctc_backward", states_kernel<T>, blocks(n), threads(most), 0, stream, in,
                sequences, States<const C>{alpha.as<C>(), alpha.shape[1], most},
                States<C>{rolling, 2, most}, States<C>{found, steps, most}, terms);
    gpu::launch("ctc_backward", gradient_kernel<T>, blocks(steps * n), dim3(kRowThreads), 0, stream,
                in, sequences, States<const C>{found, steps, most}, terms, dterms.as<C>(),
                dterms.strides[0], Gradient{dx.data, dx.dtype, beta});
  });
}

}  // namespace firn::kernels::cuda
