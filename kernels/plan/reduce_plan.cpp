// Sorts and merges the axes of a reduction.
#include "kernels/plan/reduce_plan.h"

namespace firn::kernels {
namespace {

struct Candidate {
  ReduceAxis axis;
  bool kept;
};

/// True if `outer` and `inner` are one axis in memory.
bool mergeable(const Candidate& outer, const Candidate& inner) {
  const std::int64_t n = inner.axis.size;
  return outer.kept == inner.kept && outer.axis.x == inner.axis.x * n &&
         outer.axis.out == inner.axis.out * n && outer.axis.other == inner.axis.other * n;
}

/// An inner loop over a kept axis shorter than this does not pay, unless rows are dense in memory.
constexpr std::int64_t kShortRow = 16;

}  // namespace

ReducePlan plan_reduction(const ConstView& x, const ConstView& out, const Strides* other) {
  std::array<Candidate, kMaxRank> axes;
  int n = 0;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.shape[i] == 1) continue;
    const bool kept = out.shape[i] != 1;
    Candidate c{{x.shape[i], x.strides[i], kept ? out.strides[i] : 0, other ? (*other)[i] : 0},
                kept};
    // Larger strides go outside; a repeated axis (stride 0) is outermost.
    int at = n++;
    while (at > 0 && axes[at - 1].axis.x != 0 &&
           (c.axis.x == 0 || axes[at - 1].axis.x < c.axis.x)) {
      axes[at] = axes[at - 1];
      --at;
    }
    axes[at] = c;
  }
  int merged = 0;
  for (int i = 0; i < n; ++i) {
    if (merged > 0 && mergeable(axes[merged - 1], axes[i])) {
      const std::int64_t size = axes[merged - 1].axis.size;
      axes[merged - 1] = axes[i];
      axes[merged - 1].axis.size *= size;
    } else {
      axes[merged++] = axes[i];
    }
  }

  ReducePlan plan;
  for (int i = 0; i < merged; ++i)
    (axes[i].kept ? plan.kept : plan.reduced).push_back(axes[i].axis);
  plan.reduction = plan.reduced.count();
  if (merged > 0 && axes[merged - 1].kept) {
    const ReduceAxis& row = plan.kept.back();
    const bool dense = row.x == 1 && plan.reduced.size() == 1 && plan.reduced.back().x == row.size;
    plan.columns = plan.reduced.size() == 0 || row.size >= kShortRow || dense;
  }
  if (plan.columns) {
    plan.inner = plan.kept.pop_back();
  } else if (plan.reduced.size() > 0) {
    plan.inner = plan.reduced.pop_back();
  } else {
    plan.inner = {1, 1, 0, 1};
  }
  plan.outputs = plan.kept.count();
  return plan;
}

bool run_across(ReducePlan& plan, std::int64_t most) {
  const std::int64_t width = plan.columns ? plan.inner.size : 1;
  if (plan.reduced.size() != (plan.columns ? 1 : 0) || plan.reduction * width > most ||
      plan.kept.size() == 0 || plan.kept.back().size < kShortRow)
    return false;
  const ReduceAxis across = plan.kept.pop_back();
  (plan.columns ? plan.kept : plan.reduced).push_back(plan.inner);
  plan.inner = across;
  plan.columns = true;
  plan.outputs = plan.kept.count();
  return true;
}

}  // namespace firn::kernels
