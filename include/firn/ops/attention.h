// Attention, and what transformers put around it: rotary positions and gated units.
#pragma once

#include <cstdint>
#include <optional>

#include "firn/random.h"
#include "firn/tensor.h"

namespace firn {

struct AttentionOptions {
  /// A query sees no key after its own place. The last query stands at the last key: query i of n
  /// stands at key i + m - n (as in FlashAttention from 2.1 on), so one new query sees all keys of
  /// a cache. A query whose place is before the first key sees none.
  bool causal = false;
  /// A query sees only keys that are less than `window` places from its own: with `causal` the
  /// `window` keys that end at its place, else 2 window - 1 keys around it.
  std::optional<std::int64_t> window = {};
  /// [batch], i64 or i32: how many leading keys of a sequence are valid; the others are not seen.
  /// Places count from the last of all m keys, whatever the lengths.
  Tensor lengths = {};
  /// bool, broadcastable to [batch, heads, n, m]: true where a query may see a key.
  Tensor mask = {};
  /// Floating, broadcastable to [batch, heads, n, m]: added to the scores after `scale`, as in
  /// ALiBi, T5 and Swin. It is f32 (f64 for f64 operands) or has the dtype of q. It may require a
  /// gradient. -inf gives the probability 0.
  Tensor bias = {};
  /// The scores are scale times the products of queries and keys. Default: 1/sqrt(d).
  std::optional<double> scale = {};
  /// Each probability is zero with this probability, else divided by 1 - dropout. In [0, 1).
  double dropout = 0;
  Generator* generator = nullptr;  ///< generator of dropout; null: default_generator()
};

/// softmax(scale q kᵀ + bias) v in each head (Vaswani et al. 2017), as one op: the matrix of
/// probabilities is never held (Dao et al. 2022). q [batch, heads, n, d], k [batch, key_heads, m,
/// d] and v [batch, key_heads, m, dv] give [batch, heads, n, dv]. `heads` is a multiple of
/// `key_heads`: heads 0 to heads/key_heads - 1 read key head 0, and so on (Ainslie et al. 2023,
/// "GQA"). A pair that several options hide or show is seen only if all of them show it.
///
/// A pair that is not seen enters no sum, so a NaN in a key, value or bias reaches only the queries
/// that see it. A query that sees no key gives 0 and gets the gradient 0; so does one whose scores
/// are all -inf. Sums of values are divided at the end, so they overflow if values near the largest
/// f32 meet many keys. On a GPU with FIRN_ATTENTION=cudnn a causal call in 16 bits may spread a NaN
/// or an infinity to queries and keys nearby.
///
/// Scores, softmax and sums are f32 (f64 for f64 operands). For f16 and bf16 the probabilities and
/// their gradients are rounded to that dtype between two products, as those of PyTorch are. Each
/// gradient is rounded once. Under autocast the op runs in the guard's dtype, but a bias in f32
/// stays f32. Backward keeps q, k, v, the bias, the result and one number a query; dropout is drawn
/// again from its key. If cuDNN computes the gradients on a GPU, it uses up to 256 MiB of workspace
/// meanwhile.
///
/// The gradient of the bias is that of the scores, summed over the axes along which the bias was
/// repeated. It takes the products of queries and keys and of gradients and values once more. On a
/// GPU a call with a bias never goes to cuDNN. There is no second derivative: grad() with
/// create_graph throws Error.
///
/// Operands whose last axis has stride 1 are not copied, e.g. the transposed views [batch, n,
/// heads, d] of a fused projection. If q is such a view, so is the result: its reshape to [batch,
/// n, heads dv] needs no copy.
///
/// Throws Error if shapes, dtypes or devices do not fit together, and for a length outside [0, m]
/// (on a device at the host's next wait).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});

struct RopeOptions {
  /// [n], or [batch, n] with batch the first axis of x: i64 or i32, the place of each row.
  /// Undefined: offset, offset + 1, ...
  Tensor positions = {};
  std::int64_t offset = 0;  ///< position of the first row; unused with `positions`
  double theta = 10000;     ///< base of the wavelengths; unused with `frequencies`
  /// [d/2], f64: the angle of each pair from one position to the next, as in scaled rotary
  /// positions (Llama 3, YaRN). Undefined: theta^(-2i/d).
  Tensor frequencies = {};
  /// Pairs of elements that are turned together. True: 2i and 2i + 1 (as in the paper); false: i
  /// and i + d/2 (as in GPT-NeoX and Llama).
  bool interleaved = false;
};

/// Rotary positions (Su et al. 2021, "RoFormer"): x [..., n, d] of 2 to 4 axes, with d even. Pair i
/// of the row at position p is turned by the angle p theta^(-2i/d), so that products of queries and
/// keys depend on the distance of their positions. Angles are computed in f64. The dtype stays,
/// also under autocast; the gradient is turned back. If x is a transposed view [batch, n, heads,
/// d], so is the result. Throws Error if d is odd, positions or frequencies do not fit, or theta is
/// not a finite number of 1 or more.
Tensor rope(const Tensor& x, const RopeOptions& options = {});

}  // namespace firn
