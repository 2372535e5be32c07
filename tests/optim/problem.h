// What the optimizer's tests share: parameters, objectives with a chosen gradient, and the bits of
// everything that an optimizer keeps.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "firn/warning.h"
#include "support/catch.h"
#include "support/thread_check.h"
#include "support/values.h"

namespace firn::testing {

inline Tensor parameter(const std::vector<double>& values, const Shape& shape, DType dtype = f32) {
  Tensor t = make(values, shape, dtype);
  t.set_requires_grad();
  return t;
}

/// Whether `text` has all of `parts`; says which one it lacks.
inline bool mentions(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    if (text.find(part) == std::string::npos) {
      const std::string lack = "\"" + text + "\" does not say \"" + part + "\"";
      if (!on_main_thread()) throw ThreadCheckFailed(lack);
      UNSCOPED_INFO(lack);
      return false;
    }
  return true;
}

/// While alive, warnings go here.
class Warnings {
 public:
  Warnings() : before_(set_warning_handler([this](const std::string& t) { texts.push_back(t); })) {}
  ~Warnings() { set_warning_handler(before_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  std::vector<std::string> texts;

 private:
  WarningHandler before_;
};

/// An objective with gradient `gradient` (repeated where it holds one value) for w.
inline Tensor objective(const Tensor& w, std::vector<double> gradient) {
  if (gradient.size() == 1) gradient.resize(static_cast<std::size_t>(w.numel()), gradient[0]);
  const Tensor product = w * make(gradient, w.shape(), w.dtype());
  return sum(cast(product, compute_dtype(w.dtype())));
}

/// Bytes to compare; printed as their number and a checksum.
struct Bits {
  std::string bytes;
  bool operator==(const Bits&) const = default;
  Bits operator+(const Bits& more) const { return {bytes + more.bytes}; }
};
inline std::ostream& operator<<(std::ostream& out, const Bits& b) {
  return out << b.bytes.size() << " bytes, checksum " << seed_of(b.bytes);
}

/// Of a contiguous tensor on any device.
inline Bits bits_of(const Tensor& t) {
  const Tensor host = to_device(t.detach(), Device::cpu());
  return {{static_cast<const char*>(host.view().data), host.bytes()}};
}

/// The state's tensor of that name.
inline Tensor state_of(const optim::Optimizer& opt, const std::string& name) {
  for (const optim::NamedState& s : opt.state())
    if (s.name == name) return s.tensor;
  FAIL("no state named " << name);
  return {};
}

/// Bits of weights, masters, moments and update counts: what a skipped step leaves alone.
inline Bits bits_of_training(const optim::Optimizer& opt) {
  Bits out;
  for (const optim::NamedState& s : opt.state())
    if (!s.name.ends_with(".gradient") && s.name != "touched" && s.name != "loss_scale" &&
        s.name != "cycle" && s.name != "step_state")
      out = out + bits_of(s.tensor);
  return out;
}

/// Whether every gradient in the arenas is zero.
inline bool gradients_are_zero(const optim::Optimizer& opt) {
  for (const optim::NamedState& s : opt.state())
    if (s.name.ends_with(".gradient"))
      for (const double g : values_of(s.tensor))
        if (g != 0) return false;  // true for a NaN
  return true;
}

}  // namespace firn::testing
