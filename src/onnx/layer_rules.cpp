// Rules of matrix products, dense layers, attention and rotary positions.
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "firn/ops/ops.h"
#include "kernels/math/sequence/attention.h"
#include "kernels/math/sequence/rope.h"
#include "onnx/rules.h"

namespace firn::io::onnx {
namespace {

using Integers = std::vector<std::int64_t>;

/// Returns x wᵀ + b of matrices; the bias may be omitted.
std::string dense(Emit& e, const std::string& x, const std::string& w, const std::string& b) {
  return e("Gemm", {x, w, b}, {{"transB", std::int64_t{1}}});
}

void linear(Emit& e) { e.done(dense(e, e.in(0), e.in(1), e.in(2))); }

void mlp(Emit& e) {
  const std::size_t layers = (e.count() - 1) / 2;
  const std::string& activation = e.text("activation");
  std::string h = e.in(0);
  for (std::size_t i = 0; i < layers; ++i) {
    h = dense(e, h, e.in(1 + i), e.in(1 + layers + i));
    if (i + 1 == layers || activation == "none") continue;
    if (activation == "relu") {
      h = e("Relu", {h});
    } else if (activation == "gelu_tanh") {
      h = gelu_tanh(e, h);
    } else {
      e.refuse("its activation is " + activation, "take relu or gelu_tanh");
    }
  }
  e.done(h);
}

// ---- Attention ----

std::string both(Emit& e, const std::string& a, const std::string& b) {
  return a.empty() ? b : e("And", {a, b});
}

/// Returns the mask of the keys that a query sees, broadcastable to [batch, heads, n, m]; empty if
/// it sees all. Sets `some_see_none` if a query may see no key.
std::string visible(Emit& e, std::int64_t n, std::int64_t m, bool& some_see_none) {
  some_see_none = false;
  std::string seen;
  const bool causal = e.integer("causal") != 0;
  if (causal || e.integer("window") > 0) {
    const math::AttentionBand band{n, m, causal, e.integer("window")};
    std::vector<std::uint8_t> pairs;
    for (std::int64_t i = 0; i < n; ++i) {
      bool any = false;
      for (std::int64_t j = 0; j < m; ++j) {
        pairs.push_back(band.sees(i, j, m) ? 1 : 0);
        any = any || pairs.back() != 0;
      }
      some_see_none = some_see_none || !any;
    }
    seen = e.graph.initializer("band",
                               firn::cast(firn::tensor(pairs, {n, m}, Device::cpu()), boolean));
  }
  if (e.has_tensor("lengths")) {
    const std::string keys = e.graph.initializer("keys", arange(m, i64, Device::cpu()));
    const std::string lengths = e.unsqueeze(e.cast(e.tensor("lengths"), i64), {1, 2, 3});
    seen = both(e, seen, e("Less", {keys, lengths}));
    some_see_none = true;
  }
  if (e.has_tensor("mask")) {
    seen = both(e, seen, e.tensor("mask"));
    some_see_none = true;
  }
  return seen;
}

/// Returns keys or values [batch, key_heads, m, d] for all heads, with each repeated.
std::string for_heads(Emit& e, std::size_t i, std::int64_t heads) {
  const std::int64_t own = e.size(1, i), m = e.size(2, i), d = e.size(3, i);
  const std::string x = e.in(i);
  if (own == heads) return x;
  const std::string repeated =
      e("Expand", {e.unsqueeze(x, {2}), e.graph.list({1, 1, heads / own, 1, 1})});
  return e.reshape(repeated, {e.value(i).shape[0], {heads, 0}, {m, 0}, {d, 0}});
}

void attention(Emit& e) {
  const std::int64_t heads = e.size(1, 0), n = e.size(2, 0), m = e.size(2, 1);
  const std::string q = e("Mul", {e.in(0), e.constant(e.number("scale"))});
  const std::string k = e("Transpose", {for_heads(e, 1, heads)}, {{"perm", Integers{0, 1, 3, 2}}});
  std::string scores = e("MatMul", {q, k});
  if (e.has(3)) scores = e("Add", {scores, e.in(3)});
  bool some_see_none = false;
  const std::string seen = visible(e, n, m, some_see_none);
  if (!seen.empty())
    scores = e("Where", {seen, scores, e.constant(-std::numeric_limits<double>::infinity())});
  std::string weights = e("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  // The softmax of an empty row is NaN; a query that sees no key gives 0.
  if (some_see_none) weights = e("Where", {seen, weights, e.constant(0)});
  e.done(e("MatMul", {weights, for_heads(e, 2, heads)}));
}

// ---- Rotary positions ----

/// Returns the positions in f64, with an axis of 1 for the pairs.
std::string positions(Emit& e, std::int64_t n) {
  if (!e.has_tensor("positions")) {
    const Tensor rows = firn::arange(n).to(f64) + static_cast<double>(e.integer("offset"));
    return e.graph.initializer("positions", rows.reshape({n, 1}));
  }
  const std::string at = e.cast(e.tensor("positions"), f64);
  const bool by_batch = e.tensor_value("positions").shape.size() == 2;
  return e.unsqueeze(at, by_batch && e.rank() == 4 ? Integers{1, 3} : Integers{by_batch ? 2 : 1});
}

/// Returns cosines and sines of the angles, broadcastable to x's pairs [..., n, d/2].
std::array<std::string, 2> turns(Emit& e, std::int64_t pairs) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < pairs; ++i)
    frequencies.push_back(math::rope_frequency(e.number("theta"), i, pairs));
  const std::int64_t n = e.size(-2);
  const bool given = e.has_tensor("frequencies");
  if (e.has_tensor("positions") || given) {
    const std::string at = positions(e, n);
    const std::string frequency =
        given
            ? e.tensor("frequencies")
            : e.graph.initializer("frequencies", firn::tensor(frequencies, {pairs}, Device::cpu()));
    const std::string angles = e("Mul", {at, frequency});
    return {e.cast(e("Cos", {angles}), e.dtype), e.cast(e("Sin", {angles}), e.dtype)};
  }
  std::vector<double> cosines, sines;
  for (std::int64_t row = 0; row < n; ++row) {
    for (const double f : frequencies) {
      const double angle = math::rope_angle(e.integer("offset") + row, f);
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  }
  const auto table = [&](const char* name, const std::vector<double>& values) {
    const Tensor t = firn::tensor(values, {n, pairs}, Device::cpu());
    return e.graph.initializer(name, firn::cast(t, e.dtype));
  };
  return {table("cosines", cosines), table("sines", sines)};
}

void rope(Emit& e) {
  const std::int64_t pairs = e.size(-1) / 2;
  const auto [cosine, sine] = turns(e, pairs);
  const bool interleaved = e.integer("interleaved") != 0;
  // Elements 2i and 2i + 1 form an axis of 2 after that of the pairs; elements i and i + d/2 one
  // before it.
  const Sizes& shape = e.value().shape;
  const std::int64_t rank = e.rank(), of_two = interleaved ? rank : rank - 1;
  Sizes split(shape.begin(), shape.end() - 1);
  split.push_back({interleaved ? pairs : 2, 0});
  split.push_back({interleaved ? 2 : pairs, 0});
  const std::string x = e.reshape(e.in(), split);
  const auto part = [&](double i) {
    return e("Gather", {x, e.graph.scalar(i64, i)}, {{"axis", of_two}});
  };
  const std::string a = part(0), b = part(1);
  const std::string first = e("Sub", {e("Mul", {a, cosine}), e("Mul", {b, sine})});
  const std::string second = e("Add", {e("Mul", {b, cosine}), e("Mul", {a, sine})});
  const std::string y = e("Concat", {e.unsqueeze(first, {of_two}), e.unsqueeze(second, {of_two})},
                          {{"axis", of_two}});
  e.done(e.reshape(y, shape));
}

const std::array kRules = {
    Rule{"matmul", Width::same,
         [](Emit& e) {
           e.done(e("MatMul", {e.in(0), e.in(1)}));
         }},
    Rule{"linear", Width::same, linear},
    Rule{"mlp", Width::wide, mlp},
    Rule{"attention", Width::wide, attention},
    Rule{"rope", Width::wide, rope},
};

}  // namespace

std::span<const Rule> layer_rules() { return kRules; }

}  // namespace firn::io::onnx
