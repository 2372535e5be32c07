// JPEG through libjpeg (libjpeg-turbo). If a part of the image is missing or damaged, libjpeg only
// warns and makes up grey pixels; here that is an error.
#ifdef FIRN_HAS_JPEG

#include <cstddef>
#include <cstdio>
// jpeglib.h needs size_t and FILE.
#include <jerror.h>
#include <jpeglib.h>

#include "data/files/image_decoder.h"

namespace firn::data {
namespace {

/// Each scan of a progressive image is a pass over the whole image. Encoders make about ten.
constexpr int kMostScans = 500;

struct Jpeg {
  Jpeg() {
    info.err = jpeg_std_error(&errors);
    info.client_data = &jump;
    errors.error_exit = [](j_common_ptr c) { leave(c); };
    errors.emit_message = on_message;
    errors.output_message = [](j_common_ptr) {};
    progress.progress_monitor = on_progress;
  }
  ~Jpeg() { jpeg_destroy_decompress(&info); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  [[noreturn]] static void leave(j_common_ptr c) {
    auto& jump = *static_cast<ErrorJump*>(c->client_data);
    jump.no_memory = c->err->msg_code == JERR_OUT_OF_MEMORY;
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    jump.leave(text);
  }
  /// Warnings have the level -1.
  static void on_message(j_common_ptr c, int level) {
    if (level >= 0) return;
    switch (c->err->msg_code) {
      case JWRN_ADOBE_XFORM:
      case JWRN_EXTRANEOUS_DATA:  // between the image's parts
      case JWRN_JFIF_MAJOR:
      case JWRN_NOT_SEQUENTIAL:
        return;  // no pixel is missing
      default:
        leave(c);
    }
  }
  static void on_progress(j_common_ptr c) {
    const int scan = reinterpret_cast<j_decompress_ptr>(c)->input_scan_number;
    if (scan > kMostScans) static_cast<ErrorJump*>(c->client_data)->leave("too many scans");
  }

  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  ErrorJump jump;
};

void check(bool ok, const Jpeg& in, const EncodedImage& image) {
  if (ok) return;
  if (in.jump.no_memory) detail::out_of_memory(image.op);
  image.fail(fmt::format("libjpeg cannot read it: {}", in.jump.text),
             "the file is truncated, damaged, or of a kind that libjpeg does not read");
}

/// Returns false if the bytes cannot hold the image. Huffman codes take at least one bit for each
/// block; arithmetic codes may take less.
bool may_hold(const jpeg_decompress_struct& info, std::size_t bytes) {
  if (info.arith_code) return true;
  std::uint64_t blocks = 0;
  for (int i = 0; i < info.num_components; ++i)
    blocks += std::uint64_t{info.comp_info[i].width_in_blocks} * info.comp_info[i].height_in_blocks;
  return blocks / 8 <= bytes;
}

PixelKind choose_colours(jpeg_decompress_struct& info, const EncodedImage& image) {
  switch (info.jpeg_color_space) {
    case JCS_GRAYSCALE:
      info.out_color_space = JCS_GRAYSCALE;
      return PixelKind::grey;
    case JCS_RGB:
    case JCS_YCbCr:
      info.out_color_space = JCS_RGB;
      return PixelKind::rgb;
    case JCS_CMYK:
    case JCS_YCCK:
      info.out_color_space = JCS_CMYK;
      return PixelKind::cmyk;
    default:
      image.fail(fmt::format("is a JPEG of {} components, whose colours are not known",
                             info.num_components),
                 "convert it to RGB");
  }
}

}  // namespace

Tensor decode_jpeg(const EncodedImage& image) {
  Jpeg in;
  jpeg_decompress_struct& info = in.info;
  const auto read_header = [&] {
    jpeg_create_decompress(&info);
    info.progress = &in.progress;
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(image.bytes.data()),
                 static_cast<unsigned long>(image.bytes.size()));
    jpeg_read_header(&info, TRUE);
  };
  check(run_c(in.jump, read_header), in, image);
  const std::int64_t height = info.image_height, width = info.image_width;
  image.check_size(height, width);
  if (!may_hold(info, image.bytes.size())) image.fail_too_small(height, width);
  const PixelKind kind = choose_colours(info, image);

  PlanarImage made(kind, image.options.channels, height, width);
  const Tensor scratch = empty({width * values_of(kind)}, u8, Device::cpu());
  JSAMPROW row = scratch.data<std::uint8_t>();
  const auto read_rows = [&] {
    jpeg_start_decompress(&info);
    for (std::int64_t y = 0; y < height; ++y) {
      jpeg_read_scanlines(&info, &row, 1);
      made.put_row(y, row);
    }
    jpeg_finish_decompress(&info);
  };
  check(run_c(in.jump, read_rows), in, image);
  return made.tensor();
}

}  // namespace firn::data

#endif
