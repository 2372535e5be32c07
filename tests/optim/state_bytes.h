// Writes bytes into tensors of an optimizer's state, for tests of states that none can have.
#pragma once

#include <cstddef>
#include <cstring>

#include "firn/firn.h"

namespace firn::testing {

/// Overwrites the bytes of a tensor from `byte` on by a value.
template <class T>
void overwrite(const Tensor& t, std::size_t byte, T value) {
  const Tensor host = to_device(t, Device::cpu()).clone();
  std::memcpy(static_cast<char*>(host.mutable_view().data) + byte, &value, sizeof(T));
  copy_(t, to_device(host, t.device()));
}

/// The byte at which a struct has a member. offsetof() does not know members of bases.
template <class S, class M>
std::size_t place_of(M S::*member) {
  const S s;
  return static_cast<std::size_t>(reinterpret_cast<const char*>(&(s.*member)) -
                                  reinterpret_cast<const char*>(&s));
}

}  // namespace firn::testing
