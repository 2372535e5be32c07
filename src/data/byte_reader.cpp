// Plain files go straight from read(2) to the caller; gzip goes through zlib's inflate. gzread is
// not used: it takes damaged or foreign bytes for plain text and ignores what follows the last
// member.
#include "data/byte_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "firn/error.h"

namespace firn::data {

struct ByteReader::Inflate {
  z_stream stream{};
  std::array<unsigned char, 1 << 16> input;
  bool input_ended = false;
  bool member_ended = false;
};

ByteReader::ByteReader(const char* op, const std::string& path) : op_(op), path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail(fmt::format("cannot be opened: {}", std::strerror(errno)));
  try {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail(fmt::format("fstat failed: {}", std::strerror(errno)));
    if (S_ISDIR(info.st_mode)) fail("is a directory; expected a file");
    if (!S_ISREG(info.st_mode)) fail("is not a regular file");
    file_bytes_ = static_cast<std::uint64_t>(info.st_size);

    unsigned char magic[2] = {};
    gzip_ = read_file(magic, 2) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
    if (::lseek(fd_, 0, SEEK_SET) != 0) fail(fmt::format("lseek failed: {}", std::strerror(errno)));
    file_read_ = 0;
    if (gzip_) {
      inflate_ = std::make_unique<Inflate>();
      // 16: a gzip header and trailer are required, and their checksum and length verified.
      if (::inflateInit2(&inflate_->stream, MAX_WBITS + 16) != Z_OK) {
        inflate_.reset();
        fail("zlib cannot start: out of memory");
      }
    }
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

ByteReader::~ByteReader() {
  if (inflate_) ::inflateEnd(&inflate_->stream);
  ::close(fd_);
}

std::size_t ByteReader::read(void* to, std::size_t bytes) {
  const std::size_t n = gzip_ ? read_gzip(to, bytes) : read_file(to, bytes);
  offset_ += n;
  return n;
}

std::uint64_t ByteReader::most_bytes() const noexcept {
  return gzip_ ? file_bytes_ * 1032 : file_bytes_;
}

std::string ByteReader::at(std::uint64_t offset) const {
  return fmt::format("{}byte {}", gzip_ ? "decompressed " : "", offset);
}

void ByteReader::fail(const std::string& message, const std::string& hint) const {
  throw IoError(op_, path_, message, hint);
}

std::size_t ByteReader::read_file(void* to, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::read(fd_, static_cast<char*>(to) + done,
                             std::min<std::size_t>(bytes - done, std::size_t{1} << 30));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail(fmt::format("reading failed at byte {}: {}", file_read_, std::strerror(errno)));
    }
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
    file_read_ += static_cast<std::uint64_t>(n);
  }
  return done;
}

std::size_t ByteReader::read_gzip(void* to, std::size_t bytes) {
  auto& [z, input, input_ended, member_ended] = *inflate_;
  std::size_t done = 0;
  while (done < bytes) {
    if (z.avail_in == 0 && !input_ended) {
      z.next_in = input.data();
      z.avail_in = static_cast<uInt>(read_file(input.data(), input.size()));
      input_ended = z.avail_in == 0;
    }
    if (member_ended) {
      if (z.avail_in == 0) break;
      // Files may hold several members in a row (RFC 1952, section 2.2).
      if (::inflateReset(&z) != Z_OK) fail("zlib cannot restart");
      member_ended = false;
    }
    const std::size_t room = std::min<std::size_t>(bytes - done, std::size_t{1} << 30);
    z.next_out = static_cast<Bytef*>(to) + done;
    z.avail_out = static_cast<uInt>(room);
    const int status = ::inflate(&z, Z_NO_FLUSH);
    done += room - z.avail_out;
    if (status == Z_STREAM_END) {
      member_ended = true;
    } else if (status == Z_BUF_ERROR && input_ended) {
      fail(fmt::format("truncated gzip data: the file ends at byte {}, after {} decompressed bytes",
                       file_read_, offset_ + done),
           "fetch the file again");
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail(fmt::format("damaged gzip data near byte {} (decompressed byte {}): {}",
                       file_read_ - z.avail_in, offset_ + done, z.msg ? z.msg : "unknown error"),
           "fetch the file again");
    }
  }
  return done;
}

}  // namespace firn::data
