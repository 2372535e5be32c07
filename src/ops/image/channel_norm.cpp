// Batch, group and instance norm: one op over cells of [n, c, l], with moments of x or given ones.
#include "firn/ops/channel_norm.h"

#include <algorithm>

#include "autograd/batch_parts.h"
#include "firn/ops/pool.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "kernels/channel_norm.h"
#include "kernels/copy.h"
#include "ops/common.h"
#include "ops/gradient/again.h"
#include "ops/image/moments.h"
#include "ops/small_number.h"

namespace firn {
namespace {

using namespace ops;
using kernels::NormCells;

/// Returns a view of [n, c, ...], in one of the two memory formats, as [n, c, l].
template <class V>
V collapse(V v) {
  std::int64_t length = 1, stride = 1;
  for (int d = v.rank() - 1; d >= 2; --d) {
    if (v.shape[d] != 1 && length == 1) stride = v.strides[d];
    length *= v.shape[d];
  }
  v.shape = {v.shape[0], v.shape[1], length};
  v.strides = {v.strides[0], v.strides[1], stride};
  return v;
}
ConstView collapsed(const Tensor& t) { return collapse(t.view()); }
View writable(const Tensor& t) { return collapse(t.mutable_view()); }
ConstView view_of(const Tensor& t) { return t.defined() ? t.view() : ConstView{}; }

/// t, or a copy of it, in the memory order of x.
Tensor in_order_of(const Tensor& x, const Tensor& t) {
  if (in_one_order(x.mutable_view(), t.mutable_view())) return t;
  const Tensor copy = empty(x.shape(), t.dtype(), t.device(), format_of(x.shape(), x.strides()));
  kernels::copy(t.view(), copy.mutable_view(), stream_of(t));
  return copy;
}

void require_parameter(const char* op, const char* name, const Tensor& p, const Tensor& x) {
  if (!p.defined()) return;
  const Shape expected = {x.size(1)};
  FIRN_CHECK(p.shape() == expected, op, "there is one number for each channel",
             "{} {} for x {}: expected shape {}", name, describe(p), describe(x), expected);
  FIRN_CHECK(
      (p.dtype() == x.dtype() || p.dtype() == compute_dtype(x.dtype())) && p.device() == x.device(),
      op, "cast or move it", "{} {} and x {} differ in dtype or device", name, describe(p),
      describe(x));
}

void require_input(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   double eps) {
  require_floating(op, x);
  FIRN_CHECK(x.rank() >= 2 && x.rank() <= 5, op, "x is [n, c, ...] of rank 2 to 5",
             "x {} has {} axes", describe(x), x.rank());
  FIRN_CHECK(eps >= 0, op, "eps keeps the variance off 0", "eps = {}", eps);
  ops::require_seen(op, "eps", eps, x.dtype());
  require_parameter(op, "weight", weight, x);
  require_parameter(op, "bias", bias, x);
}

/// Number of elements of x that share a mean.
double cell_size(const Tensor& x, NormCells cells) {
  const std::int64_t all = x.numel(), n = cells.per_sample ? x.size(0) : 1;
  const std::int64_t count = n * cells.groups;
  return count == 0 ? 0 : static_cast<double>(all / count);
}

/// Origin of the moments that normalise an input.
struct Origin {
  bool computed = true;  ///< from x, and maybe others: the gradient flows through them
  double count = 0;      ///< elements of a channel that they were computed from
  /// Place where the parts of a batch exchange moments, if x is a part; else without a layer.
  autograd::BatchParts::Place place = {};
};

using Numbers = autograd::BatchParts::Numbers;

/// A vector of f64 as a kernel sees it.
View view_of(Numbers& numbers, const Shape& shape, std::size_t first = 0) {
  return {numbers.data() + first, DType::f64, Device::cpu(), shape, contiguous_strides(shape)};
}

/// Returns the elements of `a`, divided by `unit`, a power of two. Waits for a device.
Numbers numbers_of(const Tensor& a, double unit = 1) {
  Numbers out(static_cast<std::size_t>(a.numel()));
  const Tensor here = a.to(Device::cpu());
  kernels::copy(here.view(), view_of(out, a.shape()), stream_of(here));
  for (double& v : out) v /= unit;
  return out;
}

/// Returns the numbers, times `unit`, as a tensor like `as`.
Tensor tensor_of(Numbers numbers, const Tensor& as, double unit = 1) {
  for (double& v : numbers) v *= unit;
  const Tensor out = empty(as.shape(), as.dtype(), Device::cpu());
  kernels::copy(view_of(numbers, as.shape()), out.mutable_view(), stream_of(out));
  return out.to(as.device());
}

/// Sums of a channel's gradients (kernels/channel_norm.h) over the parts of a batch. Parts have
/// gradients in different units.
Tensor sums_of_batch(const Tensor& sums, autograd::BatchParts::Place place) {
  autograd::BatchParts* const parts = thread_context.batch_parts;
  FIRN_CHECK(parts, "batch_norm", "leave the backward pass to run_batch()",
             "the gradient of a part of a batch is computed outside of its batch");
  const double unit = parts->unit();
  place.backward = true;
  const auto all =
      parts->exchange(place, numbers_of(sums, unit), [](std::span<const Numbers> each) {
        Numbers out = each.front();
        for (const Numbers& n : each.subspan(1))
          for (std::size_t i = 0; i < out.size(); ++i) out[i] += n[i];
        return out;
      });
  return tensor_of(*all, sums, unit);
}

/// One number for each channel, beside x [n, c, ...].
Tensor by_channel(const Tensor& t, const Tensor& x) {
  Shape shape = Dims::filled(x.rank(), 1);
  shape[1] = t.numel();
  return reshape(cast(t, x.dtype()), shape);
}

/// The recorded backward pass of normalize().
struct NormalizeAgain {
  NormCells cells;
  Origin origin;
  double eps;

