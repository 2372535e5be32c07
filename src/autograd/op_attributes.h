// What an operation is beside its operands: axes, numbers, and tensors that take no gradient. Each
// operation gives it right before it is recorded, but only while somebody asks, as the ONNX export
// does (src/onnx). Listeners (op_mode.h) then learn operands and result.
//
//   if (autograd::wants_attributes()) [[unlikely]]
//     autograd::attributes("softmax", {{"log", log}});
//
// If nobody asks, that is one thread-local load.
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

/// A name and a value. Tensors are lent for the call; an undefined one stands for none.
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

/// Asks for attributes in the thread that made it, while it is the thread's `current`.
class AttributeSink {
 public:
  /// Takes attributes of the operation that is recorded next as `op`. An operation may give its
  /// attributes in several calls.
  virtual void about(const char* op, std::span<const Attribute> attributes) = 0;
  /// `op` has written `x` whole, and is not recorded: a copy of the attribute "source", else the
  /// attribute "value".
  virtual void wrote(const char* op, const Tensor& x) = 0;
  /// `op` is about to do what no recording could repeat, such as draw random numbers.
  virtual void cannot_repeat(const char* op, const char* why, const char* hint) = 0;

 protected:
  ~AttributeSink() = default;
};

inline bool wants_attributes() noexcept { return thread_context.attributes != nullptr; }
inline void attributes(const char* op, std::initializer_list<Attribute> list) {
  thread_context.attributes->about(op, {list.begin(), list.size()});
}

}  // namespace firn::autograd
