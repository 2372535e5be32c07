#include "data/files/csv_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/json.h"

namespace firn::data {

CsvReader::CsvReader(const char* op, const std::string& path, char separator)
    : in_(op, path), separator_(static_cast<unsigned char>(separator)), buffer_(1 << 16) {
  for (const unsigned char c :
       {separator_, static_cast<unsigned char>('\n'), static_cast<unsigned char>('\r'),
        static_cast<unsigned char>('"'), static_cast<unsigned char>('\0')})
    special_[c] = true;
  peek();
  if (filled_ >= 3 && std::memcmp(buffer_.data(), "\xef\xbb\xbf", 3) == 0) at_ = 3;
}

bool CsvReader::next() {
  do {
    text_.clear();
    ends_.clear();
    quoted_ = false;
    line_ = next_line_;
    if (peek() == kEnd) return false;
    read_row();
  } while (ends_.size() == 1 && text_.empty() && !quoted_);
  return true;
}

std::string_view CsvReader::field(std::size_t i) const noexcept {
  const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(text_).substr(begin, ends_[i] - begin);
}

int CsvReader::peek() {
  if (at_ == filled_) {
    at_ = 0;
    filled_ = in_.read(buffer_.data(), buffer_.size());
    if (filled_ == 0) return kEnd;
  }
  return static_cast<unsigned char>(buffer_[at_]);
}

void CsvReader::read_row() {
  for (;;) {
    if (peek() == '"')
      quoted_field();
    else
      plain_field();
    ends_.push_back(text_.size());
    const int after = peek();
    if (after == kEnd) return;
    ++at_;
    if (after == separator_) {
      if (ends_.size() == kMostFields)
        fail(line_, fmt::format("more than {} fields", kMostFields), "check the separator");
      continue;
    }
    if (after == '\r') {
      if (peek() != '\n')
        fail(next_line_, "a carriage return without a line feed after it",
             "save the file with line ends LF or CRLF, or put the field in quotes");
      ++at_;
    }
    ++next_line_;
    return;
  }
}

void CsvReader::plain_field() {
  while (peek() != kEnd) {
    const std::size_t first = at_;
    while (at_ < filled_ && !special_[static_cast<unsigned char>(buffer_[at_])]) ++at_;
    append(buffer_.data() + first, at_ - first);
    if (at_ == filled_) continue;
    if (buffer_[at_] == '"')
      fail_field(next_line_, "a quote inside of a field that does not begin with one",
                 "put the whole field in quotes, and double those inside of it");
    if (buffer_[at_] == '\0')
      fail_field(next_line_, "a NUL character", "if the file is UTF-16, save it as UTF-8");
    return;
  }
}

void CsvReader::quoted_field() {
  const std::uint64_t opened = next_line_;
  quoted_ = true;
  ++at_;
  for (;;) {
    if (peek() == kEnd)
      fail_field(opened, "the quote that opens here is not closed",
                 "a quote inside of a field is doubled; the file may be truncated");
    const std::size_t first = at_;
    const auto* const begin = buffer_.data() + first;
    const auto* const end = buffer_.data() + filled_;
    const auto* const stop = std::find_if(begin, end, [](char c) { return c == '"' || c == '\0'; });
    next_line_ += static_cast<std::uint64_t>(std::count(begin, stop, '\n'));
    append(begin, static_cast<std::size_t>(stop - begin));
    at_ += static_cast<std::size_t>(stop - begin);
    if (stop == end) continue;
    if (*stop == '\0')
      fail_field(next_line_, "a NUL character", "if the file is UTF-16, save it as UTF-8");
    ++at_;
    const int after = peek();
    if (after == '"') {
      append("\"", 1);
      ++at_;
      continue;
    }
    if (after == kEnd || after == separator_ || after == '\n' || after == '\r') return;
    fail_field(next_line_, "text follows the quote that closes the field",
               "a quote inside of a field is doubled");
  }
}

void CsvReader::append(const char* from, std::size_t bytes) {
  const std::size_t begin = ends_.empty() ? 0 : ends_.back();
  if (bytes > kLongestField - (text_.size() - begin))
    fail_field(line_, fmt::format("a field of more than {} bytes", kLongestField),
               "a quote may be missing");
  if (bytes > kLongestRow - text_.size())
    fail(line_, fmt::format("a row of more than {} bytes", kLongestRow), "a quote may be missing");
  text_.append(from, bytes);
}

void CsvReader::fail(std::uint64_t line, const std::string& what, const std::string& hint) const {
  in_.fail(fmt::format("line {}: {}", line, what), hint);
}

void CsvReader::fail_field(std::uint64_t line, const std::string& what,
                           const std::string& hint) const {
  const std::size_t column = ends_.size();
  const std::string name = column < names_.size() ? io::quoted_for_message(names_[column])
                                                  : fmt::format("{}", column + 1);
  in_.fail(fmt::format("line {}, column {}: {}", line, name, what), hint);
}

}  // namespace firn::data