  void operator()(GraphBackward& b) const {
    FIRN_CHECK(!origin.place.layer, "grad", "take per_micro_batch statistics",
               "batch_norm over the parts of a batch has no second derivative");
    const bool weighed = b.saved(1).defined();
    const Tensor mean = b.saved(2), var = b.saved(3);
    add_composed(b, {{0, b.input(0, 0)}, {1, weighed ? b.input(1, 1) : Tensor()}},
                 [&](const std::vector<Tensor>& t) {
                   const Tensor y = unit(t[0], mean, var);
                   return weighed ? mul(y, by_channel(t[1], y)) : y;
                 });
    if (b.needs(2)) b.add(2, sum_of_channels(b.grad()));
  }

 private:
  /// x without its weight.
  Tensor unit(const Tensor& x, const Tensor& mean, const Tensor& var) const {
    if (!origin.computed)
      return mul(sub(x, by_channel(mean, x)), rsqrt(add(by_channel(var, x), eps)));
    const Tensor rows =
        cells.per_sample
            ? reshape(x, {x.size(0), cells.groups,
                          x.numel() / std::max<std::int64_t>(1, x.size(0) * cells.groups)})
            : x;
    Axes axes;
    for (int i = 0; i < rows.rank(); ++i)
      if (cells.per_sample ? i == 2 : i != 1) axes.push_back(i);
    const Tensor centred = sub(rows, firn::mean(rows, axes, true));
    return reshape(mul(centred, rsqrt(add(firn::mean(square(centred), axes, true), eps))),
                   x.shape());
  }
};

/// Normalises x by `moments`.
Tensor normalize(const char* op, const Tensor& x, NormCells cells, const Moments& moments,
                 const Origin& origin, const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor w = weight.defined() ? contiguous(weight) : Tensor();
  const Tensor c = bias.defined() ? contiguous(bias) : Tensor();
  const Tensor y = empty_like(x);
  kernels::channel_normalize(collapsed(x), cells, moments.mean.view(), moments.var.view(),
                             view_of(w), view_of(c), eps, writable(y), stream_of(y));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"eps", eps},
                              {"groups", cells.groups},
                              {"computed", origin.computed},
                              {"mean", origin.computed ? nullptr : &moments.mean},
                              {"var", origin.computed ? nullptr : &moments.var}});
  const auto backward = [cells, origin, eps](Backward& b) {
    const Tensor& saved_x = b.saved(0);
    const ConstView saved = collapsed(saved_x);
    const ConstView mean = b.saved(2).view(), var = b.saved(3).view();
    const Tensor grad = in_order_of(saved_x, b.grad());
    const ConstView dy = collapsed(grad);
    const bool parameters = b.needs(1) || b.needs(2);
    Tensor sums;
    if (parameters || origin.computed) {
      sums = empty({cells.per_sample ? saved.shape[0] : 1, saved.shape[1], 2},
                   compute_dtype(saved.dtype), saved.device);
      kernels::channel_gradient_sums(dy, saved, cells, mean, var, eps, sums.mutable_view(),
                                     b.stream());
    }
    if (parameters) {
      View dweight, dbias;
      float dweight_beta = 0, dbias_beta = 0;
      const auto give = [&b](int i, View& to, float& to_beta) {
        if (!b.needs(i)) return;
        const auto [g, beta] = b.sink(i);
        to = g.mutable_view();
        to_beta = beta;
      };
      give(1, dweight, dweight_beta);
      give(2, dbias, dbias_beta);
      kernels::channel_parameter_gradients(sums.view(), dweight, dweight_beta, dbias, dbias_beta,
                                           b.stream());
    }
    if (!b.needs(0)) return;
    if (origin.place.layer) sums = sums_of_batch(sums, origin.place);
    const auto [dx, beta] = b.sink(0);
    kernels::channel_data_gradient(dy, saved, cells, mean, var, view_of(b.saved(1)), eps,
                                   origin.computed ? sums.view() : ConstView{}, origin.count,
                                   writable(dx), beta, b.stream());
  };
  return record(
      op, y, {&x, &w, &c},
      {Saved::input(0), Saved::input(1), Saved::other(moments.mean), Saved::other(moments.var)},
      with_again(backward, NormalizeAgain{cells, origin, eps}));
}

