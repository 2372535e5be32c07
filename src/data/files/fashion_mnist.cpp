// Finds and checks the four files of FashionMNIST.
#include "firn/data/fashion_mnist.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "data/files/fashion_mnist_files.h"
#include "firn/data/idx.h"

namespace firn::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOp = "load_fashion_mnist";
constexpr const char* kFiles[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                  "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
constexpr const char* kHowToGet =
    "install the package dataset-fashion-mnist, run scripts/setup data, or name a folder";
constexpr std::int64_t kSide = 28;

/// Returns the path of the plain file, else of the .gz file; empty if neither exists.
std::string find_file(const fs::path& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    const fs::path p = folder / (name + suffix);
    std::error_code ignored;  // an unreadable folder counts as empty
    if (fs::exists(p, ignored)) return p.string();
  }
  return {};
}

bool holds_any(const fs::path& folder) {
  return std::any_of(std::begin(kFiles), std::end(kFiles),
                     [&](const char* name) { return !find_file(folder, name).empty(); });
}

std::vector<std::string> places(const std::string& folder) {
  if (!folder.empty()) return {folder};
  std::vector<std::string> all;
  if (const char* env = std::getenv("FIRN_DATA"); env != nullptr && *env != '\0') {
    all.push_back(env);
    all.push_back((fs::path(env) / "fashion-mnist").string());
  }
  all.push_back("data/fashion-mnist");
  all.push_back("/usr/share/datasets/fashion-mnist");
  return all;
}

std::string locate(const std::string& folder) {
  const auto candidates = places(folder);
  for (const auto& p : candidates)
    if (holds_any(p)) return p;
  throw IoError(kOp, candidates.front(),
                fmt::format("no FashionMNIST files (such as {}, plain or .gz) found; looked in: {}",
                            kFiles[0], fmt::join(candidates, ", ")),
                kHowToGet);
}

std::string require_file(const std::string& folder, const char* name) {
  std::string path = find_file(folder, name);
  if (path.empty()) {
    throw IoError(kOp, (fs::path(folder) / name).string(),
                  "missing, plain and as .gz, though the folder holds others of the four files",
                  kHowToGet);
  }
  return path;
}

LabelledImages load_split(const std::string& folder, const char* images_name,
                          const char* labels_name) {
  const std::string images_path = require_file(folder, images_name);
  const std::string labels_path = require_file(folder, labels_name);
  LabelledImages set{read_idx(images_path), read_idx(labels_path)};

  const Shape& shape = set.images.shape();
  if (set.images.dtype() != u8 || shape.size() != 3 || shape[1] != kSide || shape[2] != kSide ||
      shape[0] == 0) {
    throw IoError(
        kOp, images_path,
        fmt::format("wrong header at byte 2: expected [n, {}, {}] u8 with n > 0, found {} "
                    "{}",
                    kSide, kSide, shape, set.images.dtype()));
  }
  if (set.labels.dtype() != u8 || set.labels.rank() != 1) {
    throw IoError(kOp, labels_path,
                  fmt::format("wrong header at byte 2: expected [n] u8, found {} {}",
                              set.labels.shape(), set.labels.dtype()));
  }
  const std::int64_t n = set.labels.numel();
  if (n != shape[0]) {
    throw IoError(kOp, labels_path,
                  fmt::format("number of labels at byte 4: expected {} as in {}, found {}",
                              shape[0], images_path, n),
                  "the two files belong to different sets; fetch both again");
  }
  const auto* label = set.labels.data<std::uint8_t>();
  const auto* bad =
      std::find_if(label, label + n, [](std::uint8_t l) { return l >= FashionMnist::kClasses; });
  if (bad != label + n) {
    constexpr int kLabelsHeader = 8;
    throw IoError(kOp, labels_path,
                  fmt::format("label at byte {}: expected 0 to {}, found {}",
                              kLabelsHeader + (bad - label), FashionMnist::kClasses - 1, *bad));
  }
  return set;
}

}  // namespace

std::string find_fashion_mnist(const std::string& folder) try {
  std::string found = locate(folder);
  for (const char* name : kFiles) require_file(found, name);
  return found;
}
FIRN_OUT_OF_MEMORY(kOp)

FashionMnist load_fashion_mnist(const std::string& folder) try {
  FashionMnist all;
  all.folder = find_fashion_mnist(folder);
  all.train = load_split(all.folder, kFiles[0], kFiles[1]);
  all.test = load_split(all.folder, kFiles[2], kFiles[3]);
  return all;
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn::data
