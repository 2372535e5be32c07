// Attention in 16 bits on a CUDA device, by cuDNN and by firn's kernels: which of them a call runs,
// and that they agree. On the simulator cuDNN is tests/cusim/libraries/cudnn_attention.cpp.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "kernels/settings/settings.h"
#include "reference.h"
#include "runtime/graph/captured_graph.h"
#include "support/catch.h"
#include "support/device/slow_device.h"

#ifdef FIRN_HAS_CUDA
namespace firn::testing {
namespace {

using kernels::AttentionPath;

class Path {
 public:
  explicit Path(AttentionPath path) : before_(kernels::attention_path().exchange(path)) {}
  ~Path() { kernels::attention_path() = before_; }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

 private:
  AttentionPath before_;
};

/// Each result within 1 % of plain loops.
void check(const AttentionCase& c, const AttentionValues& x, DType dtype) {
  INFO(c.name() << " " << to_string(dtype));
  const AttentionResults want = reference(c, x), got = run_attention(c, x, dtype);
  CHECK(relative_error(got.o, want.o) <= 0.01);
  CHECK(relative_error(got.dq, want.dq) <= 0.01);
  CHECK(relative_error(got.dk, want.dk) <= 0.01);
  CHECK(relative_error(got.dv, want.dv) <= 0.01);
}

}  // namespace

TEST_CASE("attention: cuDNN and firn's kernels agree with plain loops", "[gpu]") {
  const AttentionCase cases[] = {
      {.b = 2, .hq = 2, .hk = 2, .n = 128, .m = 128, .d = 64, .dv = 64},
      {.b = 1, .hq = 4, .hk = 2, .n = 100, .m = 131, .d = 128, .dv = 128},
      {.b = 2, .hq = 6, .hk = 2, .n = 7, .m = 70, .d = 8, .dv = 8},
      {.b = 1, .hq = 2, .hk = 1, .n = 65, .m = 67, .d = 32, .dv = 24},
  };
  for (const AttentionCase& sizes : cases) {
    for (const bool causal : {false, true}) {
      for (const DType dtype : {f16, bf16}) {
        if (dtype == f16 && sizes.d != 64) continue;  // plans take seconds
        if (on_slow_device() && (sizes.d > 64 || causal)) continue;
        AttentionCase c = sizes;
        c.causal = causal;
        Rng rng(seed_of(c.name()));
        const AttentionValues x = random_values(c, rng, dtype);
        for (const AttentionPath path : {AttentionPath::cudnn, AttentionPath::own}) {
          const Path scope(path);
          check(c, x, dtype);
        }
      }
    }
  }
}

TEST_CASE("attention: cuDNN reads and writes views [batch, n, heads, d] of a fused projection",
          "[gpu]") {
  const std::int64_t b = 2, n = 70, heads = 4, key_heads = 2, d = 16;
  const std::int64_t width = (heads + 2 * key_heads) * d;
  Rng rng(8);
  const Tensor values = make(rng.uniforms(b * n * width, -2, 2), {b, n, width}, bf16);
  const Tensor seed = make(rng.uniforms(b * n * heads * d, -2, 2), {b, n, heads * d}, bf16);
  const auto run = [&](AttentionPath path) {
    const Path scope(path);
    const Tensor qkv = values.detach().set_requires_grad();
    const auto part = [&](std::int64_t from, std::int64_t h) {
      return transpose(reshape(slice(qkv, 2, from * d, (from + h) * d), {b, n, h, d}), 1, 2);
    };
    const Tensor o = attention(part(0, heads), part(heads, key_heads),
                               part(heads + key_heads, key_heads), {.causal = true});
    const Tensor rows = reshape(transpose(o, 1, 2), {b, n, heads * d});
    backward(rows, {.initial_gradient = seed});
    return std::vector<std::vector<double>>{values_of(rows), values_of(qkv.grad())};
  };
  const auto own = run(AttentionPath::own), by_cudnn = run(AttentionPath::cudnn);
  CHECK(relative_error(by_cudnn[0], own[0]) <= 0.01);
  CHECK(relative_error(by_cudnn[1], own[1]) <= 0.01);
}

TEST_CASE("attention: each pass understands the other way's log_sum_exp", "[gpu]") {
  const AttentionCase c{.b = 1, .hq = 2, .hk = 1, .n = 20, .m = 40, .d = 16, .dv = 16};
  Rng rng(3);
  AttentionValues x = random_values(c, rng, f16);
  const double inf = std::numeric_limits<double>::infinity();
  // Query 5 of head 0 has scores of -inf alone.
  for (std::int64_t e = 0; e < c.d; ++e) x.q[static_cast<std::size_t>(5 * c.d + e)] = 0;
  x.q[static_cast<std::size_t>(5 * c.d)] = -inf;
  for (std::int64_t j = 0; j < c.m; ++j) x.k[static_cast<std::size_t>(j * c.d)] = 1;
  const auto run = [&](AttentionPath forward, AttentionPath back) {
    const Tensor q = make(x.q, c.q_shape(), f16).set_requires_grad();
    const Tensor k = make(x.k, c.k_shape(), f16).set_requires_grad();
    const Tensor v = make(x.v, c.v_shape(), f16).set_requires_grad();
    Tensor o;
    {
      const Path scope(forward);
      o = attention(q, k, v);
    }
    const Path scope(back);
    backward(o, {.initial_gradient = make(x.dout, c.o_shape(), f16)});
    return AttentionResults{values_of(o), {}, {}, values_of(v.grad())};
  };
  const AttentionResults want = run(AttentionPath::own, AttentionPath::own);
  for (std::int64_t e = 0; e < c.dv; ++e)
    CHECK(want.o[static_cast<std::size_t>(5 * c.dv + e)] == 0);
  for (const AttentionPath forward : {AttentionPath::own, AttentionPath::cudnn}) {
    for (const AttentionPath back : {AttentionPath::own, AttentionPath::cudnn}) {
      const AttentionResults got = run(forward, back);
      CHECK(relative_error(got.o, want.o) <= 0.01);
      CHECK(relative_error(got.dv, want.dv) <= 0.01);
    }
  }
}

TEST_CASE("attention: a hidden NaN stays hidden in sizes that cuDNN would take", "[gpu]") {
  const Path automatic(AttentionPath::automatic);
  const AttentionCase c{
      .b = 1, .hq = 1, .hk = 1, .n = 24, .m = 24, .d = 16, .dv = 16, .causal = true};
  Rng rng(4);
  AttentionValues x = random_values(c, rng, bf16);
  x.v.back() = std::nan("");  // the last query alone sees it
  const AttentionResults got = run_attention(c, x, bf16);
  for (std::size_t i = 0; i + 1 < got.o.size(); ++i) CHECK(std::isfinite(got.o[i]));
  CHECK(std::isnan(got.o.back()));
  for (std::size_t i = 0; i + 16 < got.dq.size(); ++i) CHECK(std::isfinite(got.dq[i]));
}

#ifdef FIRN_HAS_CUSIM
namespace {

/// A call, and which of its passes cuDNN runs: "", "forward", "backward" or "both".
struct Dispatch {
  AttentionCase c{.b = 1, .hq = 2, .hk = 1, .n = 9, .m = 12, .d = 16, .dv = 8};
  DType dtype = bf16;
  bool only_values = false;  ///< q and k get no gradient
  bool twice = false;        ///< gradients are added to what is there
  bool repeated = false;     ///< keys of stride 0

