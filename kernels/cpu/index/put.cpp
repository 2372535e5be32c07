// Writes at positions held in a tensor, on the CPU. Elements with equal positions are combined in
// the order of the index. Lines along the axis, and pieces of slices, are independent.
#include "kernels/cpu/device/blocks.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/index/index.h"
#include "kernels/index.h"
#include "kernels/math/combine.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Calls meet(element of out, element of src) for all positions, in the order of the index.
template <class T, class Meet>
void meet_all(const ConstView& src, const ConstView& index, const View& out, int axis,
              const Meet& meet) {
  const IndexGeometry g(out, index, src, axis);
  each_pair<true>(out.as<T>(), src.as<T>(), index, g, meet);
}

template <class T>
void combine_as(const ConstView& src, const ConstView& index, const View& out, int axis,
                Meeting meeting) {
  const auto combine = [&](const auto& meet) { meet_all<T>(src, index, out, axis, meet); };
  switch (meeting) {
    case Meeting::sum:
      if constexpr (std::is_integral_v<T>) combine([](T& a, T b) { a = math::wrapping_sum(a, b); });
      return;
    case Meeting::prod:
      return combine([](T& a, T b) { a = math::wrapping_product(a, b); });
    case Meeting::max:
      return combine([](T& a, T b) { a = math::larger_or_nan(a, b); });
    default:
      return combine([](T& a, T b) { a = math::smaller_or_nan(a, b); });
  }
}

/// v from its last position along an axis on.
template <class V>
V reversed_along(V v, int axis) {
  v.data = advance(v.data, v.dtype, (v.shape[axis] - 1) * v.strides[axis]);
  v.strides[axis] *= -1;
  return v;
}

}  // namespace

void put(const char* op, const ConstView& src, const ConstView& index, const View& out, int axis,
         Meeting meeting, Stream) {
  check_index(op, index, out.shape[axis]);
  if (src.numel() == 0) return;
  if (meeting == Meeting::last)
    return visit_size(out.dtype, [&]<class T>() {
      meet_all<T>(src, index, out, axis, [](T& a, T b) { a = b; });
    });
  switch (out.dtype) {
    case f64:
      return combine_as<double>(src, index, out, axis, meeting);
    case i32:
      return combine_as<std::int32_t>(src, index, out, axis, meeting);
    case i64:
      return combine_as<std::int64_t>(src, index, out, axis, meeting);
    case u8:
      return combine_as<std::uint8_t>(src, index, out, axis, meeting);
    default:
      return combine_as<float>(src, index, out, axis, meeting);
  }
}

void put_backward(const ConstView& index, const View& dx, const View& dsrc, int axis) {
  if (dsrc.numel() == 0 || runtime::dry_run()) return;
  const View to = reversed_along(dsrc, axis);
  const ConstView places = reversed_along(index, axis);
  const IndexGeometry g(dx, places, to, axis);
  visit_size(dx.dtype, [&]<class T>() {
    each_pair<true>(dx.as<T>(), to.as<T>(), places, g, [](T& a, T& b) {
      b = a;
      a = 0;
    });
  });
}

}  // namespace firn::kernels::cpu::FIRN_ISA
