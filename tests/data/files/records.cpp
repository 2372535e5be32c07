// Record files: what was written comes back, every flipped bit is found, and nothing that a file
// says is believed before it is checked.
#include "firn/data/records.h"

#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/files.h"
#include "data/loader_sets.h"
#include "firn/data/loader.h"
#include "firn/firn.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using data::Loader;
using data::RecordDataset;
using data::RecordWriter;
using data::Sample;
using firn::testing::Rng;
using firn::testing::values_of;

namespace {

using Ints = std::vector<std::int64_t>;

/// Samples of `set` in the folder `name`, in shards of that size.
std::string write_set(const TempFolder& folder, const data::Dataset& set, std::int64_t shard_bytes,
                      const std::string& name = "set") {
  const std::string path = folder.file(name);
  RecordWriter out(path, {.shard_bytes = shard_bytes});
  for (std::int64_t i = 0; i < set.size(); ++i) out.write(set[i]);
  out.finish();
  return path;
}

std::string shard(const std::string& path, int number = 0) {
  return path + "/records-0000" + std::to_string(number) + ".bin";
}
std::string index(const std::string& path) { return path + "/records.index"; }

void expect_same(const Sample& got, const Sample& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t f = 0; f < got.size(); ++f) {
    CAPTURE(f);
    CHECK(got[f].dtype() == want[f].dtype());
    CHECK(got[f].shape() == want[f].shape());
    CHECK(values_of(got[f]) == values_of(want[f]));
  }
}

/// The message of the Error that fn() throws, with PATH for `path`.
template <class Fn>
std::string error_of(const std::string& path, Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    std::string text = e.what();
    const std::size_t at = text.find(path);
    return at == std::string::npos ? text : text.replace(at, path.size(), "PATH");
  }
  return "no error";
}

/// Reads all samples one by one, and in one batch.
void read_all(const std::string& path) {
  const RecordDataset set(path);
  Ints all;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    set[i];
    all.push_back(i);
  }
  if (!all.empty()) set.collect(all);
}

/// A record with a right checksum of what it holds after it.
Bytes record(std::uint64_t number, const Bytes& body) {
  return little_endian(crc32(little_endian(number, 8) + body), 4) + body;
}

/// A set of one shard with these records.
void write_raw(const std::string& path, const std::vector<Bytes>& records) {
  Bytes file = "firn-rec" + little_endian(0, 8), ends;
  for (const Bytes& r : records) {
    file += r;
    ends += little_endian(file.size(), 8);
  }
  const Bytes list = "firn-idx" + little_endian(1, 8) + little_endian(records.size(), 8) +
                     little_endian(file.size(), 8) + little_endian(records.size(), 8) + ends;
  std::filesystem::create_directories(path);
  write_file(shard(path), file);
  write_file(index(path), list + little_endian(crc32(list), 4));
}

/// u8 [2] and i32 [].
Bytes small_body(char a, char b, std::uint32_t c) {
  return little_endian(2, 4) + Bytes("\6\1", 2) + little_endian(2, 8) + Bytes("\4\0", 2) + a + b +
         little_endian(c, 4);
}

}  // namespace

TEST_CASE("records: samples of any dtypes and shapes come back, from several shards", "[host]") {
  const TempFolder folder;
  std::vector<Sample> samples;
  Rng rng(1);
  for (int i = 0; i < 40; ++i) {
    Sample sample;
    for (const DType dtype : firn::testing::kAllDTypes) {
      Shape shape;
      for (std::int64_t rank = rng.below(4); rank > 0; --rank) shape.push_back(rng.below(4));
      sample.push_back(rand(shape).to(f32).clamp(0, 1).to(dtype));
      if (rng.below(4) == 0) break;
    }
    samples.push_back(sample);
  }
  samples.push_back({ones({1, 1, 1, 1, 1, 1, 1, 2})});
  samples.push_back({arange(6, f32).reshape({2, 3}).transpose(0, 1)});
  for (const std::int64_t shard_bytes : {1, 300, 1 << 20}) {
    CAPTURE(shard_bytes);
    const std::string path = folder.file("set" + std::to_string(shard_bytes));
    RecordWriter out(path, {.shard_bytes = shard_bytes});
    for (const Sample& sample : samples) out.write(sample);
    CHECK(out.size() == 42);
    out.finish();
    const RecordDataset set(path);
    REQUIRE(set.size() == 42);
    for (std::int64_t i = 41; i >= 0; --i)
      expect_same(set[i], samples[static_cast<std::size_t>(i)]);
    CHECK(std::filesystem::exists(shard(path, 1)) == (shard_bytes < 1000));
  }
}

