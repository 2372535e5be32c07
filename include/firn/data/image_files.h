// Images from files: PNG and JPEG, one by one, or as a folder that has a folder for each class.
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
  int channels = 0;  ///< 1: grey; 3: red, green, blue; 0: whichever the file has
  /// An image of more pixels is refused, before memory is allocated for it.
  std::int64_t max_pixels = std::int64_t{1} << 27;
};

/// Reads an image as u8 [channels, height, width] on the CPU, row-major. It is PNG or JPEG by the
/// first bytes of the file, whatever its name. Memory is accounted to Owner::data.
///
/// Pixels are those that the file stores, on a scale of 0 to 255:
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
/// profiles and EXIF data are ignored: a photo that EXIF says to turn is not turned. An animation
/// gives its first image. Bytes after the image's end in the file are ignored.
///
/// Throws IoError, naming the file, if it cannot be read, is neither PNG nor JPEG, is truncated or
/// damaged, or has more than max_pixels. Every chunk of a PNG has a checksum; JPEG has none, so
/// some damage to a JPEG goes undetected. Throws Error if `channels` is not 0, 1 or 3, if
/// `max_pixels` is below 1, or if firn was built without libpng or libjpeg for the format.
Tensor read_image(const std::string& path, const ReadImageOptions& options = {});
/// Reads an image from the bytes of a file, as read_image(). `name` stands for the file in errors.
Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                    const ReadImageOptions& options = {});

/// How an image gets another shape. stretch: each axis is scaled by itself. crop: the image is
/// scaled in proportion until it covers the new size, and its middle is cut out, as by
/// torchvision's Resize and CenterCrop.
enum class ImageFit : std::uint8_t { stretch, crop };

/// Scales u8 [channels, h, w] on the CPU to u8 [channels, height, width]: bilinear, and with
/// antialiasing where it shrinks (a triangle that is as wide as two new pixels). It scales the
/// width first, and rounds to 8 bits after each axis. The results equal Pillow's
/// Image.resize(BILINEAR). Pillow 13 begins with the height if that shrinks and the width grows, so
/// some pixels then differ by 1. Throws Error unless the image is u8 of rank 3 on the CPU, no size
/// is below 1, and the new ones are below 2^24.
Tensor resize_image(const Tensor& image, std::int64_t height, std::int64_t width,
                    ImageFit fit = ImageFit::stretch);

struct ImageFolderOptions {
  /// Size to which resize_image(..., ImageFit::crop) brings every image. Both 0 keep the size in
  /// the file; a batch needs images of one size.
  std::int64_t height = 0, width = 0;
  int channels = 3;                                 ///< as ReadImageOptions::channels
  std::int64_t max_pixels = std::int64_t{1} << 27;  ///< as ReadImageOptions::max_pixels
};

/// The images of a folder that has one subfolder for each class:
///
///   data::ImageFolder set("train", {.height = 224, .width = 224});  // train/cat/1.jpg, ...
///
/// Sample i is {u8 [channels, height, width], label i64 []}. The image is read when its sample is
/// made: in the threads of a Loader. A file that cannot be read fails its own sample, which the
/// Loader names, or skips if asked.
///
/// Classes are the subfolders in the order of their names' bytes, labelled from 0 on. Images are
/// the files that end in .png, .jpg or .jpeg, in upper or lower case, at any depth of a subfolder.
/// They are sorted by the bytes of their path. Other files and names that begin with a dot are
/// ignored. Links to files and to class folders are followed; links to other folders are not. A
/// class without images keeps its label, with a warning. Later changes of the folder are not seen.
class ImageFolder : public Dataset {
 public:
  /// Throws IoError if there is no such folder, if it has no subfolders, or no images in them.
  /// Throws Error unless height and width are both 0 or both 1 or more, and read_image() takes the
  /// other options.
  explicit ImageFolder(const std::string& folder, ImageFolderOptions options = {});

  // After a move from this object each function throws Error.

  /// The names of the classes; label i is at position i.
  const std::vector<std::string>& classes() const;
  /// The file and the label of sample i. Throws Error unless 0 <= i < size().
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
