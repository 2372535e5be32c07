#include "firn/data/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "data/files/csv_reader.h"
#include "firn/memory.h"
#include "io/json.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "CsvTable";

std::string quoted(std::string_view text) { return io::quoted_for_message(text); }

/// Returns a list of names for a message.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i)
    text += (i > 0 ? ", " : "") + quoted(names[i]);
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

/// The texts of a column, one after the other.
struct Column {
  std::string bytes;
  std::vector<std::uint64_t> ends;

  void add(std::string_view field) {
    bytes += field;
    ends.push_back(bytes.size());
  }
  std::string_view at(std::size_t row) const {
    const std::uint64_t begin = row == 0 ? 0 : ends[row - 1];
    return std::string_view(bytes).substr(begin, ends[row] - begin);
  }
};

// ---- Numbers ----

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Returns true if a decimal number that is out of range is too small, and false if it is too
/// large.
bool is_tiny(std::string_view text) {
  const std::size_t e = text.find_first_of("eE");
  const std::string_view digits = text.substr(0, e);
  const std::size_t first = digits.find_first_of("123456789");
  const std::size_t point = std::min(digits.find('.'), digits.size());
  if (e == std::string_view::npos) return first > point;
  // A number outside of the range has an exponent that outweighs its digits.
  std::string_view exponent = text.substr(e + 1);
  const bool negative = exponent.starts_with('-');
  if (negative || exponent.starts_with('+')) exponent.remove_prefix(1);
  std::int64_t shift = 0;
  const auto end = exponent.data() + exponent.size();
  if (std::from_chars(exponent.data(), end, shift).ec != std::errc()) return negative;
  shift = std::min(shift, std::int64_t{1} << 40);  // far beyond any text
  const auto leading = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  return leading + (negative ? -shift : shift) < 0;
}

enum class Parsed : std::uint8_t { good, bad, out_of_range };

/// Parses the whole of `text`, which is trimmed.
template <class T>
Parsed parse(std::string_view text, T& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return Parsed::bad;
  if (result.ec == std::errc()) return Parsed::good;
  if constexpr (std::is_floating_point_v<T>) {
    if (is_tiny(text)) {
      value = text.starts_with('-') ? T(-0.0) : T(0);
      return Parsed::good;
    }
  }
  return Parsed::out_of_range;
}

void check_separator(const char* op, char separator) {
  FIRN_CHECK(separator != '"' && separator != '\n' && separator != '\r' && separator != '\0', op,
             "", "the separator cannot be {}, which means something else", quoted({&separator, 1}));
}

/// Returns CsvOptions::missing as an element of a tensor.
template <class T>
std::optional<T> missing_as(const std::optional<double>& missing, DType dtype) {
  if (!missing) return std::nullopt;
  if constexpr (std::is_integral_v<T>) {
    // This is 2^31 or 2^63, which a double represents exactly.
    constexpr double kBelow = -2.0 * static_cast<double>(std::numeric_limits<T>::min() / 2);
    FIRN_CHECK(*missing >= -kBelow && *missing < kBelow && std::trunc(*missing) == *missing, kOp,
               "choose an integer for CsvOptions::missing",
               "empty fields stand for {}, which is not a number of {}", *missing, dtype);
  } else {
    constexpr auto kMost = static_cast<double>(std::numeric_limits<T>::max());
    FIRN_CHECK(!(std::abs(*missing) > kMost) || std::isinf(*missing), kOp,
               "choose a smaller number for CsvOptions::missing, or read f64",
               "empty fields stand for {}, which {} cannot hold", *missing, dtype);
  }
  return static_cast<T>(*missing);
}

}  // namespace

struct CsvTable::State {
  std::string path;
  std::optional<double> missing;
  std::vector<std::string> missing_texts;
  std::vector<std::string> names;
  std::vector<Column> columns;
  std::vector<std::uint64_t> lines;  ///< line of each row

  std::vector<std::size_t> kept;  ///< place of each column in a row of the file
  std::size_t width = 0;          ///< fields in a row
  bool header = true;

  /// Makes an empty table with the file's columns. Sets `more` to true if the file has a first row,
  /// at which the reader then stands.
  static State of(CsvReader& reader, const std::string& path, const CsvOptions& options,
                  bool& more);
  /// Adds rows, from the reader's current one on, until the table has `most` rows. Returns true if
  /// the reader then stands at another row.
  bool add_rows(CsvReader& reader, std::size_t most);
  const Column& at(const std::string& name) const;
  /// Returns true if a trimmed field stands for a missing value.
  bool is_missing(std::string_view field) const {
    return field.empty() ||
           std::find(missing_texts.begin(), missing_texts.end(), field) != missing_texts.end();
  }
  [[noreturn]] void fail(const std::string& name, std::size_t row, const std::string& what,
                         const std::string& hint) const {
    throw IoError(kOp, path, fmt::format("line {}, column {}: {}", lines[row], quoted(name), what),
                  hint);
  }
  /// Writes the numbers of a column to to[0], to[step], ...
  template <class T>
  void numbers(const std::string& name, DType dtype, T* to, std::size_t step) const;
  Tensor matrix(const std::vector<std::string>& chosen, const Shape& shape, DType dtype) const;
  Tensor codes(const std::string& name, const std::vector<std::string>& levels) const;
};

