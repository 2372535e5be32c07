// Folders of images: what is listed, in which order, and what loaders make of it.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/files.h"
#include "data/files/image_bytes.h"
#include "data/files/image_skips.h"
#include "data/loader_sets.h"
#include "firn/firn.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using data::ImageFolder;
using data::ImageFolderOptions;
using data::Loader;
using data::Sample;
using firn::testing::values_of;

namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

/// An image that differs from all others.
Tensor image_of(int number, std::int64_t height, std::int64_t width) {
  Generator generator(static_cast<std::uint64_t>(number));
  return (rand({3, height, width}, {.device = Device::cpu(), .generator = &generator}) * 256)
      .to(u8);
}

/// Writes bytes as `name` in the folder, with the folders on the way.
std::string put(const TempFolder& folder, const std::string& name, const Bytes& bytes) {
  fs::create_directories((folder.path() / name).parent_path());
  return write_file(folder.file(name), bytes);
}

/// 30 images of 6 x 8 to 8 x 10 pixels in three classes.
void put_images(const TempFolder& folder) {
  for (int i = 0; i < 30; ++i) {
    const std::string name = Names{"ant/", "bee/", "cat/"}[static_cast<std::size_t>(i % 3)] +
                             std::to_string(100 + i) + ".png";
    put(folder, name, png_of(image_of(i, 6 + i % 3, 8 + i % 2 * 2)));
  }
}

/// The paths of a set, without the folder's own.
Names paths_of(const ImageFolder& set, const TempFolder& folder) {
  Names all;
  for (std::int64_t i = 0; i < set.size(); ++i)
    all.push_back(set.path(i).substr(folder.path().string().size() + 1));
  return all;
}

void expect_same(const Sample& got, const Sample& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t f = 0; f < got.size(); ++f) {
    CHECK(got[f].dtype() == want[f].dtype());
    CHECK(got[f].shape() == want[f].shape());
    CHECK(values_of(got[f]) == values_of(want[f]));
  }
}

/// The warnings that fn() gives.
template <class Fn>
Names warnings_of(Fn&& fn) {
  Names all;
  const WarningHandler before =
      set_warning_handler([&all](const std::string& text) { all.push_back(text); });
  fn();
  set_warning_handler(before);
  return all;
}

}  // namespace

TEST_CASE("image folder: classes and files are in the order of their bytes", "[host]") {
  const TempFolder folder;
  for (const char* const name :
       {"b/2.png", "b/10.png", "b/x.JPeG", "a/x.PNG", "a/deep/er/y.jpg", "a/deep.png", "B/1.jpg",
        "\xc3\xa4/1.png", "b/notes.txt", "b/png", "b/.hidden.png", "b/.thumbs/1.png", ".git/1.png",
        "top.png", "b/1.png.txt", "b/2.gif"})
    put(folder, name, "");
  fs::create_directories(folder.path() / "b/folder.png");
  const ImageFolder set(folder.path().string());
  CHECK(set.classes() == Names{"B", "a", "b", "\xc3\xa4"});
  CHECK(paths_of(set, folder) == Names{"B/1.jpg", "a/deep.png", "a/deep/er/y.jpg", "a/x.PNG",
                                       "b/10.png", "b/2.png", "b/x.JPeG", "\xc3\xa4/1.png"});
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < set.size(); ++i) labels.push_back(set.label(i));
  CHECK(labels == std::vector<std::int64_t>{0, 1, 1, 1, 2, 2, 2, 3});
  const ImageFolder slash(folder.path().string() + "/");
  CHECK(slash.size() == 8);
  CHECK(slash.classes() == set.classes());
}

