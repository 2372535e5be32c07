// Cross-entropy on the CPU. Softmax, logarithm and pick are fused. Each way takes one sweep over
// the logits, which may come in chunks.
#include <cmath>
#include <string>

#include "kernels/cpu/device/pending_gradient.h"
#include "kernels/cpu/rows/driver.h"
#include "kernels/math/rows.h"
#include "kernels/rows.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

std::int64_t target_at(const ConstView& target, std::int64_t i) {
  const std::int64_t at = i * target.strides[0];
  switch (target.dtype) {
    case DType::i64:
      return target.as<std::int64_t>()[at];
    case DType::i32:
      return target.as<std::int32_t>()[at];
    default:
      return target.as<std::uint8_t>()[at];
  }
}

/// The arguments as the kernels need them: targets, weights, and the coefficients of the loss
/// (math/rows.h).
template <class C>
struct Setting {
  const ConstView& target;
  const CrossEntropyArgs& args;
  std::int64_t classes;
  RowBuffer<C> memory;
  const C* weights;  ///< weights of all classes
  C weight_sum;
  math::CrossEntropyTerms<C> terms;

  Setting(const ConstView& targets, const CrossEntropyArgs& given, std::int64_t n)
      : target(targets),
        args(given),
        classes(given.classes > 0 ? given.classes : n),
        memory(classes),
        weights(memory.data()),
        weight_sum(static_cast<C>(classes)),
        terms{static_cast<C>(1 - given.label_smoothing),
              classes > 0 ? static_cast<C>(given.label_smoothing / static_cast<double>(classes))
                          : C(0),
              static_cast<C>(given.z_loss)} {
    load_vector(args.class_weights, classes, 1, memory.data());
    if (args.class_weights.data) weight_sum = static_cast<C>(sum_of_weights(0, classes));
  }

  double sum_of_weights(std::int64_t first, std::int64_t count) const {
    if (!args.class_weights.data || runtime::dry_run()) return static_cast<double>(count);
    double sum = 0;
    for (std::int64_t j = first; j < first + count; ++j) sum += weights[j];
    return sum;
  }
  std::int64_t target_of(std::int64_t row) const { return target_at(target, row); }
  C row_weight(std::int64_t row) const {
    return args.row_weights.data ? args.row_weights.as<C>()[row] : C(1);
  }
  /// True if a row is left out.
  bool ignores(std::int64_t row) const {
    return target_of(row) == args.ignore_index || row_weight(row) == 0;
  }

  void check_targets() const {
    if (runtime::dry_run()) return;
    for (std::int64_t i = 0; i < target.shape[0]; ++i) {
      const std::int64_t t = target_of(i);
      if (t == args.ignore_index || (t >= 0 && t < classes)) continue;
      throw Error(args.op,
                  "target " + std::to_string(t) + " of row " + std::to_string(args.first_row + i) +
                      " is not one of " + std::to_string(classes) + " classes",
                  "targets are 0 to " + std::to_string(classes - 1) + ", or ignore_index (" +
                      std::to_string(args.ignore_index) + ")");
    }
  }
};

/// Losses and weights of rows, summed in f64, block by block in order, so that a batch of any size
/// costs no accuracy.
struct Totals {
  double loss[kMaxRowBlocks] = {}, weight[kMaxRowBlocks] = {};

  template <class C>
  void store(const View& loss_sum, const View& weight_sum) const {
    if (runtime::dry_run()) return;
    double total_loss = 0, total_weight = 0;
    for (std::int64_t k = 0; k < kMaxRowBlocks; ++k) {
      total_loss += loss[k];
      total_weight += weight[k];
    }
    *loss_sum.as<C>() = static_cast<C>(total_loss);
    *weight_sum.as<C>() = static_cast<C>(total_weight);
  }
};

template <class C>
C sum_of_exp(std::int64_t n, C shift, const C* row) {
  const math::ShiftedExp<Tile<C>> term{Tile<C>(shift)};
  return reduce_row<C>(
             n, [&](Tile<C> v) { return math::Sum<Tile<C>>{term(v)}; }, row)
      .value;
}