TEST_CASE("records: the bytes are those of the documented format", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("set"), raw = folder.file("raw");
  RecordWriter out(path);
  out.write({tensor<std::uint8_t>({7, 8}, {2}), tensor(-2)});
  out.write({tensor<std::uint8_t>({9, 10}, {2}), tensor(3)});
  out.finish();
  write_raw(raw, {record(0, small_body(7, 8, 0xfffffffe)), record(1, small_body(9, 10, 3))});
  CHECK(read_file(shard(path)) == read_file(shard(raw)));
  CHECK(read_file(index(path)) == read_file(index(raw)));
}

TEST_CASE("records: an empty set has no samples", "[host]") {
  const TempFolder folder;
  RecordWriter out(folder.file("set"));
  out.finish();
  CHECK(RecordDataset(folder.file("set")).size() == 0);
}

TEST_CASE("records: a batch is what single samples make", "[host]") {
  const TempFolder folder;
  const data::Map source(numbered_set(200), [](Sample s) {
    s.push_back(s[1].to(f32) > full({}, 99.0));
    s.push_back(zeros({0, 2}));
    return s;
  });
  const RecordDataset set(write_set(folder, source, 1500));
  for (const Ints& ids : {Ints{0, 1, 2, 3}, Ints{199, 0, 1, 1, 2, 57, 58}, Ints{5}}) {
    std::vector<Sample> samples;
    for (const std::int64_t i : ids) samples.push_back(source[i]);
    expect_same(set.collect(ids), data::collate(samples));
  }
  Ints all(200);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  expect_same(set.collect(all), source.collect(all));
}

TEST_CASE("records: samples that differ are batched as a set of any kind would", "[host]") {
  const TempFolder folder;
  const data::Dataset source(
      9, [](std::int64_t i) { return Sample{full({i % 3 + 1}, static_cast<double>(i), f32)}; });
  const RecordDataset set(write_set(folder, source, 1 << 20));
  const Ints ids = {0, 3, 4};
  const std::string text = error_of("", [&] { set.collect(ids); });
  CHECK(text == error_of("", [&] { source.collect(ids); }));
  CHECK_THAT(text, contains("field 0 differs: [1] f32 cpu in sample 0, [2] f32 cpu in sample 4"));
  Loader padded(set, {.batch = 3, .workers = 2, .pad = true});
  Loader plain(source, {.batch = 3, .pad = true});
  CHECK(hash_of(padded, 0) == hash_of(plain, 0));
  const std::string deep = folder.file("deep");
  RecordWriter out(deep);
  out.write({ones({1, 1, 1, 1, 1, 1, 1, 1})});
  out.finish();
  CHECK_THAT(error_of("", [&] { RecordDataset(deep).collect(Ints{0}); }),
             contains("too many axes"));
}

TEST_CASE("records: loaders deliver the same batches for any number of threads", "[host]") {
  const TempFolder folder;
  const data::Dataset source = numbered_set(203);
  const RecordDataset set(write_set(folder, source, 1000));
  for (const bool shuffle : {false, true}) {
    const auto loader_of = [&](const data::Dataset& of, int workers) {
      return Loader(of, {.batch = 10, .shuffle = shuffle, .seed = 3, .workers = workers});
    };
    Loader original = loader_of(source, 0);
    const std::uint64_t first = hash_of(original, 0);
    original.seek({1, 60});
    const std::uint64_t rest = hash_of(original, 1);
    for (const int workers : {0, 1, 3}) {
      Loader loader = loader_of(set, workers);
      CHECK(hash_of(loader, 0) == first);
      loader.seek({1, 60});
      CHECK(hash_of(loader, 1) == rest);
    }
  }
}

