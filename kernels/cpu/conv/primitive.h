// oneDNN's primitives as firn calls them, in builds that use oneDNN: from any thread, on one thread
// each, with memory objects that exist before the call.
#pragma once

#include <dnnl.hpp>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <vector>

namespace firn::kernels::cpu::onednn {

/// Returns the engine of the process. It is never destroyed: tensors with static storage duration
/// may be used after main().
const dnnl::engine& engine();

/// A primitive and the memory objects of its arguments. oneDNN uses the memory of such an object
/// before it checks that there is any, and crashes. So they are made with the primitive, and a call
/// says only where its data are. Concurrent calls have objects of their own, which are kept for
/// later calls.
class Primitive {
 public:
  struct Argument {
    int name;  ///< DNNL_ARG_...
    dnnl::memory::desc desc;
  };
  /// Largest number of arguments of a primitive.
  static constexpr std::size_t kMost = 5;

  Primitive() = default;
  /// Call it within a Reserve of kMakeReserve.
  Primitive(const dnnl::primitive& primitive, std::vector<Argument> arguments);

  /// `data` are the arguments' pointers, in their order; more is ignored. oneDNN takes no pointers
  /// to const. Throws OutOfMemory or Error.
  void run(std::initializer_list<const void*> data) const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace firn::kernels::cpu::onednn
