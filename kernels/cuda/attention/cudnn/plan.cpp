#include "kernels/cuda/attention/cudnn/plan.h"

#include <vector>

namespace firn::kernels::cuda {
namespace {

using gpu::Descriptor;
using Sizes = std::vector<std::int64_t>;

/// The graph of a problem. cuDNN recognises attention by its operations and their order, which
/// follow its developer guide. Tensors between two operations have ids from 100 on.
class SdpaGraph {
 public:
  explicit SdpaGraph(const SdpaProblem& p) : p_(p) {
    if (p.backward) {
      add_backward();
    } else {
      add_forward();
    }
  }
  const CudnnGraph& graph() const { return graph_; }

 private:
  void add_forward() {
    const Descriptor& q = operand(kQ, {p_.b, p_.hq, p_.n, p_.d}, p_.q);
    const Descriptor& k = transposed(kK, {p_.b, p_.hk, p_.m, p_.d}, p_.k);
    const Descriptor& v = operand(kV, {p_.b, p_.hk, p_.m, p_.dv}, p_.v);
    const Descriptor& product = pairs();
    graph_.product(q, k, product);
    const Descriptor& scores = banded(scaled(product));
    const Descriptor& max = rows();
    graph_.reduction(CUDNN_REDUCE_TENSOR_MAX, scores, max);
    const Descriptor& terms = f32(CUDNN_POINTWISE_EXP, {f32(CUDNN_POINTWISE_SUB, {scores, &max})});
    const Descriptor& sum = rows();
    graph_.reduction(CUDNN_REDUCE_TENSOR_ADD, terms, sum);
    // This belongs to the graph that cuDNN recognises, even if nothing reads it.
    const Descriptor& log = rows();
    graph_.pointwise(CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, {sum}, log);
    graph_.pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, {max, &log},
                     p_.log_sum_exp ? rows(kLogSumExp) : rows());
    const Descriptor& shares = pairs(cudnn_type(p_.dtype));
    graph_.pointwise(CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, {terms, &sum}, shares);
    graph_.product(shares, v, operand(kO, {p_.b, p_.hq, p_.n, p_.dv}, p_.o));
  }

  void add_backward() {
    const Descriptor& q = operand(kQ, {p_.b, p_.hq, p_.n, p_.d}, p_.q);
    const Descriptor& k = transposed(kK, {p_.b, p_.hk, p_.m, p_.d}, p_.k);
    const Descriptor& v = transposed(kV, {p_.b, p_.hk, p_.m, p_.dv}, p_.v);
    const Descriptor& o = operand(kO, {p_.b, p_.hq, p_.n, p_.dv}, p_.o);
    const Descriptor& dout = operand(kDout, {p_.b, p_.hq, p_.n, p_.dv}, p_.dout);

    // delta of a query: the sum of do o.
    const Descriptor& weighted = between({p_.b, p_.hq, p_.n, p_.dv});
    graph_.pointwise(CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, {dout, &o}, weighted);
    const Descriptor& sum = rows();
    graph_.reduction(CUDNN_REDUCE_TENSOR_ADD, weighted, sum);
    const Descriptor& delta = rows(kDelta);
    graph_.pointwise(CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, {sum, &number(kOne)}, delta);

    // p = e^(scores - log_sum_exp), and dv = p^T do.
    const Descriptor& product = pairs();
    graph_.product(q, k, product);
    const Descriptor& shifted = f32(CUDNN_POINTWISE_SUB, {scaled(product), &rows(kLogSumExp)});
    const Descriptor& p = f32(CUDNN_POINTWISE_EXP, {banded(shifted)});
    add_by_keys(p, dout, operand(kDv, {p_.b, p_.hk, p_.m, p_.dv}, p_.dv_layout), p_.dv);

    // ds = scale p (do v^T - delta), dk = ds^T q, dq = ds k.
    const Descriptor& dp = pairs();
    graph_.product(dout, v, dp);
    const Descriptor& ds =
        scaled(f32(CUDNN_POINTWISE_MUL, {f32(CUDNN_POINTWISE_SUB, {dp, &delta}), &p}));
    add_by_keys(ds, q, operand(kDk, {p_.b, p_.hk, p_.m, p_.d}, p_.dk), p_.d);
    const Descriptor& key_rows = graph_.tensor({p_.b, p_.hk, p_.m, p_.d}, with_unit(p_.k),
                                               cudnn_type(p_.dtype), next_++, CudnnPlace::nowhere);
    graph_.reshape(k, key_rows);
    const Sizes queries = {p_.b, p_.hq, p_.n, p_.d};
    const Descriptor& dq = operand(kDq, queries, p_.dq);
    if (!p_.nondeterministic) return graph_.product(ds, key_rows, dq);
    const Descriptor& dq_sum = graph_.tensor(queries, packed(queries), CUDNN_DATA_FLOAT, kDqSum);
    graph_.product(ds, key_rows, dq_sum);
    graph_.pointwise(CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, {dq_sum}, dq);
  }

