// Reads the rows of a CSV file one by one, in memory that does not grow with the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/byte_reader.h"

namespace firn::data {

class CsvReader {
 public:
  // These limits are above those of real tables. They bound the memory that a hostile file can
  // claim.
  static constexpr std::size_t kLongestField = std::size_t{1} << 20;
  static constexpr std::size_t kLongestRow = std::size_t{1} << 24;
  static constexpr std::size_t kMostFields = std::size_t{1} << 16;

  /// Throws IoError (its op is `op`) if the file cannot be read.
  CsvReader(const char* op, const std::string& path, char separator);

  /// Goes to the next row that is not an empty line; false at the end. Throws IoError.
  bool next();
  std::size_t fields() const noexcept { return ends_.size(); }
  /// Returns field i of the row without quotes; valid until the next call of next().
  std::string_view field(std::size_t i) const noexcept;
  /// Number of the line, from 1 on, in which the row begins.
  std::uint64_t line() const noexcept { return line_; }

  /// Sets the names that errors use for columns, in place of their numbers.
  void set_names(std::vector<std::string> names) { names_ = std::move(names); }
  /// Throws IoError about a line of the file, or a column of it.
  [[noreturn]] void fail(std::uint64_t line, const std::string& what,
                         const std::string& hint = {}) const;
  [[noreturn]] void fail_field(std::uint64_t line, const std::string& what,
                               const std::string& hint = {}) const;

 private:
  static constexpr int kEnd = -1;

  int peek();
  void read_row();
  void plain_field();
  void quoted_field();
  void append(const char* from, std::size_t bytes);

  ByteReader in_;
  std::array<bool, 256> special_{};  ///< bytes at which a plain field stops
  unsigned char separator_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, filled_ = 0;  ///< positions in the buffer
  std::uint64_t line_ = 0, next_line_ = 1;
  std::string text_;               ///< the fields of the row, one after the other
  std::vector<std::size_t> ends_;  ///< ends of the fields in text_
  bool quoted_ = false;            ///< true if the row has a quoted field
  std::vector<std::string> names_;
};

}  // namespace firn::data
