// Images from files: pixels beside Pillow's, damage at every byte, hostile headers, scaling.
#include "firn/data/image_files.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "data/files.h"
#include "data/files/image_bytes.h"
#include "data/files/image_skips.h"
#include "firn/firn.h"
#include "support/golden.h"
#include "support/matchers.h"
#include "support/source_path.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using data::decode_image;
using data::ImageFit;
using data::read_image;
using data::ReadImageOptions;
using data::resize_image;
using firn::testing::Golden;
using firn::testing::make;
using firn::testing::Rng;
using firn::testing::values_of;

namespace {

using Goldens = std::map<std::string, Golden>;

const Goldens& goldens() {
  static const Goldens all =
      firn::testing::read_goldens(firn::testing::source_path("tests/goldens/images.safetensors"));
  return all;
}

Bytes file_of(const Golden& golden) {
  Bytes bytes;
  for (const double v : golden.inputs.at(0).values)
    bytes += static_cast<char>(static_cast<unsigned char>(v));
  return bytes;
}
Bytes file_of(const std::string& name) { return file_of(goldens().at("read " + name + " 0")); }

bool is_png(const Bytes& file) { return file.starts_with(kPngMagic); }

/// Whether this build reads it.
bool is_readable(const Bytes& file) { return is_png(file) ? reads_png() : reads_jpeg(); }

/// Files of every kind, by name.
std::map<std::string, Bytes> files() {
  std::map<std::string, Bytes> all;
  for (const auto& [name, golden] : goldens())
    if (name.starts_with("read ") && name.ends_with(" 0") && is_readable(file_of(golden)))
      all[name] = file_of(golden);
  return all;
}

Tensor decode(const Bytes& file, const ReadImageOptions& options = {}) {
  return decode_image(span_of(file), "image", options);
}

/// The largest difference of two lists of one size.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

/// Grey as the header says.
Tensor luma(const Tensor& rgb) {
  const Tensor x = rgb.to(i64);
  const Tensor sum = x.slice(0, 0, 1) * 19595 + x.slice(0, 1, 2) * 38470 + x.slice(0, 2, 3) * 7471;
  return ((sum + 32768).to(f64) / 65536.0).to(u8);
}

/// The message of the IoError that decoding throws, or "" if it throws none.
std::string refusal(const Bytes& file, const ReadImageOptions& options = {}) {
  try {
    decode(file, options);
  } catch (const IoError& e) {
    return e.what();
  }
  return "";
}

/// Where the size is in a JPEG file: in its frame header (SOF0 to SOF2, SOF9).
std::size_t frame_of(const Bytes& jpeg) {
  for (std::size_t at = 2; at + 4 < jpeg.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(jpeg[at + i]); };
    if (byte(1) >= 0xc0 && byte(1) <= 0xc9 && byte(1) != 0xc4) return at + 5;
    at += 2 + (std::size_t{byte(2)} << 8 | byte(3));
  }
  FAIL("no frame header");
  return 0;
}
Bytes with_size(Bytes jpeg, std::uint32_t height, std::uint32_t width) {
  return jpeg.replace(frame_of(jpeg), 4, big_endian(height, 2) + big_endian(width, 2));
}

Bytes png_with_size(std::uint32_t height, std::uint32_t width) {
  return kPngMagic + png_chunk("IHDR", png_head(height, width, 2)) +
         png_chunk("IDAT", zlib_stored("")) + png_chunk("IEND", "");
}

}  // namespace

