// The .npy format: arrays byte for byte as NumPy writes them, and files that are none.
#include <cstdint>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::error_of;
using firn::testing::values_of;

namespace {

/// A file of version `major`.0 with this dictionary and these elements.
Bytes npy(const std::string& dictionary, const Bytes& data, int major = 1) {
  std::string text = dictionary + "\n";
  return Bytes("\x93NUMPY", 6) + static_cast<char>(major) + '\0' +
         little_endian(text.size(), major == 1 ? 2 : 4) + text + data;
}

std::string dictionary(const std::string& descr, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }";
}

}  // namespace

TEST_CASE("write_npy: the bytes of the format, aligned to 64") {
  const TempFolder folder;
  const std::string path = folder.file("a.npy");
  io::write_npy(path, tensor<std::int32_t>({1, -1, 256}));
  std::string text = "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }";
  text.resize(117, ' ');
  CHECK(read_file(path) == Bytes("\x93NUMPY\x01\x00\x76\x00", 10) + text + "\n" +
                               little_endian(1, 4) + little_endian(0xffffffff, 4) +
                               little_endian(256, 4));
}

TEST_CASE("npy: every dtype and shape comes back, of views too") {
  const TempFolder folder;
  const std::string path = folder.file("a.npy");
  const std::vector<double> values = {0, 1, 1, 0, 1, 0};
  for (const DType dtype : {f16, f32, f64, i32, i64, u8, boolean, i8, i16, u16, u32}) {
    for (const Shape& shape : {Shape{6}, Shape{2, 3}, Shape{1, 2, 1, 3}}) {
      const Tensor t = testing::make(values, shape, dtype);
      io::write_npy(path, t);
      const Tensor back = io::read_npy(path);
      CHECK(back.dtype() == dtype);
      CHECK(back.shape() == shape);
      CHECK(values_of(back) == values);
      CHECK(read_file(path).size() % 64 == t.bytes() % 64);
    }
  }
  io::write_npy(path, tensor({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}, {2, 3}).transpose(0, 1));
  CHECK(values_of(io::read_npy(path)) == std::vector<double>{1, 4, 2, 5, 3, 6});
  io::write_npy(path, tensor(3.5));
  CHECK(io::read_npy(path).shape() == Shape{});
  CHECK(io::read_npy(path).item() == 3.5);
  io::write_npy(path, empty({0, 7}, i64));
  CHECK(io::read_npy(path).shape() == Shape{0, 7});
  io::write_npy(path, randn({2, 2}).set_requires_grad());
  CHECK_FALSE(io::read_npy(path).requires_grad());
}