/// x itself if it has one of the two memory formats, else a row-major copy.
Tensor formatted(const Tensor& x) {
  return x.is_contiguous() || x.is_channels_last() ? x : contiguous(x);
}

Moments moments_of(const Tensor& x, NormCells cells) {
  const Shape shape = {(cells.per_sample ? x.size(0) : 1) * cells.groups};
  const DType dtype = compute_dtype(x.dtype());
  // Cells without values have no moments; finite values make the gradients of parameters 0.
  if (x.numel() == 0) return {zeros(shape, dtype, x.device()), ones(shape, dtype, x.device())};
  const Moments moments{empty(shape, dtype, x.device()), empty(shape, dtype, x.device())};
  kernels::channel_moments(collapsed(x), cells, moments.mean.mutable_view(),
                           moments.var.mutable_view(), stream_of(x));
  return moments;
}

Tensor norm_of_samples(const char* op, const Tensor& x, std::int64_t groups, const Tensor& weight,
                       const Tensor& bias, double eps) {
  const Tensor input = formatted(x);
  const NormCells cells{groups, true};
  return normalize(op, input, cells, moments_of(input, cells), {.count = cell_size(input, cells)},
                   weight, bias, eps);
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                  Moments* moments) {
  require_input("batch_norm", x, weight, bias, eps);
  FIRN_CHECK(x.numel() > 0 || x.size(1) == 0, "batch_norm",
             "leave empty batches out, or give moments",
             "x {} has no values in its {} channels, and so no mean", describe(x), x.size(1));
  const Tensor input = formatted(x);
  const NormCells cells{x.size(1), false};
  const Moments own = moments_of(input, cells);
  if (moments) *moments = own;
  return normalize("batch_norm", input, cells, own, {.count = cell_size(input, cells)}, weight,
                   bias, eps);
}

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Moments& moments,
                  double eps) {
  require_input("batch_norm", x, weight, bias, eps);
  const auto require = [&](const char* name, const Tensor& m) {
    require_defined("batch_norm", m);
    require_parameter("batch_norm", name, m, x);
    FIRN_CHECK(m.dtype() == compute_dtype(x.dtype()), "batch_norm",
               "moments are f32, or f64 for an f64 x", "{} {} for x {}", name, describe(m),
               describe(x));
  };
  require("mean", moments.mean);
  require("var", moments.var);
  const Moments given{contiguous(moments.mean.detach()), contiguous(moments.var.detach())};
  return normalize("batch_norm", formatted(x), {x.size(1), false}, given, {.computed = false},
                   weight, bias, eps);
}