TEST_CASE("records: threads share one set", "[host][threads]") {
  const TempFolder folder;
  const RecordDataset set(write_set(folder, numbered_set(100), 1000));
  std::vector<int> wrong(4, 0);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t)
      threads.emplace_back([&, t] {
        for (std::int64_t i = 0; i < 100; ++i)
          wrong[t] += set[i][1].to_vector<std::int64_t>() == Ints{i} ? 0 : 1;
      });
  }
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("records: a writer that does not finish leaves no set, and what it refuses", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("set");
  const Sample sample = {ones({4})};
  {
    RecordWriter out(path, {.shard_bytes = 1});
    out.write(sample);
    out.write(sample);
  }
  CHECK(std::filesystem::exists(shard(path)));
  CHECK_FALSE(std::filesystem::exists(shard(path, 1)));
  CHECK(error_of(path, [&] { RecordDataset set(path); }) ==
        "[RecordDataset] PATH: has no finished set: records.index is missing; hint: its writer did "
        "not call finish(), or the set is in another folder");
  CHECK_THROWS_AS(RecordDataset(folder.file("none")), IoError);
  RecordWriter again(path);
  CHECK_THAT(error_of(path, [&] { again.write({}); }), contains("has 1 to 255 fields, not 0"));
  CHECK_THROWS_AS(again.write(Sample(256, sample[0])), Error);
  CHECK_THAT(error_of(path,
                      [&] {
                        again.write({ones({1}), Tensor()});
                      }),
             contains("field 1 of sample 0 is undefined"));
  again.write(sample);
  again.finish();
  CHECK(RecordDataset(path).size() == 1);
  CHECK_THAT(error_of(path, [&] { again.write(sample); }), contains("PATH was finished"));
  CHECK_THROWS_AS(again.finish(), Error);
  CHECK(error_of(path, [&] { RecordWriter third(path); }) ==
        "[RecordWriter] PATH: has a finished set; hint: remove that folder, or choose another one");
  CHECK_THROWS_AS(RecordWriter(folder.file("x"), {.shard_bytes = 0}), Error);
  CHECK_THAT(error_of(path, [&] { RecordWriter nowhere(folder.file("no/folder")); }),
             contains("cannot be made: No such file"));
  RecordWriter lost(folder.file("lost"));
  std::filesystem::remove_all(folder.file("lost"));
  CHECK_THROWS_AS(lost.write(sample), IoError);
  CHECK_THAT(error_of("", [&] { lost.write(sample); }), contains("failed before"));
  CHECK_THROWS_AS(lost.finish(), Error);
  const RecordWriter moved = std::move(again);
  CHECK(moved.size() == 1);
  CHECK_THROWS_AS(again.size(), Error);  // NOLINT: that is what is tested
}

TEST_CASE("records: a damaged record is named, and may be left out", "[host]") {
  const TempFolder folder;
  const std::string path = write_set(folder, numbered_set(7), 100);
  Bytes bytes = read_file(shard(path, 2));
  bytes[bytes.size() - 1] ^= 1;
  write_file(shard(path, 2), bytes);
  const RecordDataset set(path);
  set[4];
  const std::string text = error_of(path, [&] { set[5]; });
  CHECK(text ==
        "[RecordDataset] sample 5: the record at byte 56 of PATH/records-00002.bin is damaged: its "
        "CRC-32 is 2d9addd9, and 5a9ded4f is stored; hint: the set is damaged; copy or write it "
        "again");
  CHECK(error_of(path, [&] { set.collect(Ints{3, 4, 5, 6}); }) == text);
  Loader loader(set, {.batch = 4, .bad_sample = data::BadSample::skip});
  CHECK(ids_of(loader, 0) == Ints{0, 1, 2, 3, 4, 6});
}

TEST_CASE("records: every flipped bit of a set is found, and every file that ends early",
          "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("set");
  write_raw(path, {record(0, small_body(7, 8, 9)), record(1, small_body(9, 10, 3))});
  read_all(path);
  for (const std::string& name : {shard(path), index(path)}) {
    const Bytes good = read_file(name);
    const auto expect_refused = [&](const Bytes& bytes) {
      write_file(name, bytes);
      REQUIRE_THROWS_AS(read_all(path), Error);
    };
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
      CAPTURE(name, bit);
      Bytes bytes = good;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
      expect_refused(bytes);
    }
    for (std::size_t n = 0; n < good.size(); ++n) expect_refused(good.substr(0, n));
    expect_refused(good + '\0');
    std::filesystem::remove(name);
    CHECK_THROWS_AS(RecordDataset(path), IoError);
    write_file(name, good);
  }
  read_all(path);
}

TEST_CASE("records: a mapped set has the same samples, and finds the same damage", "[host]") {
  const TempFolder folder;
  const data::Dataset source = numbered_set(203);
  const std::string path = write_set(folder, source, 1000);
  const Bytes before = read_file(shard(path, 1));
  const RecordDataset read(path), mapped(path, {.map = true});
  for (const std::int64_t i : {0, 1, 100, 202}) expect_same(mapped[i], source[i]);
  for (const bool shuffle : {false, true}) {
    const auto loader_of = [&](const data::Dataset& set, int workers) {
      return Loader(set, {.batch = 10, .shuffle = shuffle, .seed = 3, .workers = workers});
    };
    Loader want = loader_of(read, 0);
    const std::uint64_t hash = hash_of(want, 0);
    for (const int workers : {0, 2}) {
      Loader loader = loader_of(mapped, workers);
      CHECK(hash_of(loader, 0) == hash);
      CHECK(hash_of(loader, 0) == hash);  // reading changed no byte of the map
    }
  }
  // A sample outlives its set, and writing to it changes no file.
  const Tensor own = RecordDataset(path, {.map = true})[3][0];
  own.mutable_view().as<std::uint8_t>()[0] ^= 1;
  CHECK(read_file(shard(path, 1)) == before);

  Bytes bytes = before;
  bytes[bytes.size() - 1] ^= 1;
  write_file(shard(path, 1), bytes);
  const RecordDataset damaged(path), damaged_map(path, {.map = true});
  Ints all(203);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const std::string text = error_of(path, [&] { damaged.collect(all); });
  CHECK_THAT(text, contains("records-00001.bin is damaged: its CRC-32 is"));
  CHECK(error_of(path, [&] { damaged_map.collect(all); }) == text);
  CHECK_THROWS_AS(RecordDataset(folder.file("none"), {.map = true}), IoError);
}

