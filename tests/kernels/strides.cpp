// Where the threads of a CUDA kernel find strided elements, beyond what fits in 31 bits: the
// arithmetic alone, since no tensor of that size is worth a test.
#ifdef FIRN_HAS_CUSIM
#include "kernels/cuda/device/strides.cuh"

#include "support/catch.h"

namespace firn::kernels::cuda {
namespace {

struct Axis {
  std::int64_t size, first_stride, second_stride;
};

/// Compares with the definition: the index of each axis, from the last one on, times its stride.
void check(std::initializer_list<Axis> axes, std::initializer_list<std::int64_t> elements) {
  StridedAxes<2> strided;
  for (const Axis& a : axes) strided.push_back(a.size, {a.first_stride, a.second_stride});
  strided.finish();
  for (const std::int64_t element : elements) {
    std::int64_t rest = element, want[2] = {};
    for (const Axis* a = axes.end(); a-- != axes.begin();) {
      want[0] += rest % a->size * a->first_stride;
      want[1] += rest % a->size * a->second_stride;
      rest /= a->size;
    }
    std::int64_t got[2];
    strided.offsets(element, got);
    CAPTURE(element);
    CHECK(got[0] == want[0]);
    CHECK(got[1] == want[1]);
  }
}

TEST_CASE("strided elements are found in 31 bits and beyond", "[kernels]") {
  constexpr std::int64_t kLarge = std::int64_t{1} << 33;
  check({{7, 15, 1}, {3, 5, 7}, {5, 1, 21}}, {0, 1, 4, 5, 14, 15, 16, 52, 104});
  check({{7, kLarge, 1}, {3, 5, 7}, {5, 1, 21}}, {0, 1, 4, 5, 14, 15, 16, 52, 104});
  check({{7, 15, 1}, {3, 5, kLarge}, {5, 1, 21}}, {0, 1, 4, 5, 14, 15, 16, 52, 104});
  // So many elements that their numbers need more than 31 bits.
  check({{3, 2, 0}, {kLarge, 1, 0}}, {0, 17, kLarge - 1, kLarge, 3 * kLarge - 1});
  check({{kLarge, 3, 1}, {3, 1, 2}}, {0, 1, 2, 3, kLarge + 1, 3 * kLarge - 1});
}

TEST_CASE("division by multiplication is exact below 2^31", "[kernels]") {
  for (const std::uint32_t d :
       {1u, 2u, 3u, 5u, 7u, 641u, 65536u, 65537u, 0x7fffffffu, 0x80000000u}) {
    const Divisor divisor(d);
    for (const std::uint32_t n :
         {0u, 1u, 2u, d - 1, d, d + 1, 2 * d - 1, 0x7ffffffeu, 0x7fffffffu}) {
      if (n > 0x7fffffffu) continue;
      CAPTURE(n, d);
      CHECK(divisor.divide(n) == n / d);
    }
  }
}

}  // namespace
}  // namespace firn::kernels::cuda
#endif
