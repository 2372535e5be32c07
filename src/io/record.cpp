#include "firn/io/record.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "io/json.h"

namespace firn::io {
namespace {

constexpr const char* kOp = "Record";

/// Returns a JSON number with the fewest digits that are read as the same double.
std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::format("{}", value);
  // Readers would take a number without ".0" as an integer, and an integer cannot be -0.
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string json_text(std::string_view text) {
  FIRN_CHECK(is_utf8(text), kOp, "JSON is UTF-8", "{} is no UTF-8", quoted_for_message(text));
  return json_string(text);
}

template <class T, class Fn>
std::string json_list(std::span<const T> values, const Fn& json_of) {
  std::string out = "[";
  for (const T& value : values) {
    if (out.size() > 1) out += ',';
    out += json_of(value);
  }
  return out + ']';
}

std::string json_integers(std::span<const std::int64_t> numbers) {
  return json_list(numbers, [](std::int64_t n) { return fmt::format("{}", n); });
}

}  // namespace

Record::Record(std::string_view kind) try : kind_(kind) {
  FIRN_CHECK(!kind.empty(), kOp, "name what the record is about", "its kind is empty");
  add("record", kind);
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::member(std::string_view name, std::string_view json) try {
  FIRN_CHECK(!name.empty(), kOp, "name what the number is", "a name is empty");
  FIRN_CHECK(std::find(names_.begin(), names_.end(), name) == names_.end(), kOp,
             "readers take the first value or the last one", "the name {} is added twice",
             quoted_for_message(name));
  std::string text = json_text(name) + ':';
  text += json;
  members_.reserve(members_.size() + text.size() + 1);
  names_.emplace_back(name);  // the last operation that may fail
  if (!members_.empty()) members_ += ',';
  members_ += text;
  return *this;
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add_bool(std::string_view name, bool value) try {
  return member(name, value ? "true" : "false");
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add_number(std::string_view name, double value) try {
  return member(name, json_number(value));
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add_integer(std::string_view name, std::int64_t value) try {
  return member(name, fmt::format("{}", value));
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add_unsigned(std::string_view name, std::uint64_t value) try {
  return member(name, fmt::format("{}", value));
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add(std::string_view name, std::string_view text) try {
  return member(name, json_text(text));
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add(std::string_view name, const Record& nested) try {
  return member(name, nested.text());
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add(std::string_view name, std::span<const Record> list) try {
  return member(name, json_list(list, [](const Record& r) { return r.text(); }));
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add(std::string_view name, std::span<const double> numbers) try {
  return member(name, json_list(numbers, json_number));
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add(std::string_view name, std::span<const std::int64_t> numbers) try {
  return member(name, json_integers(numbers));
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add(std::string_view name, std::span<const std::vector<std::int64_t>> rows) try {
  return member(name, json_list(rows, [](const std::vector<std::int64_t>& row) {
                  return json_integers(row);
                }));
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add(std::string_view name, std::span<const std::string> texts) try {
  return member(name, json_list(texts, json_text));
}
FIRN_OUT_OF_MEMORY(kOp)

Record& Record::add(std::string_view name, std::nullopt_t) try { return member(name, "null"); }
FIRN_OUT_OF_MEMORY(kOp)

std::string Record::text() const try { return '{' + members_ + '}'; }
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn::io
