// States in 8 bits: the code beside bitsandbytes', trainings beside a NumPy model of them
// (tests/goldens/optim/optim_8bit.py), memory, and what is refused.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "firn/memory.h"
#include "kernels/cpu/optim/state_block.h"
#include "kernels/math/optim/dynamic_code.h"
#include "optim/problem.h"
#include "support/golden.h"
#include "support/source_path.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

using optim::StatePrecision;

template <bool kSigned>
float value_of(int byte) {
  const auto held =
      kSigned ? static_cast<float>(static_cast<std::int8_t>(byte)) : static_cast<float>(byte);
  return math::DynamicCode<kSigned>::decode(held);
}
template <bool kSigned>
int byte_of(float x) {
  return static_cast<int>(math::DynamicCode<kSigned>::encode(x)) & 0xff;
}

struct Run {
  std::string title, algorithm;
  std::map<std::string, double> options;
  std::map<int, std::vector<double>> after;

  double get(const char* key, double otherwise) const {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : found->second;
  }
};

struct Goldens {
  std::map<std::string, std::vector<double>> data;
  std::vector<Run> runs;
};

const Goldens& goldens() {
  static const Goldens all = [] {
    Goldens out;
    for (const GoldenGroup& group :
         read_golden_groups(source_path("tests/goldens/optim/optim_8bit.safetensors"))) {
      if (group.title.empty()) {
        for (const auto& [item, tensor] : group.items) out.data[item] = tensor.values;
        continue;
      }
      Run& run = out.runs.emplace_back();
      run.title = group.title;
      run.algorithm = run.title.substr(0, run.title.find(' '));
      run.options = options_in(run.title);
      for (const auto& [item, tensor] : group.items)  // "step 5"
        run.after[std::stoi(item.substr(5))] = tensor.values;
    }
    return out;
  }();
  return all;
}

template <bool kSigned>
void check_code(const std::vector<double>& expected) {
  std::vector<double> values;
  for (int byte = 0; byte < 256; ++byte) {
    values.push_back(static_cast<double>(value_of<kSigned>(byte)));
    CHECK(byte_of<kSigned>(value_of<kSigned>(byte)) == byte);
  }
  CHECK(values[0] == 0);
  std::sort(values.begin(), values.end());
  REQUIRE(expected.size() == 256);
  // Four roundings to f32: the reference's, and those of origin, size and product.
  for (std::size_t i = 0; i < 256; ++i)
    CHECK(std::abs(values[i] - expected[i]) <= 4 * 0x1p-24 * std::abs(expected[i]));
  // The nearest, of numbers that are spread over all decades.
  int wrong = 0;
  for (double exponent = -8; exponent <= 0; exponent += 1e-3)
    for (const double sign : {-1.0, 1.0}) {
      if (!kSigned && sign < 0) continue;
      const auto x = static_cast<float>(sign * std::pow(10, exponent));
      const double got = static_cast<double>(value_of<kSigned>(byte_of<kSigned>(x)));
      double best = 2;
      for (const double v : values)
        if (kSigned || v > 0) best = std::min(best, std::abs(v - static_cast<double>(x)));
      wrong += std::abs(got - static_cast<double>(x)) > best * (1 + 1e-4) ? 1 : 0;
    }
  CHECK(wrong == 0);
}

TEST_CASE("[S43] the code of 8 bits is the dynamic map, and its nearest value is found", "[host]") {
  check_code<true>(goldens().data.at("signed"));
  check_code<false>(goldens().data.at("unsigned"));
  CHECK(value_of<true>(byte_of<true>(1)) == 1);
  CHECK(value_of<true>(byte_of<true>(7)) == 1);
  CHECK(value_of<true>(byte_of<true>(-1)) == Approx(-0.99296875));
  CHECK(byte_of<true>(-1e-9f) == 0);
  CHECK(value_of<false>(byte_of<false>(1)) == 1);
  CHECK(value_of<false>(byte_of<false>(1e-30f)) == Approx(3.25e-7));  // above 0 stays above 0
  CHECK(byte_of<false>(0) == 0);
}

