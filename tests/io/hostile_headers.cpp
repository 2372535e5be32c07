// Headers made to cost memory or time, and files that are none.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "firn/io/safetensors.h"
#include "firn/io/safetensors_file.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::error_of;

namespace {

Bytes file_of(const std::string& header, std::size_t data = 0) {
  return little_endian(header.size(), 8) + header + Bytes(data, '\0');
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // sanitizers reserve terabytes of addresses
#else
constexpr bool kSanitized = false;
#endif

std::size_t address_space() {
  std::size_t pages = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%zu", &pages) != 1) pages = 0;
    std::fclose(f);
  }
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Loads in a child whose memory may grow by `bytes`. 0: loaded or refused; 1: it ran out.
int load_within(const std::string& path, std::size_t bytes) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlim_t limit = address_space() + bytes;
    const rlimit both{limit, limit};
    if (!kSanitized) ::setrlimit(RLIMIT_AS, &both);
    int result = 0;
    try {
      io::load_safetensors(path);
    } catch (const IoError&) {
    } catch (...) {
      result = 1;
    }
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

}  // namespace

TEST_CASE("load_safetensors: a long header costs its own size and a little", "[host][training]") {
  const TempFolder folder;
  const std::string path = folder.file("long.safetensors");
  constexpr std::size_t kLong = 97'000'000, kLittle = 100 << 20;
  const auto check = [&](const char* what, const std::string& header) {
    INFO(what);
    REQUIRE(header.size() <= 100'000'000);
    write_file(path, file_of(header));
    CHECK(load_within(path, header.size() + kLittle) == 0);
  };

  check("one name", "{\"" + std::string(kLong, 'n') + "\":{}}");
  std::string many = "{";
  for (int i = 0; many.size() < kLong; ++i)
    many += (i ? ",\"" : "\"") + std::to_string(i) +
            "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  check("many tensors", many + "}");
  std::string keys = "{\"__metadata__\":{";
  for (int i = 0; keys.size() < kLong; ++i)
    keys += (i ? ",\"" : "\"") + std::to_string(i) + "\":\"\"";
  check("many metadata", keys + "}}");
  std::string escapes = "{\"";
  while (escapes.size() < kLong) escapes += "\\u0041";
  check("escapes", escapes + "\":1}");
  std::string sizes = "{\"a\":{\"shape\":[1";
  while (sizes.size() < kLong) sizes += ",1";
  check("many axes", sizes + "]}}");
  check("blanks", "{" + std::string(kLong, ' ') + "}");
}

