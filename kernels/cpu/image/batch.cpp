// Batches from a set of bytes. A pixel has 256 values, so normalisation is a table look-up, also in
// the short rows of augmented images. One thread augments an image while it copies it.
#include "kernels/batch.h"

#include <algorithm>
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

/// Copies row by row the part of a row that lies in the image, forwards or backwards, between
/// padding.
template <class T>
void augmented(const math::Augment& a, const math::Placement& p,
               const std::array<T, kPixels>& table, const std::uint8_t* from, T* to) {
  // Columns [first, last) of the result are inside the image. They read first_source, first_source
  // + step, ...
  const int shift = p.flipped ? -p.left : p.left;
  const int first = std::clamp(-shift, 0, a.width),
            last = std::clamp(a.width - shift, first, a.width);
  const int first_source = p.flipped ? a.width - 1 - first + p.left : first + p.left;
  const int step = p.flipped ? -1 : 1;
  for (int plane = 0; plane < a.planes; ++plane, from += a.height * a.width) {
    for (int row = 0; row < a.height; ++row, to += a.width) {
      const int source_row = row + p.top;
      if (source_row < 0 || source_row >= a.height) {
        std::fill_n(to, a.width, table[0]);
      } else {
        const std::uint8_t* source = from + source_row * a.width + first_source;
        std::fill(to, to + first, table[0]);
        for (int column = first; column < last; ++column, source += step)
          to[column] = table[*source];
        std::fill(to + last, to + a.width, table[0]);
      }
      if (row >= p.first_row && row < p.first_row + p.rows)
        std::fill_n(to + p.first_column, p.columns, T(0));
    }
  }
}

/// Prefetches an image, since the images of a batch lie far apart.
void prefetch(const std::uint8_t* image, std::int64_t pixels) {
  constexpr std::int64_t kLine = 64, kMost = 4096;
  for (std::int64_t at = 0; at < std::min(pixels, kMost); at += kLine)
    __builtin_prefetch(image + at);
}

}  // namespace

void take_batch(const ConstView& images, const ConstView& labels, const ConstView& order,
                const ConstView& ids, const View& cursor, float mean, float stddev,
                const math::Augment& augment, const View& x, const View& y, Stream) {
  const std::int64_t count = x.shape[0], samples = order.numel();
  if (count == 0 || samples == 0) return;
  const std::int64_t pixels = x.numel() / count;
  const auto* bytes = images.as<std::uint8_t>();
  const auto* rows = order.as<std::int64_t>();
  const auto* numbers = ids.as<std::int64_t>();
  auto* position = cursor.as<std::int64_t>();
  const auto row_of = [&](std::int64_t i) { return rows[(position[0] + i) % samples]; };

  visit(x.dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) {
      const auto table = normalised_pixels<T>(mean, stddev);
      T* const out = x.as<T>();
      parallel_for(count, count * pixels, [&](std::int64_t i) {
        const std::uint8_t* const from = bytes + row_of(i) * pixels;
        if (i + 1 < count) prefetch(bytes + row_of(i + 1) * pixels, pixels);
        T* const to = out + i * pixels;
        if (augment.on()) {
          const std::int64_t at = position[0] + i, id = numbers[at % samples];
          augmented(augment, math::placement(augment, position[2] + at / samples, id), table, from,
                    to);
          return;
        }
        if constexpr (std::is_same_v<T, float>) {  // vectors are faster than look-ups
          for (std::int64_t j = 0; j < pixels; ++j)
            to[j] = math::normalised<float>(from[j], mean, stddev);
        } else {
          for (std::int64_t j = 0; j < pixels; ++j) to[j] = table[from[j]];
        }
      });
    }
  });
  if (labels.data)
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