Tensor ops::batch_norm_of_parts(autograd::BatchParts& parts,
                                const std::shared_ptr<const std::string>& layer, const Tensor& x,
                                const Tensor& weight, const Tensor& bias, double eps,
                                Moments& moments, double& count) {
  require_input("batch_norm", x, weight, bias, eps);
  const Tensor input = formatted(x);
  const NormCells cells{x.size(1), false};
  const Moments own = moments_of(input, cells);
  const auto c = static_cast<std::size_t>(x.size(1));
  Numbers mine = numbers_of(own.mean);
  const Numbers var = numbers_of(own.var);
  mine.insert(mine.end(), var.begin(), var.end());
  mine.push_back(cell_size(input, cells));
  const autograd::BatchParts::Place place{.layer = layer, .first = parts.exchanges()};
  const auto all = parts.exchange(place, std::move(mine), [c](auto each) {
    const Shape channels{static_cast<std::int64_t>(c)}, both{2, static_cast<std::int64_t>(c)};
    Numbers pool(2 * c), values(1);
    for (Numbers part : each)
      if (part.back() > 0)
        kernels::pool_moments(view_of(part, channels), view_of(part, channels, c), part.back(),
                              view_of(pool, both), view_of(values, {1}),
                              current_stream(Device::cpu()));
    for (std::size_t i = c; i < 2 * c; ++i) pool[i] /= std::max(values[0], 1.0);
    pool.push_back(values[0]);
    return pool;
  });
  count = all->back();
  FIRN_CHECK(count > 0 || c == 0 || runtime::dry_run(), "batch_norm",
             "leave empty batches out, or call eval()",
             "the batch of x {} has no values in its {} channels, and so no mean", describe(x), c);
  const auto middle = all->begin() + static_cast<std::ptrdiff_t>(c);
  moments = {tensor_of({all->begin(), middle}, own.mean),
             tensor_of({middle, all->end() - 1}, own.var)};
  return normalize("batch_norm", input, cells, moments, {.count = count, .place = place}, weight,
                   bias, eps);
}

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  require_input("group_norm", x, weight, bias, eps);
  FIRN_CHECK(
      groups > 0 && groups <= std::max<std::int64_t>(x.size(1), 1) && x.size(1) % groups == 0,
      "group_norm", "channels are cut in groups of equal size", "{} channels of x {} in {} groups",
      x.size(1), describe(x), groups);
  return norm_of_samples("group_norm", x, groups, weight, bias, eps);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  require_input("instance_norm", x, weight, bias, eps);
  const NormCells cells{x.size(1), true};
  FIRN_CHECK(x.numel() == 0 || cell_size(x, cells) > 1, "instance_norm",
             "the mean of one value is that value: leave the layer out",
             "x {} has one value in each channel of a sample", describe(x));
  return norm_of_samples("instance_norm", x, x.size(1), weight, bias, eps);
}

// ---- Running statistics (moments.h) ----

namespace {

/// Notes that `tensors` were written, now and at every replay of a graph in capture.
void written(const char* op, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors) {
    if (!t->defined()) continue;
    t->storage()->bump_version(op);
    if (runtime::capturing(t->device()))
      runtime::on_replay(t->device(), [op, storage = t->storage()] { storage->bump_version(op); });
  }
}
View writable_or_none(const Tensor& t) { return t.defined() ? t.mutable_view() : View{}; }

}  // namespace

void ops::pool_moments(const Moments& moments, double count, const Tensor& pooled,
                       const Tensor& pooled_count) {
  kernels::pool_moments(moments.mean.view(), moments.var.view(), count, pooled.mutable_view(),
                        pooled_count.mutable_view(), stream_of(pooled));
  written("pool_moments", {&pooled, &pooled_count});
}

void ops::commit_moments(const Tensor& pooled, const Tensor& pooled_count, double momentum,
                         const ConstView& step_state, const Tensor& running_mean,
                         const Tensor& running_var, const Tensor& batches) {
  kernels::commit_moments(pooled.mutable_view(), pooled_count.mutable_view(), momentum, step_state,
                          running_mean.mutable_view(), running_var.mutable_view(),
                          writable_or_none(batches), stream_of(pooled));
  written("commit_moments", {&pooled, &pooled_count, &running_mean, &running_var, &batches});
}

void ops::update_moments(const Moments& moments, double count, double momentum,
                         const Tensor& running_mean, const Tensor& running_var,
                         const Tensor& batches) {
  kernels::update_moments(moments.mean.view(), moments.var.view(), count, momentum,
                          running_mean.mutable_view(), running_var.mutable_view(),
                          writable_or_none(batches), stream_of(running_mean));
  written("update_moments", {&running_mean, &running_var, &batches});
}

Tensor local_response_norm(const Tensor& x, std::int64_t size, double alpha, double beta,
                           double k) {
  constexpr const char* kOp = "local_response_norm";
  require_floating(kOp, x);
  FIRN_CHECK(x.rank() >= 2 && x.rank() <= 5, kOp, "x is [n, c, ...] of rank 2 to 5",
             "x {} has {} axes", describe(x), x.rank());
  FIRN_CHECK(size > 0 && size <= kMostPositions, kOp, "1 looks at the channel alone",
             "size = {} must be positive (and fit in 32 bits)", size);
  if (x.numel() == 0) return x;
  const std::int64_t n = x.size(0), c = x.size(1);
  const Tensor wide = cast(x, compute_dtype(x.dtype()));
  // Windows over channels are rows of images. An even one gives one row too many at the end.
  const Tensor means = slice(avg_pool2d(reshape(square(wide), {n, 1, c, x.numel() / (n * c)}),
                                        {size, 1}, {.stride = 1, .padding = {size / 2, 0}}),
                             2, 0, c);
  return cast(wide / reshape(pow(means * alpha + k, beta), x.shape()), x.dtype());
}

}  // namespace firn