CsvTable::State CsvTable::State::of(CsvReader& reader, const std::string& path,
                                    const CsvOptions& options, bool& more) {
  State state;
  state.path = path;
  state.header = options.header;
  state.missing = options.missing;
  for (const std::string& text : options.missing_texts)
    state.missing_texts.emplace_back(trimmed(text));
  if (!reader.next())
    reader.fail(1, "the file is empty",
                options.header ? "expected a row with the names of the columns" : "expected a row");
  std::vector<std::string> all;
  std::unordered_map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < reader.fields(); ++i) {
    all.push_back(options.header ? std::string(reader.field(i)) : fmt::format("{}", i));
    const auto [at, is_new] = place.emplace(all.back(), i);
    if (!is_new)
      reader.fail(reader.line(),
                  fmt::format("columns {} and {} have the same name: {}", at->second + 1, i + 1,
                              quoted(all.back())),
                  "rename one of them, or set CsvOptions::header to false");
  }
  state.names = options.columns.empty() ? all : options.columns;
  std::vector<bool> is_kept(all.size(), false);
  for (const std::string& name : state.names) {
    const auto at = place.find(name);
    FIRN_CHECK(at != place.end(), kOp, fmt::format("it has {}", listed(all)), "{} has no column {}",
               path, quoted(name));
    FIRN_CHECK(!is_kept[at->second], kOp, "name each column once",
               "CsvOptions::columns has {} twice", quoted(name));
    is_kept[at->second] = true;
    state.kept.push_back(at->second);
  }
  state.columns.resize(state.kept.size());
  state.width = all.size();
  reader.set_names(std::move(all));
  more = !options.header || reader.next();
  return state;
}

bool CsvTable::State::add_rows(CsvReader& reader, std::size_t most) {
  do {
    if (reader.fields() != width)
      reader.fail(reader.line(),
                  fmt::format("{} fields, but {} has {}; the last one is {}", reader.fields(),
                              header ? "the header" : "the first row", width,
                              quoted(reader.field(reader.fields() - 1))),
                  "put a field that has a separator in it in quotes");
    for (std::size_t i = 0; i < kept.size(); ++i) columns[i].add(reader.field(kept[i]));
    lines.push_back(reader.line());
    if (!reader.next()) return false;
  } while (lines.size() < most);
  return true;
}

const Column& CsvTable::State::at(const std::string& name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  FIRN_CHECK(found != names.end(), kOp, fmt::format("it has {}", listed(names)),
             "{} has no column {}", path, quoted(name));
  return columns[static_cast<std::size_t>(found - names.begin())];
}

template <class T>
void CsvTable::State::numbers(const std::string& name, DType dtype, T* to, std::size_t step) const {
  const Column& column = at(name);
  const std::optional<T> otherwise = missing_as<T>(missing, dtype);
  for (std::size_t row = 0; row < lines.size(); ++row, to += step) {
    const std::string_view field = trimmed(column.at(row));
    if (is_missing(field)) {
      if (!otherwise)
        fail(name, row,
             field.empty() ? "the field is empty"
                           : fmt::format("{} is one of the missing_texts", quoted(field)),
             "set CsvOptions::missing to the number that empty fields stand for");
      *to = *otherwise;
      continue;
    }
    const Parsed parsed = parse(field, *to);
    if (parsed == Parsed::good) continue;
    if (parsed == Parsed::out_of_range)
      fail(name, row, fmt::format("{} is out of the range of {}", quoted(field), dtype),
           sizeof(T) < 8 ? "read the column as f64 or i64" : "");
    double fraction = 0;
    const bool is_number = parse(field, fraction) == Parsed::good;
    fail(name, row,
         fmt::format("{} is no {}", quoted(field), std::is_integral_v<T> ? "integer" : "number"),
         is_number ? "read the column as f32 or f64"
                   : "read texts with categories() or text(); if it means that there is no value, "
                     "name it in CsvOptions::missing_texts");
  }
}

Tensor CsvTable::State::matrix(const std::vector<std::string>& chosen, const Shape& shape,
                               DType dtype) const {
  FIRN_CHECK(dtype == f32 || dtype == f64 || dtype == i32 || dtype == i64, kOp,
             "cast the tensor with to()", "numbers are read as f32, f64, i32 or i64, not {}",
             dtype);
  for (const std::string& name : chosen) at(name);
  const OwnerScope owner(Owner::data);
  const Tensor all = empty(shape, dtype, Device::cpu());
  visit(dtype, [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T> && sizeof(T) >= 4)
      for (std::size_t i = 0; i < chosen.size(); ++i)
        numbers(chosen[i], dtype, all.data<T>() + i, chosen.size());
  });
  return all;
}

