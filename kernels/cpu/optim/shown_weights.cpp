// Selects which of their two sets of values schedule-free weights show, on the CPU.
#include <algorithm>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/math/macros.h"
#include "kernels/optim.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Calls fn(begin, n, shown) for runs of rows, where `shown` are the n weights to show, in T.
template <class T, class Fn>
void each_row(const ScheduleFreeWeights& w, bool averaged, const Fn& fn) {
  const std::int64_t n = w.weight.numel(), chunks = math::ceil_div(n, kRow);
  const T beta1 = static_cast<T>(w.beta1);
  parallel_for(chunks, 4 * n, [&](std::int64_t c) {
    const std::int64_t begin = c * kRow, count = std::min<std::int64_t>(kRow, n - begin);
    const T* z = w.fast.as<T>() + begin;
    const T* x = w.averaged.as<T>() + begin;
    alignas(64) T y[kRow];
    if (!averaged)
      for (std::int64_t i = 0; i < count; ++i) y[i] = math::training_weight(z[i], x[i], beta1);
    fn(begin, count, averaged ? x : y);
  });
}

template <class T>
void show(const ScheduleFreeWeights& w, bool averaged) {
  each_row<T>(w, averaged, [&](std::int64_t begin, std::int64_t n, const T* shown) {
    store_row(shown, advance(w.weight.data, w.weight.dtype, begin), w.weight.dtype, 1, n);
  });
}

template <class T>
void adopt(const ScheduleFreeWeights& w, bool averaged) {
  each_row<T>(w, averaged, [&](std::int64_t begin, std::int64_t n, const T* shown) {
    const DType dtype = w.weight.dtype;
    alignas(64) T rounded[kRow], written[kRow], expected[kRow];
    const T* now = load_row(advance(static_cast<const void*>(w.weight.data), dtype, begin), dtype,
                            1, n, written);
    const T* then = shown;
    if (dtype != dtype_of<T>) {  // a number of 16 bits fits into its place in f32
      store_row(shown, rounded, dtype, 1, n);
      then = load_row(static_cast<const void*>(rounded), dtype, 1, n, expected);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      if (now[i] == then[i]) continue;
      const T value = now[i];
      w.fast.as<T>()[begin + i] = value;
      w.averaged.as<T>()[begin + i] = value;
      if (w.master.data) w.master.as<T>()[begin + i] = value;
    }
  });
}

}  // namespace

void optim_show_weights(const ScheduleFreeWeights& w, bool averaged, Stream) {
  w.fast.dtype == DType::f64 ? show<double>(w, averaged) : show<float>(w, averaged);
}

void optim_adopt_shown(const ScheduleFreeWeights& w, bool averaged, Stream) {
  w.fast.dtype == DType::f64 ? adopt<double>(w, averaged) : adopt<float>(w, averaged);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
