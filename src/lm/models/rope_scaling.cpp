// Scalings of rotary positions, as transformers' modeling_rope_utils.py has them, in f64.
#include "lm/models/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace firn::lm {
namespace {

/// Llama 3: waves that are long beside the original length are stretched, short ones stay, and
/// those between are interpolated.
double llama3(const RopeParameters& r, double frequency, double length) {
  const double turns = length * frequency / (2 * std::numbers::pi);  // over the original length
  if (turns < r.low_freq_factor) return frequency / r.factor;
  if (turns > r.high_freq_factor) return frequency;
  const double kept = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - kept) * frequency / r.factor + kept * frequency;
}

/// YaRN: the pairs between two numbers of turns over the original length are interpolated.
class Yarn {
 public:
  Yarn(const RopeParameters& r, double d, double length) {
    const auto pair_of = [&](double turns) {
      return d * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(r.rope_theta));
    };
    low_ = pair_of(r.beta_fast), high_ = pair_of(r.beta_slow);
    if (r.truncate) low_ = std::floor(low_), high_ = std::ceil(high_);
    low_ = std::max(low_, 0.0), high_ = std::min(high_, d - 1);
    if (low_ == high_) high_ += 0.001;
  }
  /// Returns the share of a pair's frequency that is divided.
  double divided(double pair) const { return std::clamp((pair - low_) / (high_ - low_), 0.0, 1.0); }

 private:
  double low_, high_;
};

}  // namespace

std::vector<double> rope_frequencies(const LlamaConfig& config) {
  const RopeParameters& r = config.rope;
  std::vector<double> all;
  if (r.rope_type == "default") return all;
  const std::int64_t given = r.original_max_position_embeddings;
  const double length = double(given > 0 ? given : config.max_position_embeddings);
  const std::int64_t d = config.head_width();
  const Yarn yarn(r, double(d), length);
  for (std::int64_t i = 0; i < d / 2; ++i) {
    const double f = std::pow(r.rope_theta, -2 * double(i) / double(d));
    if (r.rope_type == "llama3") {
      all.push_back(llama3(r, f, length));
    } else {
      const double divided = r.rope_type == "yarn" ? yarn.divided(double(i)) : 1;
      all.push_back(f / r.factor * divided + f * (1 - divided));
    }
  }
  return all;
}

double rope_attention_factor(const RopeParameters& r) {
  if (r.rope_type != "yarn") return 1;
  if (r.attention_factor) return *r.attention_factor;
  const auto scale = [&](double m) { return r.factor <= 1 ? 1 : 0.1 * m * std::log(r.factor) + 1; };
  return r.mscale > 0 && r.mscale_all_dim > 0 ? scale(r.mscale) / scale(r.mscale_all_dim)
                                              : scale(1);
}

}  // namespace firn::lm
