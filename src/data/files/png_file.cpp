// PNG through libpng. Every byte of a file is read, also after the last row, so that a missing
// checksum or end is found.
#ifdef FIRN_HAS_PNG

#include <png.h>

#include <cstdlib>
#include <cstring>

#include "data/files/image_decoder.h"

namespace firn::data {
namespace {

struct Png {
  explicit Png(std::span<const std::byte> bytes) : left(bytes) {}
  ~Png() { png_destroy_read_struct(&png, &info, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> left;  ///< not yet read
  ErrorJump jump;
};

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  static_cast<ErrorJump*>(png_get_error_ptr(png))->leave(text);
}
void on_warning(png_structp, png_const_charp) {}

png_voidp allocate(png_structp png, png_alloc_size_t bytes) {
  void* const p = std::malloc(bytes);
  if (p == nullptr) static_cast<Png*>(png_get_mem_ptr(png))->jump.no_memory = true;
  return p;
}
void release(png_structp, png_voidp p) { std::free(p); }

void read(png_structp png, png_bytep to, std::size_t bytes) {
  auto& left = static_cast<Png*>(png_get_io_ptr(png))->left;
  if (bytes > left.size()) png_error(png, "the file ends too early");
  std::memcpy(to, left.data(), bytes);
  left = left.subspan(bytes);
}

void read_header(Png& in) {
  in.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &in.jump, on_error, on_warning, &in,
                                    allocate, release);
  if (in.png == nullptr) in.jump.leave("it cannot start");
  in.info = png_create_info_struct(in.png);
  if (in.info == nullptr) png_error(in.png, "it cannot start");
  png_set_read_fn(in.png, &in, read);
  png_set_user_limits(in.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size() limits them
  png_set_crc_action(in.png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  // Chunks without information about pixels are skipped, so their text costs no memory.
  png_set_keep_unknown_chunks(in.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(in.png, in.info);
}

/// Converts to rows of 8 bits a value, 1 or 3 values a pixel. Returns the number of passes of the
/// image.
int set_transformations(Png& in) {
  const int colour = png_get_color_type(in.png, in.info), bits = png_get_bit_depth(in.png, in.info);
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(in.png);
  if (colour == PNG_COLOR_TYPE_GRAY && bits < 8) png_set_expand_gray_1_2_4_to_8(in.png);
  if (bits == 16) png_set_scale_16(in.png);
  png_set_strip_alpha(in.png);
  const int passes = png_set_interlace_handling(in.png);
  png_read_update_info(in.png, in.info);
  return passes;
}

void check(bool ok, const Png& in, const EncodedImage& image) {
  if (ok) return;
  if (in.jump.no_memory) detail::out_of_memory(image.op);
  image.fail(fmt::format("libpng cannot read it: {}", in.jump.text),
             "the file is truncated or damaged; fetch it again");
}

}  // namespace

Tensor decode_png(const EncodedImage& image) {
  Png in(image.bytes);
  check(run_c(in.jump, [&in] { read_header(in); }), in, image);
  const auto height = static_cast<std::int64_t>(png_get_image_height(in.png, in.info));
  const auto width = static_cast<std::int64_t>(png_get_image_width(in.png, in.info));
  image.check_size(height, width);
  // Deflate never expands by more than 1032 times.
  const std::int64_t bits = png_get_bit_depth(in.png, in.info) * png_get_channels(in.png, in.info);
  if (static_cast<std::size_t>(height * width * bits / 8) / 1032 > image.bytes.size())
    image.fail_too_small(height, width);

  int passes = 1;
  check(run_c(in.jump, [&in, &passes] { passes = set_transformations(in); }), in, image);
  const PixelKind kind = png_get_channels(in.png, in.info) == 1 ? PixelKind::grey : PixelKind::rgb;
  const std::int64_t row_bytes = width * values_of(kind);
  if (png_get_rowbytes(in.png, in.info) != static_cast<std::size_t>(row_bytes))
    image.fail(fmt::format("libpng makes rows of {} bytes of it, not {}",
                           png_get_rowbytes(in.png, in.info), row_bytes));

  PlanarImage made(kind, image.options.channels, height, width);
  // Every pass of an interlaced image fills in pixels that the earlier passes left out.
  const Tensor rows = empty({passes == 1 ? 1 : height, row_bytes}, u8, Device::cpu());
  auto* const row = rows.data<std::uint8_t>();
  const auto read_rows = [&] {
    if (passes == 1) {
      for (std::int64_t y = 0; y < height; ++y) {
        png_read_row(in.png, row, nullptr);
        made.put_row(y, row);
      }
    } else {
      for (int pass = 0; pass < passes; ++pass)
        for (std::int64_t y = 0; y < height; ++y)
          png_read_row(in.png, row + y * row_bytes, nullptr);
      for (std::int64_t y = 0; y < height; ++y) made.put_row(y, row + y * row_bytes);
    }
    png_read_end(in.png, nullptr);
  };
  check(run_c(in.jump, read_rows), in, image);
  return made.tensor();
}

}  // namespace firn::data

#endif
