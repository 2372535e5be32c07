// Softmax of rows on CUDA devices.
#include "kernels/rows.h"

#include "kernels/cuda/rows/driver.cuh"
#include "kernels/math/rows.h"

namespace firn::kernels::cuda {
namespace {

constexpr int kPacks = 4;  // packs of a row in a thread's registers

template <class Team, int kHeld, class T>
static __global__ void __launch_bounds__(Team::kMaxThreads, Team::kMinBlocks)
    softmax_kernel(RowsIn<T> x, RowsOut<T> y, std::int64_t rows, std::int64_t n, bool log) {
  using C = ComputeOf<T>;
  using V = FormulaOf<T>;
  const RowsIn<T> in[1] = {x};
  for (std::int64_t i = Team::number(); i < rows; i += Team::count()) {
    const TeamRow<Team, kHeld, T> row(in, i, n, -HUGE_VALF);
    const C max = row.sum(math::Largest<C>()).value;
    const math::ShiftedExp<V> term{V(max)};
    const C sum = row.sum([&](C v) { return math::Sum<C>{C(term(V(v)))}; }).value;
    if (log) {
      row.map(y, math::LogSoftmax<C>{max, math::log(sum)});
    } else {
      const C scale = C(1) / sum;
      row.map(y, [&](C v) { return C(term(V(v))) * scale; });
    }
  }
}

template <class Team, int kHeld, class T, class O>
static __global__ void __launch_bounds__(Team::kMaxThreads, Team::kMinBlocks)
    softmax_backward_kernel(RowsIn<T> dy, RowsIn<T> y, RowsOut<O> dx, std::int64_t rows,
                            std::int64_t n, bool log) {
  using C = ComputeOf<T>;
  using V = FormulaOf<T>;
  const RowsIn<T> in[2] = {dy, y};
  for (std::int64_t i = Team::number(); i < rows; i += Team::count()) {
    const TeamRow<Team, kHeld, T, 2> row(in, i, n, 0);
    if (log) {
      const C s = row.sum([](C g, C v) { return math::LogSoftmaxGrad<C>::pass(g, v); }).value;
      const math::LogSoftmaxGrad<V> grad{V(s)};
      row.map(dx, [&](C g, C v) { return C(grad(V(g), V(v))); });
    } else {
      const C s = row.sum([](C g, C v) { return math::SoftmaxGrad<C>::pass(g, v); }).value;
      row.map(dx, math::SoftmaxGrad<C>{s});
    }
  }
}

}  // namespace

void softmax(const ConstView& x, const View& y, bool log, Stream stream) {
  const std::int64_t rows = x.shape[0], n = x.shape[1];
  if (rows == 0 || n == 0) return;
  with_floating(x.dtype, [&]<class T>(T) {
    with_row_teams<T, kPacks>(n, [&]<class Team, int kHeld>(TeamChoice<Team, kHeld> teams) {
      gpu::launch(log ? "log_softmax" : "softmax", softmax_kernel<Team, kHeld, T>, teams.grid(rows),
                  dim3(teams.threads), teams.shared, stream, RowsIn<T>(x), RowsOut<T>(y, 0), rows,
                  n, log);
    });
  });
}

void softmax_backward(const ConstView& dy, const ConstView& y, const View& dx, bool log, float beta,
                      Stream stream) {
  const std::int64_t rows = y.shape[0], n = y.shape[1];
  if (rows == 0 || n == 0) return;
  const char* const op = log ? "log_softmax_backward" : "softmax_backward";
  with_floating(y.dtype, [&]<class T>(T) {
    with_sink<T>(dx.dtype, [&]<class O>(O) {
      with_row_teams<T, kPacks>(n, [&]<class Team, int kHeld>(TeamChoice<Team, kHeld> teams) {
        gpu::launch(op, softmax_backward_kernel<Team, kHeld, T, O>, teams.grid(rows),
                    dim3(teams.threads), teams.shared, stream, RowsIn<T>(dy), RowsIn<T>(y),
                    RowsOut<O>(dx, beta), rows, n, log);
      });
    });
  });
}

}  // namespace firn::kernels::cuda
