// Moments pooled over the micro-batches of a cycle, and running statistics, on the CPU.
#include "kernels/channel_norm.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/math/channel_norm.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Returns element i of a vector of any floating dtype.
double number_at(const ConstView& v, std::int64_t i) {
  double value;
  return *load_row(advance(v.data, v.dtype, i * v.strides[0]), v.dtype, 1, 1, &value);
}
void set_number(const View& v, std::int64_t i, double value) {
  store_row(&value, advance(v.data, v.dtype, i * v.strides[0]), v.dtype, 1, 1);
}

/// Updates running statistics by moments of `count` elements: mean(i) and squares(i) for channel i.
template <class Mean, class Squares>
void run_on(double count, double momentum, const View& running_mean, const View& running_var,
            const View& batches, const Mean& mean, const Squares& squares) {
  std::int64_t* const counter = batches.as<std::int64_t>();
  const math::RunningUpdate update(count, momentum, counter ? *counter : 0);
  for (std::int64_t i = 0; i < running_mean.shape[0]; ++i) {
    set_number(running_mean, i, update.mean(number_at(running_mean, i), mean(i)));
    set_number(running_var, i, update.var(number_at(running_var, i), squares(i)));
  }
  if (counter) *counter += 1;
}

}  // namespace

void pool_moments(const ConstView& mean, const ConstView& var, double count, const View& pooled,
                  const View& pooled_count, Stream) {
  if (!(count > 0)) return;
  const std::int64_t c = mean.shape[0];
  double* const means = pooled.as<double>();
  double* const squares = means + c;
  const math::Merge<double> merge(*pooled_count.as<double>(), count);
  for (std::int64_t i = 0; i < c; ++i) {
    const auto both =
        merge({means[i], squares[i]}, {number_at(mean, i), number_at(var, i) * count});
    means[i] = both.mean;
    squares[i] = both.squares;
  }
  *pooled_count.as<double>() += count;
}

void commit_moments(const View& pooled, const View& pooled_count, double momentum,
                    const ConstView& state, const View& running_mean, const View& running_var,
                    const View& batches, Stream) {
  const std::int64_t c = running_mean.shape[0];
  const double count = *pooled_count.as<double>();
  if (!(count > 0)) return;
  double* const means = pooled.as<double>();
  double* const squares = means + c;
  if (math::commits(state.as<math::StepState>())) {
    run_on(
        count, momentum, running_mean, running_var, batches,
        [&](std::int64_t i) { return means[i]; }, [&](std::int64_t i) { return squares[i]; });
  }
  for (std::int64_t i = 0; i < 2 * c; ++i) means[i] = 0;
  *pooled_count.as<double>() = 0;
}

void update_moments(const ConstView& mean, const ConstView& var, double count, double momentum,
                    const View& running_mean, const View& running_var, const View& batches,
                    Stream) {
  if (!(count > 0)) return;
  run_on(
      count, momentum, running_mean, running_var, batches,
      [&](std::int64_t i) { return number_at(mean, i); },
      [&](std::int64_t i) { return number_at(var, i) * count; });
}

}  // namespace firn::kernels::cpu::FIRN_ISA
