// Pieces of HTML: escaped texts, and tables whose numbers are those of the log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace firn::report {

/// A text of the log as content of an element or of an attribute in double quotes. Control bytes
/// are shown as escapes.
std::string escaped(std::string_view text, std::size_t most = 300, bool keep_lines = false);

/// How a column shows its numbers. All digits are in `data-v` if the text has fewer.
enum class Shown { rounded, bytes, text };

struct Column {
  std::string title;  ///< with the unit
  /// The number's place in its record, as "measured/seconds". Empty: not a number of the log.
  std::string name;
  Shown shown = Shown::rounded;
};

/// A table of records. A row has a number for each column but those of texts, which come last.
class Table {
 public:
  /// `kind` of the records.
  Table(std::string caption, std::string kind, std::vector<Column> columns);

  /// The rows that follow are of this run and optimizer. `label` names them if the table has
  /// several groups.
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

/// A table of texts that are no numbers of records: settings, say. The cells are HTML.
std::string plain_table(const std::string& caption, const std::vector<std::string>& head,
                        const std::vector<std::vector<std::string>>& rows);

/// A part that scrolls if it has no room; keys reach it, too. `label` is what screen readers call
/// it, a text without markup. `element`: div or pre.
std::string scrolled(const std::string& label, const std::string& content,
                     const char* element = "div");

/// The part of a page that is folded away.
std::string folded(const std::string& summary, const std::string& content);

}  // namespace firn::report
