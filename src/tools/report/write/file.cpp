#include "tools/report/write/file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "firn/error.h"

namespace firn::report {

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  std::error_code none;
  const auto status = std::filesystem::status(path_, none);
  const bool beside = !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
  part_ = beside ? path_ + ".part-" + std::to_string(::getpid()) : path_;
  file_ = std::fopen(part_.c_str(), "wb");
  if (file_ == nullptr) fail("cannot be written");
}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  if (part_ != path_) std::remove(part_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
    fail("cannot be written to its end");
}

void OutputFile::commit() {
  std::FILE* const file = std::exchange(file_, nullptr);
  const bool whole = std::fclose(file) == 0;
  if (whole && (part_ == path_ || std::rename(part_.c_str(), path_.c_str()) == 0)) return;
  const int error = errno;
  if (part_ != path_) std::remove(part_.c_str());
  errno = error;
  fail("cannot be written to its end");
}

void OutputFile::fail(const char* what) const {
  throw IoError("report", path_, std::string(what) + ": " + std::strerror(errno),
                "name another place");
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw IoError("report", path, "is no folder and cannot be made: " + error.message(),
                  "name another place");
}

}  // namespace firn::report
