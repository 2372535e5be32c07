// Attention by plain loops over pairs in f64: what the op is compared with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "firn/ops/attention.h"
#include "support/values.h"

namespace firn::testing {

/// Sizes and options of a call.
struct AttentionCase {
  std::int64_t b = 1, hq = 1, hk = 1, n = 1, m = 1, d = 1, dv = 1;
  bool causal = false;
  std::int64_t window = 0;                 ///< 0: none
  std::vector<std::int64_t> lengths = {};  ///< empty: none
  Shape mask_shape = {};                   ///< of `mask`
  std::vector<double> mask = {};           ///< 0 or 1; empty: none
  Shape bias_shape = {};                   ///< of `bias`
  std::vector<double> bias = {};           ///< empty: none
  std::optional<DType> bias_dtype = {};    ///< else that of the operands
  std::optional<double> scale = {};
  double dropout = 0;
  RandomKey key{7, 3, nullptr};

  Shape q_shape() const { return {b, hq, n, d}; }
  Shape k_shape() const { return {b, hk, m, d}; }
  Shape v_shape() const { return {b, hk, m, dv}; }
  Shape o_shape() const { return {b, hq, n, dv}; }
  std::string name() const;

  /// Gives it the options that are the bits of `set`: causal, window, lengths, mask, dropout.
  void take_options(int set, Rng& rng);
  /// Gives it a random bias of that shape.
  void take_bias(const Shape& shape, Rng& rng);
  /// Which element of a tensor that broadcasts to [b, hq, n, m] a pair reads.
  static std::size_t place_in(const Shape& shape, std::int64_t batch, std::int64_t head,
                              std::int64_t i, std::int64_t j);
  bool sees(std::int64_t batch, std::int64_t head, std::int64_t i, std::int64_t j) const;
  /// 0 for a pair that dropout drops, else 1/(1 - dropout).
  double kept(std::int64_t batch, std::int64_t head, std::int64_t i, std::int64_t j) const;
};

struct AttentionValues {
  std::vector<double> q, k, v, dout;
};
/// Random values that `dtype` holds.
AttentionValues random_values(const AttentionCase& c, Rng& rng, DType dtype);

struct AttentionResults {
  std::vector<double> o, dq, dk, dv;
  std::vector<double> dbias = {};  ///< empty without a bias
};
AttentionResults reference(const AttentionCase& c, const AttentionValues& x);

/// The options of the case on the default device, for operands of that dtype; `generator` is set to
/// its key.
AttentionOptions options_of(const AttentionCase& c, Generator& generator, DType dtype = f64);
/// attention() and its gradients on the default device.
AttentionResults run_attention(const AttentionCase& c, const AttentionValues& x, DType dtype);
/// The same by matmul, where, softmax and matmul in that dtype; without dropout, and every query
/// sees a key.
AttentionResults run_composed(const AttentionCase& c, const AttentionValues& x, DType dtype);

/// Every result, one after another; empty: there is none.
std::vector<std::vector<double>> all_of(const AttentionResults& r);
/// Compares all results but the bias's gradient with reference(), each within `bound`; returns
/// both.
struct GotAndWanted {
  AttentionResults got, want;
};
GotAndWanted check_results(const AttentionCase& c, DType dtype, double bound);
/// Checks that the results have the same bits for 1, 2 and 3 threads, in f32 and bf16.
void check_threads(const AttentionCase& c);

/// |got - want| / |want|, both Euclidean. A gradient may be the small difference of numbers near 1,
/// so |want| counts as 0.3 an element at least.
double relative_error(const std::vector<double>& got, const std::vector<double>& want);

}  // namespace firn::testing
