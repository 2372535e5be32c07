// The next batch of a set of bytes on the device, in one launch: gather, normalisation and labels.
// The launch also advances the position, so that every replay of a captured graph takes the next
// batch.
#include "kernels/batch.h"
#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"

namespace firn::kernels::cuda {
namespace {

struct Set {
  const std::uint8_t* images;
  const void* labels;
  DType label_dtype;
  const std::int64_t* order;
  const std::int64_t* ids;
  std::int64_t samples;
  std::int64_t pixels;  // pixels of one image
};

/// Advances the position for the next launch. The last block does so, after every block has read
/// it.
static __device__ void move_cursor(const Set& set, std::int64_t* cursor, std::int64_t count) {
  if (is_last_block(reinterpret_cast<unsigned*>(cursor + 1)) && threadIdx.x == 0) {
    const std::int64_t next = cursor[0] + count;
    cursor[0] = next % set.samples;
    cursor[2] += next / set.samples;
  }
}

/// A thread takes kWidth pixels at a time; the thread with an image's first ones also takes its
/// label.
template <class T, int kWidth>
static __global__ void take_batch_kernel(Set set, std::int64_t* cursor, float mean, float stddev,
                                         T* x, std::int64_t* y, std::int64_t count) {
  const std::int64_t position = cursor[0];
  const std::int64_t groups = set.pixels / kWidth;  // groups of one image
  for (std::int64_t i = global_thread(); i < count * groups; i += grid_threads()) {
    const std::int64_t sample = i / groups, group = i - sample * groups;
    const std::int64_t row = set.order[(position + sample) % set.samples];
    const auto pixels = lanes_at<Lanes<std::uint8_t, kWidth>>(set.images + row * set.pixels, group);
    Lanes<T, kWidth> values;
    for (int k = 0; k < kWidth; ++k)
      narrow(math::normalised<ComputeOf<T>>(pixels.lane[k], mean, stddev), values.lane[k]);
    lanes_at<Lanes<T, kWidth>>(x, i) = values;
    if (group == 0 && set.labels)
      y[sample] = load_element<std::int64_t>(set.labels, set.label_dtype, row);
  }
  move_cursor(set, cursor, count);
}

/// Takes augmented images. Every thread draws for its image by itself, so that none waits for
/// another; all threads of an image draw the same.
template <class T, int kWidth>
static __global__ void take_augmented_kernel(Set set, std::int64_t* cursor, float mean,
                                             float stddev, math::Augment a, T* x, std::int64_t* y,
                                             std::int64_t count) {
  using C = ComputeOf<T>;
  const std::int64_t position = cursor[0], epoch = cursor[2];
  const std::int64_t groups = set.pixels / kWidth;  // groups of one image
  for (std::int64_t i = global_thread(); i < count * groups; i += grid_threads()) {
    const std::int64_t sample = i / groups, group = i - sample * groups;
    const std::int64_t at = (position + sample) % set.samples, row = set.order[at];
    const math::Placement p =
        math::placement(a, epoch + (position + sample) / set.samples, set.ids[at]);
    Lanes<T, kWidth> values;
    for (int k = 0; k < kWidth; ++k) {
      const auto pixel = static_cast<int>(group * kWidth + k);
      const int plane = pixel / (a.height * a.width), within = pixel % (a.height * a.width);
      const int r = within / a.width, c = within % a.width;
      const int source = p.source(r, c, a.height, a.width);
      const std::uint8_t* from = set.images + row * set.pixels + plane * a.height * a.width;
      const C value =
          math::normalised<C>(source < 0 ? std::uint8_t{0} : from[source], mean, stddev);
      narrow(p.erased(r, c) ? C(0) : value, values.lane[k]);
    }
    lanes_at<Lanes<T, kWidth>>(x, i) = values;
    if (group == 0 && set.labels)
      y[sample] = load_element<std::int64_t>(set.labels, set.label_dtype, row);
  }
  move_cursor(set, cursor, count);
}

bool aligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

template <class T>
void take(const Set& set, const View& cursor, float mean, float stddev,
          const math::Augment& augment, const View& x, const View& y, Stream stream) {
  constexpr int kWidth = 4;  // 4 bytes in, 16 out for f32: enough threads for a batch of 64
  const std::int64_t count = x.shape[0];
  // Augmented pixels are read one by one, so images need no alignment.
  const bool wide = set.pixels % kWidth == 0 && (augment.on() || aligned(set.images, kWidth)) &&
                    aligned(x.data, kWidth * sizeof(T));
  const auto kernel = wide ? take_batch_kernel<T, kWidth> : take_batch_kernel<T, 1>;
  const std::int64_t threads = count * set.pixels / (wide ? kWidth : 1);
  if (augment.on()) {
    const auto augmented = wide ? take_augmented_kernel<T, kWidth> : take_augmented_kernel<T, 1>;
    gpu::launch("take_batch", augmented, grid_for(threads), dim3(kBlock), 0, stream, set,
                cursor.as<std::int64_t>(), mean, stddev, augment, x.as<T>(), y.as<std::int64_t>(),
                count);
    return;
  }
  gpu::launch("take_batch", kernel, grid_for(threads), dim3(kBlock), 0, stream, set,
              cursor.as<std::int64_t>(), mean, stddev, x.as<T>(), y.as<std::int64_t>(), count);
}

}  // namespace

void take_batch(const ConstView& images, const ConstView& labels, const ConstView& order,
                const ConstView& ids, const View& cursor, float mean, float stddev,
                const math::Augment& augment, const View& x, const View& y, Stream stream) {
  const std::int64_t count = x.shape[0], samples = order.numel();
  if (count == 0 || samples == 0) return;
  const Set set{images.as<std::uint8_t>(), labels.data, labels.dtype,     order.as<std::int64_t>(),
                ids.as<std::int64_t>(),    samples,     x.numel() / count};
  with_floating(x.dtype,
                [&]<class T>(T) { take<T>(set, cursor, mean, stddev, augment, x, y, stream); });
}

}  // namespace firn::kernels::cuda