TEST_CASE("records: shards of other places and a shard that shrinks are found", "[host]") {
  const TempFolder folder;
  const std::string path = write_set(folder, numbered_set(6), 100);
  const Bytes first = read_file(shard(path, 0)), second = read_file(shard(path, 1));
  write_file(shard(path, 0), second);
  CHECK_THAT(error_of(path, [&] { RecordDataset set(path); }),
             contains("does not begin like shard 0 of a set"));
  write_file(shard(path, 0), first.substr(0, 16) + second.substr(16));
  CHECK_THAT(error_of(path, [&] { RecordDataset{path}[0]; }), contains("is damaged: its CRC-32"));
  write_file(shard(path, 0), first);
  const RecordDataset set(path);
  std::filesystem::resize_file(shard(path, 0), 40);
  CHECK_THROWS_AS(set[0], IoError);
  CHECK_THROWS_AS(set.collect(Ints{0, 1}), data::SampleError);
}

TEST_CASE("records: one writer at a time works in a folder", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("set");
  {
    RecordWriter first(path);
    CHECK_THAT(error_of(path, [&] { RecordWriter second(path); }),
               contains("another writer is at work there"));
    first.write({ones({2})});
    first.finish();
  }
  CHECK_THAT(error_of(path, [&] { RecordWriter again(path); }), contains("has a finished set"));
  CHECK_THAT(error_of(path, [&] { RecordDataset none(path + "/no"); }), contains("is no folder"));
}

TEST_CASE("records: a hostile record with a right checksum is refused before memory is taken",
          "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("set");
  const Bytes one = little_endian(1, 4), huge = little_endian(std::uint64_t{1} << 62, 8);
  const std::pair<Bytes, const char*> cases[] = {
      {little_endian(0, 4) + "xxxx", "0 fields"},
      {little_endian(256, 4) + "xxxx", "256 fields"},
      {one + Bytes("\16\0x", 3), "field 0 has dtype 14 and 0 axes"},
      {one + Bytes("\6\11x", 3), "field 0 has dtype 6 and 9 axes"},
      {one + Bytes("\6\1x", 3), "it ends within its head"},
      {little_endian(2, 4) + Bytes("\6\0x", 3), "it ends within its head"},
      {one + Bytes("\6\1", 2) + huge, "field 0 has too many elements"},
      {one + Bytes("\6\2", 2) + huge + huge, "field 0 has too many elements"},
      {one + Bytes("\6\3", 2) + little_endian(0, 8) + huge + huge, "field 0 has too many"},
      {one + Bytes("\6\1", 2) + little_endian(1 << 30, 8), "field 0 is too large"},
      {one + Bytes("\6\1", 2) + little_endian(2, 8) + "x", "its fields take 2 bytes, and 1 are"},
      {one + Bytes("\6\1", 2) + little_endian(2, 8) + "xyz", "its fields take 2 bytes, and 3 are"},
      {one + Bytes("\7\0\2", 3), "a bool is neither 0 nor 1"}};
  const std::size_t idle = memory_stats(Device::cpu()).total.current;
  reset_peak_memory(Device::cpu());
  for (const auto& [body, want] : cases) {
    CAPTURE(want);
    write_raw(path, {record(0, body), record(1, body)});
    const RecordDataset set(path);
    const std::string text = error_of(path, [&] { set[1]; });
    CHECK_THAT(text, contains("sample 1: the record at byte ") && contains(want));
    CHECK_THROWS_AS(set.collect(Ints{0, 1}), data::SampleError);
  }
  CHECK(memory_stats(Device::cpu()).total.peak < idle + 4096);
  // The head of the first record, but other bytes behind it.
  write_raw(path, {record(0, small_body(1, 2, 3)), record(1, small_body(1, 2, 3) + "x")});
  CHECK_THROWS_AS(RecordDataset(path).collect(Ints{0, 1}), data::SampleError);
}
