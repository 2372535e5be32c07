// How values of firn are written in messages. Here, since fmt/format.h is a half of what most files
// of the library include.
#include "base/check.h"

#include <fmt/format.h>

using fmt::format_context;

format_context::iterator fmt::formatter<firn::Dims>::format(const firn::Dims& d,
                                                            format_context& ctx) const {
  return fmt::formatter<std::string>::format(firn::to_string(d), ctx);
}
format_context::iterator fmt::formatter<firn::DType>::format(firn::DType t,
                                                             format_context& ctx) const {
  return fmt::formatter<std::string_view>::format(firn::to_string(t), ctx);
}
format_context::iterator fmt::formatter<firn::Device>::format(firn::Device d,
                                                              format_context& ctx) const {
  return fmt::formatter<std::string>::format(firn::to_string(d), ctx);
}
