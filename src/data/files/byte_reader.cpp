// Plain files are read directly with read(2), gzip files through zlib's inflate. firn does not use
// gzread, because that treats damaged or foreign bytes as plain text and ignores bytes after the
// last member.
#include "data/files/byte_reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>

namespace firn::data {

struct ByteReader::Inflate {
  z_stream stream{};
  std::array<unsigned char, 1 << 16> input;
  bool input_ended = false;
  bool member_ended = false;
};

ByteReader::ByteReader(const char* op, const std::string& path) : file_(op, path) {
  unsigned char magic[2] = {};
  const std::size_t n = file_.read(magic, 2);
  gzip_ = n == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
  // A text may have a single byte, but not gzip's first byte or the name of a gzip file.
  if (n < 2 && (path.ends_with(".gz") || (n == 1 && magic[0] == 0x1f))) {
    fail(fmt::format("truncated gzip data: the file has {}, and a gzip file at least 18",
                     n == 0 ? "no bytes" : "1 byte"),
         "fetch the file again");
  }
  file_.rewind();
  if (!gzip_) return;
  inflate_ = std::make_unique<Inflate>();
  // With 16, zlib requires a gzip header and trailer, and verifies checksum and length.
  if (::inflateInit2(&inflate_->stream, MAX_WBITS + 16) != Z_OK) {
    inflate_.reset();
    fail("zlib cannot start: out of memory");
  }
}

ByteReader::~ByteReader() {
  if (inflate_) ::inflateEnd(&inflate_->stream);
}

std::size_t ByteReader::read(void* to, std::size_t bytes) {
  const std::size_t n = gzip_ ? read_gzip(to, bytes) : file_.read(to, bytes);
  offset_ += n;
  return n;
}

std::uint64_t ByteReader::most_bytes() const noexcept {
  return gzip_ ? file_.bytes() * 1032 : file_.bytes();
}

std::string ByteReader::at(std::uint64_t offset) const {
  return fmt::format("{}byte {}", gzip_ ? "decompressed " : "", offset);
}

std::size_t ByteReader::read_gzip(void* to, std::size_t bytes) {
  auto& [z, input, input_ended, member_ended] = *inflate_;
  std::size_t done = 0;
  while (done < bytes) {
    if (z.avail_in == 0 && !input_ended) {
      z.next_in = input.data();
      z.avail_in = static_cast<uInt>(file_.read(input.data(), input.size()));
      input_ended = z.avail_in == 0;
    }
    if (member_ended) {
      // Tapes and archives pad with zeros, which gzip skips too.
      while (z.avail_in > 0 && *z.next_in == 0) {
        ++z.next_in;
        --z.avail_in;
      }
      if (z.avail_in == 0 && !input_ended) continue;
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
                       file_.offset(), offset_ + done),
           "fetch the file again");
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail(
          fmt::format("damaged gzip data near byte {} (decompressed byte {}): {}",
                      file_.offset() - z.avail_in, offset_ + done, z.msg ? z.msg : "unknown error"),
          "fetch the file again");
    }
  }
  return done;
}

}  // namespace firn::data
