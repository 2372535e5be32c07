// Checks headers against their files before anything allocates memory for tensors.
#include "io/tensor_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "io/file/file_tensor.h"
#include "io/shard_index.h"

namespace firn::io::detail {
namespace {

bool has_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

/// Returns the file that a folder stands for; returns any other path unchanged.
std::string file_of(const std::string& path) {
  if (path.find('\0') != std::string::npos || !is_folder(path)) return path;
  const std::string folder = path.back() == '/' ? path : path + "/";
  for (const std::string_view name : {kIndexName, kModelName})
    if (std::string file = folder + std::string(name); has_file(file)) return file;
  return path;
}

/// Returns true if a file of this name is an index. A safetensors file may have any name, but no
/// text begins with the number in its first eight bytes.
bool is_index(const char* op, const std::string& path) {
  if (!path.ends_with(".json")) return false;
  InputFile file(op, path);
  std::uint64_t length = 0;
  return file.read(&length, sizeof length) < sizeof length || length > kLongestHeader;
}

}  // namespace

TensorFile::TensorFile(const char* op, const std::string& path, bool map) : file_(op, path) {
  std::uint64_t length = 0;
  if (file_.bytes() < sizeof length)
    file_.fail(
        fmt::format("has {} bytes, too few for a safetensors file, whose header begins at "
                    "byte {}",
                    file_.bytes(), sizeof length));
  file_.read_all(&length, sizeof length);
  const char* const hint = "this is not a safetensors file, or it is damaged";
  if (length > file_.bytes() - sizeof length)
    file_.fail(
        fmt::format("byte 0: declares a header of {} bytes in a file of {}", length, file_.bytes()),
        hint);
  if (length > kLongestHeader)
    file_.fail(fmt::format("byte 0: declares a header of {} bytes, and at most {} are read", length,
                           kLongestHeader),
               hint);
  text_.resize(length);
  file_.read_all(text_.data(), length);
  header_ = parse_header({op, path, "header", hint}, text_);
  data_ = sizeof length + length;
  check_extents();
  if (map) map_ = file_.map();
}

/// Throws unless the entries, in the order of their bytes, follow each other without gaps and end
/// with the file.
void TensorFile::check_extents() const {
  std::vector<const Entry*> order;
  for (const Entry& e : header_.entries) order.push_back(&e);
  std::stable_sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  const auto fail = [&](const Entry& e, const std::string& what) {
    file_.fail(fmt::format("header, byte {}: {} {}", e.name.data() - text_.data(),
                           quoted_for_message(e.name), what));
  };
  std::uint64_t at = 0;
  for (const Entry* e : order) {
    const std::uint64_t want = static_cast<std::uint64_t>(e->shape.product()) * size_of(e->dtype);
    if (e->foreign.empty() && e->end - e->begin != want)
      fail(*e, fmt::format("is {} {}, which takes {} bytes, and has {}", e->shape, e->dtype, want,
                           e->end - e->begin));
    if (e->begin != at)
      fail(*e, fmt::format("begins at byte {} of the data, where {} was expected", e->begin, at));
    at = e->end;
  }
  const std::uint64_t data = file_.bytes() - data_;
  if (at != data)
    file_.fail(fmt::format("the header describes {} bytes of data, found {}, from byte {} of the "
                           "file on",
                           at, data, data_),
               "the file is truncated or damaged; fetch it again");
}

/// Throws if a byte of a bool tensor is neither 0 nor 1.
void TensorFile::check_booleans(const Entry& e, const Tensor& t) const {
  const auto* const bytes = static_cast<const unsigned char*>(t.view().data);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    if (bytes[i] > 1)
      file_.fail(fmt::format("byte {}: {} is BOOL, and its element {} is {}",
                             data_ + e.begin + static_cast<std::uint64_t>(i),
                             quoted_for_message(e.name), i, bytes[i]),
                 "the file is damaged; fetch it again");
}

Tensor TensorFile::read(const Entry& e) const {
  if (!e.foreign.empty())
    file_.fail(fmt::format("{} {}", quoted_for_message(e.name), e.foreign),
               "its other tensors can be read by name (SafetensorsFile), or into a module");
  Tensor t = file_tensor("SafetensorsFile", file_, map_, data_ + e.begin, e.shape, e.dtype);
  if (e.dtype == boolean) check_booleans(e, t);
  return t;
}

std::string TensorFile::header_text() const {
  std::string text(text_.size(), '\0');
  file_.read_at(data_ - text.size(), text.data(), text.size());
  return text;
}

TensorFiles::TensorFiles(const char* op, const std::string& path, bool map) : path_(file_of(path)) {
  if (is_index(op, path_)) {
    read_index(op, map);
  } else {
    if (path_ == path && path.find('\0') == std::string::npos && is_folder(path))
      throw IoError(op, path, "is a directory; expected a file",
                    fmt::format("it has neither {} nor {}", kIndexName, kModelName));
    files_.emplace_back(op, path_, map);
    const TensorFile& file = files_.back();
    for (const Entry& e : file.entries()) items_.push_back({&file, &e});
    metadata_ = file.header().metadata;
  }
  sort_names();
}

void TensorFiles::read_index(const char* op, bool map) {
  ShardIndex index = read_shard_index(op, path_, index_);
  const std::string folder = path_.substr(0, path_.rfind('/') + 1);
  // By file, then by position in the index: each file is searched once.
  std::vector<std::uint32_t> order(index.weights.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return index.weights[a].file < index.weights[b].file;
  });
  items_.resize(order.size());
  std::vector<const Entry*> by_name;
  std::string_view current;
  for (const std::uint32_t i : order) {
    const auto& [name, file] = index.weights[i];
    if (files_.empty() || file != current) {
      current = file;
      files_.emplace_back(op, folder + std::string(file), map);
      by_name.clear();
      for (const Entry& e : files_.back().entries()) by_name.push_back(&e);
      std::sort(by_name.begin(), by_name.end(),
                [](const Entry* a, const Entry* b) { return a->name < b->name; });
    }
    const auto found =
        std::lower_bound(by_name.begin(), by_name.end(), name,
                         [](const Entry* e, std::string_view wanted) { return e->name < wanted; });
    if (found == by_name.end() || (*found)->name != name)
      throw IoError(op, path_,
                    fmt::format("{} is said to be in {}, which does not have it",
                                quoted_for_message(name), quoted_for_message(file)),
                    "the index belongs to other files");
    items_[i] = {&files_.back(), *found};
  }
  metadata_ = std::move(index.metadata);
}

