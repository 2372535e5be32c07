// Decides between PNG and JPEG, and checks that this build reads the format.
#include "firn/data/image_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "data/files/image_decoder.h"
#include "firn/memory.h"
#include "io/file/input_file.h"

namespace firn::data {
namespace {

#ifdef FIRN_HAS_PNG
constexpr bool kHasPng = true;
#else
constexpr bool kHasPng = false;
#endif
#ifdef FIRN_HAS_JPEG
constexpr bool kHasJpeg = true;
#else
constexpr bool kHasJpeg = false;
#endif

enum class Format : std::uint8_t { png, jpeg };

constexpr std::size_t kMagicBytes = 8;

/// Returns the format of the first bytes. Throws IoError if they belong to neither format.
Format format_of(const EncodedImage& image) {
  constexpr unsigned char kPng[kMagicBytes] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  constexpr unsigned char kJpeg[] = {0xff, 0xd8, 0xff};
  const auto begins = [&](std::span<const unsigned char> magic) {
    return image.bytes.size() >= magic.size() &&
           std::memcmp(image.bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (begins(kPng)) return Format::png;
  if (begins(kJpeg)) return Format::jpeg;
  if (image.bytes.empty()) image.fail("is empty; expected an image", "fetch the file again");
  const auto* const first = reinterpret_cast<const unsigned char*>(image.bytes.data());
  const std::span<const unsigned char> found(first, std::min(image.bytes.size(), kMagicBytes));
  image.fail(fmt::format("begins with {:02x}, like no PNG (89 50 4e 47) and no JPEG (ff d8 ff)",
                         fmt::join(found, " ")),
             "convert the image to PNG or JPEG");
}

void check_options(const char* op, const ReadImageOptions& options) {
  const int c = options.channels;
  FIRN_CHECK(c == 0 || c == 1 || c == 3, op, "0 leaves an image as it is in its file",
             "channels is 0, 1 or 3, not {}", c);
  FIRN_CHECK(options.max_pixels >= 1, op, "the default suits photographs",
             "max_pixels is 1 or more, not {}", options.max_pixels);
}

[[noreturn]] void fail_without(const char* library, const char* package, const char* format,
                               const EncodedImage& image) {
  detail::fail(image.op,
               fmt::format("apt-get install {}, then configure and build firn again", package),
               "{} is a {} file, and this firn was built without {}", image.name, format, library);
}

Tensor decode(const EncodedImage& image) {
  const OwnerScope owner(Owner::data);
  if (format_of(image) == Format::png) {
    if constexpr (kHasPng) return decode_png(image);
    fail_without("libpng", "libpng-dev", "PNG", image);
  }
  if constexpr (kHasJpeg) return decode_jpeg(image);
  fail_without("libjpeg", "libjpeg-dev", "JPEG", image);
}

}  // namespace

Tensor read_image(const std::string& path, const ReadImageOptions& options) try {
  constexpr const char* kOp = "read_image";
  check_options(kOp, options);
  io::InputFile file(kOp, path);
  // The first bytes are checked first, so that a large file that is not an image is not read.
  std::array<std::byte, kMagicBytes> magic;
  const std::size_t n = file.read(magic.data(), magic.size());
  format_of({kOp, path, std::span(magic).first(n), options});
  file.rewind();
  const OwnerScope owner(Owner::data);
  const Tensor bytes = empty({static_cast<std::int64_t>(file.bytes())}, u8, Device::cpu());
  auto* const data = reinterpret_cast<std::byte*>(bytes.data<std::uint8_t>());
  file.read_all(data, bytes.bytes());
  return decode({kOp, path, {data, bytes.bytes()}, options});
}
FIRN_OUT_OF_MEMORY("read_image")

Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                    const ReadImageOptions& options) try {
  constexpr const char* kOp = "decode_image";
  check_options(kOp, options);
  return decode({kOp, name, bytes, options});
}
FIRN_OUT_OF_MEMORY("decode_image")

}  // namespace firn::data
