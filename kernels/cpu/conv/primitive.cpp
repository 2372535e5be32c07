#ifdef FIRN_HAS_ONEDNN
#include "kernels/cpu/conv/primitive.h"

#include <unistd.h>

#include <array>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "firn/error.h"
#include "kernels/cpu/device/reserve.h"
#include "kernels/cpu/device/thread_state.h"
#include "kernels/cpu/gemm/onednn.h"
#include "kernels/cpu/gemm/onednn_api.h"

namespace firn::kernels::cpu::onednn {
namespace {

struct OwnStream {
  dnnl::stream stream{engine()};
  ~OwnStream() { thread_state.onednn_stream_gone = true; }
};
/// Returns this thread's stream. The main thread's is destroyed before static objects, which may
/// still compute.
dnnl::stream& stream() {
  if (thread_state.onednn_stream_gone) [[unlikely]] {
    static dnnl::stream& last = *new dnnl::stream(engine());
    return last;
  }
  thread_local OwnStream own;
  return own.stream;
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine& cpu = []() -> const dnnl::engine& {
    // firn keeps the primitives itself. If memory runs out while oneDNN makes a primitive, its own
    // cache keeps a broken entry for the shape, and all later calls for the shape fail.
    dnnl::set_primitive_cache_capacity(0);
    return *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

class Primitive::State {
 public:
  /// The memory objects of one call.
  struct Objects {
    std::array<dnnl::memory, kMost> memory;
    std::array<dnnl_exec_arg_t, kMost> named = {};
    std::unique_ptr<Objects> next;  ///< next free objects
  };

  State(const dnnl::primitive& primitive, std::vector<Argument> arguments)
      : primitive_(primitive), arguments_(std::move(arguments)), free_(make()) {}

  std::unique_ptr<Objects> take() {
    {
      const std::lock_guard lock(mutex_);
      if (free_) {
        std::unique_ptr<Objects> taken = std::move(free_);
        free_ = std::move(taken->next);
        return taken;
      }
    }
    return make();
  }
  void give_back(std::unique_ptr<Objects> objects) noexcept {
    const std::lock_guard lock(mutex_);
    objects->next = std::move(free_);
    free_ = std::move(objects);
  }

  void execute(const Objects& objects, std::initializer_list<const void*> data) const {
    for (std::size_t i = 0; i < arguments_.size(); ++i)
      set_data(objects.memory[i], const_cast<void*>(data.begin()[i]), stream());
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), stream().get(),
                               static_cast<int>(arguments_.size()), objects.named.data()),
        "a primitive was not executed");
  }

 private:
  std::unique_ptr<Objects> make() const {
    auto made = std::make_unique<Objects>();
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      made->memory[i] = dnnl::memory(arguments_[i].desc, engine(), DNNL_MEMORY_NONE);
      made->named[i] = {arguments_[i].name, made->memory[i].get()};
    }
    return made;
  }

  const dnnl::primitive primitive_;
  const std::vector<Argument> arguments_;
  std::mutex mutex_;  // held within a OneThread only, for which fork() waits
  std::unique_ptr<Objects> free_;
};

Primitive::Primitive(const dnnl::primitive& primitive, std::vector<Argument> arguments)
    : state_(std::make_shared<State>(primitive, std::move(arguments))) {}

void Primitive::run(std::initializer_list<const void*> data) const {
  struct Lease {
    State& state;
    std::unique_ptr<State::Objects> objects = state.take();
    ~Lease() {
      if (objects) state.give_back(std::move(objects));
    }
  };
  const OneThread guard;
  while (!guard.usable()) pause();  // the program ends, and this thread with it
  const Reserve reserve(kCallReserve);
  try {
    const Lease lease{*state_};
    state_->execute(*lease.objects, data);
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory)
      throw OutOfMemory("no memory left for oneDNN's convolution", kCallReserve);
    throw Error("conv", std::string("oneDNN says: ") + e.what());
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("no memory left for oneDNN's convolution", kCallReserve);
  }
}

}  // namespace firn::kernels::cpu::onednn
#endif
