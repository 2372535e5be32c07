#include "reference.h"

#include <cmath>
#include <limits>
#include <optional>

#include "kernels/math/philox.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

std::size_t at(const Shape& s, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return static_cast<std::size_t>(((a * s[1] + b) * s[2] + c) * s[3] + d);
}

}  // namespace

std::string AttentionCase::name() const {
  std::string s = "b " + std::to_string(b) + " heads " + std::to_string(hq) + "/" +
                  std::to_string(hk) + " n " + std::to_string(n) + " m " + std::to_string(m) +
                  " d " + std::to_string(d) + "/" + std::to_string(dv);
  if (causal) s += " causal";
  if (window) s += " window " + std::to_string(window);
  if (!lengths.empty()) s += " lengths";
  if (!mask.empty()) s += " mask " + to_string(mask_shape);
  if (!bias.empty()) s += " bias " + to_string(bias_shape);
  if (dropout > 0) s += " dropout";
  return s;
}

void AttentionCase::take_options(int set, Rng& rng) {
  causal = set & 1;
  if (set & 2) window = 1 + rng.below(m + 2);
  if (set & 4)
    for (std::int64_t i = 0; i < b; ++i) lengths.push_back(rng.below(m + 1));
  if (set & 8) {
    const Shape shapes[] = {{b, hq, n, m}, {n, m}, {b, 1, 1, m}, {1, hq, n, 1}};
    mask_shape = shapes[rng.below(4)];
    for (std::int64_t i = 0; i < mask_shape.product(); ++i) mask.push_back(rng.below(4) != 0);
  }
  if (set & 16) dropout = 0.3;
}

void AttentionCase::take_bias(const Shape& shape, Rng& rng) {
  bias_shape = shape;
  bias = rng.uniforms(shape.product(), -2, 2);
}

std::size_t AttentionCase::place_in(const Shape& shape, std::int64_t batch, std::int64_t head,
                                    std::int64_t i, std::int64_t j) {
  const std::int64_t index[] = {batch, head, i, j};
  std::int64_t position = 0;
  for (int axis = 0; axis < shape.size(); ++axis) {
    const std::int64_t size = shape[axis];
    position = position * size + (size == 1 ? 0 : index[4 - shape.size() + axis]);
  }
  return static_cast<std::size_t>(position);
}

bool AttentionCase::sees(std::int64_t batch, std::int64_t head, std::int64_t i,
                         std::int64_t j) const {
  const std::int64_t place = i + m - n;
  if (causal && j > place) return false;
  if (window && std::abs(j - place) >= window) return false;
  if (!lengths.empty() && j >= lengths[static_cast<std::size_t>(batch)]) return false;
  return mask.empty() || mask[place_in(mask_shape, batch, head, i, j)] != 0;
}

double AttentionCase::kept(std::int64_t batch, std::int64_t head, std::int64_t i,
                           std::int64_t j) const {
  if (dropout == 0) return 1;
  const std::int64_t row = (batch * hq + head) * n + i, blocks = (m + 3) / 4;
  const auto block = static_cast<std::uint64_t>(row * blocks + j / 4);
  const std::uint32_t word = math::philox(key.offset + block, key.seed).word[j % 4];
  return word >= math::dropout_threshold(dropout) ? 1 / (1 - dropout) : 0;
}

AttentionValues random_values(const AttentionCase& c, Rng& rng, DType dtype) {
  const auto draw = [&](const Shape& s) {
    return rounded(rng.uniforms(s.product(), -2, 2), dtype);
  };
  return {draw(c.q_shape()), draw(c.k_shape()), draw(c.v_shape()), draw(c.o_shape())};
}

