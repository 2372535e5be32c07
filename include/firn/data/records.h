// Record files hold samples of arbitrary tensors in a few large files. They are for data sets that
// do not fit in memory or are slow to make.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "firn/data/dataset.h"

namespace firn::data {

struct RecordOptions {
  /// Size in bytes at which a shard is closed. A record is never split, so a shard exceeds this
  /// size if its last record is large.
  std::int64_t shard_bytes = std::int64_t{256} << 20;
};

/// Writes samples into a folder, which RecordDataset reads:
///
///   data::RecordWriter out("train.records");
///   for (std::int64_t i = 0; i < set.size(); ++i) out.write(set[i]);
///   out.finish();
///
/// Each file is complete or absent, and the index is written last. If a writer did not finish, the
/// set has no index and readers refuse it. Equal samples give equal bytes.
///
/// Format (integers are little-endian, and CRC-32 is zlib's):
///
///     records-00000.bin, records-00001.bin, ...: the shards
///       "firn-rec"  u64 number of the shard  records, one after the other
///     a record:
///       u32 CRC-32 of its number in the set as a u64 and of all that follows in the record
///       u32 fields (1 to 255); for each: u8 dtype, u8 rank, a u64 for each size
///       the elements of each field, row-major, without gaps
///     dtype: 0 f16, 1 bf16, 2 f32, 3 f64, 4 i32, 5 i64, 6 u8, 7 bool (a byte of 0 or 1), 8 i8,
///       9 i16, 10 u16, 11 u32, 12 f8_e4m3, 13 f8_e5m2
///     records.index:
///       "firn-idx"  u64 shards s  u64 records n
///       for each shard: u64 its bytes, u64 its records
///       for each record: u64 its end, as a byte of its shard
///       u32 CRC-32 of all bytes before
class RecordWriter {
 public:
  /// Makes the folder unless it exists, and locks it until finish() or the destructor. Throws
  /// IoError if that fails, if another writer holds the lock, or if the folder holds a finished
  /// set. Throws Error if shard_bytes < 1.
  explicit RecordWriter(const std::string& folder, RecordOptions options = {});
  /// Without finish() the set stays unfinished.
  ~RecordWriter();
  RecordWriter(RecordWriter&& other) noexcept;
  RecordWriter& operator=(RecordWriter&& other) noexcept;

  // After an object is moved from, each of its functions throws Error.

  /// Appends a sample: 1 to 255 tensors of any shapes, dtypes and devices, which may differ from
  /// those of other samples. Throws Error if a tensor is undefined, and writes nothing then. Throws
  /// IoError if a file cannot be written; each later call then throws too.
  void write(const Sample& sample);
  /// Writes the last shard and the index. Throws IoError if that fails, and Error if it was called
  /// before.
  void finish();
  /// Number of samples written so far.
  std::int64_t size() const;

 private:
  struct State;
  State& state() const;
  std::unique_ptr<State> state_;
};

struct RecordReadOptions {
  /// Maps the shards into memory, which saves a copy of every byte. Use it only for files that do
  /// not change: if another process shortens a mapped file, or the disk fails, the system ends this
  /// process with SIGBUS.
  bool map = false;
};

/// The samples that a RecordWriter wrote, in the order of writing. Each is read from its shard
/// (pread) when it is made, and its CRC-32 is verified each time. The set holds 8 bytes of memory
/// for each record, and one open file for each shard.
class RecordDataset : public Dataset {
 public:
  /// Throws IoError if the folder has no index, or the index is damaged. Throws IoError if a shard
  /// is missing, has another size than the index says, or cannot be mapped. Files that the index
  /// does not name are ignored. A sample whose record is damaged throws SampleError, naming shard
  /// and byte.
  explicit RecordDataset(const std::string& folder, const RecordReadOptions& options = {});
};

}  // namespace firn::data
