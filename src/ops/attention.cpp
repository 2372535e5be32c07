// Attention and rotary positions. Under autocast attention runs in the guard's dtype, as matrix
// products do.
#include "firn/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "kernels/elementwise.h"
#include "kernels/math/sequence/attention.h"
#include "kernels/sequence/attention.h"
#include "ops/common.h"

namespace firn {
namespace {

using namespace ops;

constexpr int kInputs = 4;  ///< q, k, v and the bias, which may be undefined

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  FIRN_CHECK(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, "attention",
             "q is [batch, heads, n, d]: insert axes with unsqueeze, swap them with transpose",
             "q {}, k {}, v {}: all need 4 axes", describe(q), describe(k), describe(v));
  FIRN_CHECK(q.size(0) == k.size(0) && k.size(0) == v.size(0), "attention",
             "axis 0 is the batch: expand() the smaller", "batch sizes differ: q {}, k {}, v {}",
             describe(q), describe(k), describe(v));
  FIRN_CHECK(k.size(1) == v.size(1) && k.size(2) == v.size(2), "attention",
             "each key has one value", "k {} and v {} differ in heads or keys", describe(k),
             describe(v));
  FIRN_CHECK(q.size(3) == k.size(3), "attention", "queries and keys are multiplied",
             "q {} and k {} differ in the last axis", describe(q), describe(k));
  FIRN_CHECK(q.size(2) <= kMostPositions && k.size(2) <= kMostPositions, "attention",
             "attend to parts of it", "{} queries or {} keys do not fit in 32 bits", q.size(2),
             k.size(2));
  const std::int64_t heads = q.size(1), key_heads = k.size(1);
  FIRN_CHECK(key_heads == 0 ? heads == 0 : heads % key_heads == 0, "attention",
             "the heads of q are a multiple of those of k and v", "{} heads of q, {} of k and v",
             heads, key_heads);
}

/// Words of dropout for all pairs; throws Error if they do not fit in 64 bits.
std::uint64_t random_words(std::int64_t rows, std::int64_t m) {
  return static_cast<std::uint64_t>(
      checked_product("attention", rows, math::attention_row_words(m)));
}

/// True if t broadcasts to a shape of 4 axes.
bool broadcasts_to(const Tensor& t, const Shape& pairs) {
  if (t.rank() > 4) return false;
  for (int i = 1; i <= t.rank(); ++i)
    if (t.size(-i) != 1 && t.size(-i) != pairs[4 - i]) return false;
  return true;
}

/// Checks the bias of the scores `pairs` of queries in the dtype of q after casts.
void check_bias(const Tensor& bias, const Tensor& q, const Shape& pairs) {
  if (!bias.defined()) return;
  FIRN_CHECK(bias.dtype() != boolean, "attention", "give it as mask",
             "bias {} is bool, and is added to the scores", describe(bias));
  FIRN_CHECK(bias.dtype() == q.dtype() || bias.dtype() == compute_dtype(q.dtype()), "attention",
             fmt::format("cast it: bias.to(firn::{})", compute_dtype(q.dtype())),
             "bias {} has neither the dtype of q {} nor {}", describe(bias), describe(q),
             compute_dtype(q.dtype()));
  FIRN_CHECK(broadcasts_to(bias, pairs), "attention",
             "an axis of 1 is repeated; insert others in front with unsqueeze",
             "bias {} does not broadcast to [batch, heads, n, m] = {}", describe(bias), pairs);
  FIRN_CHECK(bias.device() == q.device(), "attention", "move it: bias.to(q.device())",
             "devices differ: bias {} and q {}", describe(bias), describe(q));
}

/// Checks the numbers, lengths and mask for q [b, heads, n, d] and m keys.
void check_options(const AttentionOptions& o, const Tensor& q, std::int64_t m) {
  if (o.window)
    FIRN_CHECK(*o.window > 0, "attention", "1 sees the query's own place; leave it out to see all",
               "window = {}", *o.window);
  if (o.scale)
    FIRN_CHECK(std::isfinite(*o.scale) &&
                   (q.dtype() == f64 || std::abs(*o.scale) <= max_of(compute_dtype(q.dtype()))),
               "attention", "the default is 1/sqrt(d)", "scale = {}", *o.scale);
  FIRN_CHECK(o.dropout >= 0 && o.dropout < 1, "attention",
             "dropout is the probability of a zero, in [0, 1)", "dropout = {}", o.dropout);
  if (o.lengths.defined()) {
    FIRN_CHECK(o.lengths.dtype() == i64 || o.lengths.dtype() == i32, "attention",
               "cast it: lengths.to(firn::i64)", "lengths is i64 or i32, got {}",
               describe(o.lengths));
    FIRN_CHECK(o.lengths.shape() == Shape{q.size(0)}, "attention",
               "lengths is [batch]: the valid keys of each sequence", "lengths {}, q {}",
               describe(o.lengths), describe(q));
  }
  if (o.mask.defined()) {
    FIRN_CHECK(o.mask.dtype() == boolean, "attention",
               is_floating(o.mask.dtype()) ? "give what is added to the scores as bias"
                                           : "compare it: ne(mask, 0)",
               "mask is bool, got {}", describe(o.mask));
    const Shape pairs = {q.size(0), q.size(1), q.size(2), m};
    FIRN_CHECK(broadcasts_to(o.mask, pairs), "attention", "insert axes with unsqueeze",
               "mask {} does not broadcast to [batch, heads, n, m] = {}", describe(o.mask), pairs);
  }
  const auto check_device = [&q](const char* name, const Tensor& t) {
    FIRN_CHECK(!t.defined() || t.device() == q.device(), "attention",
               fmt::format("move it: {}.to(q.device())", name), "devices differ: {} {} and q {}",
               name, describe(t), describe(q));
  };
  check_device("lengths", o.lengths);
  check_device("mask", o.mask);
}

/// Returns the bias as the op reads it: under autocast a 16-bit bias gets the guard's dtype, and an
/// f32 one stays.
Tensor bias_of(const AttentionOptions& o) {
  if (!o.bias.defined() || size_of(o.bias.dtype()) != 2) return o.bias;
  const Autocasted in(Policy::lower, o.bias);
  return in[0];
}

/// x if its last axis has stride 1 or one element, else a row-major copy.
Tensor with_unit_stride(const Tensor& x) {
  return x.size(3) <= 1 || x.strides()[3] == 1 ? x : contiguous(x);
}

/// An uninitialised [b, h, n, d]; in memory [b, n, h, d] if `like` has its axes in that order.
Tensor empty_in_order_of(const Tensor& like, std::int64_t d) {
  const std::int64_t b = like.size(0), h = like.size(1), n = like.size(2);
  if (h <= 1 || n <= 1 || like.strides()[1] >= like.strides()[2])
    return empty({b, h, n, d}, like.dtype(), like.device());
  return empty({b, n, h, d}, like.dtype(), like.device())
      .as_strided({b, h, n, d}, {n * h * d, d, h * d, 1});
}

ConstView view_of(const Tensor& t) { return t.defined() ? t.view() : ConstView{}; }
/// A mask or a bias of the scores `pairs`.
ConstView pairs_view(const Tensor& t, const Shape& pairs) {
  return t.defined() ? broadcast_to(t.view(), pairs) : ConstView{};
}
/// The gradient of a bias, seen with an axis for each axis of the scores.
View with_four_axes(View v) {
  while (v.rank() < 4) {
    v.shape.insert(0, 1);
    v.strides.insert(0, 0);
  }
  return v;
}

/// A view [..., n, d] as [batch, heads, n, d]: with three axes the first is the batch.
template <class V>
V as_heads(V v) {
  while (v.rank() < 4) {
    const int at = v.rank() == 2 ? 0 : 1;
    v.shape.insert(at, 1);
    v.strides.insert(at, 0);
  }
  return v;
}
/// Positions as [batch, n], with stride 0 along a missing axis.
ConstView positions_view(const Tensor& positions) {
  if (!positions.defined()) return {};
  ConstView v = positions.view();
  if (v.rank() == 1) {
    v.shape.insert(0, 1);
    v.strides.insert(0, 0);
  }
  return v;
}

/// The frequencies of rope(x) in memory of stride 1, or undefined.
Tensor frequencies_of(const RopeOptions& options, const Tensor& x) {
  const Tensor& given = options.frequencies;
  if (!given.defined()) return given;
  FIRN_CHECK(given.dtype() == f64 && given.rank() == 1 && given.numel() == x.size(-1) / 2, "rope",
             "frequencies are f64 [d/2]: one angle for each pair", "frequencies {} for x {}",
             describe(given), describe(x));
  FIRN_CHECK(given.device() == x.device(), "rope", "move them: frequencies.to(x.device())",
             "devices differ: frequencies {} and x {}", describe(given), describe(x));
  const NoGrad guard;
  return contiguous(given);
}
const double* numbers_of(const Tensor& frequencies) {
  return frequencies.defined() ? frequencies.view().as<double>() : nullptr;
}

/// The gradients of q, k, v and the bias. One kernel call cannot write the gradient of a tensor
/// that is an input several times. Its gradients are computed separately in the compute dtype, and
/// their sum is added.
class Gradients {
 public:
  /// first[i] is the first of the inputs with the same node as input i.
  Gradients(Backward& b, const std::array<int, kInputs>& first) : b_(b), first_(first) {
    for (int i = 0; i < kInputs; ++i) shared_[first[i]] |= first[i] != i;
  }
  kernels::AttentionGrads views() {
    kernels::AttentionGrads grads;
    take(0, grads.dq, grads.dq_beta);
    take(1, grads.dk, grads.dk_beta);
    take(2, grads.dv, grads.dv_beta);
    take(3, grads.dbias, grads.dbias_beta);
    if (grads.dbias.data) grads.dbias = with_four_axes(grads.dbias);
    return grads;
  }
  void add_shared() {
    for (int i = 0; i < kInputs; ++i) {
      if (!own_[i].defined() || first_[i] == i) continue;
      kernels::axpby(1, own_[i].view(), 1, own_[first_[i]].mutable_view(), b_.stream());
    }
    for (int i = 0; i < kInputs; ++i)
      if (own_[i].defined() && first_[i] == i) b_.accumulate(i, own_[i]);
  }

