// The dynamic loss scale with the presets of other systems answers to overflows as they do: traces
// of found-non-finite flags and scales, written by tests/goldens/scaler.py.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "optim/problem.h"
#include "semantics/spoil.h"
#include "support/golden.h"
#include "support/source_path.h"

namespace firn::testing {
namespace {

struct Trace {
  std::string name;
  optim::DynamicLossScale options;
  std::vector<double> found;   // 1 for a cycle with an overflow, else 0
  std::vector<int> exponents;  // log2 of the scale after each cycle
};

optim::DynamicLossScale preset(const std::string& system) {
  if (system == "pytorch") return optim::DynamicLossScale::pytorch();
  if (system == "deepspeed") return optim::DynamicLossScale::deepspeed();
  if (system == "megatron") return optim::DynamicLossScale::megatron();
  throw Error("preset", "unknown system " + system);
}

void set_option(optim::DynamicLossScale& o, const std::string& key, const std::string& value) {
  const double number = std::strtod(value.c_str(), nullptr);
  if (key == "init")
    o.init = number;
  else if (key == "growth_factor")
    o.growth_factor = number;
  else if (key == "backoff_factor")
    o.backoff_factor = number;
  else if (key == "growth_interval")
    o.growth_interval = static_cast<std::int64_t>(number);
  else if (key == "hysteresis")
    o.hysteresis = static_cast<int>(number);
  else if (key == "min")
    o.min = number;
  else if (key == "refill" && value == "on_clean_step")
    o.refill = optim::HysteresisRefill::on_clean_step;
  else
    throw Error("set_option", "unknown option " + key + "=" + value);
}

std::vector<Trace> read_traces() {
  std::vector<Trace> traces;
  for (const GoldenGroup& group :
       read_golden_groups(source_path("tests/goldens/scaler.safetensors"))) {
    std::istringstream words(group.title);
    std::string word;
    words >> word;
    Trace& trace = traces.emplace_back();
    trace.name = group.title;
    trace.options = preset(word);
    while (words >> word) {
      const std::size_t equals = word.find('=');
      set_option(trace.options, word.substr(0, equals), word.substr(equals + 1));
    }
    trace.found = group.items.at("found").values;
    for (const double exponent : group.items.at("scale").values)
      trace.exponents.push_back(static_cast<int>(exponent));
  }
  return traces;
}

TEST_CASE("[S13] presets answer to overflows as PyTorch, DeepSpeed and Megatron do", "[once]") {
  const std::vector<Trace> traces = read_traces();
  REQUIRE(traces.size() == 16);
  for (const Trace& trace : traces) {
    CAPTURE(trace.name);
    REQUIRE(trace.found.size() == trace.exponents.size());
    Tensor w = parameter({1}, {1});
    const optim::StepOptions options{.loss_scale = optim::LossScale::dynamic(trace.options),
                                     .max_skips = 0};
    optim::SGD opt({w}, {.lr = 1e-3}, options);
    int differ = 0;
    // All of it where a cycle takes microseconds.
    const std::size_t cycles = default_device().is_cpu() ? trace.found.size() : 100;
    for (std::size_t i = 0; i < std::min(cycles, trace.found.size()); ++i) {
      const bool found = trace.found[i] != 0;
      const Tensor sum = objective(w, {0x1p-10});
      opt.backward(found ? spoilt(sum) : sum);
      REQUIRE(opt.step().applied() == !found);
      if (opt.loss_scale() != std::ldexp(1.0, trace.exponents[i]) && ++differ == 1) {
        CAPTURE(i, opt.loss_scale(), std::ldexp(1.0, trace.exponents[i]));
        CHECK(false);
      }
    }
    CHECK(differ == 0);
  }
}

}  // namespace
}  // namespace firn::testing
