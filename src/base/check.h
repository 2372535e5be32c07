// Checks with messages that carry values. The arguments are only formatted when a check fails. This
// includes fmt/core.h, which has fmt::format(); fmt/format.h would take 0.4 s of each file.
#pragma once

#include <fmt/core.h>

#include <new>

#include "firn/device.h"
#include "firn/dtype.h"
#include "firn/error.h"
#include "firn/shape.h"

namespace firn::detail {
/// Writes `text` in the form that `spec` has read.
fmt::format_context::iterator format_text(const fmt::formatter<fmt::string_view>& spec,
                                          std::string_view text, fmt::format_context& ctx);
}  // namespace firn::detail

template <>
struct fmt::formatter<firn::Dims> : fmt::formatter<fmt::string_view> {
  auto format(const firn::Dims& d, fmt::format_context& ctx) const {
    return firn::detail::format_text(*this, firn::to_string(d), ctx);
  }
};
template <>
struct fmt::formatter<firn::DType> : fmt::formatter<fmt::string_view> {
  auto format(firn::DType t, fmt::format_context& ctx) const {
    return firn::detail::format_text(*this, firn::to_string(t), ctx);
  }
};
template <>
struct fmt::formatter<firn::Device> : fmt::formatter<fmt::string_view> {
  auto format(firn::Device d, fmt::format_context& ctx) const {
    return firn::detail::format_text(*this, firn::to_string(d), ctx);
  }
};

namespace firn::detail {

template <class... Args>
[[noreturn]] void fail(std::string_view op, std::string_view hint,
                       fmt::format_string<Args...> format, Args&&... args) {
  throw Error(op, fmt::format(format, std::forward<Args>(args)...), hint);
}

/// See require_named().
[[noreturn]] void refuse_number(std::string_view op, std::string_view type, std::int64_t number);

}  // namespace firn::detail

namespace firn {

/// Throws Error naming `op` unless `value` is one of the values of an enum, `type`, that have
/// names, from 0 to `last`. A cast can make others.
template <class Enum>
void require_named(std::string_view op, std::string_view type, Enum value, Enum last) {
  const auto number = static_cast<std::int64_t>(value);
  if (number < 0 || number > static_cast<std::int64_t>(last)) [[unlikely]]
    detail::refuse_number(op, type, number);
}

/// Throws Error naming `op` if `function`, a std::function, is empty: "the function is empty".
template <class Function>
void require_function(std::string_view op, const Function& function, std::string_view hint,
                      std::string_view what = "the function") {
  if (!function) [[unlikely]]
    detail::fail(op, hint, "{} is empty", what);
}

}  // namespace firn

/// Ends a function whose body is a try block: std::bad_alloc becomes OutOfMemory.
#define FIRN_OUT_OF_MEMORY(op)         \
  catch (const std::bad_alloc&) {      \
    ::firn::detail::out_of_memory(op); \
  }

/// FIRN_CHECK(condition, op, hint, format, values...): throws firn::Error unless the condition
/// holds.
#define FIRN_CHECK(condition, op, hint, ...)       \
  do {                                             \
    if (!(condition)) [[unlikely]]                 \
      ::firn::detail::fail(op, hint, __VA_ARGS__); \
  } while (0)
