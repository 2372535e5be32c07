// Cross-entropy on the CPU: softmax, logarithm and pick fused, one sweep over the logits each way.
#include <cmath>
#include <string>

#include "kernels/cpu/device/pending_seed.h"
#include "kernels/cpu/rows/driver.h"
#include "kernels/math/rows.h"
#include "kernels/rows.h"

namespace firn::kernels::cpu {
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

void check_targets(const ConstView& target, std::int64_t classes, const CrossEntropyArgs& args) {
  const char* op = args.log_input ? "nll_loss" : "cross_entropy";
  for (std::int64_t i = 0; i < target.shape[0]; ++i) {
    const std::int64_t t = target_at(target, i);
    if (t == args.ignore_index || (t >= 0 && t < classes)) continue;
    throw Error(op,
                "target " + std::to_string(t) + " of row " + std::to_string(i) + " is not one of " +
                    std::to_string(classes) + " classes",
                "targets are 0 to " + std::to_string(classes - 1) + ", or ignore_index (" +
                    std::to_string(args.ignore_index) + ")");
  }
}

/// The class weights, their sum, and the two coefficients of the loss (math/rows.h).
template <class C>
struct Setting {
  RowBuffer<C> memory;
  const C* weights;
  C weight_sum = 0, hit, smooth;  ///< hit = 1 - s, smooth = s/n

  Setting(const CrossEntropyArgs& args, std::int64_t n)
      : memory(n),
        weights(memory.data()),
        hit(static_cast<C>(1 - args.label_smoothing)),
        smooth(n > 0 ? static_cast<C>(args.label_smoothing / static_cast<double>(n)) : C(0)) {
    load_vector(args.class_weights, n, 1, memory.data());
    double sum = 0;
    for (std::int64_t j = 0; j < n; ++j) sum += weights[j];
    weight_sum = static_cast<C>(sum);
  }
};

template <class C>
void forward(const ConstView& x, const ConstView& target, const CrossEntropyArgs& args,
             const View& loss, const View& weight, const View& stats) {
  using V = Tile<C>;
  const std::int64_t n = x.shape[1];
  check_targets(target, n, args);
  const Setting<C> setting(args, n);
  const C* const w = setting.weights;
  const RowBlocks blocks(x.shape[0], n);
  const RowReader<C> in(x);
  // Rows are summed in f64, block by block in order: a batch of any size costs no accuracy.
  double loss_sum[kMaxRowBlocks] = {}, weight_sum[kMaxRowBlocks] = {};
  parallel_for(blocks.count, blocks.rows * n * 16, [&](std::int64_t block) {
    const RowBuffer<C> buffer(in);
    for (std::int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      const std::int64_t t = target_at(target, i);
      C max = 0, log_sum = 0;
      if (t != args.ignore_index) {
        const C* row = in.row(i, buffer.data());
        if (!args.log_input) {
          max = reduce_row<C>(n, math::Largest<V>{}, row).value;
          const math::ShiftedExp<V> term{V(max)};
          const auto pass = [&](V v) { return math::Sum<V>{term(v)}; };
          log_sum = std::log(reduce_row<C>(n, pass, row).value);
        }
        double row_loss = 0;  // a weight of 0 counts for nothing, whatever log p is
        if (w[t] != 0) row_loss = setting.hit * w[t] * (log_sum - (row[t] - max));
        if (setting.smooth != 0) {
          const math::WeightedNll<V> pass{V(max), V(log_sum)};
          row_loss += setting.smooth * reduce_row<C>(n, pass, row, w).value;
        }
        loss_sum[block] += row_loss;
        weight_sum[block] += w[t];
      }
      stats.as<C>()[2 * i] = max;
      stats.as<C>()[2 * i + 1] = log_sum;
    }
  });
  double total_loss = 0, total_weight = 0;
  for (std::int64_t k = 0; k < blocks.count; ++k) {
    total_loss += loss_sum[k];
    total_weight += weight_sum[k];
  }
  *loss.as<C>() = static_cast<C>(total_loss);
  *weight.as<C>() = static_cast<C>(total_weight);
}

template <class C>
void backward(C dloss, const ConstView& x, const ConstView& target, const ConstView& stats,
              const CrossEntropyArgs& args, const View& dx, float beta) {
  using V = Tile<C>;
  const std::int64_t n = x.shape[1];
  const Setting<C> setting(args, n);
  const C* const w = setting.weights;
  const RowBlocks blocks(x.shape[0], n);
  const RowReader<C> in(x);
  const RowWriter<C> out(dx, beta);
  const V spread(dloss * setting.smooth);
  parallel_for(blocks.count, blocks.rows * n * 8, [&](std::int64_t block) {
    const RowBuffer<C> in_buffer(in), out_buffer(out);
    for (std::int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      const std::int64_t t = target_at(target, i);
      const bool ignored = t == args.ignore_index;
      if (ignored && beta != 0) continue;
      C* to = out.open(i, out_buffer.data());
      if (ignored) {
        std::fill_n(to, n, C(0));
      } else {
        const C hit = dloss * setting.hit * w[t];
        if (args.log_input) {
          map_row(
              n, to, beta, [&](V v) { return V(0) - spread * v; }, w);
        } else {
          const C* row = in.row(i, in_buffer.data());
          const C scale = hit + dloss * setting.smooth * setting.weight_sum;
          const math::CrossEntropyGrad<V> grad{V(stats.as<C>()[2 * i]), V(stats.as<C>()[2 * i + 1]),
                                               V(scale), spread};
          if (setting.smooth != 0) {
            map_row(n, to, beta, grad, row, w);
          } else {
            map_row(n, to, beta, grad, row);
          }
        }
        to[t] -= hit;
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

void cross_entropy_backward(const ConstView& dloss, const ConstView& x, const ConstView& target,
                            const ConstView& stats, const CrossEntropyArgs& args, const View& dx,
                            float beta, const PendingSeed* pending, Stream) {
  if (pending) compute_seed(*pending);
  x.dtype == DType::f64 ? backward<double>(*dloss.as<double>(), x, target, stats, args, dx, beta)
                        : backward<float>(*dloss.as<float>(), x, target, stats, args, dx, beta);
}

}  // namespace firn::kernels::cpu
