// Tables in CSV files: columns of numbers, categories and texts, as tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "firn/tensor.h"

namespace firn::data {

struct CsvOptions {
  char separator = ',';  ///< a tab for tab-separated values
  bool header = true;    ///< the first row has the names; else they are "0", "1", ...
  /// Columns to keep, in this order. An empty list keeps all columns, in the file's order.
  std::vector<std::string> columns = {};
  /// Value of an empty field in a column of numbers, for every dtype that is read. With nullopt an
  /// empty field is an error.
  std::optional<double> missing = std::nullopt;
  /// Texts that count as empty fields in columns of numbers, such as {"NA", "-999"}. Spaces and
  /// tabs around a field are left out first. categories() and text() treat them like other texts.
  std::vector<std::string> missing_texts = {};
};

/// Type of a column's fields, apart from empty ones and CsvOptions::missing_texts.
enum class CsvType : std::uint8_t { integer, number, text };

/// A table that was read from a CSV file, plain or gzip (told apart by content):
///
///   const data::CsvTable table("houses.csv");
///   const data::TensorDataset set({table.numbers({"area", "rooms"}), table.column("price")});
///
/// Format (RFC 4180): rows end with LF or CRLF. A field in double quotes may contain separators,
/// line ends and doubled quotes. A UTF-8 byte order mark and empty lines are skipped; in a table of
/// one column, an empty field is written "". Texts are the bytes of the file. A field has at most 1
/// MiB, a row 16 MiB and 65536 fields.
///
/// The file is read once, in pieces. The table holds the texts of its columns, and 8 bytes for each
/// field and each row. Use read_csv_pieces() for a file that does not fit in memory. A column gets
/// its type where it is used, so a number that was written exactly is read exactly.
///
/// Functions throw Error if the table has no column of the given name; the message lists its
/// columns. After an object is moved from, each of its functions throws Error.
class CsvTable {
 public:
  /// Throws IoError if the file cannot be read, is empty or damaged, or has a name twice. Throws
  /// IoError for a row with too few or too many fields, and for a quote that is not closed or
  /// stands inside a field without quotes. The error names line and column. Throws Error if
  /// options.columns has a name twice, or the separator is a quote, a line end or NUL.
  explicit CsvTable(const std::string& path, CsvOptions options = {});

  std::int64_t rows() const;  ///< rows of data, without the header
  /// Names of the columns that the table keeps.
  const std::vector<std::string>& names() const;
  /// The narrowest type of a column. If every field is empty or a missing text, it is `text`.
  CsvType type(const std::string& name) const;

  /// Returns the numbers of the given columns, by default of all: [rows, k] on the CPU. `dtype` is
  /// f32, f64, i32 or i64; each number is rounded once. Spaces and tabs around a number and a
  /// leading '+' are ignored. "nan" and "inf" are numbers, and a number too small for the dtype
  /// becomes 0. Throws IoError, naming line, column and field, if a field is out of range or is not
  /// a number (not an integer, for i32 and i64). Without CsvOptions::missing it also throws for an
  /// empty field and for a missing text. Throws Error for other dtypes, and if the dtype cannot
  /// hold CsvOptions::missing, such as 0.5 for integers or 1e300 for f32.
  Tensor numbers(const std::vector<std::string>& names = {}, DType dtype = f32) const;
  /// Returns the numbers of one column, [rows]. Reads and throws as numbers() does.
  Tensor column(const std::string& name, DType dtype = f32) const;

  /// Returns the distinct texts of a column, sorted by bytes. An empty field counts as a text.
  std::vector<std::string> levels(const std::string& name) const;
  /// Returns, for each row, the index of its text in levels(name): i64 [rows] on the CPU.
  Tensor categories(const std::string& name) const;
  /// Returns, for each row, the index of its text in the given levels, for example those of the
  /// training set. Throws IoError, naming line and text, if a row's text is not among them. Throws
  /// Error if a level is given twice.
  Tensor categories(const std::string& name, const std::vector<std::string>& levels) const;
  /// Returns the texts of a column, without the quotes of the file.
  std::vector<std::string> text(const std::string& name) const;

 private:
  friend void read_csv_pieces(const std::string&, std::int64_t,
                              const std::function<void(const CsvTable&)>&, const CsvOptions&);
  struct State;
  explicit CsvTable(std::shared_ptr<const State> state);
  const State& state() const;
  std::shared_ptr<const State> state_;
};

/// Reads a file that may be larger than memory. Calls `fn` with tables of `rows` rows, one after
/// the other; the last one may be shorter. A file without rows makes no call. A table is freed
/// after its call unless `fn` keeps a copy. Line numbers in errors count lines of the whole file.
///
///   data::RecordWriter out("houses.records");
///   data::read_csv_pieces("houses.csv", 10'000, [&](const data::CsvTable& piece) {
///     const Tensor x = piece.numbers({"area", "rooms"}), y = piece.column("price");
///     for (std::int64_t i = 0; i < piece.rows(); ++i) out.write({x[i], y[i]});
///   });
///   out.finish();
///
/// Throws what CsvTable throws, after the calls for the pieces before the damage. Also throws what
/// `fn` throws, and Error unless rows >= 1.
void read_csv_pieces(const std::string& path, std::int64_t rows,
                     const std::function<void(const CsvTable&)>& fn,
                     const CsvOptions& options = {});

}  // namespace firn::data