  std::string passes() const {
    Rng rng(1);
    const AttentionValues x = random_values(c, rng, dtype);
    const auto operand = [&](const std::vector<double>& values, const Shape& shape, bool wanted) {
      Tensor t = make(values, shape, dtype);
      if (wanted) t.set_requires_grad();
      return t;
    };
    const Tensor q = operand(x.q, c.q_shape(), !only_values);
    const Tensor keys = operand(x.k, c.k_shape(), !only_values);
    const Tensor values = operand(x.v, c.v_shape(), true);
    const Tensor k = repeated ? expand(keys, {c.b, c.hq, c.m, c.d}) : keys;
    const Tensor v = repeated ? expand(values, {c.b, c.hq, c.m, c.dv}) : values;
    const Tensor seed = make(x.dout, c.o_shape(), dtype);
    Generator generator;
    const auto options = options_of(c, generator);
    Tensor o;
    const auto forward = [&] { o = attention(q, k, v, options); };
    const auto back = [&] { backward(o, {.initial_gradient = seed, .retain_graph = true}); };
    const auto runs = [](const auto& work) {
      const auto graph = memory::CapturedGraph::capture(default_device(), work);
      const auto& names = graph->names();
      return std::any_of(names.begin(), names.end(), [](std::string_view name) {
        return name.find("cudnn_attention") != std::string_view::npos;
      });
    };
    forward();
    back();
    const bool first = runs(forward);
    forward();
    if (!twice)
      for (const Tensor& t : {q, keys, values})
        if (t.requires_grad()) t.set_grad({});
    const bool second = runs(back);
    return first ? (second ? "both" : "forward") : (second ? "backward" : "");
  }
};

}  // namespace

TEST_CASE("attention: cuDNN gets the calls for which it keeps the contract", "[gpu]") {
  if (const char* installed = std::getenv("CUSIM_CUDNN"); installed && *installed == '0') return;
  const Path automatic(AttentionPath::automatic);
  CHECK(Dispatch{}.passes() == "both");
  CHECK(Dispatch{.dtype = f16}.passes() == "both");
  CHECK(Dispatch{.dtype = f32}.passes() == "");
  // Options.
  const auto with = [](auto change) {
    Dispatch d;
    change(d.c);
    return d.passes();
  };
  const auto causal = [](AttentionCase& c) { c.causal = true; };
  CHECK(with(causal) == "");
  CHECK(with([](AttentionCase& c) { c.window = 3; }) == "");
  CHECK(with([](AttentionCase& c) { c.lengths = {7}; }) == "");
  CHECK(with([](AttentionCase& c) { c.dropout = 0.1; }) == "");
  CHECK(with([](AttentionCase& c) { c.scale = 0.0; }) == "");
  CHECK(with([](AttentionCase& c) { c.scale = -1.0; }) == "");
  CHECK(with([](AttentionCase& c) {
          c.mask_shape = {9, 12};
          c.mask.assign(9 * 12, 1);
        }) == "");
  // Sizes and layouts.
  CHECK(with([](AttentionCase& c) { c.n = 1; }) == "");
  CHECK(with([](AttentionCase& c) { c.d = 12; }) == "");
  CHECK(with([](AttentionCase& c) { c.dv = 9; }) == "");
  CHECK(with([](AttentionCase& c) { c.d = 264; }) == "");
  CHECK(Dispatch{.repeated = true}.passes() == "");
  // Gradients.
  CHECK(Dispatch{.only_values = true}.passes() == "forward");
  CHECK(Dispatch{.twice = true}.passes() == "forward");
  {
    const Path scope(AttentionPath::own);
    CHECK(Dispatch{}.passes() == "");
  }
  const Path scope(AttentionPath::cudnn);
  CHECK(Dispatch{}.passes() == "both");
  CHECK(with(causal) == "both");
  CHECK(with([](AttentionCase& c) {
          c.causal = true;
          c.n = 13;
        }) == "");
}

TEST_CASE("attention: a shape that cuDNN has no plan for cannot be captured", "[gpu]") {
  if (const char* installed = std::getenv("CUSIM_CUDNN"); installed && *installed == '0') return;
  const Path automatic(AttentionPath::automatic);
  const Tensor q = ones({1, 2, 3, 40}, bf16);
  const auto record = [&] {
    memory::CapturedGraph::capture(default_device(), [&] { attention(q, q, q); });
  };
  CHECK(error_of(record).find("run the step once") != std::string::npos);
  attention(q, q, q);
  record();
}
#endif

}  // namespace firn::testing
#endif
