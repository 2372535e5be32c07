// Every plan that the samples' convolutions need, and some of the op table's, as cuDNN makes them
// for an H200: its description is enough for the library to choose engines, compile kernels and
// finalise plans, without a GPU or a driver. What this shows: the graphs that firn builds are
// taken, with which engine and how much workspace. What it does not: results, and time on a GPU.
//
// Prints a line a plan, and names what cuDNN has no plan for and firn computes as a matrix product.
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <vector>

#include "firn/dtype.h"
#include "h200.h"
#include "kernels/cuda/conv/cudnn/plan.h"
#include "kernels/cuda/conv/cudnn/products.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using namespace kernels::cuda;  // NOLINT: the test is about these
using kernels::ConvGeometry;

/// One convolution of a network.
struct Layer {
  std::int64_t n, c, h, w, k, r, s;
  ConvGeometry geometry = {};
};

ConvProblem problem_of(const Layer& l, ConvProduct product, DType operands, DType result) {
  ConvProblem p;
  p.product = product;
  p.operands = operands;
  p.result = result;
  p.geometry = l.geometry;
  const auto size = [&](std::size_t axis, std::int64_t in, std::int64_t taps) {
    return (in + l.geometry.before[axis] + l.geometry.after[axis] -
            l.geometry.dilation[axis] * (taps - 1) - 1) /
               l.geometry.stride[axis] +
           1;
  };
  p.x = {l.n, l.c, l.h, l.w};
  p.w = {l.k, l.c / l.geometry.groups, l.r, l.s};
  p.y = {l.n, l.k, size(0, l.h, l.r), size(1, l.w, l.s)};
  return p;
}

ConvGeometry padded(std::int64_t by, std::int64_t stride = 1, std::int64_t groups = 1) {
  return {{stride, stride}, {by, by}, {by, by}, {1, 1}, groups};
}

class Planner {
 public:
  explicit Planner(const Descriptor& device) : device_(device) {}

  /// Whether cuDNN has a plan.
  bool plan(const ConvProblem& p) {
    const auto begin = std::chrono::steady_clock::now();
    const CudnnPlan plan = make_conv_plan(p, {nullptr, &device_});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    ++asked_;
    if (!plan.found) {
      fmt::print("matrix product  {}: {} ({:.0f} ms)\n", to_string(p),
                 plan.attempts.empty() ? "cuDNN takes no such graph" : plan.attempts[0].outcome,
                 took.count());
      return false;
    }
    ++found_;
    const bool compiled = plan.attempts.back().compiled_at_run_time;
    fmt::print("accepted        {}: engine {}{}, workspace {}, {:.1f} ms\n", to_string(p),
               plan.engine, compiled ? ", compiled now" : "",
               plan.workspace < 0 ? "unknown" : fmt::format("{} bytes", plan.workspace),
               took.count());
    CHECK(plan.workspace <= kCudnnWorkspace);
    return true;
  }
  int asked() const { return asked_; }
  int found() const { return found_; }

 private:
  const Descriptor& device_;
  int asked_ = 0, found_ = 0;
};

/// A layer of a network in training: what its step asks for. Of f16 and bf16, weight gradients are
/// summed in f32.
void check_layer(Planner& planner, const Layer& l, DType t, bool bias_and_relu, bool first) {
  ConvProblem forward = problem_of(l, ConvProduct::forward, t, t);
  forward.bias = forward.relu = bias_and_relu;
  CHECK(planner.plan(forward));
  if (!first) CHECK(planner.plan(problem_of(l, ConvProduct::data_gradient, t, t)));
  const ConvProblem weight = problem_of(l, ConvProduct::weight_gradient, t, f32);
  if (t != f32 && weight.w[1] < kLeastWideChannels) {
    fmt::print("matrix product  {}: not asked for\n", to_string(weight));
    return;
  }
  CHECK(planner.plan(weight));
}

TEST_CASE("cudnn_plans: the CNN of the samples") {
  if (!has_cudnn()) return;
  const Descriptor device = h200();
  Planner planner(device);
  for (const DType t : {f16, bf16, f32}) {
    for (const std::int64_t batch :
         {64, 32}) {  // 60,000 images are 937 batches of 64 and one of 32
      if (t == bf16 && batch == 32) continue;
      check_layer(planner, {batch, 1, 28, 28, 32, 3, 3, {}}, t, true, true);
      check_layer(planner, {batch, 32, 26, 26, 64, 3, 3, {}}, t, true, false);
    }
  }
  CHECK(planner.found() > 0);
}

