// Random compositions of many operations: the gradient along a random direction agrees with a
// central difference of the loss, and the second derivative with one of the gradient.
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::Rng;

namespace {

constexpr std::int64_t kRows = 4, kColumns = 6;
const Shape kShape{kRows, kColumns};

/// What an operation is made of: two tensors of kShape, with elements in (-1, 1).
struct Operands {
  Tensor x, y;
  Rng& rng;

  Tensor positive() const { return x + 1.5; }
  Tensor images() const { return reshape(x, {1, 1, kRows, kColumns}); }
  /// Rows of kColumns positions below `bound`, the same at each call with one seed.
  Tensor positions(std::int64_t bound) const {
    std::vector<std::int64_t> at(static_cast<std::size_t>(kRows * kColumns));
    for (std::int64_t& i : at) i = rng.below(bound);
    return tensor(std::span<const std::int64_t>(at), kShape, Device::cpu());
  }
  Tensor mask() const { return gt(positions(2), 0); }
};
struct Operation {
  const char* name;
  std::function<Tensor(const Operands&)> apply;
  bool twice = true;  ///< has a second derivative
};

using Fn = Tensor (*)(const Tensor&);
Operation smooth(const char* name, Fn fn) {
  return {name, [fn](const Operands& o) { return fn(o.x); }};
}
Operation on_positive(const char* name, Fn fn) {
  return {name, [fn](const Operands& o) { return fn(o.positive()); }};
}
using Terms = LossTerms (*)(const Tensor&, const Tensor&);
Operation loss(const char* name, Terms fn) {
  return {name, [fn](const Operands& o) { return fn(o.x, o.y).terms; }};
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      smooth("sin", sin),
      smooth("tan", tan),
      smooth("asin", [](const Tensor& x) { return asin(0.9 * x); }),
      smooth("acos", [](const Tensor& x) { return acos(0.9 * x); }),
      smooth("atan", atan),
      smooth("sinh", sinh),
      smooth("cosh", cosh),
      smooth("asinh", asinh),
      smooth("atanh", [](const Tensor& x) { return atanh(0.9 * x); }),
      on_positive("acosh", [](const Tensor& x) { return acosh(x + 0.6); }),
      on_positive("log10", log10),
      on_positive("log1p", log1p),
      smooth("expm1", expm1),
      on_positive("log2", log2),
      smooth("exp2", exp2),
      smooth("erf", erf),
      smooth("erfc", erfc),
      smooth("hardtanh", [](const Tensor& x) { return hardtanh(x, -0.6, 0.6); }),
      smooth("hardswish", hardswish),
      smooth("hardsigmoid", hardsigmoid),
      smooth("softsign", softsign),
      smooth("mish", mish),
      smooth("celu", [](const Tensor& x) { return celu(x, 0.7); }),
      smooth("selu", selu),
      smooth("logsigmoid", logsigmoid),
      smooth("hardshrink", [](const Tensor& x) { return hardshrink(x, 0.3); }),
      smooth("softshrink", [](const Tensor& x) { return softshrink(x, 0.3); }),
      smooth("tanhshrink", tanhshrink),
      smooth("glu", [](const Tensor& x) { return glu(x); }),
      smooth("normalize", [](const Tensor& x) { return normalize(x); }),
      {"atan2", [](const Operands& o) { return atan2(o.x, o.y + 1.5); }},
      {"hypot", [](const Operands& o) { return hypot(o.x, o.y + 1.5); }},
      {"logaddexp", [](const Operands& o) { return logaddexp(o.x, o.y); }},
      {"lerp", [](const Operands& o) { return lerp(o.x, o.y, sigmoid(o.x)); }},
      {"addcmul", [](const Operands& o) { return addcmul(o.x, o.y, o.x, 0.5); }},
      {"clamp", [](const Operands& o) { return clamp(o.x, o.y - 0.5, o.y + 0.5); }},
      {"masked_fill", [](const Operands& o) { return masked_fill(o.x, o.mask(), 0.25); }},
      {"where", [](const Operands& o) { return where(o.mask(), o.x, o.y); }},
      {"prelu", [](const Operands& o) { return prelu(o.x, o.y[0]); }},
      // ---- Reductions and scans ----
      {"prod", [](const Operands& o) { return prod(o.positive(), 1, true) * o.y; }},
      {"std", [](const Operands& o) { return firn::std(o.x, 1, 1, true) * o.y; }},
      {"var_mean",
       [](const Operands& o) {
         const VarMean both = var_mean(o.x, 0, 1, true);
         return both.var * o.y + both.mean;
       }},
      {"logsumexp", [](const Operands& o) { return logsumexp(o.x, 0, true) * o.y; }},
      {"quantile", [](const Operands& o) { return quantile(o.x, 0.4) * o.y; }},
      {"median", [](const Operands& o) { return median(o.x, 1, true).values * o.y; }, false},
      {"cumsum", [](const Operands& o) { return cumsum(o.x, 1); }},
      {"cumprod", [](const Operands& o) { return cumprod(o.positive(), 1); }, false},
      {"logcumsumexp", [](const Operands& o) { return logcumsumexp(o.x, 1); }, false},
      {"cummax", [](const Operands& o) { return cummax(o.x, 0).values; }},
      // ---- Order and index ----
      {"sort", [](const Operands& o) { return sort(o.x, 1).values; }},
      {"topk", [](const Operands& o) { return topk(o.x, 3, 1).values; }},
      {"kthvalue", [](const Operands& o) { return kthvalue(o.x, 2, 0, true).values * o.y; }},
      {"gather", [](const Operands& o) { return gather(o.x, 1, o.positions(kColumns)); }},
      {"take_along", [](const Operands& o) { return take_along(o.x, o.positions(kRows), 0); }},
      {"scatter_add",
       [](const Operands& o) { return scatter_add(o.x, 1, o.positions(kColumns), o.y); }},
      {"scatter", [](const Operands& o) { return scatter(o.x, 0, o.positions(kRows), o.y); }},
      {"index_add",
       [](const Operands& o) {
         return index_add(o.x, 0, o.positions(kRows)[0].slice(0, 0, kRows), o.y);
       }},
      {"put", [](const Operands& o) { return put(o.x, o.positions(kRows * kColumns), o.y); }},
      {"masked_scatter", [](const Operands& o) { return masked_scatter(o.x, o.mask(), o.y); }},
      {"masked_select", [](const Operands& o) { return o.x * sum(masked_select(o.y, o.mask())); }},
      {"select_scatter", [](const Operands& o) { return select_scatter(o.x, o.y[1], 0, 2); }},
      // ---- Moving ----
      {"flip",
       [](const Operands& o) {
         return flip(o.x, {0, 1});
       }},
      {"roll", [](const Operands& o) { return roll(o.x, 2, 1); }},
      {"rot90", [](const Operands& o) { return rot90(o.x); }},
      {"repeat",
       [](const Operands& o) {
         return repeat(o.x.slice(0, 0, 2), {2, 1});
       }},
      {"repeat_interleave",
       [](const Operands& o) { return repeat_interleave(o.x.slice(1, 0, 3), 2, 1); }},
      {"tril", [](const Operands& o) { return tril(o.x) + triu(o.y, 1); }},
      {"diagonal", [](const Operands& o) { return diagonal(o.x, 1); }},
      {"unfold_axis", [](const Operands& o) { return unfold_axis(o.x, 1, 3, 1); }},
      {"movedim", [](const Operands& o) { return movedim(o.x, 0, 1); }},
      // ---- Images ----
      {"unfold", [](const Operands& o) { return unfold(o.images(), 2); }},
      {"fold",
       [](const Operands& o) {
         return fold(reshape(o.x, {1, 4, 6}), {3, 4}, 2);
       }},
      {"conv2d",
       [](const Operands& o) {
         return conv2d(o.images(), reshape(o.y, {2, 1, 4, 3}));
       }},
      {"conv3d",
       [](const Operands& o) {
         return conv3d(reshape(o.x, {1, 1, 2, 3, 4}), reshape(o.y.slice(1, 0, 4), {2, 1, 2, 2, 2}));
       }},
      {"conv_transpose2d",
       [](const Operands& o) {
         return conv_transpose2d(o.images(), reshape(o.y.slice(1, 0, 4), {1, 4, 2, 2}));
       }},
      {"upsample2d",
       [](const Operands& o) {
         return upsample2d(o.images(), {3, 8}, Upsampling::bicubic);
       }},
      {"avg_pool2d", [](const Operands& o) { return avg_pool2d(o.images(), 2); }},
      {"max_pool2d", [](const Operands& o) { return max_pool2d(o.images(), 2); }},
      // ---- Products ----
      {"einsum",
       [](const Operands& o) {
         return einsum("ij,kj->ik", {o.x, o.y});
       }},
      {"outer", [](const Operands& o) { return outer(o.x[0].slice(0, 0, 4), o.y[1]); }},
      {"tensordot", [](const Operands& o) { return tensordot(o.x, transpose(o.y, 0, 1), 1); }},
      {"baddbmm",
       [](const Operands& o) {
         const Tensor a = reshape(o.x, {2, 3, 4}), b = reshape(o.y, {2, 4, 3});
         return baddbmm(ones({3}, f64), a, b, {.beta = 0.5});
       }},
      // ---- Rows and losses ----
      {"softmax", [](const Operands& o) { return softmax(o.x) + log_softmax(o.y, 0); }},
      {"layer_norm", [](const Operands& o) { return layer_norm(o.x, o.y[0], o.y[1]); }},
      {"rms_norm", [](const Operands& o) { return rms_norm(o.x, o.y[2], 0.1); }},
      loss("mse_terms", mse_terms),
      {"smooth_l1_terms", [](const Operands& o) { return smooth_l1_terms(o.x, o.y, 0.4).terms; }},
      {"bce_terms",
       [](const Operands& o) { return bce_terms(sigmoid(o.x), sigmoid(o.y)).terms; }},
      {"bce_with_logits_terms",
       [](const Operands& o) { return bce_with_logits_terms(o.x, sigmoid(o.y)).terms; }},
      {"cross_entropy_terms",
       [](const Operands& o) {
         return cross_entropy_terms(o.x, softmax(o.y)).terms * o.y[0][0];
       }},
      {"cosine_similarity", [](const Operands& o) { return cosine_similarity(o.x, o.y); }},
      {"pairwise_distance", [](const Operands& o) { return pairwise_distance(o.x, o.y); }},
  };
  return all;
}

