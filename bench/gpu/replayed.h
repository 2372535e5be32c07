// Work recorded once as a CUDA graph, to be timed without the host's part.
#pragma once

#include <functional>
#include <memory>

#include "bench.h"
#include "memory/recording.h"

namespace bench {

class Replayed {
 public:
  /// Runs `work` once, so that everything it needs is there, and then records it.
  explicit Replayed(const std::function<void()>& work) {
    work();
    firn::synchronize(kDevice);
    recording_ = firn::memory::Recording::record(kDevice, work);
  }
  void replay() const { recording_->replay(); }
  /// Kernels, copies and fills.
  std::int64_t nodes() const {
    const auto& n = recording_->nodes();
    return n.kernels + n.copies + n.fills;
  }

 private:
  std::unique_ptr<firn::memory::Recording> recording_;
};

}  // namespace bench