template <class C>
C weighted_nll(std::int64_t n, C max, C log_sum, const C* row, const C* weights) {
  using V = Tile<C>;
  return reduce_row<C>(n, math::WeightedNll<V>{V(max), V(log_sum)}, row, weights).value;
}

template <class C>
void forward(const ConstView& x, const ConstView& target, const CrossEntropyArgs& args,
             const View& loss, const View& weight, const View& stats) {
  const std::int64_t n = x.shape[1];
  const Setting<C> setting(target, args, n);
  setting.check_targets();
  const C* const w = setting.weights;
  const RowBlocks blocks(x.shape[0], n);
  const RowReader<C> in(x);
  Totals totals;
  const std::int64_t bytes = row_buffer_bytes<C>(in);
  parallel_for_with_scratch(bytes, blocks.count, blocks.rows * n * 16, [&](std::int64_t block) {
    const RowBuffer<C> buffer(in);
    for (std::int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      C max = 0, log_sum = 0;
      if (!setting.ignores(i)) {
        const std::int64_t t = setting.target_of(i);
        C own = 0, spread = 0;
        if (args.log_input && setting.terms.smooth == 0) {
          own = in.at(i, t);
        } else {
          const C* row = in.row(i, buffer.data());
          if (!args.log_input) {
            max = reduce_row<C>(n, math::Largest<Tile<C>>{}, row).value;
            log_sum = std::log(sum_of_exp(n, max, row));
          }
          if (setting.terms.smooth != 0) spread = weighted_nll(n, max, log_sum, row, w);
          own = row[t];
        }
        const double lse = static_cast<double>(max) + static_cast<double>(log_sum);
        const double u = setting.row_weight(i);
        totals.loss[block] += u * setting.terms.loss(w[t], log_sum - (own - max), spread, lse);
        totals.weight[block] += u * w[t];
      }
      stats.as<C>()[2 * i] = max;
      stats.as<C>()[2 * i + 1] = log_sum;
    }
  });
  totals.store<C>(loss, weight);
}

template <class C>
void part(const ConstView& x, const ConstView& target, const CrossEntropyArgs& args,
          const View& states) {
  const std::int64_t n = x.shape[1], first = args.first_class;
  const Setting<C> setting(target, args, n);
  setting.check_targets();
  const C* const w = setting.weights + first;
  const double weight_sum = setting.sum_of_weights(first, n);
  const RowBlocks blocks(x.shape[0], n);
  const RowReader<C> in(x);
  const std::int64_t bytes = row_buffer_bytes<C>(in);
  parallel_for_with_scratch(bytes, blocks.count, blocks.rows * n * 16, [&](std::int64_t block) {
    const RowBuffer<C> buffer(in);
    for (std::int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      math::CrossEntropyState state;
      if (!setting.ignores(i)) {
        const C* row = in.row(i, buffer.data());
        const C max = reduce_row<C>(n, math::Largest<Tile<C>>{}, row).value;
        const C shift = math::shift_of(max);
        state.max = max;
        state.sum = sum_of_exp(n, shift, row);
        if (setting.terms.smooth != 0)
          state.dot = weight_sum * shift - weighted_nll(n, shift, C(0), row, w);
        const std::int64_t t = setting.target_of(i) - first;
        if (t >= 0 && t < n) state.at = row[t];
      }
      auto& known = states.as<math::CrossEntropyState>()[i];
      known = first == 0 ? state : known + state;
    }
  });
}

template <class C>
void total(const ConstView& states, const ConstView& target, const CrossEntropyArgs& args,
           const View& loss, const View& weight, const View& stats) {
  const Setting<C> setting(target, args, args.classes);
  const C* const w = setting.weights;
  const RowBlocks blocks(states.shape[0], states.shape[1]);
  Totals totals;
  parallel_for(blocks.count, blocks.rows * 64, [&](std::int64_t block) {
    for (std::int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      double max = 0, log_sum = 0;
      if (!setting.ignores(i)) {
        const auto& state = states.as<math::CrossEntropyState>()[i];
        max = state.max;
        log_sum = std::log(state.sum);
        const C weight_of_class = w[setting.target_of(i)];
        const double lse = max + log_sum, u = setting.row_weight(i);
        totals.loss[block] += u * setting.terms.loss(weight_of_class, log_sum - (state.at - max),
                                                     setting.weight_sum * lse - state.dot, lse);
        totals.weight[block] += u * weight_of_class;
      }
      stats.as<C>()[2 * i] = static_cast<C>(max);
      stats.as<C>()[2 * i + 1] = static_cast<C>(log_sum);
    }
  });
  totals.store<C>(loss, weight);
}

