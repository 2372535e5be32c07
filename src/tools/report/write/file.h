// A file that is complete or absent: it is written beside its place and then renamed.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace firn::report {

class OutputFile {
 public:
  /// Throws IoError if a file cannot be made there. A path that is not a plain file, such as
  /// /dev/stdout, is written directly.
  explicit OutputFile(std::string path);
  /// Without commit() an existing file does not change.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);  ///< throws IoError
  void commit();                       ///< throws IoError

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_, part_;
  std::FILE* file_ = nullptr;
};

/// Makes the folder and its parents. Throws IoError.
void make_folder(const std::string& path);

}  // namespace firn::report
