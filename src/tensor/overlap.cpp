#include "tensor/overlap.h"

#include <algorithm>
#include <cstdint>
#include <functional>

namespace firn {
namespace {

bool has_elements(const ConstView& v) noexcept {
  return std::find(v.shape.begin(), v.shape.end(), 0) == v.shape.end();
}

/// Returns the byte after the last element.
const char* end_of(const ConstView& v) noexcept {
  std::int64_t last = 0;
  for (int i = 0; i < v.rank(); ++i) last += (v.shape[i] - 1) * v.strides[i];
  return static_cast<const char*>(v.data) +
         (last + 1) * static_cast<std::int64_t>(size_of(v.dtype));
}

}  // namespace

bool may_repeat(const Shape& shape, const Strides& strides) noexcept {
  // Sort the axes by stride. Elements may repeat if a stride is not larger than the span of the
  // axes before it.
  Shape sizes;
  Strides sorted;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return false;
    if (shape[i] == 1) continue;
    int at = 0;
    while (at < sorted.size() && sorted[at] < strides[i]) ++at;
    sorted.insert(at, strides[i]);
    sizes.insert(at, shape[i]);
  }
  std::int64_t span = 0;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sorted[i] <= span) return true;
    span += (sizes[i] - 1) * sorted[i];
  }
  return false;
}

bool share_memory(const ConstView& a, const ConstView& b) noexcept {
  if (a.device != b.device || !has_elements(a) || !has_elements(b)) return false;
  const std::less<const void*> before;
  return before(a.data, end_of(b)) && before(b.data, end_of(a));
}

bool same_elements(const ConstView& a, const ConstView& b) noexcept {
  if (a.data != b.data || a.dtype != b.dtype || a.shape != b.shape) return false;
  for (int i = 0; i < a.rank(); ++i)
    if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

}  // namespace firn