/// Any result as one of kShape with elements in (-1, 1).
Tensor fitted(const Tensor& t) {
  const std::int64_t n = kRows * kColumns;
  const Tensor list = flatten(t.rank() == 0 ? unsqueeze(t, 0) : t);
  const Tensor enough = tile(list, {(n + list.numel() - 1) / list.numel()});
  return tanh(reshape(narrow(enough, 0, 0, n), kShape));
}

/// A loss of two leaves: 2 to 7 operations, each on two of the tensors made before.
struct Program {
  std::uint64_t seed;
  bool twice;

  Tensor operator()(const Tensor& a, const Tensor& b,
                    std::vector<const char*>* used = nullptr) const {
    Rng rng(seed);
    std::vector<Tensor> pool = {tanh(a), tanh(b)};
    for (std::int64_t left = 2 + rng.below(6); left > 0;) {
      const auto& all = operations();
      const Operation& op =
          all[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(all.size())))];
      if (twice && !op.twice) continue;
      const auto one_of = [&] {
        return pool[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(pool.size())))];
      };
      const Tensor x = one_of(), y = one_of();
      pool.push_back(fitted(op.apply({x, y, rng})));
      if (used) used->push_back(op.name);
      --left;
    }
    const Tensor weight = tensor(std::span<const double>(rng.uniforms(kShape.product(), 0.5, 1.5)),
                                 kShape, Device::cpu());
    Tensor total = sum(pool.back() * weight);
    for (std::size_t i = 2; i < pool.size(); ++i) total = total + 0.1 * sum(pool[i]);
    return total;
  }
};