  /// result = w^T x, summed in f32 over the query heads that read a key head.
  void add_by_keys(const Descriptor& w, const Descriptor& x, const Descriptor& result,
                   std::int64_t depth) {
    const Descriptor& by_keys =
        graph_.tensor({p_.b, p_.hq, p_.m, p_.n}, {p_.hq * p_.n * p_.m, p_.n * p_.m, 1, p_.m},
                      cudnn_type(p_.dtype), next_++, CudnnPlace::nowhere);
    graph_.reshape(w, by_keys);
    if (p_.hq == p_.hk) return graph_.product(by_keys, x, result);
    const Descriptor& of_each_head = between({p_.b, p_.hq, p_.m, depth});
    graph_.product(by_keys, x, of_each_head);
    graph_.reduction(CUDNN_REDUCE_TENSOR_ADD, of_each_head, result);
  }

  const Descriptor& scaled(const Descriptor& x) {
    return f32(CUDNN_POINTWISE_MUL, {x, &number(kScale)});
  }

  /// If causal, sets keys after query + m - n to -inf.
  const Descriptor& banded(const Descriptor& x) {
    if (!p_.causal) return x;
    const auto index = [&](std::int64_t axis) -> const Descriptor& {
      const Descriptor& y = pairs(CUDNN_DATA_INT32);
      graph_.pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, {x, nullptr, nullptr, axis}, y);
      return y;
    };
    const Descriptor* place = &index(2);
    const Descriptor& key = index(3);
    const auto shift = [&](cudnnPointwiseMode_t mode, SdpaTensor by) {
      const Descriptor& y = pairs(CUDNN_DATA_INT32);
      graph_.pointwise(mode, CUDNN_DATA_INT32, {*place, &number(by, CUDNN_DATA_INT32), nullptr, 3},
                       y);
      place = &y;
    };
    if (p_.n != p_.m) {
      shift(CUDNN_POINTWISE_ADD, kKeys);
      shift(CUDNN_POINTWISE_SUB, kQueries);
    }
    const Descriptor& seen = pairs(CUDNN_DATA_BOOLEAN);
    graph_.pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, {*place, &key}, seen);
    return f32(CUDNN_POINTWISE_BINARY_SELECT, {x, &number(kHidden), &seen});
  }

  // ---- Tensors ----

  static Sizes packed(const Sizes& s) { return {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1}; }
  static Sizes with_unit(const SdpaProblem::Layout& l) { return {l[0], l[1], l[2], 1}; }

  const Descriptor& operand(std::int64_t uid, const Sizes& sizes, const SdpaProblem::Layout& l) {
    return graph_.tensor(sizes, with_unit(l), cudnn_type(p_.dtype), uid);
  }
  /// Describes the operand with its last two axes in the other order.
  const Descriptor& transposed(std::int64_t uid, const Sizes& s, const SdpaProblem::Layout& l) {
    return graph_.tensor({s[0], s[1], s[3], s[2]}, {l[0], l[1], 1, l[2]}, cudnn_type(p_.dtype),
                         uid);
  }
  const Descriptor& between(const Sizes& sizes, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return graph_.tensor(sizes, packed(sizes), type, next_++, CudnnPlace::nowhere);
  }
  const Descriptor& pairs(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return between({p_.b, p_.hq, p_.n, p_.m}, type);
  }
  /// One f32 per query, between two operations or in memory.
  const Descriptor& rows() { return between({p_.b, p_.hq, p_.n, 1}); }
  const Descriptor& rows(std::int64_t uid) {
    const Sizes sizes = {p_.b, p_.hq, p_.n, 1};
    return graph_.tensor(sizes, packed(sizes), CUDNN_DATA_FLOAT, uid);
  }
  /// The tensor of a number of the host. The graph has one for each number.
  const Descriptor& number(SdpaTensor uid, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const Descriptor*& kept = numbers_[static_cast<std::size_t>(uid - kScale)];
    if (!kept) kept = &graph_.tensor({1, 1, 1, 1}, {1, 1, 1, 1}, type, uid, CudnnPlace::host);
    return *kept;
  }
  /// Adds an f32 operation whose result is one number per pair, between two operations.
  const Descriptor& f32(cudnnPointwiseMode_t mode, const CudnnGraph::PointwiseInputs& in) {
    const Descriptor& y = pairs();
    graph_.pointwise(mode, CUDNN_DATA_FLOAT, in, y);
    return y;
  }

  const SdpaProblem& p_;
  CudnnGraph graph_;
  std::int64_t next_ = 100;
  std::array<const Descriptor*, kQueries - kScale + 1> numbers_{};
};

}  // namespace

