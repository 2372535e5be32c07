// Parts that the decoders of PNG and JPEG share: their input, their output, and the way in which an
// error leaves a C library.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "firn/data/image_files.h"
#include "firn/error.h"
#include "firn/tensor.h"

namespace firn::data {

/// The bytes of an image, with the caller's name and options.
struct EncodedImage {
  const char* op;
  const std::string& name;
  std::span<const std::byte> bytes;
  const ReadImageOptions& options;

  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const {
    throw IoError(op, name, what, hint);
  }
  /// Throws IoError if the sizes in a header are below 1 or too large.
  void check_size(std::int64_t height, std::int64_t width) const {
    if (height < 1 || width < 1) fail(fmt::format("declares {} x {} pixels", width, height));
    if (height > options.max_pixels / width)
      fail(fmt::format("declares {} x {} pixels, more than max_pixels = {}", width, height,
                       options.max_pixels),
           "set max_pixels higher if the file is to be trusted");
  }
  [[noreturn]] void fail_too_small(std::int64_t height, std::int64_t width) const {
    fail(fmt::format("declares {} x {} pixels, which cannot be in a file of {} bytes", width,
                     height, bytes.size()),
         "the file is truncated or damaged; fetch it again");
  }
};

/// Both require the first bytes of the image to have their format.
Tensor decode_png(const EncodedImage& image);
Tensor decode_jpeg(const EncodedImage& image);

/// Meaning of the values of a stored pixel.
enum class PixelKind : std::uint8_t { grey, rgb, cmyk };
constexpr std::int64_t values_of(PixelKind kind) noexcept {
  return kind == PixelKind::grey ? 1 : kind == PixelKind::rgb ? 3 : 4;
}

/// The resulting image, which is written row by row.
class PlanarImage {
 public:
  /// For `channels`, see ReadImageOptions.
  PlanarImage(PixelKind kind, int channels, std::int64_t height, std::int64_t width)
      : kind_(kind),
        channels_(channels > 0              ? channels
                  : kind == PixelKind::grey ? 1
                                            : 3),
        width_(width),
        plane_(height * width),
        image_(empty({channels_, height, width}, u8, Device::cpu())),
        to_(image_.data<std::uint8_t>()) {}

  /// Writes row y from the values of its pixels, one pixel after the other.
  void put_row(std::int64_t y, const std::uint8_t* from) noexcept {
    std::uint8_t* const to = to_ + y * width_;
    if (kind_ == PixelKind::grey)
      for (std::int64_t c = 0; c < channels_; ++c) std::copy(from, from + width_, to + c * plane_);
    else if (kind_ == PixelKind::rgb)
      put_colours<3>(to, from, [](const std::uint8_t* p) { return Rgb{p[0], p[1], p[2]}; });
    else
      put_colours<4>(to, from, [](const std::uint8_t* p) {
        const auto inked = [k = p[3]](std::uint8_t v) {
          return static_cast<std::uint8_t>((v * k + 127) / 255);
        };
        return Rgb{inked(p[0]), inked(p[1]), inked(p[2])};
      });
  }
  const Tensor& tensor() const noexcept { return image_; }

 private:
  struct Rgb {
    std::uint8_t r, g, b;
  };
  /// Writes pixels of `step` values each, which rgb_of() turns into colours.
  template <std::int64_t step, class Fn>
  void put_colours(std::uint8_t* to, const std::uint8_t* from, const Fn& rgb_of) const noexcept {
    if (channels_ == 1) {
      for (std::int64_t x = 0; x < width_; ++x) {
        const Rgb c = rgb_of(from + step * x);
        to[x] =
            static_cast<std::uint8_t>((19595u * c.r + 38470u * c.g + 7471u * c.b + 32768u) >> 16);
      }
      return;
    }
    std::uint8_t *const g = to + plane_, *const b = g + plane_;
    for (std::int64_t x = 0; x < width_; ++x) {
      const Rgb c = rgb_of(from + step * x);
      to[x] = c.r;
      g[x] = c.g;
      b[x] = c.b;
    }
  }

  PixelKind kind_;
  std::int64_t channels_, width_, plane_;
  Tensor image_;
  std::uint8_t* to_;
};

/// Target and reason of a jump out of a C library's error handler.
struct ErrorJump {
  std::jmp_buf place;
  char text[256] = {};
  bool no_memory = false;

  [[noreturn]] void leave(std::string_view why) noexcept {
    text[why.copy(text, sizeof text - 1)] = '\0';
    std::longjmp(place, 1);
  }
};

/// Calls fn(), which calls a C library. Returns false if an error handler left it. Objects that
/// fn() makes must not have destructors, since the jump does not call them.
template <class Fn>
[[nodiscard, gnu::noinline]] bool run_c(ErrorJump& jump, const Fn& fn) {
  if (setjmp(jump.place) != 0) return false;
  fn();
  return true;
}

}  // namespace firn::data