TEST_CASE("image folder: links to classes and files are followed", "[host]") {
  const TempFolder folder, elsewhere;
  put(elsewhere, "1.png", "");
  put(folder, "a/0.png", "");
  fs::create_symlink(elsewhere.path() / "1.png", folder.path() / "a/linked.png");
  fs::create_symlink(elsewhere.path() / "none.png", folder.path() / "a/none.png");
  fs::create_symlink(folder.path(), folder.path() / "a/around");
  fs::create_symlink(elsewhere.path(), folder.path() / "b");
  fs::create_symlink(elsewhere.path() / "none", folder.path() / "c");
  const ImageFolder set(folder.path().string());
  CHECK(set.classes() == Names{"a", "b"});
  CHECK(paths_of(set, folder) == Names{"a/0.png", "a/linked.png", "a/none.png", "b/1.png"});
  CHECK_THROWS_WITH(set[2], contains("a/none.png: cannot be opened"));
}

TEST_CASE("image folder: a class without images keeps its label, with a warning", "[host]") {
  const TempFolder folder;
  put(folder, "a/notes.txt", "");
  put(folder, "b/1.png", "");
  put(folder, "c/.1.png", "");
  put(folder, "d/1.png", "");
  const std::string path = folder.path().string();
  const Names warnings = warnings_of([&] {
    const ImageFolder set(path);
    CHECK(set.classes() == Names{"a", "b", "c", "d"});
    CHECK(set.size() == 2);
    CHECK(set.label(0) == 1);
    CHECK(set.label(1) == 3);
  });
  CHECK(warnings == Names{"[ImageFolder] " + path +
                          ": 2 of 4 classes have no images: a, c; hint: they keep their labels"});
}

