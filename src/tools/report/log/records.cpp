#include "tools/report/log/records.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "firn/error.h"

namespace firn::report {
namespace {

constexpr std::size_t kLongestLine = std::size_t{16} << 20;
// A line below this size cannot be deep enough to exhaust the stack of a recursive function.
constexpr std::size_t kShortLine = 4096;
constexpr int kDeepest = 100;

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

bool too_deep(std::string_view line) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

/// Reads the lines of a part of a file, one by one.
class Lines {
 public:
  explicit Lines(const LogPart& log)
      : path_(log.path),
        file_(std::fopen(log.path.c_str(), "rb"), &std::fclose),
        at_(log.begin),
        left_(log.end - log.begin),
        buffer_(std::size_t{1} << 20) {
    if (!file_ || ::fseeko(file_.get(), static_cast<off_t>(log.begin), SEEK_SET) != 0)
      throw IoError("report", path_, std::strerror(errno));
  }

  /// Reads the next line; returns false at the end. A line longer than kLongestLine is truncated.
  bool next(std::string& line) {
    line.clear();
    ended_ = false;
    begin_ = at_;
    while (!ended_) {
      if (used_ == held_ && !fill()) return at_ > begin_;
      const char* from = buffer_.data() + used_;
      const void* found = std::memchr(from, '\n', held_ - used_);
      ended_ = found != nullptr;
      const std::size_t n =
          ended_ ? static_cast<std::size_t>(static_cast<const char*>(found) - from) : held_ - used_;
      line.append(from, std::min(n, kLongestLine + 1 - std::min(line.size(), kLongestLine + 1)));
      used_ += n + (ended_ ? 1 : 0);
      at_ += n + (ended_ ? 1 : 0);
    }
    return true;
  }
  bool ended() const { return ended_; }  ///< true if the line had a line break
  std::uint64_t begin() const { return begin_; }

 private:
  bool fill() {
    const std::size_t wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(left_, buffer_.size()));
    held_ = wanted == 0 ? 0 : std::fread(buffer_.data(), 1, wanted, file_.get());
    used_ = 0;
    left_ -= held_;
    if (held_ < wanted && std::ferror(file_.get()) != 0)
      throw IoError("report", path_, std::strerror(errno));
    return held_ > 0;
  }

  std::string path_;
  File file_;
  std::uint64_t at_, left_, begin_ = 0;
  std::vector<char> buffer_;
  std::size_t used_ = 0, held_ = 0;
  bool ended_ = false;
};

}  // namespace

LogPart log_at(const std::string& path) {
  const char* const hint = "name a file that train::fit() or train::RunLog has written";
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw IoError("report", path, std::strerror(errno), hint);
  if (!S_ISREG(info.st_mode)) throw IoError("report", path, "is no plain file", hint);
  if (info.st_size == 0) throw IoError("report", path, "is empty", hint);
  return {.path = path, .begin = 0, .end = static_cast<std::uint64_t>(info.st_size)};
}

Reading read_records(
    const LogPart& log,
    const std::function<void(const std::string&, const Json&, std::uint64_t)>& on_record) {
  Reading out;
  Lines lines(log);
  std::string line;
  for (std::int64_t number = 1; lines.next(line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const bool fits = line.size() <= kLongestLine && (line.size() <= kShortLine || !too_deep(line));
    const Json record = fits ? Json::parse(line, nullptr, false) : Json(Json::value_t::discarded);
    if (record.is_object()) {
      const auto kind = record.find("record");
      if (kind != record.end() && kind->is_string()) {
        ++out.records;
        on_record(kind->get_ref<const std::string&>(), record, lines.begin());
        continue;
      }
    }
    if (!lines.ended()) {
      out.cut_off = true;
    } else if (++out.broken == 1) {
      out.first_broken = number;
    }
  }
  return out;
}

double number_of(const Json& record, const char* name) {
  const auto it = record.find(name);
  return it != record.end() && it->is_number() ? it->get<double>() : kNoNumber;
}

std::string text_of(const Json& record, const char* name) {
  const auto it = record.find(name);
  return it != record.end() && it->is_string() ? it->get<std::string>() : std::string();
}

const Json& object_of(const Json& record, const char* name) {
  static const Json empty = Json::object();
  const auto it = record.find(name);
  return it != record.end() && it->is_object() ? *it : empty;
}

std::vector<NamedNumber> numbers_of(const Json& object) {
  std::vector<NamedNumber> out;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number()) out.push_back({name, value.get<double>()});
    if (value.is_null()) out.push_back({name, kNoNumber});
  }
  return out;
}

bool applied(const Json& step) {
  const auto it = step.find("applied");
  return it == step.end() || !it->is_boolean() || it->get<bool>();
}

}  // namespace firn::report
