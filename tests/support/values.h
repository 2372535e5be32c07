// Values for tests: a small random generator of its own, tensors with chosen values in any dtype,
// memory layout and device, and a comparison that says where and by how much.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "firn/firn.h"

namespace firn::testing {

/// Splitmix64 (Steele et al. 2014): apart from firn's own generator, the same numbers everywhere.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [low, high).
  double uniform(double low, double high) noexcept {
    return low + (high - low) * (static_cast<double>(next() >> 11) * 0x1p-53);
  }
  std::int64_t below(std::int64_t n) noexcept {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }
  std::vector<double> uniforms(std::int64_t count, double low, double high);

 private:
  std::uint64_t state_;
};

/// Every dtype, in the order of the enum.
inline constexpr auto kAllDTypes = [] {
  std::array<DType, kDTypes> all{};
  for (int i = 0; i < kDTypes; ++i) all[static_cast<std::size_t>(i)] = static_cast<DType>(i);
  return all;
}();

/// A fixed seed for a name (FNV-1a), so that a test's numbers do not depend on the tests around it.
std::uint64_t seed_of(std::string_view name) noexcept;

/// How a tensor's elements lie in memory. What lies between them is NaN (a large index for
/// integers), so that a kernel that reads beside its view is found out.
enum class Layout {
  contiguous,
  transposed,     ///< column-major
  channels_last,  ///< axis 1 fastest; column-major where the rank is not 3 to 5
  stepped,        ///< every second element of longer rows: no two axes can be merged
  offset,         ///< row-major, one element after the aligned start of the memory
  expanded,       ///< stride 0 along the first axis: the values must repeat along it
};
const char* to_string(Layout layout) noexcept;

/// `values` in row-major order as a tensor of that dtype, layout and device.
Tensor make(const std::vector<double>& values, const Shape& shape, DType dtype = f64,
            Layout layout = Layout::contiguous, Device device = default_device());
/// The elements in row-major order, from any device.
std::vector<double> values_of(const Tensor& t);
/// Where the first element lies, to be compared only: the tensor may be on any device.
const void* address_of(const Tensor& t);
/// `values` after a round trip through `dtype`.
std::vector<double> rounded(std::vector<double> values, DType dtype);
/// `values` with those of the first position of axis 0 at every position.
std::vector<double> repeated_along_first_axis(std::vector<double> values, const Shape& shape);

/// A Catch check: |got - want| <= bound for every element (a NaN equals a NaN, an infinity itself).
/// On failure names the worst element, its values, error and bound.
void expect_close(const std::string& what, const std::vector<double>& got,
                  const std::vector<double>& want, const std::vector<double>& bound);
void expect_close(const std::string& what, const std::vector<double>& got,
                  const std::vector<double>& want, double bound);
/// Equality to the bit, but any NaN equals any NaN; -0 and 0 differ.
void expect_same(const std::string& what, const std::vector<double>& got,
                 const std::vector<double>& want);

double largest(const std::vector<double>& values) noexcept;  ///< max |v|, 0 where empty

namespace detail {
std::string no_error();
}

/// The message of the firn::Error that `fn` throws; a failed check and "" where it throws none.
template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return detail::no_error();
}

}  // namespace firn::testing
