#include "firn/data/records.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "base/check.h"
#include "data/collate.h"
#include "data/files/record_layout.h"
#include "firn/runtime/storage.h"
#include "io/file/crc32.h"
#include "io/file/input_file.h"
#include "io/file/path.h"
#include "tensor/impl.h"

namespace firn::data {
namespace {

using io::crc32;

constexpr const char* kOp = "RecordDataset";
constexpr const char* kDamaged = "the set is damaged; copy or write it again";

struct Field {
  DType dtype = f32;
  Shape shape;
  std::size_t bytes = 0;
};

/// Contents of a record. `why` says what is wrong with it; empty if it is valid.
struct Head {
  std::vector<Field> fields;
  std::size_t bytes = 0;  ///< bytes before the elements, with the checksum
  std::string why;
};

/// Reads the head of a record of `bytes` bytes, whose elements take exactly the rest of them.
Head parse_head(const unsigned char* record, std::size_t bytes) {
  Head head;
  const auto wrong = [&](std::string why) {
    head.why = std::move(why);
    return head;
  };
  const auto count = records::get<std::uint32_t>(record + 4);
  if (count < 1 || count > records::kMostFields) return wrong(fmt::format("{} fields", count));
  head.bytes = records::kRecordHead;
  std::size_t elements = 0;  // bytes of them
  for (std::uint32_t f = 0; f < count; ++f) {
    if (bytes - head.bytes < 2) return wrong("it ends within its head");
    const unsigned code = record[head.bytes], rank = record[head.bytes + 1];
    head.bytes += 2;
    if (code >= std::size(records::kDTypes) || rank > kMaxRank)
      return wrong(fmt::format("field {} has dtype {} and {} axes", f, code, rank));
    if (bytes - head.bytes < 8 * rank) return wrong("it ends within its head");
    Field field{records::kDTypes[code], {}, 0};
    std::uint64_t bound = 1;
    for (unsigned axis = 0; axis < rank; ++axis, head.bytes += 8) {
      const auto size = records::get<std::uint64_t>(record + head.bytes);
      if (__builtin_mul_overflow(bound, size == 0 ? 1 : size, &bound) ||
          bound >= static_cast<std::uint64_t>(kMaxElements))
        return wrong(fmt::format("field {} has too many elements", f));
      field.shape.push_back(static_cast<std::int64_t>(size));
    }
    field.bytes = static_cast<std::size_t>(field.shape.product()) * size_of(field.dtype);
    if (field.bytes > bytes - elements) return wrong(fmt::format("field {} is too large", f));
    elements += field.bytes;
    head.fields.push_back(field);
  }
  if (elements != bytes - head.bytes)
    return wrong(
        fmt::format("its fields take {} bytes, and {} are there", elements, bytes - head.bytes));
  return head;
}

class Records : public DatasetSource {
 public:
  Records(const std::string& folder, const RecordReadOptions& options) {
    read_index(folder);
    for (std::uint64_t i = 0; i < shards_.size(); ++i) open_shard(folder, i, options.map);
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(ends_.size()); }

  Sample get(std::int64_t index) const override {
    const Place place = place_of(index);
    Scratch scratch;
    unsigned char* const record = bytes_at(place, place.bytes, scratch);
    verify(index, place, record);
    const Head head = checked_head(index, place, record);
    Sample sample;
    const unsigned char* from = record + head.bytes;
    for (const Field& field : head.fields) {
      sample.push_back(empty(field.shape, field.dtype, Device::cpu()));
      require_memory(kOp, sample.back());
      copy(index, place, field, from, sample.back().mutable_view().data);
      from += field.bytes;
    }
    return sample;
  }

  Sample collect(std::span<const std::int64_t> indices, const DrawContext& context) const override {
    Batch batch;
    for (std::size_t done = 0; done < indices.size();) {
      const Run run = run_at(indices.subspan(done));
      unsigned char* record = nullptr;
      try {
        record = bytes_at(run.place, run.bytes, batch.scratch);
      } catch (const IoError& e) {
        throw SampleError(indices[done], e.what());
      }
      Place place = run.place;
      for (const std::size_t end = done + run.records;;) {
        verify(indices[done], place, record);
        // If shapes differ, the default collect() throws an error that names them.
        if (!put_row(indices, done, place, record, batch))
          return DatasetSource::collect(indices, context);
        record += place.bytes;
        if (++done == end) break;
        place = place_after(place, indices[done]);
      }
    }
    return std::move(batch.fields);
  }

 private:
  struct Shard {
    std::unique_ptr<io::InputFile> file;
    std::uint64_t bytes = 0;
    std::int64_t first = 0, end = 0;  ///< its records are [first, end)
    Ref<Storage> map = {};            ///< mapped file; null: the file is read
  };
  struct Place {
    const Shard* shard = nullptr;
    std::uint64_t begin = 0;
    std::size_t bytes = 0;
  };
  /// Records that are consecutive in a shard and in a batch.
  struct Run {
    Place place;  ///< place of the first record
    std::size_t records = 0, bytes = 0;
  };
  /// Memory for records that are read, and for a number before the first record.
  class Scratch {
   public:
    unsigned char* room_for(std::size_t bytes) {
      bytes += kBefore;
      if (!memory_.defined() || memory_.bytes() < bytes)
        memory_ = empty({static_cast<std::int64_t>(bytes)}, u8, Device::cpu());
      return static_cast<unsigned char*>(memory_.mutable_view().data) + kBefore;
    }

