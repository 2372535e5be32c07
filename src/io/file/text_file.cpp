#include "io/file/text_file.h"

#include <zlib.h>

#include <algorithm>

#include "firn/error.h"
#include "io/file/atomic_file.h"

namespace firn::io {

struct TextFile::State {
  State(const char* op_, const std::string& path_)
      : op(op_), path(path_), compressed(path.ends_with(".gz")), file(op_, path_) {
    constexpr int kGzip = 16 + MAX_WBITS;
    if (compressed &&
        deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, 9, Z_DEFAULT_STRATEGY) != Z_OK)
      detail::out_of_memory(op);
    buffer.reserve(kBuffer);
  }
  ~State() {
    if (compressed) deflateEnd(&stream);
  }

  void put(bool last) {
    if (!compressed) {
      file.write(buffer.data(), buffer.size());
      return buffer.clear();
    }
    unsigned char out[1 << 15];
    stream.next_in = reinterpret_cast<unsigned char*>(buffer.data());
    stream.avail_in = static_cast<uInt>(buffer.size());
    do {
      stream.next_out = out;
      stream.avail_out = sizeof(out);
      deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
      file.write(out, sizeof(out) - stream.avail_out);
    } while (stream.avail_out == 0);
    buffer.clear();
  }

  static constexpr std::size_t kBuffer = 1 << 18;
  const char* op;
  std::string path;
  bool compressed;
  AtomicFile file;
  z_stream stream{};
  std::string buffer;
};

TextFile::TextFile(const char* op, const std::string& path)
    : state_(std::make_unique<State>(op, path)) {}
TextFile::~TextFile() = default;

void TextFile::write(std::string_view text) {
  State& s = *state_;
  while (!text.empty()) {
    const std::size_t part = std::min(text.size(), State::kBuffer - s.buffer.size());
    s.buffer.append(text.substr(0, part));
    text.remove_prefix(part);
    if (s.buffer.size() == State::kBuffer) s.put(false);
  }
}

void TextFile::commit() {
  state_->put(true);
  state_->file.commit();
}

}  // namespace firn::io
