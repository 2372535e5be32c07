// The same bytes on the host and on a CUDA device, so that a kernel's two backends can be run on
// equal operands and compared to the bit.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <vector>

#include "firn/runtime/storage.h"
#include "firn/runtime/stream.h"
#include "kernels/copy.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {

/// False where there is no CUDA device, and says so: the case returns.
inline bool has_device() {
  if (cuda_device_count() > 0) return true;
  fmt::print("skipped: no CUDA device (built with CUDA: {})\n", built_with_cuda());
  SUCCEED("skipped");
  return false;
}

/// Elements of a dtype in both memories.
class Twins {
 public:
  Twins(DType dtype, const std::vector<double>& values)
      : dtype_(dtype),
        bytes_(values.size() * size_of(dtype)),
        host_(Storage::allocate(std::max<std::size_t>(bytes_, 1), Device::cpu())),
        device_(Storage::allocate(std::max<std::size_t>(bytes_, 1), Device::cuda())) {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    kernels::copy(ConstView{values.data(), f64, Device(), shape, {1}},
                  View{host_->data(), dtype, Device(), shape, {1}}, Stream{});
    copy_bytes(device_->data(), Device::cuda(), host_->data(), Device::cpu(), bytes_);
  }

  /// Views of both that begin at element `offset`.
  View host(const Shape& shape, const Strides& strides, std::int64_t offset = 0) const {
    return view(host_->data(), Device::cpu(), shape, strides, offset);
  }
  View device(const Shape& shape, const Strides& strides, std::int64_t offset = 0) const {
    return view(device_->data(), Device::cuda(), shape, strides, offset);
  }
  View host(const Shape& shape) const { return host(shape, contiguous_strides(shape)); }
  View device(const Shape& shape) const { return device(shape, contiguous_strides(shape)); }

  std::vector<double> host_values() const { return values(static_cast<char*>(host_->data())); }
  std::vector<double> device_values() const {
    std::vector<char> bytes = downloaded();
    return values(bytes.data());
  }

  /// A Catch check that every byte is the same.
  void expect_same(const std::string& what) const {
    const std::vector<char> got = downloaded();
    const auto* want = static_cast<const char*>(host_->data());
    const bool same = std::memcmp(got.data(), want, bytes_) == 0;
    CHECK(same);
    if (same) return;
    const std::size_t size = size_of(dtype_);
    std::size_t bad = 0, at = 0;
    for (std::size_t i = bytes_ / size; i-- > 0;) {
      if (std::memcmp(&got[i * size], want + i * size, size) != 0) ++bad, at = i;
    }
    FAIL(what << ": " << bad << " of " << bytes_ / size << " " << to_string(dtype_)
              << " elements differ, the first at " << at << ": CPU " << host_values()[at]
              << ", device " << device_values()[at]);
  }

 private:
  View view(void* data, Device device, const Shape& shape, const Strides& strides,
            std::int64_t offset) const {
    char* const first =
        static_cast<char*>(data) + offset * static_cast<std::int64_t>(size_of(dtype_));
    return {first, dtype_, device, shape, strides};
  }
  std::vector<char> downloaded() const {
    std::vector<char> bytes(std::max<std::size_t>(bytes_, 1));
    copy_bytes(bytes.data(), Device::cpu(), device_->data(), Device::cuda(), bytes_);
    return bytes;
  }
  std::vector<double> values(char* bytes) const {
    std::vector<double> out(bytes_ / size_of(dtype_));
    const Shape shape{static_cast<std::int64_t>(out.size())};
    kernels::copy(ConstView{bytes, dtype_, Device(), shape, {1}},
                  View{out.data(), f64, Device(), shape, {1}}, Stream{});
    return out;
  }

  DType dtype_;
  std::size_t bytes_;
  Ref<Storage> host_, device_;
};

inline Stream device_stream() { return current_stream(Device::cuda()); }

}  // namespace firn::testing
