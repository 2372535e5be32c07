// Measures the peak rates of this machine with firn's own product and copy.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/cpu.h"
#include "firn/ops/autocast.h"
#include "firn/ops/ops.h"
#include "firn/profile.h"
#include "kernels/copy.h"
#include "kernels/gemm.h"

namespace firn {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns the seconds of one run, the best of several.
template <class Run>
double best_seconds(Device device, const Run& run) {
  constexpr int kRuns = 4;
  double best = 0;
  for (int i = 0; i <= kRuns; ++i) {
    if (device.is_cuda()) synchronize(device);
    const auto start = Clock::now();
    run();
    if (device.is_cuda()) synchronize(device);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i == 1 || (i > 1 && seconds < best)) best = seconds;  // the first one warms up
  }
  return best;
}

/// Doubles the size until a run takes so long that the time to start it does not matter.
template <class RateOf>
double grow(std::int64_t size, std::int64_t most, double enough_seconds, const RateOf& rate_of) {
  double best = 0;
  for (;; size *= 2) {
    double seconds = 0;
    best = std::max(best, rate_of(size, seconds));
    if (seconds >= enough_seconds || size >= most) return best;
  }
}

/// Memory that firn does not account for, so that measuring does not change a peak of memory.
class Block {
 public:
  explicit Block(std::size_t bytes) : data_(new std::byte[bytes + kAlignment]{}) {}
  View matrix(std::int64_t rows, std::int64_t columns, DType dtype) const {
    const auto at = reinterpret_cast<std::uintptr_t>(data_.get());
    void* const aligned = data_.get() + (kAlignment - at % kAlignment);
    return {aligned, dtype, Device::cpu(), Shape{rows, columns},
            strides_in(Shape{rows, columns}, MemoryFormat::contiguous)};
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::unique_ptr<std::byte[]> data_;
};

double measure_cpu_flops(DType dtype) {
  constexpr double kEnough = 5e-3;
  return grow(128, 2048, kEnough, [&](std::int64_t n, double& seconds) {
    const std::size_t bytes = static_cast<std::size_t>(n * n) * size_of(dtype);
    const Block a(bytes), b(bytes), c(bytes);
    const View left = a.matrix(n, n, dtype), right = b.matrix(n, n, dtype);
    kernels::fill(left, 0.5, Stream{});
    kernels::fill(right, 0.25, Stream{});
    seconds = best_seconds(Device::cpu(), [&] {
      kernels::gemm(ConstView(left), ConstView(right), c.matrix(n, n, dtype), kernels::GemmArgs{},
                    Stream{});
    });
    const auto size = static_cast<double>(n);
    return 2 * size * size * size / seconds;
  });
}

double measure_cpu_bytes() {
  constexpr double kEnough = 5e-3;
  return grow(std::int64_t{1} << 20, std::int64_t{1} << 25, kEnough,
              [&](std::int64_t n, double& seconds) {
                const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(float);
                const Block from(bytes), to(bytes);
                seconds = best_seconds(Device::cpu(), [&] {
                  kernels::copy(ConstView(from.matrix(1, n, f32)), to.matrix(1, n, f32), Stream{});
                });
                return 2.0 * static_cast<double>(bytes) / seconds;
              });
}

double measure_flops(Device device, DType dtype) {
  if (device.is_cpu()) return measure_cpu_flops(dtype);
  constexpr double kEnough = 5e-3;
  return grow(128, 8192, kEnough, [&](std::int64_t n, double& seconds) {
    const Tensor a = full({n, n}, 0.5, dtype, device), b = full({n, n}, 0.25, dtype, device);
    seconds = best_seconds(device, [&] { (void)matmul(a, b); });
    const auto size = static_cast<double>(n);
    return 2 * size * size * size / seconds;
  });
}

double measure_bytes(Device device) {
  if (device.is_cpu()) return measure_cpu_bytes();
  constexpr double kEnough = 10e-3;
  // A GPU doubles past the small sizes in microseconds; the simulator ends at one of them.
  return grow(std::int64_t{1} << 14, std::int64_t{1} << 28, kEnough,
              [&](std::int64_t n, double& seconds) {
                const Tensor from = full({n}, 1, f32, device);
                Tensor to = full({n}, 0, f32, device);
                seconds = best_seconds(device, [&] { to.copy_(from); });
                return 2.0 * static_cast<double>(from.bytes()) / seconds;
              });
}

}  // namespace

MachinePeak machine_peak(Device device, DType dtype) try {
  constexpr const char* kOp = "machine_peak";
  require_device(kOp, device);
  FIRN_CHECK(is_floating(dtype), kOp, "products are of floating dtypes", "dtype {}", dtype);
  static std::mutex& mutex = *new std::mutex;
  using Key = std::tuple<Device, DType, int>;
  struct Less {
    bool operator()(const Key& a, const Key& b) const noexcept {
      const auto [d, t, n] = a;
      const auto [e, u, m] = b;
      return std::tuple(d.type, d.index, t, n) < std::tuple(e.type, e.index, u, m);
    }
  };
  static auto& known = *new std::map<Key, double, Less>;
  const NoGrad no_grad;
  const NoAutocast plain;
  const std::lock_guard lock(mutex);
  const int threads = device.is_cpu() ? num_threads() : 0;
  // The key is the dtype of a product; u8 stands for copies.
  const auto once = [&](DType key, const auto& measure) {
    const auto found = known.find({device, key, threads});
    return found != known.end() ? found->second : known[{device, key, threads}] = measure();
  };
  return {.flops = once(dtype, [&] { return measure_flops(device, dtype); }),
          .bytes_per_second = once(u8, [&] { return measure_bytes(device); })};
}
FIRN_OUT_OF_MEMORY("machine_peak")

}  // namespace firn
