// Headers made to cost memory or time, and files that are none.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "data/files.h"
#include "data/matchers.h"
#include "firn/firn.h"
#include "firn/io/safetensors.h"
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

TEST_CASE("load_safetensors: a long header costs its own size and a little", "[host]") {
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

TEST_CASE("load_safetensors: headers that other readers refuse", "[host]") {
  const TempFolder folder;
  const auto message = [&](const std::string& header) {
    const std::string path = write_file(folder.file("bad"), file_of(header));
    return error_of([&] { io::load_safetensors(path); });
  };
  const std::string entry = "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  CHECK_THAT(message(" {}"), contains("byte 0: expected '{'"));
  CHECK_THAT(message("{\"a\xff\":" + entry + "}"), contains("a string that is not UTF-8"));
  CHECK_THAT(message("{\"\xc0\x80\":" + entry + "}"), contains("not UTF-8"));  // too long a form
  CHECK_THAT(message("{\"\xed\xa0\x80\":" + entry + "}"), contains("not UTF-8"));  // a surrogate
  CHECK_THAT(message("{\"a\":" + entry + ",\"a\":" + entry + "}"),
             contains("the name \"a\" is used twice"));
  CHECK_THAT(message("{\"a\":" + entry + ",\"\\u0061\":" + entry + "}"),
             contains("the name \"a\" is used twice"));
  CHECK_THAT(message("{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}"),
             contains("the metadata key \"k\" is used twice"));
  CHECK_THAT(message("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}"),
             contains("\"a\" has two dtype"));
  CHECK_THAT(message("{\"a\":{\"dtype\":\"U8\",\"more\":1}}"),
             contains("\"a\" has an unknown field \"more\""));
  CHECK_THAT(message("{\"" + std::string(5000, 'n') + "\":{}}"),
             contains("...\" (5000 bytes) lacks"));
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
