// What people read: printed tensors, to the character.
#include <sstream>

#include "support/catch.h"
#include "support/values.h"

using namespace firn;

TEST_CASE("printing: a scalar", "[tensor][host]") {
  CHECK(to_string(tensor(std::vector<float>{2.5f}, {})) == "2.5000\n[] f32 cpu");
  CHECK(to_string(tensor(std::vector<std::int64_t>{7}, {})) == "7\n[] i64 cpu");
}

TEST_CASE("printing: i64 beyond what a double holds", "[tensor][host]") {
  CHECK(to_string(tensor({INT64_MAX, INT64_MIN, (std::int64_t{1} << 53) + 1})) ==
        "[ 9223372036854775807, -9223372036854775808,     9007199254740993]\n[3] i64 cpu");
}

TEST_CASE("printing: one axis", "[tensor][host]") {
  CHECK(to_string(tensor({1.f, -2.5f, 3.f})) == "[ 1.0000, -2.5000,  3.0000]\n[3] f32 cpu");
  CHECK(to_string(tensor({1.f, 2.f})) == "[1., 2.]\n[2] f32 cpu");  // whole numbers keep a dot
  CHECK(to_string(tensor({std::int32_t{5}, std::int32_t{-17}})) == "[  5, -17]\n[2] i32 cpu");
}

TEST_CASE("printing: two and three axes", "[tensor][host]") {
  CHECK(to_string(tensor(std::vector<float>{1, 2, 3, 4}, {2, 2})) ==
        "[[1., 2.],\n [3., 4.]]\n[2, 2] f32 cpu");
  CHECK(to_string(tensor(std::vector<std::int64_t>{1, 2, 3, 4}, {2, 1, 2})) ==
        "[[[1, 2]],\n\n [[3, 4]]]\n[2, 1, 2] i64 cpu");
}

TEST_CASE("printing: large tensors show three items at each end of every axis", "[tensor][host]") {
  CHECK(to_string(arange(1000)) == "[  0,   1,   2, ..., 997, 998, 999]\n[1000] i64 cpu");
  const std::string text = to_string(reshape(arange(10000, f32), {100, 100}));
  CHECK(text ==
        "[[   0.,    1.,    2., ...,   97.,   98.,   99.],\n"
        " [ 100.,  101.,  102., ...,  197.,  198.,  199.],\n"
        " [ 200.,  201.,  202., ...,  297.,  298.,  299.],\n"
        " ...,\n"
        " [9700., 9701., 9702., ..., 9797., 9798., 9799.],\n"
        " [9800., 9801., 9802., ..., 9897., 9898., 9899.],\n"
        " [9900., 9901., 9902., ..., 9997., 9998., 9999.]]\n"
        "[100, 100] f32 cpu");
}

TEST_CASE("printing: 16-bit and bool", "[tensor][host]") {
  CHECK(to_string(firn::testing::make({0.1, 1}, {2}, f16)) == "[0.1000, 1.0000]\n[2] f16 cpu");
  CHECK(to_string(firn::testing::make({0.1, 1}, {2}, bf16)) == "[0.1001, 1.0000]\n[2] bf16 cpu");
  CHECK(to_string(tensor({true, false})) == "[ true, false]\n[2] bool cpu");
}

TEST_CASE("printing: NaN, infinities, very large and very small", "[tensor][host]") {
  CHECK(to_string(tensor({NAN, 1.f, -INFINITY, INFINITY})) ==
        "[ nan,   1., -inf,  inf]\n[4] f32 cpu");
  CHECK(to_string(tensor({NAN, 1.5f})) == "[   nan, 1.5000]\n[2] f32 cpu");
  CHECK(to_string(tensor({1e-10f, 1.f})) == "[1.0000e-10, 1.0000e+00]\n[2] f32 cpu");
  CHECK(to_string(tensor({1.5e20f})) == "[1.5000e+20]\n[1] f32 cpu");
}

TEST_CASE("printing: empty, undefined, and part of a graph", "[tensor][host]") {
  CHECK(to_string(empty({0})) == "[]\n[0] f32 cpu");
  CHECK(to_string(empty({2, 0})) == "[]\n[2, 0] f32 cpu");
  CHECK(to_string(Tensor()) == "undefined tensor");
  Tensor x = tensor({1.f});
  x.set_requires_grad();
  CHECK(to_string(x) == "[1.]\n[1] f32 cpu, requires grad");
}

TEST_CASE("printing: views print what they show, streams work", "[tensor][host]") {
  const Tensor x = tensor(std::vector<float>{1, 2, 3, 4}, {2, 2});
  std::ostringstream out;
  out << transpose(x, 0, 1);
  CHECK(out.str() == "[[1., 3.],\n [2., 4.]]\n[2, 2] f32 cpu");
  CHECK(describe(x) == "[2, 2] f32 cpu");
}

TEST_CASE("printing: a tensor on a device is read back, and says where it is", "[tensor][gpu]") {
  const Tensor x = tensor({1.f, -2.5f, 3.f}, Device::cuda());
  CHECK(to_string(x) == "[ 1.0000, -2.5000,  3.0000]\n[3] f32 cuda:0");
  CHECK(to_string(slice(x, 0, 0, 3, 2)) == "[1., 3.]\n[2] f32 cuda:0");
}