TEST_CASE("images: the pixels of every kind of file are those that were stored", "[host]") {
  const TempFolder folder;
  int png = 0, jpeg = 0;
  for (const auto& [name, golden] : goldens()) {
    if (!name.starts_with("read ")) continue;
    const Bytes file = file_of(golden);
    if (!is_readable(file)) continue;
    CAPTURE(name);
    const ReadImageOptions options{.channels = name.back() - '0'};
    const Tensor image = decode(file, options);
    CHECK(image.dtype() == u8);
    CHECK(image.device() == Device::cpu());
    CHECK(image.is_contiguous());
    REQUIRE(image.shape() == golden.output.shape);
    // Decoders of JPEG may round the cosine transform and the colours in other ways.
    CHECK(distance(values_of(image), golden.output.values) <= (is_png(file) ? 0 : 2));
    const Tensor read = read_image(write_file(folder.file("an.idx"), file), options);
    CHECK(values_of(read) == values_of(image));
    (is_png(file) ? png : jpeg) += 1;
  }
  CHECK(png == (reads_png_or_warn() ? 31 : 0));
  CHECK(jpeg == (reads_jpeg_or_warn() ? 19 : 0));
}

TEST_CASE("images: grey and RGB become each other by the documented formulas", "[host]") {
  for (const auto& [name, file] : files()) {
    CAPTURE(name);
    const Tensor image = decode(file), grey = decode(file, {.channels = 1}),
                 rgb = decode(file, {.channels = 3});
    const bool is_grey = image.size(0) == 1;
    CHECK(values_of(is_grey ? grey : rgb) == values_of(image));
    if (is_grey)
      CHECK(values_of(rgb) == values_of(cat({image, image, image}, 0)));
    else
      CHECK(values_of(grey) == values_of(luma(image)));
  }
}

TEST_CASE("images: memory is data's, and all of it comes back", "[host]") {
  if (!reads_png_or_warn()) return;
  const Bytes file = file_of("png interlaced rgb 8");
  const auto now = [] { return memory_stats(Device::cpu()); };
  const std::size_t data = now().of(Owner::data).current, all = now().total.current;
  {
    const Tensor image = decode(file);
    CHECK(now().of(Owner::data).current > data);
    CHECK(now().total.current - all == now().of(Owner::data).current - data);
  }
  CHECK(now().total.current == all);
  CHECK_THROWS_AS(decode(file.substr(0, file.size() - 20)), IoError);
  CHECK(now().total.current == all);
}

TEST_CASE("images: a file that ends at any byte is refused", "[host]") {
  for (const auto& [name, file] : files()) {
    CAPTURE(name);
    std::vector<std::size_t> read;
    for (std::size_t n = 0; n < file.size(); ++n)
      if (refusal(file.substr(0, n)).empty()) read.push_back(n);
    CHECK(read == std::vector<std::size_t>());
  }
}

TEST_CASE("images: what follows the end is ignored", "[host]") {
  for (const auto& [name, file] : files()) {
    CAPTURE(name);
    CHECK(values_of(decode(file + "more")) == values_of(decode(file)));
    CHECK(values_of(decode(file + file)) == values_of(decode(file)));
  }
}

TEST_CASE("images: every flipped bit of a PNG file is found", "[host]") {
  if (!reads_png_or_warn()) return;
  for (const char* const name :
       {"png rgb 8", "png interlaced grey 1", "png palette 8 with alpha"}) {
    Bytes file = file_of(name);
    std::vector<std::size_t> missed;
    for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
      const char flip = static_cast<char>(1 << bit % 8);
      file[bit / 8] = static_cast<char>(file[bit / 8] ^ flip);
      if (refusal(file, {.max_pixels = 1 << 16}).empty()) missed.push_back(bit);
      file[bit / 8] = static_cast<char>(file[bit / 8] ^ flip);
    }
    CAPTURE(name);
    CHECK(missed == std::vector<std::size_t>());
  }
}

