// Pieces of HTML: escaped texts, and tables with the numbers of the log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace firn::report {

/// Returns a text of the log as content of an element or of an attribute in double quotes. Control
/// bytes are shown as escapes.
std::string escaped(std::string_view text, std::size_t most = 300, bool keep_lines = false);

/// Format of a column's numbers. All digits are in `data-v` if the text has fewer.
enum class Shown { rounded, bytes, text };

struct Column {
  std::string title;  ///< with the unit
  /// Path of the number in its record, such as "measured/seconds". Empty: not a number of the log.
  std::string name;
  Shown shown = Shown::rounded;
};

/// A table of records. A row has a number for each column, and texts for the last columns.
class Table {
 public:
  /// `kind` is that of the records.
  Table(std::string caption, std::string kind, std::vector<Column> columns);

  /// Begins a group: the next rows belong to this run and optimizer. `label` names them if the
  /// table has several groups.
  void group(std::size_t run, const std::string& optimizer, const std::string& label);
  void row(const std::vector<double>& numbers, const std::vector<std::string>& texts = {});
  std::size_t rows() const noexcept { return rows_; }
  std::string html() const;

 private:
  struct Group {
    std::size_t run;
    std::string optimizer, label, rows;
  };
  std::string caption_, kind_;
  std::vector<Column> columns_;
  std::vector<Group> groups_;
  std::size_t rows_ = 0;
};

/// Returns a table of texts that are not numbers of records, such as settings. The cells are HTML.
std::string plain_table(const std::string& caption, const std::vector<std::string>& head,
                        const std::vector<std::vector<std::string>>& rows);

/// Returns a part that scrolls if it does not fit; keys reach it, too. `label` is its name for
/// screen readers, a text without markup. `element` is div or pre.
std::string scrolled(const std::string& label, const std::string& content,
                     const char* element = "div");

/// Returns a part of a page that is folded.
std::string folded(const std::string& summary, const std::string& content);

}  // namespace firn::report