AttentionResults reference(const AttentionCase& c, const AttentionValues& x) {
  const Shape qs = c.q_shape(), ks = c.k_shape(), vs = c.v_shape(), os = c.o_shape();
  const double scale = c.scale.value_or(c.d == 0 ? 1 : 1 / std::sqrt(static_cast<double>(c.d)));
  AttentionResults r{std::vector<double>(x.dout.size()), std::vector<double>(x.q.size()),
                     std::vector<double>(x.k.size()), std::vector<double>(x.v.size()),
                     std::vector<double>(c.bias.size())};
  std::vector<double> p(static_cast<std::size_t>(c.m)), dp(p.size());
  for (std::int64_t b = 0; b < c.b; ++b)
    for (std::int64_t h = 0; h < c.hq; ++h)
      for (std::int64_t i = 0; i < c.n; ++i) {
        const std::int64_t g = h / (c.hq / c.hk);
        double most = -std::numeric_limits<double>::infinity(), sum = 0, delta = 0;
        std::vector<std::int64_t> seen;
        bool all_infinite = true;
        for (std::int64_t j = 0; j < c.m; ++j) {
          if (!c.sees(b, h, i, j)) continue;
          seen.push_back(j);
          double s = 0;
          for (std::int64_t e = 0; e < c.d; ++e)
            s += x.q[at(qs, b, h, i, e)] * x.k[at(ks, b, g, j, e)];
          s *= scale;
          if (!c.bias.empty()) s += c.bias[c.place_in(c.bias_shape, b, h, i, j)];
          p[static_cast<std::size_t>(j)] = s;
          most = std::max(most, s);
          all_infinite = all_infinite && s == -std::numeric_limits<double>::infinity();
        }
        if (all_infinite) continue;
        for (const std::int64_t j : seen) {
          double& e = p[static_cast<std::size_t>(j)];
          e = std::exp(e - most);
          sum += e;
        }
        for (const std::int64_t j : seen) {
          const double kept = c.kept(b, h, i, j), pj = (p[static_cast<std::size_t>(j)] /= sum);
          double dot = 0;
          for (std::int64_t e = 0; e < c.dv; ++e) {
            const double dy = x.dout[at(os, b, h, i, e)], value = x.v[at(vs, b, g, j, e)];
            r.o[at(os, b, h, i, e)] += pj * kept * value;
            r.dv[at(vs, b, g, j, e)] += pj * kept * dy;
            dot += dy * value;
          }
          dp[static_cast<std::size_t>(j)] = kept * dot;
          delta += pj * kept * dot;
        }
        for (const std::int64_t j : seen) {
          const double ds =
              p[static_cast<std::size_t>(j)] * (dp[static_cast<std::size_t>(j)] - delta);
          if (!c.bias.empty()) r.dbias[c.place_in(c.bias_shape, b, h, i, j)] += ds;
          for (std::int64_t e = 0; e < c.d; ++e) {
            r.dq[at(qs, b, h, i, e)] += scale * ds * x.k[at(ks, b, g, j, e)];
            r.dk[at(ks, b, g, j, e)] += scale * ds * x.q[at(qs, b, h, i, e)];
          }
        }
      }
  return r;
}

AttentionOptions options_of(const AttentionCase& c, Generator& generator, DType dtype) {
  generator.set(c.key);
  AttentionOptions options;
  options.causal = c.causal;
  if (c.window) options.window = c.window;
  if (!c.lengths.empty()) options.lengths = tensor(c.lengths, {c.b});
  if (!c.mask.empty()) options.mask = make(c.mask, c.mask_shape, boolean);
  if (!c.bias.empty()) options.bias = make(c.bias, c.bias_shape, c.bias_dtype.value_or(dtype));
  options.scale = c.scale;
  options.dropout = c.dropout;
  options.generator = &generator;
  return options;
}