   private:
    static constexpr std::size_t kBefore = 64;  // in bytes; it keeps the records aligned
    Tensor memory_;
  };
  struct Batch {
    Sample fields;
    Head head;  ///< head of the first record
    std::vector<unsigned char> head_bytes;
    std::size_t record_bytes = 0;
    std::vector<unsigned char*> rows;  ///< row of the next record, by field
    Scratch scratch;
  };

  void read_index(const std::string& folder);
  void open_shard(const std::string& folder, std::uint64_t number, bool map);

  Place place_of(std::int64_t index) const {
    const auto after = std::upper_bound(shards_.begin(), shards_.end(), index,
                                        [](std::int64_t i, const Shard& s) { return i < s.first; });
    const Shard& shard = *(after - 1);
    const auto at = static_cast<std::size_t>(index);
    const std::uint64_t begin = index == shard.first ? records::kShardHead : ends_[at - 1];
    return {&shard, begin, static_cast<std::size_t>(ends_[at] - begin)};
  }

  /// Returns the place of the next record of a shard.
  Place place_after(const Place& place, std::int64_t index) const {
    const std::uint64_t begin = place.begin + place.bytes;
    return {place.shard, begin,
            static_cast<std::size_t>(ends_[static_cast<std::size_t>(index)] - begin)};
  }

  /// Returns the run of the first indices that one read of moderate size covers.
  Run run_at(std::span<const std::int64_t> indices) const {
    constexpr std::size_t kMost = 1 << 18;  // bytes that stay in the second-level cache
    Run run{place_of(indices[0]), 0, 0};
    for (Place next = run.place;;) {
      run.bytes += next.bytes;
      ++run.records;
      const std::int64_t after = indices[run.records - 1] + 1;
      if (run.records == indices.size() || indices[run.records] != after ||
          after == run.place.shard->end)
        return run;
      next = place_after(next, after);
      if (run.bytes + next.bytes > kMost) return run;
    }
  }

  /// Returns the bytes from `place` on, in the mapped file or read into `scratch`.
  static unsigned char* bytes_at(const Place& place, std::size_t bytes, Scratch& scratch) {
    if (place.shard->map)
      return static_cast<unsigned char*>(place.shard->map->data()) + place.begin;
    unsigned char* const to = scratch.room_for(bytes);
    place.shard->file->read_at(place.begin, to, bytes);
    return to;
  }

  [[noreturn]] static void damaged(std::int64_t index, const Place& place, const std::string& why) {
    throw SampleError(index,
                      fmt::format("the record at byte {} of {} is damaged: {}", place.begin,
                                  place.shard->file->path(), why),
                      kDamaged, kOp);
  }

  /// Checks the CRC-32 of a record. In scratch memory, it overwrites the stored sum and the 4 bytes
  /// before it.
  static void verify(std::int64_t index, const Place& place, unsigned char* record) {
    const auto stored = records::get<std::uint32_t>(record);
    std::uint32_t crc = 0;
    if (place.shard->map) {
      crc = crc32(crc32(0, &index, sizeof index), record + sizeof crc, place.bytes - sizeof crc);
    } else {  // puts the number before the bytes: one call is faster than two
      unsigned char* const begin = record + sizeof crc - sizeof index;
      std::memcpy(begin, &index, sizeof index);
      crc = crc32(0, begin, place.bytes - sizeof crc + sizeof index);
    }
    if (crc != stored)
      damaged(index, place, fmt::format("its CRC-32 is {:08x}, and {:08x} is stored", crc, stored));
  }

  static Head checked_head(std::int64_t index, const Place& place, const unsigned char* record) {
    Head head = parse_head(record, place.bytes);
    if (!head.why.empty()) damaged(index, place, head.why);
    return head;
  }

  static void copy(std::int64_t index, const Place& place, const Field& field,
                   const unsigned char* from, void* to) {
    if (field.bytes == 0) return;
    if (field.dtype == boolean &&
        std::any_of(from, from + field.bytes, [](unsigned char byte) { return byte > 1; }))
      damaged(index, place, "a bool is neither 0 nor 1");
    std::memcpy(to, from, field.bytes);
  }

