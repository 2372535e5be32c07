// The plans of attention, as cuDNN makes them for an H200. What this shows: firn's two graphs are
// taken, with which engine. It does not show results.
#include <chrono>
#include <vector>

#include "h200.h"
#include "kernels/cuda/attention/cudnn/plan.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using namespace kernels::cuda;  // NOLINT: the test is about these

/// Strides of arrays [b, n, h, d] in memory, with the heads of q, k and v in one row if `fused`.
SdpaProblem problem(std::int64_t hq, std::int64_t hk, std::int64_t n, std::int64_t m,
                    std::int64_t d, std::int64_t dv, bool fused = false) {
  SdpaProblem p;
  p.b = 2;
  p.hq = hq;
  p.hk = hk;
  p.n = n;
  p.m = m;
  p.d = d;
  p.dv = dv;
  const auto rows = [&](std::int64_t heads, std::int64_t length, std::int64_t depth, bool in_row) {
    const std::int64_t row = in_row ? hq * d + hk * (d + dv) : heads * depth;
    return SdpaProblem::Layout{length * row, depth, row};
  };
  p.q = p.dq = rows(hq, n, d, fused);
  p.k = p.dk = rows(hk, m, d, fused);
  p.v = p.dv_layout = rows(hk, m, dv, fused);
  p.o = p.dout = rows(hq, n, dv, false);
  return p;
}

/// The plan of one pass, with a line that tells it.
CudnnPlan plan_of(SdpaProblem p, bool backward, const Descriptor& device) {
  p.backward = backward;
  p.log_sum_exp = !backward;
  const auto begin = std::chrono::steady_clock::now();
  CudnnPlan plan = make_sdpa_plan(p, {nullptr, &device});
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  if (!plan.found) {
    fmt::print("own kernels     {}: {} ({:.0f} ms)\n", to_string(p),
               plan.attempts.empty() ? "cuDNN takes no such graph" : plan.attempts[0].outcome,
               took.count());
    return plan;
  }
  const bool compiled = plan.attempts.back().compiled_at_run_time;
  fmt::print("accepted        {}: engine {}{}, workspace {}, {:.1f} ms\n", to_string(p),
             plan.engine, compiled ? ", compiled now" : "",
             plan.workspace < 0 ? "unknown" : fmt::format("{} bytes", plan.workspace),
             took.count());
  CHECK(plan.workspace <= kCudnnWorkspace);
  return plan;
}

TEST_CASE("cudnn_plans: attention, both passes") {
  if (!has_cudnn()) return;
  const Descriptor device = h200();
  for (const DType dtype : {f16, bf16}) {
    for (const bool causal : {false, true}) {
      for (SdpaProblem p : {
               problem(12, 12, 1024, 1024, 64, 64, true),  // GPT-2
               problem(16, 4, 1024, 1024, 128, 128),       // grouped heads
               problem(8, 8, 100, 1000, 64, 64),           // no multiple of a tile
           }) {
        if (dtype == f16 && p.hk == 4) continue;  // of one family with bf16
        p.dtype = dtype;
        p.causal = causal;
        CHECK(plan_of(p, false, device).found);
        CHECK(plan_of(p, true, device).found);
      }
    }
  }
}

// Sums in any order need no memory for the pairs; inference needs no log_sum_exp.
TEST_CASE("cudnn_plans: attention in inference, and with sums in any order") {
  if (!has_cudnn()) return;
  const Descriptor device = h200();
  SdpaProblem p = problem(16, 4, 512, 512, 128, 128);
  CHECK(make_sdpa_plan(p, {nullptr, &device}).found);
  p.nondeterministic = true;
  CHECK(plan_of(p, true, device).found);
}

// Heads of other sizes, and the least that firn asks for.
TEST_CASE("cudnn_plans: head sizes of attention") {
  if (!has_cudnn()) return;
  const Descriptor device = h200();
  for (const auto& [d, dv] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {8, 8}, {32, 24}, {192, 128}, {256, 256}}) {
    for (const bool backward : {false, true}) {
      INFO(d << ", " << dv << (backward ? " backward" : ""));
      CHECK(plan_of(problem(2, 1, 65, 67, d, dv), backward, device).found);
    }
  }
}

TEST_CASE("cudnn_plans: what cuDNN refuses of attention") {
  if (!has_cudnn()) return;
  const Descriptor device = h200();
  for (const bool backward : {false, true}) {
    CHECK(!plan_of(problem(2, 2, 64, 64, 12, 12), backward, device).found);
    CHECK(!plan_of(problem(2, 2, 64, 64, 264, 264), backward, device).found);
    CHECK(!plan_of(problem(3, 2, 64, 64, 64, 64), backward, device).found);
    SdpaProblem wide = problem(2, 2, 64, 64, 64, 64);
    wide.dtype = f32;
    CHECK(!plan_of(wide, backward, device).found);
  }
}

}  // namespace
}  // namespace firn::testing
