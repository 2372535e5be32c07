// A text that is written in pieces, compressed if its name says so.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace firn::io {

/// As AtomicFile: the target changes at commit(), and as a whole. If its name ends in ".gz" it
/// becomes a gzip file (RFC 1952). All functions throw IoError; the constructor also as AtomicFile.
class TextFile {
 public:
  TextFile(const char* op, const std::string& path);
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  void write(std::string_view text);
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace firn::io
