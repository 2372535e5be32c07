// What an expression that is expected to throw says.
#pragma once

#include <functional>
#include <string>

#include "firn/error.h"

namespace firn::testing {

/// what() of the firn::Error that f throws; "no error" where it throws none.
inline std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace firn::testing