void TensorFiles::sort_names() {
  by_name_.resize(items_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return items_[a].entry->name < items_[b].entry->name;
  });
}

const TensorFiles::Item* TensorFiles::find(std::string_view name) const noexcept {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](std::uint32_t i, std::string_view wanted) { return items_[i].entry->name < wanted; });
  if (found == by_name_.end() || items_[*found].entry->name != name) return nullptr;
  return &items_[*found];
}

std::vector<std::size_t> TensorFiles::order_of_bytes() const {
  std::vector<std::size_t> order(items_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Item &x = items_[a], &y = items_[b];
    return x.file != y.file ? std::less<>()(x.file, y.file) : x.entry->begin < y.entry->begin;
  });
  return order;
}

std::vector<NamedTensor> TensorFiles::read_all() const {
  std::vector<NamedTensor> tensors(items_.size());
  for (const Item& item : items_)  // throws before elements are read
    if (!item.entry->foreign.empty()) item.read();
  for (const std::size_t i : order_of_bytes())
    tensors[i] = {std::string(items_[i].entry->name), items_[i].read()};
  return tensors;
}

std::vector<Metadata> TensorFiles::metadata() const {
  std::vector<Metadata> all;
  for (const auto& [key, value] : metadata_) all.emplace_back(key, value);
  return all;
}

}  // namespace firn::io::detail

namespace firn::io {
namespace {

constexpr const char* kOp = "SafetensorsFile";

const Entry& entry_of(const detail::TensorFiles& files, const std::string& name) {
  const auto* item = files.find(name);
  FIRN_CHECK(item, kOp, "names() lists what it has", "{} has no tensor {}", files.path(),
             quoted_for_message(name));
  return *item->entry;
}

/// Returns the entry like entry_of(), but throws IoError if no tensor can hold it.
const Entry& own_entry_of(const detail::TensorFiles& files, const std::string& name) {
  const Entry& entry = entry_of(files, name);
  if (!entry.foreign.empty())
    throw IoError(kOp, files.path(), fmt::format("{} {}", quoted_for_message(name), entry.foreign),
                  "its other tensors can be read");
  return entry;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path, const ReadOptions& options) try
    : files_(std::make_unique<const detail::TensorFiles>(kOp, path, options.map)) {}
FIRN_OUT_OF_MEMORY("SafetensorsFile")

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

std::size_t SafetensorsFile::size() const noexcept { return files_->items().size(); }

std::vector<std::string> SafetensorsFile::names() const try {
  std::vector<std::string> all;
  for (const auto& item : files_->items()) all.emplace_back(item.entry->name);
  return all;
}
FIRN_OUT_OF_MEMORY("SafetensorsFile")

bool SafetensorsFile::contains(const std::string& name) const noexcept {
  return files_->find(name) != nullptr;
}

const Shape& SafetensorsFile::shape(const std::string& name) const {
  return own_entry_of(*files_, name).shape;
}

DType SafetensorsFile::dtype(const std::string& name) const {
  return own_entry_of(*files_, name).dtype;
}

std::vector<Metadata> SafetensorsFile::metadata() const try { return files_->metadata(); }
FIRN_OUT_OF_MEMORY("SafetensorsFile")

Tensor SafetensorsFile::read(const std::string& name) const try {
  entry_of(*files_, name);
  return files_->find(name)->read();
}
FIRN_OUT_OF_MEMORY("SafetensorsFile")

std::vector<NamedTensor> SafetensorsFile::read_all() const try { return files_->read_all(); }
FIRN_OUT_OF_MEMORY("SafetensorsFile")

}  // namespace firn::io
