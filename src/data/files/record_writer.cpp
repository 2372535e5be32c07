#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <vector>

#include "base/check.h"
#include "data/files/record_layout.h"
#include "firn/autograd.h"
#include "firn/data/records.h"
#include "firn/ops/ops.h"
#include "io/file/atomic_file.h"
#include "io/file/crc32.h"
#include "io/file/locked_folder.h"
#include "io/file/path.h"

namespace firn::data {
namespace {

using io::crc32;

constexpr const char* kOp = "RecordWriter";

/// Returns the head of a record without its checksum.
std::string head_of(const std::vector<Tensor>& fields) {
  std::string head;
  records::put(head, static_cast<std::uint32_t>(fields.size()));
  for (const Tensor& field : fields) {
    const auto* const code =
        std::find(std::begin(records::kDTypes), std::end(records::kDTypes), field.dtype());
    records::put(head, static_cast<std::uint8_t>(code - std::begin(records::kDTypes)));
    records::put(head, static_cast<std::uint8_t>(field.rank()));
    for (const std::int64_t size : field.shape()) records::put(head, size);
  }
  return head;
}

}  // namespace

struct RecordWriter::State {
  struct Shard {
    std::uint64_t bytes = 0, records = 0;
  };

  std::string folder;
  std::optional<io::LockedFolder> lock;  ///< until finish()
  std::uint64_t shard_bytes = 0;
  std::vector<Shard> shards;
  std::vector<std::uint64_t> ends;     ///< end of each record in its shard
  std::optional<io::AtomicFile> file;  ///< file of the last shard
  std::string buffer;                  ///< bytes that are not in the file yet
  bool finished = false, broken = false;

  void check_open() const {
    FIRN_CHECK(!finished, kOp, "make a new writer for another set", "{} was finished", folder);
    FIRN_CHECK(!broken, kOp, "write the set again", "writing to {} failed before", folder);
  }
  void append(const void* data, std::size_t bytes) {
    constexpr std::size_t kBuffer = 1 << 20;
    if (buffer.size() + bytes > kBuffer) flush();
    if (bytes > kBuffer)
      file->write(data, bytes);
    else if (bytes > 0)
      buffer.append(static_cast<const char*>(data), bytes);
    shards.back().bytes += bytes;
  }
  void flush() {
    file->write(buffer.data(), buffer.size());
    buffer.clear();
  }
  void open_shard() {
    file.emplace(kOp, records::shard_path(folder, shards.size()));
    std::string head(records::kShardMagic);
    records::put(head, static_cast<std::uint64_t>(shards.size()));
    shards.emplace_back();
    append(head.data(), head.size());
  }
  void close_shard() {
    if (!file) return;
    flush();
    file->commit();
    file.reset();
  }
  void write_index() const {
    std::string index(records::kIndexMagic);
    index.reserve(records::kIndexHead + 16 * shards.size() + 8 * ends.size() + 4);
    records::put(index, static_cast<std::uint64_t>(shards.size()));
    records::put(index, static_cast<std::uint64_t>(ends.size()));
    for (const Shard& shard : shards) {
      records::put(index, shard.bytes);
      records::put(index, shard.records);
    }
    for (const std::uint64_t end : ends) records::put(index, end);
    records::put(index, crc32(0, index.data(), index.size()));
    io::AtomicFile out(kOp, records::index_path(folder));
    out.write(index.data(), index.size());
    out.commit();
  }
};

RecordWriter::RecordWriter(const std::string& folder, RecordOptions options) try
    : state_(std::make_unique<State>()) {
  io::refuse_dry_run(kOp);
  FIRN_CHECK(options.shard_bytes >= 1, kOp, "the default is 256 MiB",
             "shard_bytes must be at least 1, not {}", options.shard_bytes);
  io::check_path(kOp, folder);
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    throw IoError(kOp, folder, fmt::format("cannot be made: {}", std::strerror(errno)));
  state_->lock.emplace(kOp, folder, io::LockedFolder::IfLocked::fail);
  struct stat info {};
  if (::stat(records::index_path(folder).c_str(), &info) == 0)
    throw IoError(kOp, folder, "has a finished set", "remove that folder, or choose another one");
  state_->folder = folder;
  state_->shard_bytes = static_cast<std::uint64_t>(options.shard_bytes);
}
FIRN_OUT_OF_MEMORY("RecordWriter")

RecordWriter::~RecordWriter() = default;
RecordWriter::RecordWriter(RecordWriter&& other) noexcept = default;
RecordWriter& RecordWriter::operator=(RecordWriter&& other) noexcept = default;

RecordWriter::State& RecordWriter::state() const {
  FIRN_CHECK(state_, kOp, "use the object that it was moved to", "this writer was moved away");
  return *state_;
}

std::int64_t RecordWriter::size() const { return static_cast<std::int64_t>(state().ends.size()); }

void RecordWriter::write(const Sample& sample) try {
  State& s = state();
  s.check_open();
  io::refuse_dry_run(kOp);
  FIRN_CHECK(!sample.empty() && sample.size() <= records::kMostFields, kOp,
             "put several values into one tensor", "a sample has 1 to {} fields, not {}",
             records::kMostFields, sample.size());
  std::vector<Tensor> fields;
  for (const Tensor& field : sample) {
    FIRN_CHECK(field.defined(), kOp, "give a tensor for each field",
               "field {} of sample {} is undefined", fields.size(), s.ends.size());
    const NoGrad no_grad;
    fields.push_back(contiguous(to_device(field.detach(), Device::cpu())));
  }
  const std::string head = head_of(fields);
  const std::uint64_t number = s.ends.size();
  std::uint32_t crc = crc32(crc32(0, &number, sizeof number), head.data(), head.size());
  std::uint64_t bytes = sizeof crc + head.size();
  for (const Tensor& field : fields) {
    if (field.bytes() == 0) continue;
    crc = crc32(crc, field.view().data, field.bytes());
    bytes += field.bytes();
  }
  s.broken = true;
  if (s.file && s.shards.back().bytes + bytes > s.shard_bytes) s.close_shard();
  if (!s.file) s.open_shard();
  s.append(&crc, sizeof crc);
  s.append(head.data(), head.size());
  for (const Tensor& field : fields)
    if (field.bytes() > 0) s.append(field.view().data, field.bytes());
  s.ends.push_back(s.shards.back().bytes);
  ++s.shards.back().records;
  s.broken = false;
}
FIRN_OUT_OF_MEMORY("RecordWriter")

void RecordWriter::finish() try {
  State& s = state();
  s.check_open();
  io::refuse_dry_run(kOp);
  s.broken = true;
  s.close_shard();
  s.write_index();
  s.broken = false;
  s.finished = true;
  s.lock.reset();
}
FIRN_OUT_OF_MEMORY("RecordWriter")

}  // namespace firn::data
