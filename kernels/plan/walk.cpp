// Merges the axes that several views can walk as one.
#include "kernels/plan/walk.h"

namespace firn::kernels {

Walk::Walk(const Shape& shape, const Strides* const* strides, int views) : views_(views) {
  // Axes are in the order of the first view's strides, largest first, so that its memory is walked
  // forwards even if it is a transpose. Axes of size 1 are dropped.
  int order[kMaxRank];
  int axes = 0;
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    int at = axes++;
    for (; at > 0 && (*strides[0])[order[at - 1]] < (*strides[0])[d]; --at) {
      order[at] = order[at - 1];
    }
    order[at] = d;
  }
  for (int i = 0; i < axes; ++i) {
    const int d = order[i];
    bool merges = rank_ > 0;
    for (int v = 0; v < views && merges; ++v) {
      merges = strides_[v][rank_ - 1] == (*strides[v])[d] * shape[d];
    }
    if (merges) {
      sizes_[rank_ - 1] *= shape[d];
    } else {
      sizes_[rank_++] = shape[d];
    }
    for (int v = 0; v < views; ++v) strides_[v][rank_ - 1] = (*strides[v])[d];
  }
  if (rank_ == 0) {
    sizes_[0] = 1;
    for (int v = 0; v < views; ++v) strides_[v][0] = 1;
    rank_ = 1;
  }
}

bool Walk::constant(int view) const noexcept {
  return std::all_of(strides_[view], strides_[view] + rank_, [](std::int64_t s) { return s == 0; });
}

}  // namespace firn::kernels