TEST_CASE("images: flipped bits of a JPEG file are refused or give an image", "[host]") {
  if (!reads_jpeg_or_warn()) return;
  for (const char* const name :
       {"jpeg grey", "jpeg with restarts", "jpeg progressive", "jpeg cmyk"}) {
    Bytes file = file_of(name);
    CAPTURE(name);
    std::size_t refused = 0, flips = 0;
    for (std::size_t bit = 0; bit < 8 * file.size(); bit += 3, ++flips) {
      const char flip = static_cast<char>(1 << bit % 8);
      file[bit / 8] = static_cast<char>(file[bit / 8] ^ flip);
      try {
        const Tensor image = decode(file, {.max_pixels = 1 << 12});
        const bool is_image = image.dtype() == u8 && image.rank() == 3 && image.numel() > 0 &&
                              (image.size(0) == 1 || image.size(0) == 3);
        if (!is_image) FAIL("bit " << bit << " gives " << describe(image));
      } catch (const IoError&) {
        ++refused;
      }
      file[bit / 8] = static_cast<char>(file[bit / 8] ^ flip);
    }
    CHECK(refused > 20);
    CHECK(refused < flips);
  }
}

TEST_CASE("images: a header alone takes no memory", "[host]") {
  const auto peak_of = [](const Bytes& file, const std::string& says) {
    const std::size_t idle = memory_stats(Device::cpu()).total.current;
    reset_peak_memory(Device::cpu());
    CHECK_THAT(refusal(file), contains(says));
    return memory_stats(Device::cpu()).total.peak - idle;
  };
  const std::string large =
      "declares 60000 x 59999 pixels, more than max_pixels = 134217728; hint: "
      "set max_pixels higher";
  const std::string small = "declares 10000 x 9000 pixels, which cannot be in a file of ";
  if (reads_png_or_warn()) {
    CHECK(peak_of(png_with_size(59999, 60000), large) == 0);
    CHECK(peak_of(png_with_size(9000, 10000), small) == 0);
    CHECK(peak_of(png_with_size(0, 10), "libpng cannot read it: ") == 0);
    CHECK(peak_of(png_with_size(1u << 31, 1u << 31), "libpng cannot read it: ") == 0);
  }
  if (reads_jpeg_or_warn()) {
    for (const char* const name : {"jpeg grey", "jpeg 4:2:0", "jpeg progressive"}) {
      CAPTURE(name);
      CHECK(peak_of(with_size(file_of(name), 59999, 60000), large) == 0);
      CHECK(peak_of(with_size(file_of(name), 9000, 10000), small) == 0);
      CHECK(peak_of(with_size(file_of(name), 5, 0), "libjpeg cannot read it: ") == 0);
    }
    CHECK(peak_of(with_size(file_of("jpeg arithmetic"), 59999, 60000), large) == 0);
  }
}

TEST_CASE("images: max_pixels is the last size that is read", "[host]") {
  for (const auto& [name, file] : files()) {
    CAPTURE(name);
    const Tensor image = decode(file);
    const std::int64_t pixels = image.size(1) * image.size(2);
    CHECK(values_of(decode(file, {.max_pixels = pixels})) == values_of(image));
    if (pixels > 1)
      CHECK_THAT(refusal(file, {.max_pixels = pixels - 1}), contains("more than max_pixels = "));
  }
}

