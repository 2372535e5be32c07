// oneDNN's primitives as firn calls them, in builds that use oneDNN: from any thread, on one thread
// each, with memory objects that are there before the call.
#pragma once

#include <dnnl.hpp>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <vector>

namespace firn::kernels::cpu::onednn {

/// The engine of the process. Never destroyed: tensors with static storage duration may be used
/// after main().
const dnnl::engine& engine();

/// A primitive and the memory objects of its arguments. oneDNN uses the memory of such an object
/// before it looks whether there is any, and crashes. So they are made with the primitive, and a
/// call says only where its data are. Calls that run at once have objects of their own, which stay
/// for later calls.
class Primitive {
 public:
  struct Argument {
    int name;  ///< DNNL_ARG_...
    dnnl::memory::desc desc;
  };
  /// The most arguments of a primitive.
  static constexpr std::size_t kMost = 5;

  Primitive() = default;
  /// Call it within a Reserve of kMakeReserve.
  Primitive(const dnnl::primitive& primitive, std::vector<Argument> arguments);

  /// `data`: of the arguments, in their order; more is ignored. oneDNN takes no pointers to const.
  /// Throws OutOfMemory or Error.
  void run(std::initializer_list<const void*> data) const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace firn::kernels::cpu::onednn
