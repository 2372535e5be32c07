// Reads images from PNG and JPEG files, one by one or from a folder that has a subfolder for each
// class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "firn/data/dataset.h"
#include "firn/tensor.h"

namespace firn::data {

struct ReadImageOptions {
  int channels = 0;  ///< 1: grey; 3: red, green, blue; 0: the file's own
  /// Largest number of pixels. An image with more is refused before its memory is allocated.
  std::int64_t max_pixels = std::int64_t{1} << 27;
};

/// Reads an image as u8 [channels, height, width] on the CPU, row-major. The first bytes of the
/// file decide between PNG and JPEG, not its name. Memory is accounted to Owner::data.
///
/// The pixels have the values that the file stores, on a scale of 0 to 255:
///   grey of 1, 2 or 4 bits   v * 255 / (2^bits - 1)
///   16 bits                  v / 257, rounded
///   a palette                its colours: 3 channels
///   alpha, transparency      dropped
///   CMYK (JPEG)              c * k / 255, m * k / 255 and y * k / 255 of the stored values,
///                            where 255 is no ink and 0 is full ink, as Adobe's programs and
///                            Pillow have it
///   1 channel from 3         (19595 r + 38470 g + 7471 b + 32768) / 65536 (luma of ITU-R BT.601)
///   3 channels from 1        the grey value three times
/// The results equal Pillow's convert("RGB") and convert("L"), except for 16 bits. Gamma, colour
/// profiles and EXIF data are ignored, so a photo whose EXIF data asks for a rotation is not
/// rotated. An animation gives its first image. Bytes after the end of the image are ignored.
///
/// Throws IoError, naming the file, if it cannot be read, is neither PNG nor JPEG, is truncated or
/// damaged, or has more than max_pixels. Every chunk of a PNG has a checksum; JPEG has none, so
/// some damage to a JPEG goes undetected. Throws Error if `channels` is not 0, 1 or 3, or if
/// `max_pixels` is below 1. Also throws Error if firn was built without the library for the format
/// (libpng or libjpeg).
Tensor read_image(const std::string& path, const ReadImageOptions& options = {});
/// Reads an image from the bytes of a file as read_image() does. Errors use `name` for the file.
Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                    const ReadImageOptions& options = {});

/// How an image gets another shape. `stretch` scales each axis independently. `crop` scales the
/// image in proportion until it covers the new size, and cuts out the middle, as torchvision's
/// Resize and CenterCrop do.
enum class ImageFit : std::uint8_t { stretch, crop };

/// Scales u8 [channels, h, w] on the CPU to u8 [channels, height, width]. It is bilinear, with
/// antialiasing where it shrinks (a triangle that is as wide as two new pixels). It scales the
/// width first, and rounds to 8 bits after each axis. The results equal Pillow's
/// Image.resize(BILINEAR). Pillow 13 begins with the height if that shrinks and the width grows, so
/// some pixels then differ by 1. Throws Error unless the image is u8 of rank 3 on the CPU, no size
/// is below 1, and the new sizes are below 2^24.
Tensor resize_image(const Tensor& image, std::int64_t height, std::int64_t width,
                    ImageFit fit = ImageFit::stretch);

struct ImageFolderOptions {
  /// Size to which resize_image(..., ImageFit::crop) brings every image. If both are 0, images keep
  /// the size in their file; a batch needs images of one size.
  std::int64_t height = 0, width = 0;
  int channels = 3;                                 ///< see ReadImageOptions::channels
  std::int64_t max_pixels = std::int64_t{1} << 27;  ///< see ReadImageOptions::max_pixels
};

/// The images of a folder that has one subfolder for each class:
///
///   data::ImageFolder set("train", {.height = 224, .width = 224});  // train/cat/1.jpg, ...
///
/// Sample i is {u8 [channels, height, width], label i64 []}. The image is read when its sample is
/// made, in the threads of a Loader. If a file cannot be read, only its own sample fails; the
/// Loader names it, or skips it with BadSample::skip.
///
/// Classes are the subfolders in the order of their names' bytes, labelled from 0 on. Images are
/// the files that end in .png, .jpg or .jpeg, in upper or lower case, at any depth of a subfolder.
/// They are sorted by the bytes of their path. Other files and names that begin with a dot are
/// ignored. Links to files and to class folders are followed; links to other folders are not. A
/// class without images keeps its label, with a warning. Later changes of the folder have no
/// effect.
class ImageFolder : public Dataset {
 public:
  /// Throws IoError if the folder does not exist, has no subfolders, or has no images in them.
  /// Throws Error unless height and width are both 0 or both 1 or more, and read_image() accepts
  /// the other options.
  explicit ImageFolder(const std::string& folder, ImageFolderOptions options = {});

  // After an object is moved from, each of its functions throws Error.

  /// Names of the classes; label i is at position i.
  const std::vector<std::string>& classes() const;
  /// Return the file and the label of sample i. Throw Error unless 0 <= i < size().
  const std::string& path(std::int64_t i) const;
  std::int64_t label(std::int64_t i) const;

 private:
  struct Listing;
  class Source;
  const Listing& listing() const;
  explicit ImageFolder(std::shared_ptr<const Listing> listing, ImageFolderOptions options);
  std::shared_ptr<const Listing> listing_;
};

}  // namespace firn::data