CudnnKey SdpaProblem::key() const noexcept {
  CudnnKey key = {backward ? 4 : 3,
                  static_cast<std::int64_t>(dtype),
                  causal + 2 * log_sum_exp + 4 * nondeterministic,
                  b,
                  hq,
                  hk,
                  n,
                  m,
                  d,
                  dv};
  std::size_t i = 10;
  for (const Layout* l : {&q, &k, &v, &o, &dout, &dq, &dk, &dv_layout})
    for (const std::int64_t stride : *l) key[i++] = stride;
  return key;
}

std::string to_string(const SdpaProblem& p) {
  const auto number = [](std::int64_t v) { return std::to_string(v); };
  std::string out = p.backward ? "attention backward" : "attention";
  out += " q [" + number(p.b) + ", " + number(p.hq) + ", " + number(p.n) + ", " + number(p.d) +
         "] v [" + number(p.b) + ", " + number(p.hk) + ", " + number(p.m) + ", " + number(p.dv) +
         "] " + std::string(firn::to_string(p.dtype));
  if (p.causal) out += " causal";
  if (p.log_sum_exp) out += " + log_sum_exp";
  if (p.nondeterministic) out += " in any order";
  return out;
}

CudnnPlan make_sdpa_plan(const SdpaProblem& p, const CudnnTarget& target) {
  const auto refused = [](const char* why) {
    CudnnPlan none;
    none.attempts.emplace_back().outcome = why;
    return none;
  };
  constexpr std::size_t kLeastVersion = 91600;
  constexpr std::int64_t kMostDepth = 256;
  if (gpu::cudnn()->cudnnGetVersion() < kLeastVersion) return refused("a cuDNN before 9.16");
  if (p.dtype != DType::f16 && p.dtype != DType::bf16) return refused("not a 16-bit dtype");
  if (p.d > kMostDepth || p.dv > kMostDepth) return refused("more than 256 elements a head");
  const SdpaGraph graph(p);
  return make_plan(graph.graph(), target,
                   {.tensor_cores = true, .nondeterministic = p.nondeterministic});
}

}  // namespace firn::kernels::cuda
