// Where FashionMNIST is looked for, and what is checked in its four files.
#include "firn/data/fashion_mnist.h"

#include <cstdlib>
#include <optional>

#include "data/files.h"
#include "firn/error.h"
#include "support/matchers.h"

using namespace firn;
using namespace firn::test;

namespace {

/// Sets or clears a variable of the environment while alive.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Variable() { set(old_ ? old_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) {
    if (value != nullptr) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

/// Makes a folder the current one while alive.
class CurrentFolder {
 public:
  explicit CurrentFolder(const std::filesystem::path& p) : old_(std::filesystem::current_path()) {
    std::filesystem::current_path(p);
  }
  ~CurrentFolder() { std::filesystem::current_path(old_); }
  CurrentFolder(const CurrentFolder&) = delete;
  CurrentFolder& operator=(const CurrentFolder&) = delete;

 private:
  std::filesystem::path old_;
};

void write_set(const std::filesystem::path& folder, int train, int test, bool compress = false) {
  write_split(folder, "train", train, compress);
  write_split(folder, "t10k", test, compress);
}

std::string error_of(const std::string& folder) {
  try {
    data::load_fashion_mnist(folder);
    return {};
  } catch (const IoError& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("FashionMNIST: four files, plain or .gz, become two sets") {
  const TempFolder folder;
  for (const bool compress : {false, true}) {
    const auto path = folder.path() / (compress ? "packed" : "plain");
    write_set(path, 30, 12, compress);
    const auto set = data::load_fashion_mnist(path.string());
    CHECK(set.folder == path.string());
    CHECK(set.train.size() == 30);
    CHECK(set.train.images.shape() == Shape{30, 28, 28});
    CHECK(set.train.images.dtype() == u8);
    CHECK(set.test.size() == 12);
    CHECK(set.test.labels.to_vector<int>() == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1});
  }
}

TEST_CASE("FashionMNIST: places are tried in order: argument, $FIRN_DATA, data/fashion-mnist") {
  const TempFolder folder;
  const auto& root = folder.path();
  write_set(root / "argument", 11, 1);
  write_set(root / "variable", 12, 1);
  write_set(root / "parent" / "fashion-mnist", 13, 1);
  write_set(root / "data" / "fashion-mnist", 14, 1);
  std::filesystem::create_directories(root / "empty");
  const CurrentFolder here(root);
  const auto found = [](const std::string& argument = {}) {
    return data::load_fashion_mnist(argument).train.size();
  };
  {
    const Variable variable("FIRN_DATA", (root / "variable").c_str());
    CHECK(found((root / "argument").string()) == 11);
    CHECK(found() == 12);
  }
  {
    const Variable variable("FIRN_DATA", (root / "parent").c_str());
    CHECK(found() == 13);
  }
  for (const char* value : {static_cast<const char*>(nullptr), "", "empty"}) {
    const Variable variable("FIRN_DATA", value);
    CHECK(found() == 14);
  }
}

TEST_CASE("FashionMNIST: not found lists every place and how to get it") {
  const TempFolder folder;
  const CurrentFolder here(folder.path());
  const Variable variable("FIRN_DATA", "/nowhere");
  CHECK_THAT(error_of(folder.file("mine")),
             contains("looked in: " + folder.file("mine")) && contains("dataset-fashion-mnist"));
  // A folder that is named is the only one that counts.
  CHECK(error_of(folder.file("mine")).find("/nowhere") == std::string::npos);
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    CHECK_THAT(error_of({}), contains("looked in: /nowhere, /nowhere/fashion-mnist, "
                                      "data/fashion-mnist, /usr/share/datasets/fashion-mnist"));
  } else {
    CHECK(data::load_fashion_mnist().folder == "/usr/share/datasets/fashion-mnist");
  }
}

TEST_CASE("FashionMNIST: a missing, truncated or foreign file is named") {
  const TempFolder folder;
  write_set(folder.path(), 20, 10);
  const std::string images = folder.file("train-images-idx3-ubyte");
  const std::string labels = folder.file("train-labels-idx1-ubyte");
  const Bytes good_images = read_file(images);
  const Bytes good_labels = read_file(labels);

  std::filesystem::remove(labels);
  CHECK_THAT(error_of(folder.path().string()), contains(labels) && contains("missing"));
  write_file(labels, good_labels);

  write_file(images, good_images.substr(0, 1000));
  CHECK_THAT(error_of(folder.path().string()),
             contains(images) &&
                 contains("declare [20, 28, 28] u8: expected 15680 bytes of data, found only 984"));
  write_file(images, idx_header(0x08, {20, 27, 28}) + Bytes(std::size_t{20} * 27 * 28, 'x'));
  CHECK_THAT(error_of(folder.path().string()),
             contains("expected [n, 28, 28] u8 with n > 0, found [20, 27, 28] u8"));
  write_file(images, idx_header(0x08, {0, 28, 28}));
  CHECK_THAT(error_of(folder.path().string()), contains("found [0, 28, 28] u8"));
  write_file(images, good_images);

  write_file(labels, idx_header(0x08, {19}) + Bytes(19, '\1'));
  CHECK_THAT(error_of(folder.path().string()),
             contains(labels) && contains("expected 20 as in " + images + ", found 19"));
  write_file(labels, idx_header(0x08, {20, 1}) + Bytes(20, '\1'));
  CHECK_THAT(error_of(folder.path().string()), contains("expected [n] u8, found [20, 1] u8"));
  Bytes bad_label = good_labels;
  bad_label[8 + 5] = 10;
  write_file(labels, bad_label);
  CHECK_THAT(error_of(folder.path().string()),
             contains("label at byte 13: expected 0 to 9, found 10"));
  write_file(labels, good_labels);
  CHECK(error_of(folder.path().string()).empty());
}

TEST_CASE("FashionMNIST: the real set, where it is installed") {
  const std::string package = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(package)) {
    WARN("skipped: package dataset-fashion-mnist is not installed");
    return;
  }
  const auto set = data::load_fashion_mnist(package);
  CHECK(set.train.images.shape() == Shape{60'000, 28, 28});
  CHECK(set.test.images.shape() == Shape{10'000, 28, 28});
  std::vector<int> per_class(10);
  for (const int l : set.test.labels.to_vector<int>()) ++per_class[static_cast<std::size_t>(l)];
  CHECK(per_class == std::vector<int>(10, 1000));
  CHECK(data::FashionMnist::kClassNames[static_cast<std::size_t>(
            set.train.labels.data<std::uint8_t>()[0])] == "Ankle boot");
}
