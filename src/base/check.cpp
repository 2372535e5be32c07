#include "base/check.h"

#include <fmt/format.h>

namespace firn::detail {

fmt::format_context::iterator format_text(const fmt::formatter<fmt::string_view>& spec,
                                          std::string_view text, fmt::format_context& ctx) {
  return spec.format({text.data(), text.size()}, ctx);
}

void refuse_number(std::string_view op, std::string_view type, std::int64_t number) {
  fail(op, "use one of its names", "{} has no value {}", type, number);
}

}  // namespace firn::detail