TEST_CASE("cudnn_plans: a small residual network") {
  if (!has_cudnn()) return;
  const Descriptor device = h200();
  Planner planner(device);
  for (const DType t : {f16, bf16, f32}) {
    check_layer(planner, {64, 1, 28, 28, 16, 3, 3, padded(1)}, t, false, true);
    check_layer(planner, {64, 16, 28, 28, 16, 3, 3, padded(1)}, t, false, false);
    check_layer(planner, {64, 16, 28, 28, 32, 3, 3, padded(1, 2)}, t, false, false);
    if (t == bf16) continue;  // of one family with f16, and each compiles for a second
    check_layer(planner, {64, 32, 14, 14, 32, 3, 3, padded(1)}, t, false, false);
    check_layer(planner, {64, 32, 14, 14, 64, 3, 3, padded(1, 2)}, t, false, false);
    check_layer(planner, {64, 64, 7, 7, 64, 3, 3, padded(1)}, t, false, false);
    check_layer(planner, {64, 16, 28, 28, 32, 1, 1, padded(0, 2)}, t, false, false);
    check_layer(planner, {64, 32, 14, 14, 64, 1, 1, padded(0, 2)}, t, false, false);
  }
  CHECK(planner.found() > 0);
}

TEST_CASE("cudnn_plans: gradients that are added to what is there") {
  if (!has_cudnn()) return;
  const Descriptor device = h200();
  Planner planner(device);
  const Layer l{64, 32, 26, 26, 64, 3, 3, {}};
  for (const DType t : {f16, bf16, f32}) {
    ConvProblem p = problem_of(l, ConvProduct::data_gradient, t, t);
    p.add = true;
    CHECK(planner.plan(p));
    p = problem_of(l, ConvProduct::weight_gradient, t, f32);
    p.add = true;
    CHECK(planner.plan(p));
    p.result = t;
    CHECK(planner.plan(p));
  }
}

// Named where refused, and no fault: firn then multiplies matrices.
TEST_CASE("cudnn_plans: odd shapes, strides, dilation and groups") {
  if (!has_cudnn()) return;
  const Descriptor device = h200();
  Planner planner(device);
  const std::vector<Layer> layers = {
      {2, 3, 5, 6, 4, 3, 2, {}},
      {3, 16, 9, 7, 24, 3, 3, {}},
      {2, 17, 6, 6, 33, 2, 3, {}},
      {2, 16, 12, 11, 16, 3, 3, padded(1, 2)},
      {2, 8, 4, 10, 16, 3, 2, {{1, 3}, {2, 0}, {2, 0}, {1, 1}, 1}},
      {2, 16, 8, 8, 16, 4, 2, {{1, 1}, {1, 0}, {2, 1}, {1, 1}, 1}},
      {2, 16, 9, 8, 16, 2, 2, {{1, 1}, {1, 1}, {1, 2}, {2, 3}, 1}},
      {2, 32, 6, 6, 32, 3, 3, padded(1, 1, 2)},
      {3, 48, 7, 9, 48, 5, 3, {{1, 1}, {2, 1}, {2, 1}, {1, 1}, 48}},
      {2, 33, 5, 5, 20, 1, 1, {}},
      {2, 16, 1, 40, 24, 1, 5, {}},
  };
  for (const Layer& l : layers) {
    for (const DType t : {f16, f32}) {
      ConvProblem forward = problem_of(l, ConvProduct::forward, t, t);
      forward.bias = true;
      planner.plan(forward);
      planner.plan(problem_of(l, ConvProduct::data_gradient, t, t));
      planner.plan(problem_of(l, ConvProduct::weight_gradient, t, t));
    }
  }
  fmt::print("{} of {} plans\n", planner.found(), planner.asked());
  CHECK(planner.found() > 0);
}

TEST_CASE("cudnn_plans: TF32 and sums in any order are taken only where they are allowed") {
  if (!has_cudnn()) return;
  const Descriptor device = h200();
  const auto best = [&](bool tf32) {
    ConvProblem p = problem_of({64, 32, 26, 26, 64, 3, 3, {}}, ConvProduct::forward, f32, f32);
    p.tf32 = tf32;
    return make_conv_plan(p, {nullptr, &device});
  };
  const CudnnPlan exact = best(false), fast = best(true);
  REQUIRE(exact.found);
  REQUIRE(fast.found);
  int refused = 0;
  for (const CudnnAttempt& a : exact.attempts) refused += a.outcome == "TF32";
  fmt::print("f32: engine {} after {} of TF32; with TF32 allowed, engine {}\n", exact.engine,
             refused, fast.engine);
  CHECK(exact.engine != fast.engine);
  CHECK(refused > 0);
  for (const CudnnAttempt& a : fast.attempts) CHECK(a.outcome != "TF32");
}

}  // namespace
}  // namespace firn::testing
