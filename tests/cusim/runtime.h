// What the fakes of the runtime's functions share.
#pragma once

#include <mutex>

#include "cusim.h"

namespace cusim {

/// One lock for all: the runtime may be called from several threads of the host.
std::recursive_mutex& runtime_lock();

/// What a failed kernel left: every later call answers it, until reset().
extern cudaError_t sticky_error;
/// Remembers an error for cudaGetLastError() of this thread, and hands it on.
cudaError_t set_last(cudaError_t error);

/// Whether a call that is made to fail does its work all the same: those that free something do.
enum class WhenInjected { skip, run };

/// The frame of a call of the runtime: takes the lock, counts the call, fails it on request with
/// `injected`, answers an earlier kernel's error, or runs `body`.
template <WhenInjected when = WhenInjected::skip, class Body>
cudaError_t call(const char* name, cudaError_t injected, Body&& body) {
  const std::lock_guard lock(runtime_lock());
  if (api_call(name)) {
    if constexpr (when == WhenInjected::run) body();
    return set_last(injected);
  }
  if constexpr (when == WhenInjected::run) {
    const cudaError_t status = body();
    return set_last(sticky_error != cudaSuccess ? sticky_error : status);
  } else {
    if (sticky_error != cudaSuccess) return set_last(sticky_error);
    const cudaError_t status = body();
    return set_last(status == cudaSuccess ? sticky_error : status);
  }
}

}  // namespace cusim