TEST_CASE("images: what is no image is refused by name", "[host]") {
  const TempFolder folder;
  const auto error_of = [](const std::string& path) {
    try {
      read_image(path);
    } catch (const IoError& e) {
      CHECK(e.path() == path.substr(0, path.find('\0')));
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const std::string gif = write_file(folder.file("a.png"), "GIF89a.....");
  CHECK(error_of(gif) == "[read_image] " + gif +
                             ": begins with 47 49 46 38 39 61 2e 2e, like no PNG (89 50 4e 47) and "
                             "no JPEG (ff d8 ff); "
                             "hint: convert the image to PNG or JPEG");
  CHECK_THAT(error_of(write_file(folder.file("b.png"), "")), contains("b.png: is empty"));
  CHECK_THAT(error_of(write_file(folder.file("c.png"), "\x89P")),
             contains("begins with 89 50, like"));
  CHECK_THAT(error_of(folder.file("none.png")), contains("none.png: cannot be opened"));
  CHECK_THAT(error_of(folder.path().string()), contains("is a directory"));
  CHECK_THAT(error_of(gif + Bytes("\0.png", 5)), contains("a NUL character"));
  CHECK_THAT(refusal(""), contains("[decode_image] image: is empty"));
  CHECK_THROWS_WITH(
      decode(kPngMagic, {.channels = 2}),
      "[decode_image] channels is 0, 1 or 3, not 2; hint: 0 leaves an image as it is in "
      "its file");
  CHECK_THROWS_WITH(read_image(gif, {.max_pixels = 0}),
                    "[read_image] max_pixels is 1 or more, not 0; hint: the default suits "
                    "photographs");
}

TEST_CASE("images: the error of a damaged file has the words of its library", "[host]") {
  const TempFolder folder;
  if (reads_png_or_warn()) {
    Bytes file = file_of("png rgb 8");
    file[file.find("IDAT") + 15] ^= 1;  // the checksum of 11 bytes
    const std::string path = write_file(folder.file("a.png"), file);
    CHECK_THROWS_WITH(read_image(path),
                      "[read_image] " + path +
                          ": libpng cannot read it: IDAT: CRC error; hint: the file "
                          "is truncated or damaged; fetch it again");
    const Bytes short_rows = kPngMagic + png_chunk("IHDR", png_head(2, 2, 0)) +
                             png_chunk("IDAT", zlib_stored(Bytes(5, '\0'))) + png_chunk("IEND", "");
    CHECK_THAT(refusal(short_rows), contains("Not enough image data"));
    CHECK_THAT(refusal(kPngMagic + png_chunk("IDAT", "")), contains("libpng cannot read it: "));
  }
  if (reads_jpeg_or_warn()) {
    const Bytes file = file_of("jpeg 4:2:0");
    CHECK_THAT(refusal(file.substr(0, file.size() - 20)),
               contains("libjpeg cannot read it: Premature end of JPEG file; hint: the file is"));
    Bytes other = file;
    other[frame_of(file) - 1] = 12;
    CHECK_THAT(refusal(other), contains("Unsupported JPEG data precision 12"));
    other = file;
    other[frame_of(file) - 4] = static_cast<char>(0xc3);
    CHECK_THAT(refusal(other), contains("libjpeg cannot read it: "));
    // A second component, of which nothing is known.
    other = file_of("jpeg grey");
    const std::size_t at = frame_of(other);
    other.replace(at - 2, 1, 1, '\x0b' + 3).replace(at + 4, 1, 1, '\2');
    other.insert(at + 8, Bytes("\2\x11\0", 3));
    CHECK_THAT(refusal(other), contains("is a JPEG of 2 components, whose colours are not known"));
  }
}

TEST_CASE("images: a JPEG of more scans than encoders make is refused", "[host]") {
  if (!reads_jpeg_or_warn()) return;
  // Its last scan again and again is correct, and takes the time of a scan each time.
  const Bytes file = file_of("jpeg progressive of two scans");
  const std::size_t table = file.rfind("\xff\xc4"), end = file.size() - 2;
  const Bytes scan = file.substr(table, end - table);
  const auto repeated = [&](int times) {
    Bytes many = file.substr(0, end);
    for (int i = 0; i < times; ++i) many += scan;
    return many + file.substr(end);
  };
  CHECK(values_of(decode(repeated(400))) == values_of(decode(file)));
  CHECK_THAT(refusal(repeated(600)), contains("too many scans"));
}

TEST_CASE("images: bytes between the parts of a JPEG do no harm", "[host]") {
  if (!reads_jpeg_or_warn()) return;
  Bytes file = file_of("jpeg 4:2:0");
  file.insert(file.size() - 2, "\x12\x34\x56");
  CHECK(values_of(decode(file)) == values_of(decode(file_of("jpeg 4:2:0"))));
}

TEST_CASE("images: scaling gives Pillow's pixels", "[host]") {
  int scaled = 0;
  for (const auto& [name, golden] : goldens()) {
    if (name.starts_with("read ")) continue;
    CAPTURE(name);
    const auto& input = golden.inputs.at(0);
    const ImageFit fit = name.starts_with("crop ") ? ImageFit::crop : ImageFit::stretch;
    for (const auto layout : {firn::testing::Layout::contiguous, firn::testing::Layout::transposed,
                              firn::testing::Layout::stepped, firn::testing::Layout::offset}) {
      const Tensor image = make(input.values, input.shape, u8, layout, Device::cpu());
      const Shape& shape = golden.output.shape;
      const Tensor made = resize_image(image, shape[1], shape[2], fit);
      CHECK(made.dtype() == u8);
      REQUIRE(made.shape() == shape);
      CHECK(distance(values_of(made), golden.output.values) <= 1);
    }
    ++scaled;
  }
  CHECK(scaled == 19);
}

TEST_CASE("images: scaling keeps what has one colour, and an image of its own size", "[host]") {
  Rng rng(1);
  for (int i = 0; i < 60; ++i) {
    const std::int64_t c = 1 + rng.below(4), h = 1 + rng.below(40), w = 1 + rng.below(40),
                       height = 1 + rng.below(40), width = 1 + rng.below(40);
    const auto fit = static_cast<ImageFit>(rng.below(2));
    CAPTURE(c, h, w, height, width, static_cast<int>(fit));
    const double colour = static_cast<double>(rng.below(256));
    const Tensor plain = resize_image(full({c, h, w}, colour, u8), height, width, fit);
    CHECK(plain.shape() == Shape{c, height, width});
    CHECK(values_of(plain) == std::vector<double>(static_cast<std::size_t>(plain.numel()), colour));
    const Tensor image = (rand({c, h, w}) * 256).to(u8);
    CHECK(values_of(resize_image(image, h, w, fit)) == values_of(image));
    // Turned before or after: but for the order of the axes, each rounded.
    const Tensor turned = resize_image(image.transpose(1, 2), width, height, fit);
    const Tensor straight = resize_image(image, height, width, fit);
    CHECK(distance(values_of(turned.transpose(1, 2).contiguous()), values_of(straight)) <= 2);
  }
  // A thin image, of which almost nothing is left.
  CHECK(resize_image(zeros({1, 1, 5000}, u8), 200, 200, ImageFit::crop).size(2) == 200);
}

TEST_CASE("images: what cannot be scaled is refused", "[host]") {
  const Tensor image = zeros({3, 4, 5}, u8, Device::cpu());
  CHECK_THROWS_WITH(
      resize_image(image.to(f32), 2, 2),
      "[resize_image] not an image: [3, 4, 5] f32 cpu; hint: images are u8 [channels, "
      "height, width] on the CPU");
  CHECK_THROWS_AS(resize_image(image[0], 2, 2), Error);
  CHECK_THROWS_AS(resize_image(Tensor(), 2, 2), Error);
  CHECK_THROWS_AS(resize_image(zeros({3, 0, 5}, u8), 2, 2), Error);
  CHECK_THROWS_AS(resize_image(zeros({0, 5, 5}, u8), 2, 2), Error);
  CHECK_THROWS_WITH(resize_image(image, 0, 2),
                    "[resize_image] the new size is 0 x 2; each is at least 1 and below 2^24; "
                    "hint: give height and width in pixels");
  CHECK_THROWS_AS(resize_image(image, 2, std::int64_t{1} << 40), Error);
  CHECK_THROWS_AS(resize_image(image, 2, 2, static_cast<ImageFit>(7)), Error);
  CHECK_THROWS_AS(resize_image(image, (1 << 24) - 1, (1 << 24) - 1), OutOfMemory);
}
