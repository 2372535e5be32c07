// Llama beside loops over numbers in f64: heads of keys, windows, biases, tied output, scalings of
// rotary positions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include "firn/lm/llama.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;

namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

/// A Llama of loops, for one text, with the weights of a model.
class Plain {
 public:
  explicit Plain(const lm::Llama& model) : c_(model.config()) {
    for (const auto& [name, t] : model.named_parameters()) {
      weights_[name] = values_of(t);
      rows_[name] = t.size(0);
    }
    const auto head = weights_.find("lm_head.weight");
    output_ = head == weights_.end() ? "model.embed_tokens" : "lm_head";
  }

  /// Logits of each token; `frequencies` are the angles of the pairs.
  Rows logits(const std::vector<std::int64_t>& ids, const Row& frequencies, double factor) const {
    Rows x;
    const Row& table = weights_.at("model.embed_tokens.weight");
    const auto width = static_cast<std::size_t>(c_.hidden_size);
    for (const std::int64_t id : ids) {
      const auto at = table.begin() + id * c_.hidden_size;
      x.emplace_back(at, at + static_cast<std::ptrdiff_t>(width));
    }
    for (std::int64_t i = 0; i < c_.num_hidden_layers; ++i) {
      const std::string block = "model.layers." + std::to_string(i) + ".";
      const Rows seen = attended(block + "self_attn.", normed(block + "input_layernorm", x),
                                 frequencies, factor, c_.window(i));
      add(x, seen);
      const Rows h = normed(block + "post_attention_layernorm", x);
      Rows gate = linear(block + "mlp.gate_proj", h);
      const Rows up = linear(block + "mlp.up_proj", h);
      for (std::size_t t = 0; t < gate.size(); ++t)
        for (std::size_t j = 0; j < gate[t].size(); ++j)
          gate[t][j] *= up[t][j] / (1 + std::exp(-gate[t][j]));
      add(x, linear(block + "mlp.down_proj", gate));
    }
    return linear(output_, normed("model.norm", x));
  }

 private:
  static void add(Rows& x, const Rows& y) {
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t j = 0; j < x[t].size(); ++j) x[t][j] += y[t][j];
  }

  Rows linear(const std::string& name, const Rows& x) const {
    const Row& w = weights_.at(name + ".weight");
    const auto outputs = static_cast<std::size_t>(rows_.at(name + ".weight"));
    const auto bias = weights_.find(name + ".bias");
    Rows y;
    for (const Row& row : x) {
      Row sums(outputs, 0);
      for (std::size_t o = 0; o < outputs; ++o) {
        for (std::size_t j = 0; j < row.size(); ++j) sums[o] += w[o * row.size() + j] * row[j];
        if (bias != weights_.end()) sums[o] += bias->second[o];
      }
      y.push_back(sums);
    }
    return y;
  }

  Rows normed(const std::string& name, Rows x) const {
    const Row& w = weights_.at(name + ".weight");
    for (Row& row : x) {
      double squares = 0;
      for (const double v : row) squares += v * v;
      const double root = std::sqrt(squares / double(row.size()) + c_.rms_norm_eps);
      for (std::size_t j = 0; j < row.size(); ++j) row[j] *= w[j] / root;
    }
    return x;
  }

  void turn(Rows& x, const Row& frequencies, double factor) const {
    const auto d = static_cast<std::size_t>(c_.head_width()), half = d / 2;
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t head = 0; head < x[t].size(); head += d)
        for (std::size_t i = 0; i < half; ++i) {
          const double angle = double(t) * frequencies[i];
          double &a = x[t][head + i], &b = x[t][head + i + half];
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = (b * std::cos(angle) + a * std::sin(angle)) * factor;
          a = turned * factor;
        }
  }

  Rows attended(const std::string& name, const Rows& x, const Row& frequencies, double factor,
                std::optional<std::int64_t> window) const {
    Rows q = linear(name + "q_proj", x), k = linear(name + "k_proj", x);
    const Rows v = linear(name + "v_proj", x);
    turn(q, frequencies, factor);
    turn(k, frequencies, factor);
    const auto d = static_cast<std::size_t>(c_.head_width());
    const std::size_t heads = q[0].size() / d, shared = heads / (k[0].size() / d);
    Rows y(x.size(), Row(heads * d, 0));
    for (std::size_t t = 0; t < x.size(); ++t) {
      const std::size_t seen = window ? std::min<std::size_t>(t + 1, std::size_t(*window)) : t + 1;
      for (std::size_t head = 0; head < heads; ++head) {
        const std::size_t at = head * d, key_at = head / shared * d;
        Row p;
        for (std::size_t s = t + 1 - seen; s <= t; ++s) {
          double product = 0;
          for (std::size_t j = 0; j < d; ++j) product += q[t][at + j] * k[s][key_at + j];
          p.push_back(std::exp(product / std::sqrt(double(d))));
        }
        double sum = 0;
        for (const double e : p) sum += e;
        for (std::size_t s = 0; s < seen; ++s)
          for (std::size_t j = 0; j < d; ++j)
            y[t][at + j] += p[s] / sum * v[t + 1 - seen + s][key_at + j];
      }
    }
    return linear(name + "o_proj", y);
  }

  lm::LlamaConfig c_;
  std::map<std::string, Row> weights_;
  std::map<std::string, std::int64_t> rows_;
  std::string output_;
};

