#include "firn/data/tokens.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "data/collate.h"
#include "io/file/atomic_file.h"
#include "io/file/input_file.h"
#include "io/npy_header.h"

namespace firn::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr const char* kOp = "TokenDataset";

/// Calls fn.operator()<T>() with the C++ type of a token.
template <class Fn>
decltype(auto) visit_format(TokenFormat format, Fn&& fn) {
  switch (format) {
    case TokenFormat::u8:
      return fn.template operator()<std::uint8_t>();
    case TokenFormat::u16:
      return fn.template operator()<std::uint16_t>();
    case TokenFormat::u32:
      return fn.template operator()<std::uint32_t>();
    case TokenFormat::i32:
      return fn.template operator()<std::int32_t>();
    default:
      return fn.template operator()<std::int64_t>();
  }
}

std::size_t size_of(TokenFormat format) {
  return visit_format(format, []<class T>() { return sizeof(T); });
}

void check_format(const char* op, TokenFormat format) {
  FIRN_CHECK(format <= TokenFormat::i64, op, "use TokenFormat::u16 or another of its names",
             "{} is no token format", static_cast<int>(format));
}

bool is_npy(const std::string& path) { return path.ends_with(".npy"); }

/// Position of the tokens in a file.
struct Layout {
  TokenFormat format = TokenFormat::u16;
  std::uint64_t begin = 0;  ///< byte of the first token
  std::uint64_t count = 0;
};

Layout raw_layout(const io::InputFile& file, const TokenOptions& options) {
  Layout layout{options.format.value_or(TokenFormat::u16),
                static_cast<std::uint64_t>(options.header_bytes), 0};
  if (layout.begin > file.bytes())
    file.fail(
        fmt::format("has {} bytes, fewer than the {} of its header", file.bytes(), layout.begin));
  const std::uint64_t bytes = file.bytes() - layout.begin, size = size_of(layout.format);
  if (bytes % size != 0)
    file.fail(fmt::format("has {} bytes of tokens, which is no multiple of the {} bytes of a {}",
                          bytes, size, to_string(layout.format)),
              "check TokenOptions::format and header_bytes; the file may be truncated");
  layout.count = bytes / size;
  return layout;
}

TokenFormat format_of(const io::InputFile& file, const io::NpyHeader& header) {
  if (header.dtype == u8) return TokenFormat::u8;
  if (header.dtype == u16) return TokenFormat::u16;
  if (header.dtype == u32) return TokenFormat::u32;
  if (header.dtype == i32) return TokenFormat::i32;
  if (header.dtype != i64)
    file.fail(fmt::format("holds {} {}, and tokens are integers", header.shape, header.dtype),
              "convert it with astype('<u4')");
  return TokenFormat::i64;
}

Layout npy_layout(io::InputFile& file, const TokenOptions& options) {
  const io::NpyHeader header = io::read_npy_header(kOp, file);
  Layout layout{format_of(file, header), file.offset(), 0};
  if (header.shape.size() != 1)
    file.fail(fmt::format("holds an array of shape {}, and tokens have one axis", header.shape),
              "save array.ravel()");
  const std::size_t size = size_of(layout.format);
  if (header.big_endian && size > 1)
    file.fail("holds big-endian numbers", "convert it with array.astype('<u4')");
  if (options.format && *options.format != layout.format)
    file.fail(fmt::format("holds {}, but TokenOptions::format is {}", to_string(layout.format),
                          to_string(*options.format)),
              "leave out the format of a .npy file");
  layout.count = static_cast<std::uint64_t>(header.shape[0]);
  if (file.bytes() - layout.begin != layout.count * size)
    file.fail(fmt::format("{} tokens take {} bytes from byte {} on, found {}", layout.count,
                          layout.count * size, layout.begin, file.bytes() - layout.begin),
              "the file is truncated or damaged; fetch it again");
  return layout;
}

class Tokens : public DatasetSource {
 public:
  Tokens(const std::string& path, const TokenOptions& options)
      : file_(kOp, path),
        layout_(is_npy(path) ? npy_layout(file_, options) : raw_layout(file_, options)),
        length_(options.length),
        stride_(options.stride > 0 ? options.stride : options.length),
        vocabulary_(options.vocabulary) {
    const auto count = static_cast<std::int64_t>(layout_.count);
    if (count <= length_)
      file_.fail(fmt::format("has {} tokens, and a window of length {} takes {} and the next one",
                             count, length_, length_),
                 "use a smaller length, or more text");
    size_ = (count - 1 - length_) / stride_ + 1;
  }

  std::int64_t size() const override { return size_; }

  Sample get(std::int64_t index) const override {
    Sample sample = {empty({length_}, i64, Device::cpu()), empty({length_}, i64, Device::cpu())};
    std::vector<unsigned char> bytes;
    read(index, bytes, sample[0].data<std::int64_t>(), sample[1].data<std::int64_t>());
    return sample;
  }

  Sample collect(std::span<const std::int64_t> indices, const DrawContext&) const override {
    const auto n = static_cast<std::int64_t>(indices.size());
    Sample batch = {empty({n, length_}, i64, Device::cpu()),
                    empty({n, length_}, i64, Device::cpu())};
    auto *x = batch[0].data<std::int64_t>(), *y = batch[1].data<std::int64_t>();
    std::vector<unsigned char> bytes;
    for (const std::int64_t index : indices) {
      try {
        read(index, bytes, x, y);
      } catch (const IoError& e) {
        throw SampleError(index, e.what());
      }
      x += length_;
      y += length_;
    }
    return batch;
  }

