// The substring matcher under one name in Catch2 2 and 3.
#pragma once

#include <string>

#include "support/catch.h"

namespace firn::test {

inline auto contains(const std::string& text) {
#if __has_include(<catch2/catch_all.hpp>)
  return Catch::Matchers::ContainsSubstring(text);
#else
  return Catch::Matchers::Contains(text);
#endif
}

}  // namespace firn::test
