// What options and modules refuse: every message names what was wrong, its value and a way out.
#include <cmath>
#include <utility>

#include "firn/firn.h"
#include "refused.h"

namespace firn::testing {
namespace {

struct Refusal {
  const char* op;
  const char* says;
  const char* hint;
  std::function<void()> call;
};

void check(const std::vector<Refusal>& table) {
  for (const Refusal& r : table) {
    CAPTURE(r.op, r.says, r.hint);
    refused(r.op, {r.says, r.hint}, r.call);
  }
}

TEST_CASE("refusals: numbers outside their range", "[ops]") {
  const auto sgd = [](const optim::StepOptions& step) {
    const optim::SGD opt({ones({2}).set_requires_grad()}, {}, step);
  };
  const auto scale = [](const optim::DynamicLossScale& o) { optim::LossScale::dynamic(o); };
  check({
      {"set_num_threads", "at least 1 thread, got 0", "hint: 1 computes in the calling thread",
       [] { set_num_threads(0); }},
      {"SGD", "clip_norm is nan", "hint: 0 is no limit", [=] { sgd({.clip_norm = std::nan("")}); }},
      {"SGD", "clip_value is -1", "hint: 0 is no limit", [=] { sgd({.clip_value = -1}); }},
      {"SGD", "ema is 1, not in [0, 1)", "hint: 0.999 is usual", [=] { sgd({.ema = 1}); }},
      {"Accumulate", "0 micro-steps", "hint: 1 makes a step", [=] { sgd({.accumulate = 0}); }},
      {"LossScale", "init is 3, not a power of two in [1, 16777216]", "hint: 2 is one",
       [=] { scale({.init = 3}); }},
      {"LossScale", "init is nan", "hint: 1 is one", [=] { scale({.init = std::nan("")}); }},
      {"LossScale", "max is 4, not a power of two in [8, ", "hint: 8 is one",
       [=] { scale({.min = 8, .max = 4}); }},
      {"LossScale", "growth_factor is 1", "hint: 2 is one", [=] { scale({.growth_factor = 1}); }},
  });
}

TEST_CASE("refusals: the lengths, the mask and the bias of attention", "[ops]") {
  const Tensor q = ones({2, 4, 3, 8}), k = ones({2, 4, 5, 8});
  const auto attend = [=](const AttentionOptions& o) { attention(q, k, k, o); };
  check({
      {"attention", "lengths is i64 or i32, got [2] f32 cpu",
       "hint: cast it: lengths.to(firn::i64)", [=] { attend({.lengths = ones({2})}); }},
      {"attention", "lengths [3] i64 cpu", "hint: lengths is [batch]",
       [=] {
         attend({.lengths = tensor<std::int64_t>({1, 2, 3}, {3})});
       }},
      {"attention", "mask is bool, got [3, 5] f32 cpu",
       "hint: give what is added to the scores as bias",
       [=] {
         attend({.mask = ones({3, 5})});
       }},
      {"attention",
       "mask [3, 4] bool cpu does not broadcast to [batch, heads, n, m] = [2, 4, 3, 5]",
       "hint: insert axes with unsqueeze",
       [=] {
         attend({.mask = ones({3, 4}, boolean)});
       }},
      {"attention", "mask [1, 2, 4, 3, 5]", "hint: insert axes with unsqueeze",
       [=] {
         attend({.mask = ones({1, 2, 4, 3, 5}, boolean)});
       }},
      {"attention", "bias [3, 4] f32 cpu does not broadcast to [batch, heads, n, m] = [2, 4, 3, 5]",
       "hint: an axis of 1 is repeated",
       [=] {
         attend({.bias = ones({3, 4})});
       }},
      {"attention", "bias [3, 5] f64 cpu has neither the dtype of q [2, 4, 3, 8] f32",
       "hint: cast it: bias.to(firn::f32)",
       [=] {
         attend({.bias = ones({3, 5}, f64)});
       }},
      {"attention", "bias [3, 5] bool cpu is bool", "hint: give it as mask",
       [=] {
         attend({.bias = ones({3, 5}, boolean)});
       }},
  });
  CHECK_NOTHROW(attend({.mask = ones({4, 1, 5}, boolean)}));
  CHECK_NOTHROW(attend({.bias = ones({4, 1, 5})}));
}

TEST_CASE("refusals: projections of MultiHeadAttention that were reset or replaced", "[ops]") {
  const Tensor x = ones({2, 3, 8}), memory = ones({2, 5, 6});
  const auto self = [=](const std::function<void(nn::MultiHeadAttention&)>& change) {
    nn::MultiHeadAttention layer(8, 2);
    change(layer);
    layer(x);
  };
  const auto cross = [=](const std::function<void(nn::MultiHeadAttention&)>& change) {
    nn::MultiHeadAttention layer(8, 2, {.memory_width = 6});
    change(layer);
    layer(x, memory);
  };
  using Layer = nn::MultiHeadAttention;
  check({
      {"MultiHeadAttention", "the projection qkv was reset", "hint: assign an nn::Linear with 24",
       [=] { self([](Layer& l) { l.qkv.reset(); }); }},
      {"MultiHeadAttention", "the projection qkv is nn::Linear(8, 12) and needs 24 outputs",
       "hint: assign an nn::Linear with 24 outputs",
       [=] { self([](Layer& l) { l.qkv.emplace(8, 12); }); }},
      {"linear", "nn::Linear(5, 24)",
       "hint: ", [=] { self([](Layer& l) { l.qkv.emplace(5, 24); }); }},
      {"linear", "nn::Linear(5, 8)",
       "hint: ", [=] { self([](Layer& l) { l.out = nn::Linear(5, 8); }); }},
      {"MultiHeadAttention", "the projection q was reset", "hint: assign an nn::Linear with 8",
       [=] { cross([](Layer& l) { l.q.reset(); }); }},
      {"MultiHeadAttention", "the projection kv is nn::Linear(6, 8) and needs 16 outputs",
       "hint: assign an nn::Linear with 16 outputs",
       [=] { cross([](Layer& l) { l.kv.emplace(6, 8); }); }},
      {"MultiHeadAttention", "without memory_width", "hint: set memory_width",
       [=] { Layer(8, 2)(x, memory); }},
  });
}

TEST_CASE("refusals: changes of a module that was moved from", "[ops]") {
  nn::Linear from(2, 3), to = std::move(from);
  // NOLINTBEGIN(bugprone-use-after-move)
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"Module::to", [&] { from.to(f16); }},
      {"Module::to", [&] { from.to(default_device()); }},
      {"Module::train", [&] { from.eval(); }},
      {"Module::zero_grad", [&] { from.zero_grad(); }},
      {"Module::set_requires_grad", [&] { from.set_requires_grad(false); }},
      {"Module::set_autocast", [&] { from.set_autocast(f16); }},
      {"Module::copy_from", [&] { from.copy_from(to); }},
      {"Module::copy_from", [&] { to.copy_from(from); }},
      {"Linear",
       [&] {
         from(ones({1, 2}));
       }},
  };
  for (const auto& [op, call] : calls)
    refused(op, {"was moved from and holds nothing", "that it was moved to"}, call);
  refused("Module::parameters", {"was moved from"}, [&] { from.parameters(); });
  from = nn::Linear(2, 3);
  from.to(f16);
  CHECK(from.weight.dtype() == f16);
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace firn::testing
