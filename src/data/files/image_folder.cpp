// ImageFolder: the list of a folder's images, which are read when their samples are made.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "firn/data/image_files.h"
#include "firn/warning.h"
#include "io/file/folder_entries.h"
#include "io/file/path.h"

namespace firn::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOp = "ImageFolder";
constexpr const char* kExpected = "expected FOLDER/CLASS/NAME.png, .jpg or .jpeg";

bool is_hidden(std::string_view name) { return name.starts_with('.'); }

bool is_image(std::string_view name) {
  std::string end(name.substr(std::min(name.rfind('.'), name.size())));
  for (char& c : end)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

/// Returns the names of the folders in `folder`, in order.
std::vector<std::string> classes_in(const std::string& folder) {
  std::vector<std::string> names;
  for (io::FolderEntry& entry : io::folder_entries(kOp, folder))
    if (entry.is_folder && !is_hidden(entry.name)) names.push_back(std::move(entry.name));
  return names;
}

/// Returns the paths of the images in `folder` and its subfolders, in order.
std::vector<std::string> images_in(const std::string& folder) {
  std::vector<std::string> paths, folders{folder};
  while (!folders.empty()) {
    const std::string at = std::move(folders.back());
    folders.pop_back();
    for (const io::FolderEntry& entry : io::folder_entries(kOp, at)) {
      if (is_hidden(entry.name)) continue;
      std::string path = (fs::path(at) / entry.name).native();
      if (entry.is_folder) {
        if (!entry.is_link) folders.push_back(std::move(path));  // a link may lead back here
      } else if (is_image(entry.name)) {  // also a dangling link, so that its sample names it
        paths.push_back(std::move(path));
      }
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

struct ImageFolder::Listing {
  std::vector<std::string> classes;
  std::vector<std::string> paths;
  std::vector<std::int64_t> ends;  ///< ends of the classes' images in `paths`

  std::int64_t size() const { return static_cast<std::int64_t>(paths.size()); }
  std::int64_t label(std::int64_t i) const {
    return std::upper_bound(ends.begin(), ends.end(), i) - ends.begin();
  }

  explicit Listing(const std::string& folder) {
    io::check_path(kOp, folder);
    classes = classes_in(folder);
    if (classes.empty())
      throw IoError(kOp, folder, "has no folders, one for each class", kExpected);
    std::vector<std::string> without;
    for (const std::string& name : classes) {
      std::vector<std::string> images = images_in((fs::path(folder) / name).native());
      if (images.empty()) without.push_back(name);
      paths.insert(paths.end(), std::move_iterator(images.begin()),
                   std::move_iterator(images.end()));
      ends.push_back(size());
    }
    if (paths.empty())
      throw IoError(kOp, folder, fmt::format("has no images in its {} folders", classes.size()),
                    kExpected);
    if (!without.empty())
      warn(kOp,
           fmt::format("{}: {} of {} classes have no images: {}", folder, without.size(),
                       classes.size(), fmt::join(without, ", ")),
           "they keep their labels");
  }
};

class ImageFolder::Source : public DatasetSource {
 public:
  Source(std::shared_ptr<const Listing> listing, const ImageFolderOptions& options)
      : listing_(std::move(listing)), options_(options) {}

  std::int64_t size() const override { return listing_->size(); }
  Sample get(std::int64_t index) const override {
    Tensor image = read_image(listing_->paths[static_cast<std::size_t>(index)],
                              {.channels = options_.channels, .max_pixels = options_.max_pixels});
    if (options_.height > 0)
      image = resize_image(image, options_.height, options_.width, ImageFit::crop);
    return {std::move(image), tensor<std::int64_t>({listing_->label(index)}, {}, Device::cpu())};
  }

 private:
  std::shared_ptr<const Listing> listing_;
  ImageFolderOptions options_;
};

ImageFolder::ImageFolder(const std::string& folder, ImageFolderOptions options) try
    : ImageFolder(std::make_shared<const Listing>(folder), options) {}
FIRN_OUT_OF_MEMORY("ImageFolder")

ImageFolder::ImageFolder(std::shared_ptr<const Listing> listing, ImageFolderOptions options)
    : Dataset(std::make_shared<const Source>(listing, options)), listing_(std::move(listing)) {
  const auto& [height, width, channels, max_pixels] = options;
  FIRN_CHECK((height == 0 && width == 0) || (height >= 1 && width >= 1), kOp,
             "0 and 0 leave images as they are in their files",
             "height and width are both 0 or both 1 or more, not {} and {}", height, width);
  FIRN_CHECK(channels == 0 || channels == 1 || channels == 3, kOp,
             "0 leaves an image as it is in its file", "channels is 0, 1 or 3, not {}", channels);
  FIRN_CHECK(max_pixels >= 1, kOp, "the default suits photographs",
             "max_pixels is 1 or more, not {}", max_pixels);
}

const ImageFolder::Listing& ImageFolder::listing() const {
  FIRN_CHECK(listing_, kOp, "use the object that it was moved to", "this set was moved away");
  return *listing_;
}

const std::vector<std::string>& ImageFolder::classes() const { return listing().classes; }

const std::string& ImageFolder::path(std::int64_t i) const {
  FIRN_CHECK(i >= 0 && i < listing().size(), kOp, "samples count from 0",
             "sample {} of a set of {}", i, listing().size());
  return listing().paths[static_cast<std::size_t>(i)];
}

std::int64_t ImageFolder::label(std::int64_t i) const {
  path(i);
  return listing().label(i);
}

}  // namespace firn::data