AttentionResults run_attention(const AttentionCase& c, const AttentionValues& x, DType dtype) {
  const Tensor q = make(x.q, c.q_shape(), dtype).set_requires_grad();
  const Tensor k = make(x.k, c.k_shape(), dtype).set_requires_grad();
  const Tensor v = make(x.v, c.v_shape(), dtype).set_requires_grad();
  Generator generator;
  const AttentionOptions options = options_of(c, generator, dtype);
  Tensor bias = options.bias;
  if (bias.defined()) bias.set_requires_grad();
  const Tensor o = attention(q, k, v, options);
  CHECK(o.shape() == c.o_shape());
  CHECK(o.dtype() == dtype);
  backward(o, {.initial_gradient = make(x.dout, c.o_shape(), dtype)});
  return {values_of(o), values_of(q.grad()), values_of(k.grad()), values_of(v.grad()),
          bias.defined() ? values_of(bias.grad()) : std::vector<double>()};
}

AttentionResults run_composed(const AttentionCase& c, const AttentionValues& x, DType dtype) {
  const Tensor q = make(x.q, c.q_shape(), dtype).set_requires_grad();
  const Tensor k = make(x.k, c.k_shape(), dtype).set_requires_grad();
  const Tensor v = make(x.v, c.v_shape(), dtype).set_requires_grad();
  const std::int64_t group = c.hq / c.hk;
  const auto repeat = [&](const Tensor& t, std::int64_t d) {
    return reshape(expand(unsqueeze(t, 2), {c.b, c.hk, group, c.m, d}), {c.b, c.hq, c.m, d});
  };
  std::vector<double> seen;
  for (std::int64_t b = 0; b < c.b; ++b)
    for (std::int64_t h = 0; h < c.hq; ++h)
      for (std::int64_t i = 0; i < c.n; ++i)
        for (std::int64_t j = 0; j < c.m; ++j) seen.push_back(c.sees(b, h, i, j));
  const Tensor mask = make(seen, {c.b, c.hq, c.n, c.m}, boolean);
  const double scale = c.scale.value_or(1 / std::sqrt(static_cast<double>(c.d)));
  Tensor scores = matmul(q, transpose(repeat(k, c.d), -1, -2)) * scale;
  Tensor bias;
  if (!c.bias.empty()) {
    bias = make(c.bias, c.bias_shape, c.bias_dtype.value_or(dtype)).set_requires_grad();
    scores = scores + cast(bias, dtype);
  }
  const Tensor p = softmax(where(mask, scores, -std::numeric_limits<double>::infinity()));
  const Tensor o = matmul(p, repeat(v, c.dv));
  backward(o, {.initial_gradient = make(x.dout, c.o_shape(), dtype)});
  return {values_of(o), values_of(q.grad()), values_of(k.grad()), values_of(v.grad()),
          bias.defined() ? values_of(bias.grad()) : std::vector<double>()};
}

double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  const double least = 0.09 * static_cast<double>(got.size());
  return error == 0 ? 0 : std::sqrt(error / std::max(norm, least));
}

std::vector<std::vector<double>> all_of(const AttentionResults& r) {
  return {r.o, r.dq, r.dk, r.dv, r.dbias};
}

GotAndWanted check_results(const AttentionCase& c, DType dtype, double bound) {
  INFO(c.name() << " " << to_string(dtype));
  Rng rng(seed_of(c.name()));
  const AttentionValues x = random_values(c, rng, dtype);
  GotAndWanted out{run_attention(c, x, dtype), reference(c, x)};
  CHECK(relative_error(out.got.o, out.want.o) <= bound);
  CHECK(relative_error(out.got.dq, out.want.dq) <= bound);
  CHECK(relative_error(out.got.dk, out.want.dk) <= bound);
  CHECK(relative_error(out.got.dv, out.want.dv) <= bound);
  return out;
}

void check_threads(const AttentionCase& c) {
  INFO(c.name());
  for (const DType dtype : {f32, bf16}) {
    Rng rng(9);
    const AttentionValues x = random_values(c, rng, dtype);
    std::optional<std::vector<std::vector<double>>> want;
    for (const int n : {1, 2, 3}) {
      const Threads threads(n);
      const auto got = all_of(run_attention(c, x, dtype));
      if (!want) want = got;
      CHECK(got == *want);
    }
  }
}

}  // namespace firn::testing
