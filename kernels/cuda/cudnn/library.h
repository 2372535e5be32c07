// cuDNN's graph API as plain functions, loaded at the first op that may use it. The library is not
// linked: it is more than a gigabyte, and a run on the CPU never loads it. If it is missing,
// convolutions are GEMMs over gathered columns, and attention runs firn's own kernels.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace firn::gpu {

/// The functions of one loaded library, by the name that the header gives them.
struct Cudnn {
#define FIRN_EACH_CUDNN(F)         \
  F(cudnnBackendCreateDescriptor)  \
  F(cudnnBackendDestroyDescriptor) \
  F(cudnnBackendExecute)           \
  F(cudnnBackendFinalize)          \
  F(cudnnBackendGetAttribute)      \
  F(cudnnBackendSetAttribute)      \
  F(cudnnCreate)                   \
  F(cudnnGetErrorString)           \
  F(cudnnGetLastErrorString)       \
  F(cudnnGetVersion)               \
  F(cudnnSetStream)
#define FIRN_MEMBER(name) decltype(&::name) name = nullptr;
  FIRN_EACH_CUDNN(FIRN_MEMBER)
#undef FIRN_MEMBER
  std::string path;  ///< path of the loaded library
};

/// Returns the library, which the first call loads; null if there is none.
const Cudnn* cudnn();
/// Explains why there is none: every place that was tried, with the system's message.
const std::string& why_no_cudnn();

/// Returns "CUDNN_STATUS_NOT_SUPPORTED (3000)", for example, and what the library says about it.
std::string describe(cudnnStatus_t status);

/// Throws Error naming the op, the call and the status.
void check(cudnnStatus_t status, const char* op, const char* call);

/// A backend descriptor. set() and finalize() return the first status that is not a success, and do
/// nothing after it. So a chain of them is checked once.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    status_ = cudnn()->cudnnBackendCreateDescriptor(type, &descriptor_);
  }
  ~Descriptor() {
    if (descriptor_) cudnn()->cudnnBackendDestroyDescriptor(descriptor_);
  }
  Descriptor(Descriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)), status_(other.status_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    status_ = other.status_;
    return *this;
  }

  cudnnBackendDescriptor_t get() const noexcept { return descriptor_; }
  cudnnStatus_t status() const noexcept { return status_; }
  bool ok() const noexcept { return status_ == CUDNN_STATUS_SUCCESS; }

  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  std::int64_t count, const void* values) {
    if (ok()) {
      status_ = cudnn()->cudnnBackendSetAttribute(descriptor_, name, type, count, values);
    }
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::int64_t value) {
    return set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, bool value) {
    return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, double value) {
    return set(name, CUDNN_TYPE_DOUBLE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }
  /// Sets a list of numbers, as sizes and strides are.
  Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  Descriptor& finalize() {
    if (ok()) status_ = cudnn()->cudnnBackendFinalize(descriptor_);
    return *this;
  }

  /// Returns the first `most` values of an attribute; empty if it cannot be read.
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        std::int64_t most) const {
    std::vector<T> out(static_cast<std::size_t>(most));
    std::int64_t count = 0;
    const auto status =
        cudnn()->cudnnBackendGetAttribute(descriptor_, name, type, most, &count, out.data());
    out.resize(status == CUDNN_STATUS_SUCCESS ? static_cast<std::size_t>(count) : 0);
    return out;
  }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
};

}  // namespace firn::gpu