 private:
  void take(int i, View& grad, float& beta) {
    if (!b_.needs(i)) return;
    if (shared_[first_[i]]) {
      own_[i] = empty(b_.input_shape(i), compute_dtype(b_.grad().dtype()), b_.grad().device());
      grad = own_[i].mutable_view();
    } else {
      const autograd::Sink sink = b_.sink(i);
      grad = sink.grad.mutable_view();
      beta = sink.beta;
      kept_[i] = sink.grad;
    }
  }

  Backward& b_;
  std::array<int, kInputs> first_;
  std::array<bool, kInputs> shared_{};
  std::array<Tensor, kInputs> own_, kept_;
};

/// Returns, for each input, the first one that has the same node.
std::array<int, kInputs> first_with_node(const std::array<const Tensor*, kInputs>& inputs) {
  std::array<int, kInputs> first{};
  for (std::size_t i = 0; i < kInputs; ++i) {
    const auto* const node = inputs[i]->defined() ? inputs[i]->impl()->node.get() : nullptr;
    std::size_t j = 0;
    while (j < i && !(node && inputs[j]->impl()->node.get() == node)) ++j;
    first[i] = static_cast<int>(j);
  }
  return first;
}

}  // namespace

Tensor attention(const Tensor& q_given, const Tensor& k_given, const Tensor& v_given,
                 const AttentionOptions& options) try {
  require_floating("attention", q_given);
  require_factors("attention", q_given, k_given);
  require_factors("attention", q_given, v_given);
  check_shapes(q_given, k_given, v_given);
  check_options(options, q_given, k_given.size(2));
  const Tensor q_rows = with_unit_stride(q_given), k_rows = with_unit_stride(k_given),
               v_rows = with_unit_stride(v_given);
  const Autocasted in(Policy::lower, q_rows, k_rows, v_rows);
  const Tensor &q = in[0], &k = in[1], &v = in[2];

  const std::int64_t b = q.size(0), heads = q.size(1), n = q.size(2), m = k.size(2);
  const Shape pairs = {b, heads, n, m};
  const Tensor bias = bias_of(options);
  check_bias(bias, q, pairs);
  kernels::AttentionArgs args;
  args.scale = options.scale.value_or(
      1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, q.size(3)))));
  args.causal = options.causal;
  args.window = options.window ? std::min(*options.window, n + m) : 0;
  args.lengths = view_of(options.lengths);
  args.mask = pairs_view(options.mask, pairs);
  args.bias = pairs_view(bias, pairs);
  args.dropout = options.dropout;
  if (args.dropout > 0) {
    if (autograd::wants_attributes()) [[unlikely]]
      thread_context.attributes->cannot_repeat("attention", "it drops probabilities at random",
                                               "call model.eval()");
    args.key = runtime::reserve_random(options.generator ? *options.generator : default_generator(),
                                       q.device(), random_words(b * heads * n, m));
  }
  const double work =
      static_cast<double>(q.numel() + b * heads * n * v.size(3)) * static_cast<double>(m);
  const auto [y, log_sum_exp] = autograd::product(work, autograd::ReadsResult::yes, [&] {
    std::array<Tensor, 2> made{empty_in_order_of(q, v.size(3))};
    if (autograd::detail::needs_recording({&q, &k, &v, &bias}))
      made[1] = empty({b, heads, n}, compute_dtype(q.dtype()), q.device());
    kernels::attention(q.view(), k.view(), v.view(), args, made[0].mutable_view(),
                       made[1].defined() ? made[1].mutable_view() : View{}, stream_of(q));
    return made;
  });
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("attention", {{"scale", args.scale},
                                       {"causal", args.causal},
                                       {"window", args.window},
                                       {"lengths", &options.lengths},
                                       {"mask", &options.mask}});
  return record("attention", y, {&q, &k, &v, &bias},
                {Saved::input(0), Saved::input(1), Saved::input(2), Saved::output(),
                 Saved::other(log_sum_exp), Saved::other(options.lengths),
                 Saved::other(options.mask), Saved::input(3)},
                [args, pairs, first = first_with_node({&q, &k, &v, &bias})](Backward& back) {
                  kernels::AttentionArgs again = args;
                  again.lengths = view_of(back.saved(5));
                  again.mask = pairs_view(back.saved(6), pairs);
                  again.bias = pairs_view(back.saved(7), pairs);
                  const Tensor dy = with_unit_stride(back.grad());
                  Gradients gradients(back, first);
                  kernels::attention_backward(dy.view(), back.saved(0).view(), back.saved(1).view(),
                                              back.saved(2).view(), back.saved(3).view(),
                                              back.saved(4).view(), again, gradients.views(),
                                              back.stream());
                  gradients.add_shared();
                });
}
FIRN_OUT_OF_MEMORY("attention")

