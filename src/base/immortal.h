// Immortal: objects that live as long as the process.
#pragma once

#include <cstddef>
#include <new>

namespace firn {

/// Holds a T that is never destroyed, as a static object: tensors and threads may outlive main().
/// It does not use the heap, so functions that cannot throw may make it.
template <class T>
class Immortal {
 public:
  Immortal() noexcept(noexcept(T())) { ::new (static_cast<void*>(place_)) T(); }
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;
  T& get() noexcept { return *std::launder(reinterpret_cast<T*>(place_)); }

 private:
  alignas(T) std::byte place_[sizeof(T)];
};

}  // namespace firn