  /// Makes row i of the batch from a record. Returns false if its head differs from the first
  /// record's.
  static bool put_row(std::span<const std::int64_t> indices, std::size_t i, const Place& place,
                      const unsigned char* record, Batch& batch) {
    Head& head = batch.head;
    if (i == 0) {
      head = checked_head(indices[0], place, record);
      batch.head_bytes.assign(record + 4, record + head.bytes);
      for (const Field& field : head.fields) {
        if (field.shape.size() == kMaxRank) return false;
        Shape shape = field.shape;
        shape.insert(0, static_cast<std::int64_t>(indices.size()));
        batch.fields.push_back(empty(shape, field.dtype, Device::cpu()));
        require_memory(kOp, batch.fields.back());
        batch.rows.push_back(static_cast<unsigned char*>(batch.fields.back().mutable_view().data));
      }
      batch.record_bytes = place.bytes;
    } else if (place.bytes != batch.record_bytes ||
               std::memcmp(batch.head_bytes.data(), record + 4, batch.head_bytes.size()) != 0) {
      return false;
    }
    const unsigned char* from = record + head.bytes;
    for (std::size_t f = 0; f < head.fields.size(); ++f) {
      const Field& field = head.fields[f];
      copy(indices[i], place, field, from, batch.rows[f]);
      batch.rows[f] += field.bytes;
      from += field.bytes;
    }
    return true;
  }

  std::vector<Shard> shards_;
  std::vector<std::uint64_t> ends_;  ///< end of each record in its shard
};

void Records::read_index(const std::string& folder) {
  const std::string path = records::index_path(folder);
  io::check_path(kOp, path);
  if (::access(path.c_str(), F_OK) != 0 && ::access((folder + "/.").c_str(), F_OK) != 0)
    throw IoError(kOp, folder, fmt::format("is no folder: {}", std::strerror(errno)));
  if (::access(path.c_str(), F_OK) != 0)
    throw IoError(kOp, folder, "has no finished set: records.index is missing",
                  "its writer did not call finish(), or the set is in another folder");
  io::InputFile file(kOp, path);
  const auto wrong = [&](const std::string& what) { file.fail(what, kDamaged); };
  unsigned char head[records::kIndexHead] = {};
  if (file.read(head, sizeof head) != sizeof head ||
      std::memcmp(head, records::kIndexMagic.data(), records::kIndexMagic.size()) != 0)
    wrong("does not begin like an index of records");
  const auto shards = records::get<std::uint64_t>(head + 8),
             count = records::get<std::uint64_t>(head + 16);
  // Both numbers are bounded by the size of the file, so that the sum does not overflow.
  if (shards > file.bytes() / 16 || count > file.bytes() / 8 ||
      sizeof head + 16 * shards + 8 * count + 4 != file.bytes())
    wrong(fmt::format("an index of {} shards and {} records does not have {} bytes", shards, count,
                      file.bytes()));
  std::vector<std::uint64_t> list(2 * shards);
  ends_.resize(count);
  std::uint32_t stored = 0;
  file.read_all(list.data(), 16 * shards);
  file.read_all(ends_.data(), 8 * count);
  file.read_all(&stored, sizeof stored);
  std::uint32_t crc = crc32(0, head, sizeof head);
  crc = crc32(crc32(crc, list.data(), 16 * shards), ends_.data(), 8 * count);
  if (crc != stored) wrong(fmt::format("its CRC-32 is {:08x}, and {:08x} is stored", crc, stored));
  std::uint64_t first = 0;
  for (std::uint64_t i = 0; i < shards; ++i) {
    const std::uint64_t bytes = list[2 * i], here = list[2 * i + 1];
    if (here < 1 || here > count - first)
      wrong(fmt::format("shard {} has {} records of {}", i, here, count - first));
    std::uint64_t begin = records::kShardHead;
    for (std::uint64_t r = first; r < first + here; begin = ends_[r++])
      if (ends_[r] < begin || ends_[r] - begin < records::kSmallest)
        wrong(fmt::format("record {} has bytes {} to {} of shard {}", r, begin, ends_[r], i));
    if (begin != bytes)
      wrong(fmt::format("the records of shard {} end at byte {} of {}", i, begin, bytes));
    shards_.push_back({nullptr, bytes, static_cast<std::int64_t>(first),
                       static_cast<std::int64_t>(first + here)});
    first += here;
  }
  if (first != count) wrong(fmt::format("{} of {} records are in no shard", count - first, count));
}

void Records::open_shard(const std::string& folder, std::uint64_t number, bool map) {
  Shard& shard = shards_[number];
  shard.file = std::make_unique<io::InputFile>(kOp, records::shard_path(folder, number));
  const io::InputFile& file = *shard.file;
  if (file.bytes() != shard.bytes)
    file.fail(fmt::format("has {} bytes, and {} according to the index", file.bytes(), shard.bytes),
              kDamaged);
  unsigned char head[records::kShardHead] = {};
  file.read_at(0, head, sizeof head);
  if (std::memcmp(head, records::kShardMagic.data(), records::kShardMagic.size()) != 0 ||
      records::get<std::uint64_t>(head + 8) != number)
    file.fail(fmt::format("does not begin like shard {} of a set", number), kDamaged);
  if (map) shard.map = file.map();
}

}  // namespace

RecordDataset::RecordDataset(const std::string& folder, const RecordReadOptions& options) try
    : Dataset(std::make_shared<const Records>(folder, options)) {}
FIRN_OUT_OF_MEMORY("RecordDataset")

}  // namespace firn::data
