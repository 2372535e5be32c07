// Batches from a set of bytes. A pixel has 256 values, so normalisation is a table look-up. One
// thread augments an image while it copies it.
#include "kernels/batch.h"

#include <array>

#include "kernels/cpu/device/parallel.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr int kPixels = 256;

template <class T>
std::array<T, kPixels> normalised_pixels(float mean, float stddev) {
  using V = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::array<T, kPixels> table;
  for (int p = 0; p < kPixels; ++p)
    table[p] = T(math::normalised<V>(static_cast<std::uint8_t>(p), mean, stddev));
  return table;
}

template <class T>
void augmented(const math::Augment& a, const math::Placement& p,
               const std::array<T, kPixels>& table, const std::uint8_t* from, T* to) {
  for (int plane = 0; plane < a.planes; ++plane, from += a.height * a.width) {
    for (int row = 0; row < a.height; ++row) {
      for (int column = 0; column < a.width; ++column) {
        const int source = p.source(row, column, a.height, a.width);
        const T pixel = table[source < 0 ? 0 : from[source]];
        *to++ = p.erased(row, column) ? T(0) : pixel;
      }
    }
  }
}

}  // namespace

void take_batch(const ConstView& images, const ConstView& labels, const ConstView& order,
                const View& cursor, float mean, float stddev, const math::Augment& augment,
                const View& x, const View& y, Stream) {
  const std::int64_t count = y.numel(), samples = order.numel();
  if (count == 0 || samples == 0) return;
  const std::int64_t pixels = x.numel() / count;
  const auto* bytes = images.as<std::uint8_t>();
  const auto* rows = order.as<std::int64_t>();
  auto* position = cursor.as<std::int64_t>();
  const auto row_of = [&](std::int64_t i) { return rows[(position[0] + i) % samples]; };

  visit(x.dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) {
      const auto table = normalised_pixels<T>(mean, stddev);
      T* const out = x.as<T>();
      parallel_for(count, count * pixels, [&](std::int64_t i) {
        const std::uint8_t* const from = bytes + row_of(i) * pixels;
        T* const to = out + i * pixels;
        if (augment.on()) {
          const std::int64_t at = position[0] + i;
          augmented(augment, math::placement(augment, position[2] + at / samples, at % samples),
                    table, from, to);
          return;
        }
        for (std::int64_t j = 0; j < pixels; ++j) to[j] = table[from[j]];
      });
    }
  });
  visit(labels.dtype, [&]<class L>() {
    if constexpr (!is_floating(dtype_of<L>)) {
      const L* const classes = labels.as<L>();
      auto* const out = y.as<std::int64_t>();
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = static_cast<std::int64_t>(classes[row_of(i)]);
    }
  });
  position[2] += (position[0] + count) / samples;
  position[0] = (position[0] + count) % samples;
}

}  // namespace firn::kernels::cpu::FIRN_ISA