Tensor CsvTable::State::codes(const std::string& name,
                              const std::vector<std::string>& levels) const {
  const Column& column = at(name);
  std::unordered_map<std::string_view, std::int64_t> place;
  for (const std::string& level : levels) {
    const bool is_new = place.emplace(level, static_cast<std::int64_t>(place.size())).second;
    FIRN_CHECK(is_new, kOp, "name each level once", "the level {} is given twice", quoted(level));
  }
  const OwnerScope owner(Owner::data);
  const Tensor all = empty({static_cast<std::int64_t>(lines.size())}, i64, Device::cpu());
  auto* const to = all.data<std::int64_t>();
  for (std::size_t row = 0; row < lines.size(); ++row) {
    const auto found = place.find(column.at(row));
    if (found == place.end())
      fail(name, row,
           fmt::format("{} is none of the {} levels", quoted(column.at(row)), levels.size()),
           "take the levels of a table that has every text");
    to[row] = found->second;
  }
  return all;
}

CsvTable::CsvTable(const std::string& path, CsvOptions options) try {
  check_separator(kOp, options.separator);
  CsvReader reader(kOp, path, options.separator);
  bool more = false;
  const auto state = std::make_shared<State>(State::of(reader, path, options, more));
  if (more) state->add_rows(reader, std::numeric_limits<std::size_t>::max());
  state_ = state;
}
FIRN_OUT_OF_MEMORY("CsvTable")

void read_csv_pieces(const std::string& path, std::int64_t rows,
                     const std::function<void(const CsvTable&)>& fn,
                     const CsvOptions& options) try {
  constexpr const char* kPieces = "read_csv_pieces";
  require_function(kPieces, fn, "give a function of a table");
  FIRN_CHECK(rows >= 1, kPieces, "1 row or more", "a piece cannot have {} rows", rows);
  check_separator(kPieces, options.separator);
  CsvReader reader(kPieces, path, options.separator);
  bool more = false;
  const CsvTable::State empty = CsvTable::State::of(reader, path, options, more);
  while (more) {
    const auto piece = std::make_shared<CsvTable::State>(empty);
    more = piece->add_rows(reader, static_cast<std::size_t>(rows));
    fn(CsvTable(piece));
  }
}
FIRN_OUT_OF_MEMORY("read_csv_pieces")

CsvTable::CsvTable(std::shared_ptr<const State> state) : state_(std::move(state)) {}

const CsvTable::State& CsvTable::state() const {
  FIRN_CHECK(state_, kOp, "use the object that it was moved to", "this table was moved away");
  return *state_;
}

std::int64_t CsvTable::rows() const { return static_cast<std::int64_t>(state().lines.size()); }

const std::vector<std::string>& CsvTable::names() const { return state().names; }

CsvType CsvTable::type(const std::string& name) const {
  const Column& column = state().at(name);
  CsvType type = CsvType::text;
  for (std::size_t row = 0; row < state().lines.size(); ++row) {
    const std::string_view field = trimmed(column.at(row));
    if (state().is_missing(field)) continue;
    std::int64_t integer = 0;
    double number = 0;
    const bool is_integer = parse(field, integer) == Parsed::good;
    if (!is_integer && parse(field, number) != Parsed::good) return CsvType::text;
    if (!is_integer)
      type = CsvType::number;
    else if (type == CsvType::text)
      type = CsvType::integer;
  }
  return type;
}

Tensor CsvTable::numbers(const std::vector<std::string>& names, DType dtype) const try {
  const std::vector<std::string>& chosen = names.empty() ? state().names : names;
  return state().matrix(chosen, {rows(), static_cast<std::int64_t>(chosen.size())}, dtype);
}
FIRN_OUT_OF_MEMORY("CsvTable")

Tensor CsvTable::column(const std::string& name, DType dtype) const try {
  return state().matrix({name}, {rows()}, dtype);
}
FIRN_OUT_OF_MEMORY("CsvTable")

std::vector<std::string> CsvTable::levels(const std::string& name) const try {
  const Column& column = state().at(name);
  std::unordered_set<std::string_view> seen;
  std::vector<std::string> levels;
  for (std::size_t row = 0; row < state().lines.size(); ++row)
    if (seen.insert(column.at(row)).second) levels.emplace_back(column.at(row));
  std::sort(levels.begin(), levels.end());
  return levels;
}
FIRN_OUT_OF_MEMORY("CsvTable")

Tensor CsvTable::categories(const std::string& name) const {
  return categories(name, levels(name));
}

Tensor CsvTable::categories(const std::string& name, const std::vector<std::string>& levels) const
    try {
  return state().codes(name, levels);
}
FIRN_OUT_OF_MEMORY("CsvTable")

std::vector<std::string> CsvTable::text(const std::string& name) const try {
  const Column& column = state().at(name);
  std::vector<std::string> texts;
  texts.reserve(state().lines.size());
  for (std::size_t row = 0; row < state().lines.size(); ++row) texts.emplace_back(column.at(row));
  return texts;
}
FIRN_OUT_OF_MEMORY("CsvTable")

}  // namespace firn::data
