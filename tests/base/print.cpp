// What streams show of shapes, dtypes and devices: the same as errors.
#include <concepts>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "firn/device.h"
#include "firn/dtype.h"
#include "firn/shape.h"
#include "support/catch.h"

using namespace firn;

namespace {

template <class T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << std::left << std::setw(12) << value << '|';
  return out.str();
}

template <class T>
concept Printed = requires(std::ostream& out, const T& value) {
  { out << value } -> std::same_as<std::ostream&>;
};

}  // namespace

TEST_CASE("print: shapes, dtypes and devices on a stream", "[base]") {
  CHECK(printed(Shape{2, 3}) == "[2, 3]      |");
  CHECK(printed(Shape{}) == "[]          |");
  CHECK(printed(Strides{-1}) == "[-1]        |");
  CHECK(printed(f16) == "f16         |");
  CHECK(printed(boolean) == "bool        |");
  CHECK(printed(static_cast<DType>(99)) == "unknown dtype|");
  CHECK(printed(Device::cpu()) == "cpu         |");
  CHECK(printed(Device::cuda(1)) == "cuda:1      |");
}

TEST_CASE("print: what converts to a shape does not print as one", "[base]") {
  STATIC_REQUIRE(Printed<Shape>);
  STATIC_REQUIRE_FALSE(Printed<std::vector<int>>);
  CHECK(printed(3) == "3           |");
}