Tensor drawn(Rng& rng) {
  return tensor(std::span<const double>(rng.uniforms(kShape.product(), -1, 1)), kShape,
                Device::cpu());
}

double product(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].defined()) total += sum(a[i] * b[i]).item();
  return total;
}

/// Whether `exact` is the slope of f at 0, for one of several steps: one of them may meet a kink.
bool is_slope(double exact, double tolerance, const std::function<double(double)>& f,
              std::string& fault) {
  for (const double h : {1e-5, 1e-6, 1e-4}) {
    const double slope = (f(h) - f(-h)) / (2 * h);
    if (std::abs(slope - exact) <= tolerance * (1 + std::abs(exact))) return true;
    fault =
        "derivative " + std::to_string(exact) + ", difference quotient " + std::to_string(slope);
  }
  return false;
}

/// "" or what is wrong.
std::string check(std::uint64_t seed, bool twice, std::map<std::string, int>& used) {
  Rng rng(seed + 1'000'000);
  const std::vector<Tensor> at = {drawn(rng), drawn(rng)}, along = {drawn(rng), drawn(rng)},
                            weights = {drawn(rng), drawn(rng)};
  const Program program{seed, twice};
  const auto leaves = [&](double h) {
    std::vector<Tensor> out;
    for (std::size_t i = 0; i < 2; ++i)
      out.push_back((at[i] + h * along[i]).detach().set_requires_grad());
    return out;
  };
  const auto gradient = [&](const std::vector<Tensor>& x, bool create_graph) {
    return grad({program(x[0], x[1])}, x, {.create_graph = create_graph, .allow_unused = true});
  };
  std::vector<const char*> names;
  const std::vector<Tensor> x = leaves(0);
  program(x[0], x[1], &names);
  std::string fault, text;
  for (const char* name : names) {
    ++used[name];
    text += std::string(name) + " ";
  }
  const double first = product(gradient(x, false), along);
  const auto value = [&](double h) {
    const NoGrad guard;
    const std::vector<Tensor> moved = leaves(h);
    return program(moved[0], moved[1]).item();
  };
  if (!is_slope(first, 1e-6, value, fault)) return text + ": " + fault;
  if (!twice) return "";
  const std::vector<Tensor> g = gradient(x, true);
  Tensor weighed;
  for (std::size_t i = 0; i < 2; ++i)
    if (g[i].defined())
      weighed = weighed.defined() ? weighed + sum(g[i] * weights[i]) : sum(g[i] * weights[i]);
  if (!weighed.defined() || !weighed.requires_grad()) return "";
  const double second = product(grad({weighed}, x, {.allow_unused = true}), along);
  const auto slope = [&](double h) { return product(gradient(leaves(h), false), weights); };
  return is_slope(second, 1e-5, slope, fault) ? "" : text + ": second " + fault;
}

}  // namespace

TEST_CASE("random operations: gradients and second derivatives agree with differences",
          "[autograd][host]") {
  std::map<std::string, int> used;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::string fault;
    try {
      fault = check(seed, seed % 2 == 0, used);
    } catch (const Error& e) {
      fault = e.what();
    }
    if (!fault.empty()) FAIL_CHECK("random operations of seed " << seed << ": " << fault);
  }
  for (const Operation& op : operations()) {
    INFO(op.name);
    CHECK(used[op.name] >= 3);
  }
}