template <bool kSigned>
void check_tiles() {
  namespace cpu = kernels::cpu::FIRN_ISA;
  constexpr int kCount = 4 * cpu::TileF::size;
  Rng rng(7);
  int wrong = 0;
  for (int round = 0; round < 2000; ++round) {
    float x[kCount];
    for (float& v : x) {
      v = static_cast<float>(std::pow(10, rng.uniform(-9, 0)));
      if (kSigned && rng.uniform(0, 1) < 0.5) v = -v;
    }
    x[0] = 1;
    x[1] = kSigned ? -1.f : 1.f;
    x[2] = 0;
    x[3] = value_of<kSigned>(round % 256) * 0.9999999f;
    cpu::TileF tiles[4];
    for (int i = 0; i < 4; ++i) tiles[i] = cpu::TileF::load(x + i * cpu::TileF::size);
    std::uint8_t bytes[kCount];
    cpu::tiles::encode_tiles<kSigned>(tiles, bytes);
    for (int i = 0; i < kCount; ++i) {
      // A fused multiply-add may round a number at the very border to the other side.
      const float nudged = x[i] * (1 + 1e-6f);
      wrong += bytes[i] != byte_of<kSigned>(x[i]) && bytes[i] != byte_of<kSigned>(nudged) ? 1 : 0;
    }
    for (int i = 0; i < cpu::TileF::size; ++i) {
      const auto decoded =
          math::DynamicCode<kSigned>::decode(cpu::tiles::load_bytes<kSigned>(bytes));
      wrong += decoded[i] != value_of<kSigned>(bytes[i]) ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("[S43] a tile has the bytes and values of single numbers", "[host]") {
  check_tiles<true>();
  check_tiles<false>();
}

TEST_CASE("[S43] scales of blocks hold for any magnitude", "[host]") {
  for (const float largest : {1e-37f, 1.f, 3e38f, std::numeric_limits<float>::infinity()}) {
    const math::BlockScale s = math::block_scale(largest);
    CAPTURE(largest);
    CHECK(std::isnormal(s.scale));
    CHECK(std::isnormal(s.inverse));
  }
  CHECK(math::block_scale(0).scale == 0);
  CHECK(math::block_scale(0).inverse == 0);
  CHECK(math::block_scale(1e-40f).scale == 0);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Run& r, const Tensor& w) {
  const double beta1 = r.get("beta1", 0.9), decay = r.get("weight_decay", 0), lr = r.get("lr", 0);
  if (r.algorithm == "Adam")
    return std::make_unique<optim::Adam>(
        std::vector<Tensor>{w},
        optim::AdamOptions{
            .lr = lr, .weight_decay = decay, .state = StatePrecision::bits8, .min_8bit_size = 0});
  if (r.algorithm == "AdamW")
    return std::make_unique<optim::AdamW>(std::vector<Tensor>{w},
                                          optim::AdamWOptions{.lr = lr,
                                                              .beta1 = beta1,
                                                              .beta2 = r.get("beta2", 0.999),
                                                              .weight_decay = decay,
                                                              .state = StatePrecision::bits8,
                                                              .min_8bit_size = 0});
  REQUIRE(r.algorithm == "Lion");
  return std::make_unique<optim::Lion>(std::vector<Tensor>{w},
                                       optim::LionOptions{.lr = lr,
                                                          .beta1 = beta1,
                                                          .beta2 = r.get("beta2", 0.99),
                                                          .weight_decay = decay,
                                                          .state = StatePrecision::bits8,
                                                          .min_8bit_size = 0});
}

TEST_CASE("[S43] trainings with states in 8 bits are the reference's") {
  const Tensor goal = make(goldens().data.at("goal"), {300}, f32);
  const Tensor curve = make(goldens().data.at("curve"), {300}, f32);
  REQUIRE(goldens().runs.size() == 3);
  for (const Run& run : goldens().runs) {
    Tensor w = parameter(goldens().data.at("initial"), {300});
    const auto opt = make_optimizer(run, w);
    REQUIRE(run.after.size() == 4);
    for (int step = 1; step <= 20; ++step) {
      opt->backward(sum(0.5 * curve * square(w - goal)));
      REQUIRE(opt->step());
      if (const auto expected = run.after.find(step); expected != run.after.end())
        expect_close(run.title + ", step " + std::to_string(step), values_of(w), expected->second,
                     1e-5);
    }
  }
}

std::size_t state_bytes(const optim::Optimizer& opt) {
  std::size_t bytes = 0;
  for (const optim::NamedState& s : opt.state())
    if (s.name.find("moment") != s.name.npos) bytes += s.tensor.bytes();
  return bytes;
}

TEST_CASE("[S43] quantised moments take 2.1 bytes a parameter at most, of Lion 1.05") {
  const auto make_parameters = [] {
    return std::vector<Tensor>{zeros({300, 100}).set_requires_grad(),
                               zeros({4097}).set_requires_grad(), zeros({64}).set_requires_grad()};
  };
  const std::size_t before = memory_stats().of(Owner::optimizer).current;
  const optim::AdamW adam(make_parameters(), {.state = StatePrecision::bits8});
  const std::size_t taken = memory_stats().of(Owner::optimizer).current - before;
  const optim::Lion lion(make_parameters(), {.state = StatePrecision::bits8});
  const double n = 300 * 100 + 4097;
  CHECK(static_cast<double>(state_bytes(adam) - 2 * 4 * 64) <= 2.1 * n);
  CHECK(static_cast<double>(state_bytes(lion) - 4 * 64) <= 1.05 * n);
  CHECK(static_cast<double>(taken) <= 2.1 * n + 16384);  // and tables
  CHECK(state_of(adam, "parameters.0.first_moment").dtype() == u8);
  CHECK(state_of(adam, "parameters.0.first_moment").shape() == Shape{300, 100});
  CHECK(state_of(adam, "parameters.1.second_moment_scale").shape() == Shape{17});
  CHECK(state_of(adam, "parameters.2.first_moment").dtype() == f32);  // 64 of 4096 elements
  CHECK(mentions(optim::describe(adam), {"states in 8 bits"}));
}

TEST_CASE("[S43] a group sets the precision of its states") {
  Tensor table = zeros({100, 50}).set_requires_grad(), w = zeros({100, 50}).set_requires_grad();
  optim::AdamW opt({{.parameters = {table}, .state = StatePrecision::full},
                    {.parameters = {w}, .min_8bit_size = 5000}},
                   {.state = StatePrecision::bits8, .min_8bit_size = 5001});
  CHECK(state_of(opt, "parameters.0.first_moment").dtype() == f32);
  CHECK(state_of(opt, "parameters.1.first_moment").dtype() == u8);
  opt.backward(objective(table, {1}) + objective(w, {1}));
  REQUIRE(opt.step());
  CHECK(values_of(table)[7] == Approx(-1e-3));
  CHECK(values_of(w)[7] == Approx(-1e-3));
}

TEST_CASE("[S43] states in 8 bits are refused if they cannot be honoured") {
  const Tensor wide = parameter({1, 2}, {2}, f64), w = parameter({1, 2}, {2});
  CHECK(mentions(
      error_of([&] { optim::AdamW({wide}, {.state = StatePrecision::bits8, .min_8bit_size = 0}); }),
      {"[AdamW]", "parameter 0", "f64", "8 bits"}));
  CHECK(mentions(
      error_of([&] { optim::AdamW({w}, {.state = StatePrecision::bits8, .min_8bit_size = -1}); }),
      {"[AdamW]", "min_8bit_size is -1"}));
  CHECK(
      mentions(error_of([&] { optim::SGD({{.parameters = {w}, .state = StatePrecision::bits8}}); }),
               {"[SGD]", "group 0 sets state", "SGD has none"}));
  CHECK(mentions(error_of([&] { optim::LAMB({{.parameters = {w}, .min_8bit_size = 3}}); }),
                 {"[LAMB]", "group 0 sets min_8bit_size"}));
  optim::AdamW small({wide}, {.state = StatePrecision::bits8});  // keeps full states anyway
  CHECK(state_of(small, "parameters.0.first_moment").dtype() == f64);
}

TEST_CASE("[S43] views and channels-last parameters have their blocks in the order of memory") {
  Rng rng(5);
  Tensor w = make(rng.uniforms(8 * 3 * 5 * 5, -1, 1), {8, 3, 5, 5}, f32, Layout::channels_last);
  w.set_requires_grad();
  Tensor plain = make(values_of(w), {8, 3, 5, 5}, f32).set_requires_grad();
  const optim::AdamOptions options{.state = StatePrecision::bits8, .min_8bit_size = 0};
  optim::Adam a({w}, options), b({plain}, options);
  for (int i = 0; i < 3; ++i) {
    const auto gradient = rng.uniforms(600, -1, 1);
    for (auto* t : {&w, &plain}) {
      optim::Adam& opt = t == &w ? a : b;
      opt.backward(objective(*t, gradient));
      REQUIRE(opt.step());
    }
    // The blocks differ, so the codes do; the first step has nothing decoded yet.
    expect_close("step " + std::to_string(i), values_of(w), values_of(plain), i == 0 ? 1e-7 : 1e-3);
  }
}

}  // namespace
}  // namespace firn::testing
