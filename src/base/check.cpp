#include "base/check.h"

#include <fmt/format.h>

namespace firn::detail {

fmt::format_context::iterator format_text(const fmt::formatter<std::string_view>& spec,
                                          std::string_view text, fmt::format_context& ctx) {
  return spec.format(text, ctx);
}

}  // namespace firn::detail
