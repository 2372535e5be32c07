// A check that an op refuses something, naming what it met.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {

/// `fn` throws an Error of `op` whose message holds `parts`, in which "cpu" stands for the default
/// device. What only a kernel sees is told when the host waits.
inline void refused(const char* op, std::initializer_list<const char*> parts,
                    const std::function<void()>& fn) {
  const std::string message = error_of([&] {
    fn();
    synchronize(default_device());
  });
  INFO(message);
  CHECK(message.rfind(std::string("[") + op + "]", 0) == 0);
  for (std::string part : parts) {
    if (const auto at = part.find("cpu"); at != std::string::npos)
      part.replace(at, 3, to_string(default_device()));
    INFO("expected: " << part);
    CHECK(message.find(part) != std::string::npos);
  }
}

}  // namespace firn::testing
