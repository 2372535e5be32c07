// A text file that is written in pieces, and compressed if its name says so.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace firn::io {

/// As with AtomicFile, the target is replaced as a whole at commit(). If its name ends in ".gz", it
/// becomes a gzip file (RFC 1952). All functions throw IoError; the constructor also throws what
/// AtomicFile throws.
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