 private:
  /// Reads window `index` into x and y. `bytes` is scratch memory.
  void read(std::int64_t index, std::vector<unsigned char>& bytes, std::int64_t* x,
            std::int64_t* y) const {
    const std::int64_t first = index * stride_;
    const std::size_t size = size_of(layout_.format), window = static_cast<std::size_t>(length_);
    bytes.resize((window + 1) * size);
    file_.read_at(layout_.begin + static_cast<std::uint64_t>(first) * size, bytes.data(),
                  bytes.size());
    visit_format(layout_.format, [&]<class T>() {
      const auto token = [from = bytes.data()](std::size_t i) {
        T value;
        std::memcpy(&value, from + i * sizeof(T), sizeof(T));
        return static_cast<std::int64_t>(value);
      };
      for (std::size_t i = 0; i < window; ++i) x[i] = token(i);
      y[window - 1] = token(window);
    });
    std::copy(x + 1, x + length_, y);
    if (vocabulary_ > 0) check(index, first, x, y[length_ - 1]);
  }

  void check(std::int64_t index, std::int64_t first, const std::int64_t* x,
             std::int64_t last) const {
    const auto outside = [most = static_cast<std::uint64_t>(vocabulary_)](std::int64_t token) {
      return static_cast<std::uint64_t>(token) >= most;
    };
    bool bad = outside(last);
    for (std::int64_t i = 0; i < length_; ++i) bad |= outside(x[i]);
    if (!bad) return;
    const auto at = std::find_if(x, x + length_, outside) - x;
    const std::int64_t token = at < length_ ? x[at] : last;
    throw SampleError(
        index,
        fmt::format("token {} at position {} of {} is outside of the vocabulary [0, {})", token,
                    first + at, file_.path(), vocabulary_),
        "check TokenOptions::format and vocabulary", kOp);
  }

  io::InputFile file_;
  Layout layout_;
  std::int64_t length_, stride_, vocabulary_, size_ = 0;
};

std::shared_ptr<const DatasetSource> tokens_of(const std::string& path,
                                               const TokenOptions& options) {
  FIRN_CHECK(options.length >= 1, kOp, "set TokenOptions::length, the tokens of a sample",
             "length must be at least 1, not {}", options.length);
  FIRN_CHECK(options.stride >= 0 && options.header_bytes >= 0 && options.vocabulary >= 0, kOp,
             "0 leaves each of them out",
             "stride, header_bytes and vocabulary are 0 or more, not {}, {} and {}", options.stride,
             options.header_bytes, options.vocabulary);
  if (options.format) check_format(kOp, *options.format);
  FIRN_CHECK(!is_npy(path) || options.header_bytes == 0, kOp, "leave it out",
             "header_bytes is {} for {}, which has NumPy's header", options.header_bytes, path);
  return std::make_shared<const Tokens>(path, options);
}

template <class T>
void write_all(io::AtomicFile& file, std::span<const std::int64_t> tokens) {
  constexpr std::size_t kPiece = 1 << 16;
  std::vector<T> piece;
  piece.reserve(std::min(kPiece, tokens.size()));
  for (std::size_t done = 0; done < tokens.size(); done += piece.size()) {
    piece.clear();
    for (const std::int64_t token : tokens.subspan(done, std::min(kPiece, tokens.size() - done)))
      piece.push_back(static_cast<T>(token));
    file.write(piece.data(), piece.size() * sizeof(T));
  }
}

}  // namespace

const char* to_string(TokenFormat format) noexcept {
  constexpr const char* kNames[] = {"u8", "u16", "u32", "i32", "i64"};
  return format <= TokenFormat::i64 ? kNames[static_cast<int>(format)] : "unknown token format";
}

TokenDataset::TokenDataset(const std::string& path, TokenOptions options) try
    : Dataset(tokens_of(path, options)) {}
FIRN_OUT_OF_MEMORY("TokenDataset")

void write_tokens(const std::string& path, std::span<const std::int64_t> tokens,
                  TokenFormat format) try {
  constexpr const char* kWrite = "write_tokens";
  check_format(kWrite, format);
  FIRN_CHECK(!is_npy(path), kWrite, "use io::write_npy(), or a name such as train.bin",
             "{} names a NumPy file, and raw tokens are written", path);
  visit_format(format, [&]<class T>() {
    const auto fits = [](std::int64_t token) { return std::in_range<T>(token); };
    const auto bad = std::find_if_not(tokens.begin(), tokens.end(), fits);
    FIRN_CHECK(bad == tokens.end(), kWrite, "choose a wider TokenFormat",
               "token {} at position {} does not fit in {}, which holds {} to {}", *bad,
               bad - tokens.begin(), to_string(format), +std::numeric_limits<T>::min(),
               +std::numeric_limits<T>::max());
    io::AtomicFile file(kWrite, path);
    write_all<T>(file, tokens);
    file.commit();
  });
}
FIRN_OUT_OF_MEMORY("write_tokens")

}  // namespace firn::data