Tensor rope(const Tensor& x, const RopeOptions& options) try {
  require_floating("rope", x);
  FIRN_CHECK(x.rank() >= 2 && x.rank() <= 4, "rope", "x is [..., n, d]: merge axes with reshape",
             "x {} has {} axes, not 2 to 4", describe(x), x.rank());
  const std::int64_t n = x.size(-2), d = x.size(-1);
  FIRN_CHECK(d % 2 == 0, "rope", "elements are turned in pairs", "the last axis of x {} is odd",
             describe(x));
  FIRN_CHECK(std::isfinite(options.theta) && options.theta >= 1, "rope", "the default is 10000",
             "theta = {} is not a finite number from 1 on", options.theta);
  const Tensor& positions = options.positions;
  if (positions.defined()) {
    require_index("rope", positions);
    FIRN_CHECK(
        positions.shape() == Shape{n} || (x.rank() > 2 && positions.shape() == Shape{x.size(0), n}),
        "rope", "positions are [n], or [batch, n]", "positions {} for x {}", describe(positions),
        describe(x));
    FIRN_CHECK(positions.device() == x.device(), "rope", "move one: x.to(device)",
               "devices differ: {} and {}", describe(positions), describe(x));
    FIRN_CHECK(options.offset == 0, "rope", "add it to the positions",
               "offset = {} and positions are both given", options.offset);
  } else {
    checked_sum("rope", options.offset, n);
  }
  const Tensor frequencies = frequencies_of(options, x);
  kernels::RopeArgs args{.offset = options.offset,
                         .theta = options.theta,
                         .frequencies = numbers_of(frequencies),
                         .interleaved = options.interleaved};
  const Tensor y =
      x.rank() == 4 ? empty_in_order_of(x, d) : empty(x.shape(), x.dtype(), x.device());
  kernels::rope(as_heads(x.view()), positions_view(positions), args, as_heads(y.mutable_view()), 0,
                stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("rope", {{"offset", args.offset},
                                  {"theta", args.theta},
                                  {"interleaved", args.interleaved},
                                  {"positions", &positions},
                                  {"frequencies", &frequencies}});
  args.inverse = true;
  return record("rope", y, {&x}, {Saved::other(positions), Saved::other(frequencies)},
                [args](Backward& b) {
                  kernels::RopeArgs again = args;
                  again.frequencies = numbers_of(b.saved(1));
                  const auto [dx, beta] = b.sink(0);
                  kernels::rope(as_heads(b.grad().view()), positions_view(b.saved(0)), again,
                                as_heads(dx.mutable_view()), beta, b.stream());
                });
}
FIRN_OUT_OF_MEMORY("rope")

}  // namespace firn