lm::LlamaConfig small() {
  lm::LlamaConfig c;
  c.vocab_size = 11;
  c.hidden_size = 12;
  c.intermediate_size = 20;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 3;
  c.max_position_embeddings = 64;
  c.initializer_range = 0.4;
  return c;
}

/// theta^(-2i/d) for each pair.
Row plain_frequencies(const lm::LlamaConfig& c) {
  Row out;
  for (std::int64_t i = 0; i < c.head_width() / 2; ++i)
    out.push_back(std::pow(c.rope.rope_theta, -2.0 * double(i) / double(c.head_width())));
  return out;
}

void compare(const lm::LlamaConfig& c, const Row& frequencies, double factor = 1) {
  manual_seed(4);
  lm::Llama model(c, {.dtype = f64});
  {
    const NoGrad guard;  // no norm of 1 and no bias of 0
    for (const auto& [name, t] : model.named_parameters())
      if (t.rank() == 1) copy_(t, t + randn(t.shape(), f64) * 0.3);
  }
  const std::vector<std::int64_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 10, 0, 7};
  const NoGrad guard;
  const Tensor logits = model(tensor(ids, {1, static_cast<std::int64_t>(ids.size())}));
  Row want;
  for (const Row& row : Plain(model).logits(ids, frequencies, factor))
    want.insert(want.end(), row.begin(), row.end());
  expect_close("logits", values_of(logits), want, 1e-12 * largest(want));
}

}  // namespace

TEST_CASE("Llama: logits are those of loops, for heads, biases, windows and tied tables") {
  lm::LlamaConfig c = small();
  compare(c, plain_frequencies(c));
  c.num_attention_heads = 6;
  c.num_key_value_heads = 2;
  c.tie_word_embeddings = true;
  c.rope.rope_theta = 300;
  compare(c, plain_frequencies(c));
  c.head_dim = 4;
  c.attention_bias = c.mlp_bias = true;
  compare(c, plain_frequencies(c));
  c.mlp_bias = false;
  c.model_type = "qwen2";
  c.sliding_window = 3;
  c.sliding_layers = {false, true};
  compare(c, plain_frequencies(c));
  c = small();
  c.model_type = "mistral";
  c.sliding_window = 2;
  compare(c, plain_frequencies(c));
}

TEST_CASE("Llama: scalings of rotary positions are those of their formulas") {
  lm::LlamaConfig c = small();
  c.head_dim = 16;
  c.rope.rope_theta = 100;
  const Row f = plain_frequencies(c);
  Row scaled;
  SECTION("linear") {
    c.rope.rope_type = "linear";
    c.rope.factor = 2.5;
    for (const double v : f) scaled.push_back(v / 2.5);
    compare(c, scaled);
  }
  SECTION("llama3: by the length of the wave") {
    c.rope.rope_type = "llama3";
    c.rope.factor = 8;
    c.rope.low_freq_factor = 1;
    c.rope.high_freq_factor = 3;
    c.rope.original_max_position_embeddings = 24;
    int kept = 0, divided = 0;
    for (const double v : f) {
      const double wave = 2 * std::numbers::pi / v;
      if (wave < 24.0 / 3) {
        scaled.push_back(v);
        ++kept;
      } else if (wave > 24.0 / 1) {
        scaled.push_back(v / 8);
        ++divided;
      } else {
        const double smooth = (24 / wave - 1) / (3 - 1);
        scaled.push_back((1 - smooth) * v / 8 + smooth * v);
      }
    }
    REQUIRE((kept > 0 && divided > 0 && kept + divided < 8));
    compare(c, scaled);
  }
  SECTION("yarn: by the number of turns, and the scores grow") {
    c.rope.rope_type = "yarn";
    c.rope.factor = 4;
    c.rope.original_max_position_embeddings = 48;
    c.rope.beta_fast = 6;
    const auto pair_of = [](double turns) {
      return 16 * std::log(48 / (turns * 2 * std::numbers::pi)) / (2 * std::log(100.0));
    };
    const double low = std::floor(pair_of(6)), high = std::ceil(pair_of(1));
    REQUIRE((low >= 0 && high > low + 1));
    for (std::size_t i = 0; i < f.size(); ++i) {
      const double share = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
      scaled.push_back(f[i] / 4 * share + f[i] * (1 - share));
    }
    compare(c, scaled, 0.1 * std::log(4.0) + 1);
    c.rope.attention_factor = 1.5;
    compare(c, scaled, 1.5);
  }
  SECTION("without original_max_position_embeddings the length is the model's") {
    c.rope.rope_type = "llama3";
    c.rope.factor = 8;
    c.rope.low_freq_factor = 1e-3;
    c.rope.high_freq_factor = 2e-3;
    compare(c, f);  // every wave is short beside the length
  }
}