TEST_CASE("read_npy: the other byte order, Fortran order, and versions 1 to 3") {
  const TempFolder folder;
  const auto read = [&](const Bytes& bytes) {
    return io::read_npy(write_file(folder.file("a.npy"), bytes));
  };
  CHECK(values_of(read(npy(dictionary(">i4", "(2,)"), big_endian(5, 4) + big_endian(~6u, 4)))) ==
        std::vector<double>{5, -7});
  CHECK(values_of(read(npy(dictionary(">f2", "(1,)"), Bytes("\x3c\x00", 2)))) ==
        std::vector<double>{1});
  CHECK(values_of(read(npy(dictionary(">f8", "()"), Bytes("\x3f\xf0\0\0\0\0\0\0", 8)))) ==
        std::vector<double>{1});
  CHECK(values_of(read(npy(dictionary(">u1", "(1,)"), "\x07"))) == std::vector<double>{7});
  CHECK(values_of(read(npy(dictionary("=i8", "(1,)"), little_endian(9, 8)))) ==
        std::vector<double>{9});
  for (const int major : {1, 2, 3})
    CHECK(values_of(read(npy(dictionary("|b1", "(2,)"), Bytes("\1\0", 2), major))) ==
          std::vector<double>{1, 0});

  const Tensor t = read(npy(dictionary("|u1", "(2, 3)", true), Bytes("\1\4\2\5\3\6", 6)));
  CHECK(t.shape() == Shape{2, 3});
  CHECK(t.strides() == Strides{1, 2});
  CHECK(values_of(t) == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(read(npy(dictionary("|u1", "(0, 3)", true), "")).shape() == Shape{0, 3});
  CHECK(read(npy(dictionary("|u1", "()", true), "\3")).item() == 3);
  CHECK(read(npy(dictionary("|u1", "(2,)", true), "\3\4")).is_contiguous());

  // Other writers: keys in any order, double quotes, no spaces, numbers of Python 2.
  CHECK(values_of(read(npy("{\"shape\":(1L,2L),\"descr\":\"<i4\",\"fortran_order\":False}",
                           little_endian(1, 4) + little_endian(2, 4)))) ==
        std::vector<double>{1, 2});
  CHECK(read(npy(dictionary("|u1", "( 1 , 1 , )"), "\1")).shape() == Shape{1, 1});
}

TEST_CASE("npy: bf16 is refused by name") {
  const TempFolder folder;
  const std::string path = folder.file("a.npy");
  CHECK_THAT(error_of([&] { io::write_npy(path, ones({2}, bf16)); }),
             contains("[write_npy] bf16 is not a dtype of NumPy; hint: cast it to f32"));
  CHECK_THAT(error_of([&] { io::write_npy(path, Tensor()); }), contains("write_npy"));
  CHECK_THAT(error_of([&] { io::read_npy(path); }), contains("cannot be opened"));
  for (const char* descr : {"<V2", "|V2", "bfloat16"})
    CHECK_THAT(
        error_of([&] { io::read_npy(write_file(path, npy(dictionary(descr, "(1,)"), "12"))); }),
        contains("is how bfloat16 is saved, which is not a dtype of NumPy; hint: save it as "
                 "float32, or as safetensors"));
}

TEST_CASE("read_npy: a bad file is refused, naming the byte") {
  const TempFolder folder;
  const std::string good = dictionary("|u1", "(2,)");
  const auto with = [&](const std::string& shape) { return npy(dictionary("|u1", shape), "12"); };
  struct Case {
    Bytes bytes;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {"", "ends at byte 0, within the magic string"},
           {"\x93NUM", "ends at byte 4, within the magic string, which takes bytes 0 to 7"},
           {"12345678", "byte 0 is 31, where 93 of the magic string"},
           {"\x93NUMPy\x01\x01", "byte 5 is 79, where 59 of the magic string"},
           {Bytes("\x93NUMPY\x04\0", 8), "byte 6: format version 4.0"},
           {Bytes("\x93NUMPY\x01\x02", 8), "byte 6: format version 1.2"},
           {Bytes("\x93NUMPY\x01\0\x01", 9), "ends at byte 9, within the length of the header"},
           {Bytes("\x93NUMPY\x02\0\x01\0", 10), "ends at byte 10, within the length"},
           {Bytes("\x93NUMPY\x01\0\xff\xff{", 11), "byte 8: a header of 65535 bytes"},
           {Bytes("\x93NUMPY\x02\0\xff\xff\xff\xff{", 13), "byte 8: a header of 4294967295 bytes"},
           {npy("", "12"), "header, byte 11: expected '{'"},
           {npy("[]", "12"), "header, byte 10: expected '{'"},
           {npy("{}", "12"), "the key 'descr' is missing"},
           {npy("{'descr': '|u1'}", "12"), "the key 'fortran_order' is missing"},
           {npy(good + "x", "12"), "header, byte 67: something follows the dictionary"},
           {npy("{'descr': '|u1', 'descr': '|u1'}", "12"),
            "byte 27: the key 'descr' is there twice"},
           {npy("{'color': 1}", "12"), "byte 11: unknown key \"color\""},
           {npy("{descr: '|u1'}", "12"), "byte 11: expected '\"'"},
           {npy("{'descr' '|u1'}", "12"), "byte 19: expected ':'"},
           {npy("{'descr': '|u1' 'shape': ()}", "12"), "byte 26: expected '}'"},
           {npy("{'descr': '|u1", "12"), "a string that does not end"},
           {npy("{'de\\x73cr': '|u1'}", "12"), "an escape in a string"},
           {npy("{'descr': [('a', '<f4')]}", "12"), "byte 20: the array has named fields"},
           {npy("{'fortran_order': 0}", "12"), "byte 28: expected True or False"},
           {npy(dictionary("<c8", "(2,)"), "12"),
            "byte 20: dtype \"<c8\", which firn does not have"},
           {npy(dictionary("<f4\n", "(2,)"), "12"), "dtype \"<f4\\x0a\""},
           {npy(dictionary("<u8", "(1,)"), "12345678"), "which firn does not have"},
           {npy(dictionary("", "(1,)"), "12"), "dtype \"\", which firn does not have"},
           {npy(dictionary("|O", "(1,)"), "12"), "dtype \"|O\", which firn does not have"},
           {npy(dictionary("|f4", "(1,)"), "1234"), "byte 20: dtype \"|f4\" has no byte order"},
           {npy(dictionary("!u1", "(2,)"), "12"), "has no byte order"},
           {with("2"), "expected '('"},
           {with("(2)"), "a tuple of one size has a comma"},
           {with("(-2,)"), "expected a whole number"},
           {with("(2.0,)"), "expected ',' or ')'"},
           {with("(,)"), "expected a whole number"},
           {with("(1 2)"), "byte 63: expected ',' or ')'"},
           {with("(2, None)"), "expected a whole number"},
           {with("(1,1,1,1,1,1,1,1,2)"),
            "more than 8 axes, which a tensor cannot have; hint: reshape the array"},
           {npy(dictionary("f4", "(1,)"), "1234"),
            "dtype \"f4\" has no byte order; hint: it begins with '<' or '>'"},
           {with("(99999999999999999999,)"), "a number does not fit in 64 bits"},
           {with("(4294967296, 4294967296)"), "the sizes make too many elements"},
           {with("(0, 72057594037927936)"), "the sizes make too many elements"},
           {with("(3,)"), "from byte 68 on [3] u8 takes 3 bytes, found 2"},
           {with("(1,)"), "from byte 68 on [1] u8 takes 1 bytes, found 2; hint: the file has more"},
           {npy(dictionary("|b1", "(2,)"), Bytes("\1\2", 2)),
            "byte 69 is 2, and a bool is 0 or 1"}}) {
    INFO(c.message);
    const std::string path = write_file(folder.file("bad.npy"), c.bytes);
    const std::string text = error_of([&] { io::read_npy(path); });
    CHECK_THAT(text, contains("[read_npy] " + path));
    CHECK_THAT(text, contains(c.message));
  }
  CHECK_THAT(error_of([&] { io::read_npy(folder.path().string()); }), contains("is a directory"));
}