template <class C>
void backward(const ConstView& dloss_sum, const ConstView& x, const ConstView& target,
              const ConstView& stats, const CrossEntropyArgs& args, const View& dx, float beta,
              const PendingGradient* pending) {
  using V = Tile<C>;
  const std::int64_t n = x.shape[1], first = args.first_class;
  const Setting<C> setting(target, args, n);
  setting.check_targets();  // checked again, since memory that firn borrows may have changed
  if (pending && !runtime::dry_run()) compute_initial_gradient(*pending);
  const C dloss = runtime::dry_run() ? C(0) : *dloss_sum.as<C>();
  const C* const w = setting.weights + first;
  const RowBlocks blocks(x.shape[0], n);
  const RowReader<C> in(x);
  const RowWriter<C> out(dx, beta);
  const std::int64_t bytes = row_buffer_bytes<C>(in, out);
  parallel_for_with_scratch(bytes, blocks.count, blocks.rows * n * 8, [&](std::int64_t block) {
    const RowBuffer<C> in_buffer(in), out_buffer(out);
    for (std::int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      const bool ignored = setting.ignores(i);
      if (ignored && beta != 0) continue;
      C* to = out.open(i, out_buffer.data());
      if (ignored) {
        std::fill_n(to, n, C(0));
      } else {
        const std::int64_t t = setting.target_of(i);
        const C factor = dloss * setting.row_weight(i), weight = setting.weights[t];
        const V spread(factor * setting.terms.smooth);
        if (args.log_input && setting.terms.smooth == 0) {
          if (beta == 0) std::fill_n(to, n, C(0));
        } else if (args.log_input) {
          map_row(
              n, to, beta, [&](V v) { return V(0) - spread * v; }, w);
        } else {
          const C* row = in.row(i, in_buffer.data());
          const C max = stats.as<C>()[2 * i], log_sum = stats.as<C>()[2 * i + 1];
          const C scale = factor * setting.terms.scale(weight, setting.weight_sum, max + log_sum);
          const math::CrossEntropyGrad<V> grad{V(max), V(log_sum), V(scale), spread};
          if (setting.terms.smooth != 0) {
            map_row(n, to, beta, grad, row, w);
          } else {
            map_row(n, to, beta, grad, row);
          }
        }
        if (t >= first && t < first + n) to[t - first] -= factor * (setting.terms.hit * weight);
      }
      out.close(i, to);
    }
  });
}

}  // namespace

void cross_entropy(const ConstView& x, const ConstView& target, const CrossEntropyArgs& args,
                   const View& loss, const View& weight, const View& stats, Stream) {
  x.dtype == DType::f64 ? forward<double>(x, target, args, loss, weight, stats)
                        : forward<float>(x, target, args, loss, weight, stats);
}

void cross_entropy_part(const ConstView& x, const ConstView& target, const CrossEntropyArgs& args,
                        const View& states, Stream) {
  x.dtype == DType::f64 ? part<double>(x, target, args, states)
                        : part<float>(x, target, args, states);
}

void cross_entropy_total(const ConstView& states, const ConstView& target,
                         const CrossEntropyArgs& args, const View& loss, const View& weight,
                         const View& stats, Stream) {
  stats.dtype == DType::f64 ? total<double>(states, target, args, loss, weight, stats)
                            : total<float>(states, target, args, loss, weight, stats);
}

void cross_entropy_backward(const ConstView& dloss, const ConstView& x, const ConstView& target,
                            const ConstView& stats, const CrossEntropyArgs& args, const View& dx,
                            float beta, const PendingGradient* pending, Stream) {
  x.dtype == DType::f64 ? backward<double>(dloss, x, target, stats, args, dx, beta, pending)
                        : backward<float>(dloss, x, target, stats, args, dx, beta, pending);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