TEST_CASE("image folder: folders without images and options without sense are refused", "[host]") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  const auto error_of = [&](const std::string& name, ImageFolderOptions options = {}) {
    try {
      const ImageFolder set(name, options);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(error_of(path + "/none") ==
        "[ImageFolder] " + path +
            "/none: cannot be listed: No such file or directory; hint: name a folder that is there "
            "and may be read");
  CHECK(error_of(path) == "[ImageFolder] " + path +
                              ": has no folders, one for each class; hint: expected "
                              "FOLDER/CLASS/NAME.png, .jpg or .jpeg");
  const std::string file = put(folder, "1.png", "");
  CHECK_THAT(error_of(file), contains("1.png: cannot be listed: Not a directory"));
  CHECK_THAT(error_of(path), contains("has no folders"));
  put(folder, "a/1.gif", "");
  CHECK_THAT(error_of(path), contains(path + ": has no images in its 1 folders; hint: expected"));
  CHECK_THAT(error_of(path + Bytes("\0/a", 3)), contains("a NUL character"));
  put(folder, "a/1.png", "");
  CHECK(error_of(path) == "no error");
  CHECK_THAT(error_of(path, {.height = 5}),
             contains("height and width are both 0 or both 1 or more, "
                      "not 5 and 0"));
  CHECK_THAT(error_of(path, {.height = -1, .width = -1}), contains("not -1 and -1"));
  CHECK_THAT(error_of(path, {.channels = 4}), contains("channels is 0, 1 or 3, not 4"));
  CHECK_THAT(error_of(path, {.max_pixels = 0}), contains("max_pixels is 1 or more, not 0"));
}

TEST_CASE("image folder: numbers outside of a set, and a set that was moved from", "[host]") {
  const TempFolder folder;
  put(folder, "a/1.png", "");
  ImageFolder set(folder.path().string());
  CHECK_THROWS_WITH(set.path(1),
                    "[ImageFolder] sample 1 of a set of 1; hint: samples count from 0");
  CHECK_THROWS_AS(set.label(-1), Error);
  CHECK_THROWS_AS(set[1], Error);
  const ImageFolder copy = set;
  const ImageFolder moved = std::move(set);
  CHECK(moved.path(0) == copy.path(0));
  // NOLINTBEGIN(bugprone-use-after-move)
  CHECK_THROWS_AS(set.classes(), Error);
  CHECK_THROWS_AS(set.path(0), Error);
  CHECK_THROWS_AS(set.label(0), Error);
  CHECK_THROWS_AS(set.size(), Error);
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("image folder: a sample is the file's image, scaled if asked, and its label", "[host]") {
  if (!reads_png_or_warn()) return;
  const TempFolder folder;
  put_images(folder);
  const std::string path = folder.path().string();
  const ImageFolder plain(path), small(path, {.height = 5, .width = 4}),
      grey(path, {.height = 9, .width = 9, .channels = 1});
  REQUIRE(plain.size() == 30);
  for (std::int64_t i = 0; i < 30; ++i) {
    CAPTURE(i);
    const int number = static_cast<int>(i % 10 * 3 + i / 10);
    const Tensor image = image_of(number, 6 + number % 3, 8 + number % 2 * 2);
    const Tensor label = full({}, static_cast<double>(i / 10), i64);
    expect_same(plain[i], {image, label});
    expect_same(small[i], {data::resize_image(image, 5, 4, data::ImageFit::crop), label});
    const Tensor read = data::read_image(plain.path(i), {.channels = 1});
    expect_same(grey[i], {data::resize_image(read, 9, 9, data::ImageFit::crop), label});
  }
  const ImageFolder few(path, {.max_pixels = 50});
  CHECK_THROWS_WITH(few[1], contains("max_pixels = 50"));
}

TEST_CASE("image folder: loaders deliver the same batches for any number of threads", "[host]") {
  if (!reads_png_or_warn()) return;
  const TempFolder folder;
  put_images(folder);
  if (reads_jpeg_or_warn()) {
    put(folder, "ant/a.jpg", kGreyJpeg);
    put(folder, "cat/b.jpeg", kColourJpeg);
  }
  const ImageFolder set(folder.path().string(), {.height = 6, .width = 6});
  const auto loader = [&](int workers) {
    return Loader(set, {.batch = 7, .shuffle = true, .seed = 3, .workers = workers});
  };
  Loader none = loader(0), two = loader(2);
  std::int64_t seen = 0;
  for (const auto& batch : none.epoch(0)) {
    CHECK(batch.x().shape() == Shape{batch.size(), 3, 6, 6});
    const auto ids = batch.ids.to_vector<std::int64_t>();
    const auto labels = batch.y().to(Device::cpu()).to_vector<std::int64_t>();
    for (std::size_t i = 0; i < ids.size(); ++i) CHECK(labels[i] == set.label(ids[i]));
    seen += batch.size();
  }
  CHECK(seen == set.size());
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    none.seek({epoch, 0});
    CHECK(hash_of(none, epoch) == hash_of(two, epoch));
  }
}

TEST_CASE("image folder: a bad file is named, or left out if asked", "[host]") {
  if (!reads_png_or_warn()) return;
  const TempFolder folder;
  put_images(folder);
  const Bytes good = read_file(folder.file("bee/113.png"));
  const std::string bad = put(folder, "bee/113.png", good.substr(0, good.size() - 30));
  const ImageFolder set(folder.path().string(), {.height = 6, .width = 6});
  constexpr std::int64_t kBad = 14;
  REQUIRE(set.path(kBad) == bad);
  CHECK_THROWS_AS(set[kBad], IoError);
  for (const int workers : {0, 2}) {
    CAPTURE(workers);
    Loader fails(set, {.batch = 4, .workers = workers});
    std::int64_t batches = 0;
    try {
      for (const auto& batch : fails.epoch(0)) batches += batch.size() > 0 ? 1 : 0;
      FAIL("the file was read");
    } catch (const data::SampleError& e) {
      CHECK(e.index() == kBad);
      CHECK_THAT(e.what(), contains("[read_image] " + bad + ": libpng cannot read it: "));
    }
    CHECK(batches == 3);
    Loader skips(set, {.batch = 4, .workers = workers, .bad_sample = data::BadSample::skip});
    std::vector<std::int64_t> ids;
    const Names warnings = warnings_of([&] { ids = ids_of(skips, 0); });
    std::vector<std::int64_t> rest;
    for (std::int64_t i = 0; i < 30; ++i)
      if (i != kBad) rest.push_back(i);
    CHECK(ids == rest);
    CHECK(skips.stats().skipped == 1);
    REQUIRE(warnings.size() == 1);
    CHECK_THAT(warnings[0], contains(bad));
  }
}

TEST_CASE("image folder: a batch of images of two sizes says which", "[host]") {
  if (!reads_png_or_warn()) return;
  const TempFolder folder;
  put_images(folder);
  Loader loader(ImageFolder(folder.path().string()), {.batch = 2});
  CHECK_THROWS_WITH(*loader.begin(), contains("field 0 differs: [3, 6, 8] u8 cpu in sample 0, "
                                              "[3, 6, 10] u8 cpu in sample 1"));
}

TEST_CASE("image folder: splits, subsets and maps of it are sets like others", "[host]") {
  if (!reads_png_or_warn()) return;
  const TempFolder folder;
  put_images(folder);
  const ImageFolder set(folder.path().string(), {.height = 6, .width = 6});
  const auto parts = data::random_split(set, {0.8, 0.2}, 1);
  CHECK(parts[0].size() + parts[1].size() == 30);
  const data::Map noisy(data::Concat({parts[1], data::Subset(set, {3, 29, 3})}),
                        [](Sample s, Generator& g) {
                          const Tensor x = s[0].to(f32) + rand({3, 6, 6}, {.generator = &g});
                          return Sample{x, s[1]};
                        });
  REQUIRE(noisy.size() == 9);
  Loader none(noisy, {.batch = 4, .shuffle = true, .seed = 1});
  Loader two(noisy, {.batch = 4, .shuffle = true, .seed = 1, .workers = 2});
  CHECK(hash_of(none, 0) == hash_of(two, 0));
  const Sample third = noisy[6];
  CHECK(third[1].item() == static_cast<double>(set.label(3)));
  CHECK(third[0].sum().item() >= set[3][0].to(f32).sum().item());
}

TEST_CASE("image folder: an ImageDataset of it has its pixels as numbers", "[host]") {
  if (!reads_png_or_warn()) return;
  const TempFolder folder;
  put_images(folder);
  const ImageFolder set(folder.path().string(), {.height = 6, .width = 6});
  const data::ImageDataset plain(set, {.mean = 0.5f, .stddev = 0.25f});
  for (const std::int64_t i : {0, 17, 29}) {
    const Tensor want = (set[i][0].to(f64) / 255.0 - 0.5) / 0.25;
    CHECK(norm(plain[i][0].to(f64) - want).item() < 1e-5);
    CHECK(plain[i][1].item() == static_cast<double>(set.label(i)));
  }
  const data::ImageDataset augmented(set, {.augment = {.crop_padding = 2, .flip = 0.5}});
  Loader none(augmented, {.batch = 8, .shuffle = true, .seed = 1});
  Loader two(augmented, {.batch = 8, .shuffle = true, .seed = 1, .workers = 2});
  CHECK(hash_of(none, 0) == hash_of(two, 0));
  CHECK(hash_of(none, 1) == hash_of(two, 1));
}

TEST_CASE("image folder: records hold its images, or the bytes of their files", "[host]") {
  if (!reads_png_or_warn()) return;
  const TempFolder folder;
  put_images(folder);
  const ImageFolder set(folder.path().string());
  const TempFolder to;
  data::RecordWriter images(to.file("images")), files(to.file("files"));
  for (std::int64_t i = 0; i < set.size(); ++i) {
    images.write(set[i]);
    const Bytes bytes = read_file(set.path(i));
    std::vector<std::uint8_t> numbers(bytes.begin(), bytes.end());
    const auto n = static_cast<std::int64_t>(numbers.size());
    files.write({tensor(numbers, {n}), tensor(set.label(i))});
  }
  images.finish();
  files.finish();
  const data::RecordDataset pixels(to.file("images"));
  const data::Map decoded(data::RecordDataset(to.file("files")), [](const Sample& s) {
    const std::span<const std::uint8_t> bytes(s[0].data<std::uint8_t>(), s[0].bytes());
    return Sample{data::decode_image(std::as_bytes(bytes), "a record"), s[1]};
  });
  for (std::int64_t i = 0; i < set.size(); ++i) {
    CAPTURE(i);
    expect_same(pixels[i], set[i]);
    expect_same(decoded[i], set[i]);
  }
}
