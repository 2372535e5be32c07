// Attributes of an operation other than its operands: axes, numbers, and tensors that take no
// gradient. An operation states them right before it is recorded, if a sink asks for them, as the
// ONNX export does (src/onnx). Listeners (op_mode.h) then receive operands and result.
//
//   if (autograd::wants_attributes()) [[unlikely]]
//     autograd::attributes("softmax", {{"log", log}});
//
// If no sink is set, that costs one thread-local load.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <variant>

#include "firn/tensor.h"
#include "firn/thread_context.h"

namespace firn::autograd {

/// A name and a value. Tensors are valid during the call; an undefined one stands for none.
struct Attribute {
  using Value = std::variant<std::int64_t, double, Dims, const char*, const Tensor*>;

  template <std::integral T>
  Attribute(const char* n, T v) : name(n), value(static_cast<std::int64_t>(v)) {}
  Attribute(const char* n, double v) : name(n), value(v) {}
  Attribute(const char* n, const Dims& v) : name(n), value(v) {}
  Attribute(const char* n, const std::array<std::int64_t, 2>& v) : name(n), value(Dims(v)) {}
  Attribute(const char* n, const char* v) : name(n), value(v) {}
  Attribute(const char* n, const Tensor* v) : name(n), value(v) {}

  const char* name;
  Value value;
};

/// Receives the attributes of operations in the thread whose `thread_context.attributes` it is.
class AttributeSink {
 public:
  /// Receives attributes of the operation that is recorded next as `op`. An operation may state its
  /// attributes in several calls.
  virtual void about(const char* op, std::span<const Attribute> attributes) = 0;
  /// Called when `op` has written all of `x` and is not recorded. The value is a copy of the
  /// attribute "source" if there is one, else the attribute "value".
  virtual void wrote(const char* op, const Tensor& x) = 0;
  /// Called before `op` does what no recording could repeat, such as drawing random numbers.
  virtual void cannot_repeat(const char* op, const char* why, const char* hint) = 0;

 protected:
  ~AttributeSink() = default;
};

inline bool wants_attributes() noexcept { return thread_context.attributes != nullptr; }
inline void attributes(const char* op, std::initializer_list<Attribute> list) {
  thread_context.attributes->about(op, {list.begin(), list.size()});
}

}  // namespace firn::autograd
