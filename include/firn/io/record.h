// A JSON object that is built one member at a time. It is a line of a run's log (train/record.h),
// or a part of such a line.
//
//   const std::string line = io::Record("note").add("lr", 1e-3).add("model", "mlp").text();
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace firn::io {

/// Names and values in the order of adding. Numbers are written such that reading gives the same
/// bits. A number that is not finite becomes null, since JSON cannot express it.
class Record {
 public:
  /// Makes an object that is nested in another one.
  Record() = default;
  /// Makes {"record": kind}. Throws Error if `kind` is empty or not UTF-8.
  explicit Record(std::string_view kind);

  // Each add() throws Error if the name is empty or was added before, or if a name or text is not
  // UTF-8.
  template <class T>
  requires std::is_arithmetic_v<T> Record& add(std::string_view name, T value) {
    if constexpr (std::same_as<T, bool>)
      return add_bool(name, value);
    else if constexpr (std::floating_point<T>)
      return add_number(name, static_cast<double>(value));
    else if constexpr (std::signed_integral<T>)
      return add_integer(name, static_cast<std::int64_t>(value));
    else
      return add_unsigned(name, static_cast<std::uint64_t>(value));
  }
  Record& add(std::string_view name, std::string_view text);
  /// Adds a text; a null pointer adds null.
  Record& add(std::string_view name, const char* text) {
    return text ? add(name, std::string_view(text)) : add(name, std::nullopt);
  }
  Record& add(std::string_view name, const std::string& text) {
    return add(name, std::string_view(text));
  }
  Record& add(std::string_view name, const Record& nested);
  Record& add(std::string_view name, std::span<const Record> list);
  Record& add(std::string_view name, std::span<const double> numbers);
  Record& add(std::string_view name, std::span<const std::int64_t> numbers);
  Record& add(std::string_view name, std::span<const std::string> texts);
  /// Adds a list of rows.
  Record& add(std::string_view name, std::span<const std::vector<std::int64_t>> rows);
  /// Adds a value that is already JSON, without a line break. Its syntax is not checked.
  Record& add_json(std::string_view name, std::string_view json) { return member(name, json); }
  /// Adds null.
  Record& add(std::string_view name, std::nullopt_t);

  /// Returns the object on one line, without a line break.
  std::string text() const;
  bool empty() const noexcept { return names_.empty(); }
  /// The kind that the constructor was given; empty for a nested object.
  const std::string& kind() const noexcept { return kind_; }

 private:
  Record& add_bool(std::string_view name, bool value);
  Record& add_number(std::string_view name, double value);
  Record& add_integer(std::string_view name, std::int64_t value);
  Record& add_unsigned(std::string_view name, std::uint64_t value);
  Record& member(std::string_view name, std::string_view json);

  std::string kind_;
  std::string members_;  ///< text between the braces
  std::vector<std::string> names_;
};

}  // namespace firn::io