namespace {

/// A header, with '@' before the byte that its error is to name, and what the error says of it.
struct Refused {
  std::string header, why;
  std::size_t data = 0;  ///< bytes behind the header
};

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
std::string tensor_of(const std::string& shape, const std::string& offsets) {
  return entry("\"U8\"", shape, offsets);
}

const std::string kA = "\"a\":" + tensor_of("[0]", "[0,0]");

std::vector<Refused> refused_texts() {
  const std::string nul(1, '\0');
  return {
      // The object, and what stands around and between.
      {"@", "expected '{'"},
      {"@ {}", "expected '{'"},
      {"@[]", "expected '{'"},
      {"@null", "expected '{'"},
      {"@\xef\xbb\xbf{}", "expected '{'"},
      {"{@", "expected '\"'"},
      {"{@,}", "expected '\"'"},
      {"{@a:{}}", "expected '\"'"},
      {"{@'a':{}}", "expected '\"'"},
      {"{@1:{}}", "expected '\"'"},
      {"{@/* none */}", "expected '\"'"},
      {"{}@{}", "something follows the header's object"},
      {"{}@,", "something follows the header's object"},
      {"{}@" + nul, "something follows the header's object"},
      {"{\"a\"@}", "expected ':'"},
      {"{\"a\" @{}}", "expected ':'"},
      {"{\"a\"@,\"b\":{}}", "expected ':'"},
      {"{" + kA + "@", "expected '}'"},
      {"{" + kA + "@]", "expected '}'"},
      {"{" + kA + " @\"b\":{}}", "expected '}'"},
      {"{" + kA + ",@}", "expected '\"'"},
      {"{" + kA + ",@,}", "expected '\"'"},
      // Values that are no tensor.
      {"{\"a\":@}", "expected '{'"},
      {"{\"a\":@null}", "expected '{'"},
      {"{\"a\":@true}", "expected '{'"},
      {"{\"a\":@1}", "expected '{'"},
      {"{\"a\":@\"U8\"}", "expected '{'"},
      {"{\"a\":@[]}", "expected '{'"},
      {"{\"a\":@" + std::string(100'000, '['), "expected '{'"},
      {"{\"a\":{\"dtype\":@" + std::string(100'000, '{'), "expected '\"'"},
      // Names.
      {"{" + kA + ",\"@a\":" + tensor_of("[0]", "[0,0]") + "}", "the name \"a\" is used twice"},
      {"{" + kA + ",\"@\\u0061\":" + tensor_of("[0]", "[0,0]") + "}",
       "the name \"a\" is used twice"},
      {"{\"@" + std::string(5000, 'n') + "\":{}}",
       "\"" + std::string(100, 'n') + "...\" (5000 bytes) lacks dtype, shape or data_offsets"},
      // Strings.
      {"{\"a@", "the header ends too early"},
      {"{\"a\\@", "the header ends too early"},
      {"{\"\\u12@", "the header ends too early"},
      {"{\"a@\n\":{}}", "a control byte in a string"},
      {"{\"a@" + nul + "\":{}}", "a control byte in a string"},
      {"{\"@\\q\":{}}", "an unknown escape in a string"},
      {"{\"@\\U0041\":{}}", "an unknown escape in a string"},
      {"{\"\\u12@g4\":{}}", "\\u is not followed by four hexadecimal digits"},
      {"{\"\\u12@\":{}}", "\\u is not followed by four hexadecimal digits"},
      {"{\"@\\ud800x\":{}}", "half of a surrogate pair"},
      {"{\"@\\ud800\\n\":{}}", "half of a surrogate pair"},
      {"{\"a@\\ud800\\u0041\":{}}", "half of a surrogate pair"},
      {"{\"\\ud83d\\ude00@\\udc00\":{}}", "half of a surrogate pair"},
      {"{\"@\xff\":{}}", "a string that is not UTF-8"},
      {"{\"good@\x80\":{}}", "a string that is not UTF-8"},
      {"{\"\xc3\xa9@\xc3\":{}}", "a string that is not UTF-8"},
      {"{\"@\xc3\\u00a9\":{}}", "a string that is not UTF-8"},
      {"{\"\\u00e9\\n@\xe2\x82\":{}}", "a string that is not UTF-8"},
      {"{\"@\xc0\x80\":{}}", "a string that is not UTF-8"},          // NUL in two bytes
      {"{\"@\xe0\x80\x80\":{}}", "a string that is not UTF-8"},      // and in three
      {"{\"@\xed\xa0\x80\":{}}", "a string that is not UTF-8"},      // a surrogate
      {"{\"@\xf4\x90\x80\x80\":{}}", "a string that is not UTF-8"},  // beyond the last character
                                                                     // Metadata.
      {"{\"__metadata__\":@nul}", "expected '{'"},
      {"{\"__metadata__\":@[]}", "expected '{'"},
      {"{\"__metadata__\":@\"k\"}", "expected '{'"},
      {"{\"__metadata__\":{@null}}", "expected '\"'"},
      {"{\"__metadata__\":{\"k\":@null}}", "expected '\"'"},
      {"{\"__metadata__\":{\"k\":@1}}", "expected '\"'"},
      {"{\"__metadata__\":{\"k\":@{}}}", "expected '\"'"},
      {"{\"__metadata__\":{\"k\":@[\"v\"]}}", "expected '\"'"},
      {"{\"__metadata__\":{\"k\":\"@\xff\"}}", "a string that is not UTF-8"},
      {"{\"__metadata__\":{\"k\":\"\",\"@k\":\"\"}}", "the metadata key \"k\" is used twice"},
      {"{\"__metadata__\":{},\"@__metadata__\":{}}", "the name \"__metadata__\" is used twice"}};
}

std::vector<Refused> refused_entries() {
  const auto a = [](const std::string& fields) { return "{\"a\":{" + fields + "}}"; };
  const auto shape = [&](const std::string& list) {
    return "{\"a\":" + tensor_of(list, "[0,0]") + "}";
  };
  const auto offsets = [&](const std::string& list) {
    return "{\"a\":" + tensor_of("[0]", list) + "}";
  };
  const std::string lacks = "\"a\" lacks dtype, shape or data_offsets";
  const std::string sizes =
      "the sizes of \"a\" make too many elements; a tensor has fewer than 2^56, with sizes of 0 "
      "counted as 1";
  std::string ones;
  for (int i = 0; i < 1001; ++i) ones += "1,";
  const std::string pair = "the offsets of \"a\" are not a begin and an end";
  return {// Fields.
          {"{\"@a\":{}}", lacks},
          {R"({"@a":{"dtype":"U8","shape":[0]}})", lacks},
          {R"({"@a":{"dtype":"U8","data_offsets":[0,0]}})", lacks},
          {R"({"@a":{"shape":[0],"data_offsets":[0,0]}})", lacks},
          {a(R"("dtype":"U8","@dtype":"U8")"), "\"a\" has two dtype"},
          {a(R"("shape":[0],"@shape":[0])"), "\"a\" has two shape"},
          {a(R"("data_offsets":[0,0],"@data_offsets":[0,0])"), "\"a\" has two data_offsets"},
          {R"({"@a":{"dtype":"U8","more":1}})", lacks},
          {a(R"("dtype":"U8","more":@nul)"), "expected a value"},
          {R"({"@a":{"Dtype":"U8","shape":[0],"data_offsets":[0,0]}})", lacks},
          {R"({"@a":{"dtype":"u8"}})", lacks},
          {a(R"("dtype":@null)"), "expected '\"'"},
          {a(R"("dtype":@8)"), "expected '\"'"},
          {a(R"("dtype":@["U8"])"), "expected '\"'"},
          // Shapes.
          {shape("@3"), "expected '['"},
          {shape("@null"), "expected '['"},
          {shape("@\"[3]\""), "expected '['"},
          {shape("[@\"3\"]"), "expected a whole number"},
          {shape("[@null]"), "expected a whole number"},
          {shape("[@[3]]"), "expected a whole number"},
          {shape("[@-3]"), "expected a whole number"},
          {shape("[@+3]"), "expected a whole number"},
          {shape("[@.5]"), "expected a whole number"},
          {shape("[@NaN]"), "expected a whole number"},
          {shape("[3,@]"), "expected a whole number"},
          {shape("[3 @3]"), "expected ']'"},
          {shape("[3@.0]"), "expected ']'"},
          {shape("[3@e2]"), "expected ']'"},
          {shape("[0@x3]"), "expected ']'"},
          {shape("[3@}"), "expected ']'"},
          {shape("[@03]"), "a number with a zero in front"},
          {shape("[@00]"), "a number with a zero in front"},
          {shape("[@18446744073709551616]"), "a number does not fit in 64 bits"},
          {shape("[1,@99999999999999999999]"), "a number does not fit in 64 bits"},
          {shape("@[9223372036854775808]"), sizes},
          {shape("@[4294967296,4294967296]"), sizes},
          {shape("@[0,72057594037927936]"), sizes},
          {shape("@[1,1,1,1,1,1,1,1,4294967296,4294967296]"), sizes},
          {shape("[" + ones + "@1]"), "a list of more than 1000 numbers"},
          // Offsets.
          {offsets("@0"), "expected '['"},
          {offsets("@{\"begin\":0,\"end\":0}"), "expected '['"},
          {offsets("@[]"), pair},
          {offsets("@[0]"), pair},
          {offsets("@[0,0,0]"), pair},
          {offsets("@[1,0]"), pair},
          {offsets("[@-1,0]"), "expected a whole number"},
          {offsets("[0,@18446744073709551616]"), "a number does not fit in 64 bits"}};
}

/// Headers that only their file contradicts.
std::vector<Refused> refused_extents() {
  const auto two = [](const std::string& a, const std::string& b) {
    return "{\"a\":" + a + ",\"@b\":" + b + "}";
  };
  const auto one = [](const std::string& a) { return "{\"@a\":" + a + "}"; };
  return {
      {one(entry("\"F32\"", "[3]", "[0,13]")), "\"a\" is [3] f32, which takes 12 bytes, and has 13",
       13},
      {one(entry("\"F64\"", "[]", "[0,4]")), "\"a\" is [] f64, which takes 8 bytes, and has 4", 4},
      {one(tensor_of("[2,3]", "[0,5]")), "\"a\" is [2, 3] u8, which takes 6 bytes, and has 5", 6},
      {one(tensor_of("[0]", "[0,1]")), "\"a\" is [0] u8, which takes 0 bytes, and has 1", 1},
      {one(tensor_of("[1]", "[0,18446744073709551615]")),
       "\"a\" is [1] u8, which takes 1 bytes, and has 18446744073709551615", 1},
      {one(tensor_of("[1]", "[1,2]")), "\"a\" begins at byte 1 of the data, where 0 was expected",
       2},
      {one(tensor_of("[1]", "[18446744073709551614,18446744073709551615]")),
       "\"a\" begins at byte 18446744073709551614 of the data, where 0 was expected", 1},
      {one(tensor_of("[0]", "[9223372036854775808,9223372036854775808]")),
       "\"a\" begins at byte 9223372036854775808 of the data, where 0 was expected", 1},
      {two(tensor_of("[2]", "[0,2]"), tensor_of("[2]", "[1,3]")),
       "\"b\" begins at byte 1 of the data, where 2 was expected", 3},
      {two(tensor_of("[1]", "[0,1]"), tensor_of("[1]", "[0,1]")),
       "\"b\" begins at byte 0 of the data, where 1 was expected", 1},
      {two(tensor_of("[3]", "[0,3]"), tensor_of("[1]", "[1,2]")),
       "\"b\" begins at byte 1 of the data, where 3 was expected", 3},
      {two(tensor_of("[1]", "[0,1]"), tensor_of("[1]", "[2,3]")),
       "\"b\" begins at byte 2 of the data, where 1 was expected", 3}};
}

}  // namespace

TEST_CASE("load_safetensors: bad headers are refused with the byte named", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("bad");
  std::set<std::string> distinct;
  for (const auto& cases : {refused_texts(), refused_entries(), refused_extents()}) {
    for (const Refused& c : cases) {
      CAPTURE(c.header.substr(0, 200));
      const std::size_t at = c.header.find('@');
      REQUIRE(at != std::string::npos);
      std::string header = c.header;
      header.erase(at, 1);
      distinct.insert(header + " " + std::to_string(c.data));
      write_file(path, file_of(header, c.data));
      const std::string want = path + ": header, byte " + std::to_string(at) + ": " + c.why;
      const std::string text = error_of([&] { io::load_safetensors(path); });
      CHECK(text.substr(0, text.find("; hint: this is not")) == "[load_safetensors] " + want);
      CHECK_THAT(error_of([&] { io::SafetensorsFile file(path); }), contains(want));
    }
  }
  CHECK(distinct.size() >= 120);
  write_file(path, file_of("{" + kA + "}"));
  CHECK(io::load_safetensors(path).size() == 1);  // what most of them were made of
}

TEST_CASE("load_safetensors: lengths that are not the file's are refused with the byte named",
          "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("bad");
  const auto expect = [&](const Bytes& bytes, const std::string& want) {
    CAPTURE(want);
    write_file(path, bytes);
    CHECK_THAT(error_of([&] { io::load_safetensors(path); }), contains(path + ": " + want));
  };
  const auto declares = [](const std::string& length, std::size_t bytes) {
    return "byte 0: declares a header of " + length + " bytes in a file of " +
           std::to_string(bytes);
  };
  const std::string few = " bytes, too few for a safetensors file, whose header begins at byte 8";
  expect("", "has 0" + few);
  expect(Bytes(7, '\0'), "has 7" + few);
  expect(Bytes(8, '\0'), "header, byte 0: expected '{'");
  expect(little_endian(3, 8) + "{}", declares("3", 10));
  expect(little_endian(std::uint64_t{1} << 63, 8) + "{}", declares("9223372036854775808", 10));
  expect(little_endian(~std::uint64_t{7}, 8) + "{}", declares("18446744073709551608", 10));
  expect(little_endian(~std::uint64_t{0}, 8) + "{}", declares("18446744073709551615", 10));
  const std::string one = "{\"a\":" + tensor_of("[3]", "[0,3]") + "}";
  const std::string from = ", from byte " + std::to_string(8 + one.size()) + " of the file on";
  expect(file_of(one, 2), "the header describes 3 bytes of data, found 2" + from);
  expect(file_of(one, 4), "the header describes 3 bytes of data, found 4" + from);
  expect(file_of("{}", 1), "the header describes 0 bytes of data, found 1, from byte 10");
  const std::string flags = "{\"a\":" + entry("\"BOOL\"", "[3]", "[0,3]") + "}";
  expect(file_of(flags) + Bytes("\0\1\2", 3), "byte " + std::to_string(8 + flags.size() + 2) +
                                                  ": \"a\" is BOOL, and its element 2 is 2");
  write_file(path, little_endian(100'000'001, 8));
  std::filesystem::resize_file(path, 100'000'009);  // which takes no room on the disk
  CHECK_THAT(error_of([&] { io::load_safetensors(path); }),
             contains("byte 0: declares a header of 100000001 bytes, and at most 100000000"));
}

TEST_CASE("load_safetensors: what is no regular file is refused at once", "[host]") {
  const TempFolder folder;
  const std::string fifo = folder.file("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THAT(error_of([&] { io::load_safetensors(fifo); }), contains("is not a regular file"));
  CHECK_THAT(error_of([&] { io::load_safetensors(folder.path().string()); }),
             contains("is a directory"));
  CHECK_THAT(error_of([&] { io::load_safetensors("/dev/zero"); }), contains("not a regular file"));
  CHECK_THAT(error_of([&] { io::load_safetensors(folder.file("none")); }),
             contains("cannot be opened: No such file"));
}

TEST_CASE("load_safetensors: a value that the model's dtype cannot hold is refused", "[host]") {
  struct Holder : nn::Module {
    nn::Parameter w;
    nn::Buffer n;
    FIRN_MEMBERS(w, n)
  };
  const TempFolder folder;
  const std::string path = folder.file("w");
  const auto load = [&](const Tensor& w, const Tensor& n, DType w_type, DType n_type) {
    io::save_safetensors(path, std::vector<nn::NamedTensor>{{"w", w}, {"n", n}});
    Holder holder;
    holder.w = nn::Parameter(zeros(w.shape(), w_type));
    holder.n = nn::Buffer(zeros(n.shape(), n_type), nn::OnConversion::keep);
    std::string error;
    try {
      io::load_safetensors(path, holder);
    } catch (const IoError& e) {
      error = e.what();
    }
    if (!error.empty())
      CHECK(firn::testing::values_of(holder.w) == std::vector<double>(w.numel(), 0.0));
    return error;
  };
  const Tensor one = ones({1}, i64);
  Tensor w = ones({70'000});
  w.data<float>()[69'999] = 70'000;
  CHECK_THAT(load(w, one, f16, i64), contains("\"w\": element 69999 is 70000, which f16 cannot"));
  CHECK(load(w, one, bf16, i64).empty());
  w.data<float>()[69'999] = std::numeric_limits<float>::infinity();
  CHECK(load(w, one, f16, i64).empty());  // an infinity stays one
  CHECK_THAT(load(full({2}, 1e300, f64), one, f32, i64), contains("which f32 cannot hold"));
  CHECK(load(full({2}, 1e-300, f64), one, f32, i64).empty());  // rounded to 0
  CHECK_THAT(load(ones({1}), full({1}, 1e10, i64), f32, i32),
             contains("\"n\": element 0 is 10000000000"));
  CHECK_THAT(load(ones({1}), full({1}, -1, i64), f32, u8), contains("which u8 cannot hold"));
  CHECK(load(ones({1}), full({1}, 200, i64), f32, u8).empty());
}
