// Copies, fills and sequences on the CPU.
#include "kernels/copy.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/catch.h"

namespace {

using namespace firn;
namespace cpu = kernels::cpu;

/// Number `i` as an element of T that differs from its neighbours.
template <class T>
T number(std::int64_t i) {
  if constexpr (std::is_same_v<T, bool>) {
    return i % 3 == 0;
  } else if constexpr (sizeof(T) <= 2) {
    return static_cast<T>(static_cast<float>(i % 200));
  } else {
    return static_cast<T>(i);
  }
}

template <class T>
void check_copy(const Shape& shape, const Strides& from, const Strides& to) {
  std::int64_t from_size = 1, to_size = 1;
  for (int i = 0; i < shape.size(); ++i) {
    from_size += (shape[i] - 1) * from[i];
    to_size += (shape[i] - 1) * to[i];
  }
  const auto src = std::make_unique<T[]>(static_cast<std::size_t>(from_size));
  const auto dst = std::make_unique<T[]>(static_cast<std::size_t>(to_size));
  for (std::int64_t i = 0; i < from_size; ++i) src[i] = number<T>(i);
  cpu::copy({src.get(), dtype_of<T>, {}, shape, from}, {dst.get(), dtype_of<T>, {}, shape, to}, {});
  std::int64_t index[kMaxRank] = {};
  int bad = 0;
  for (std::int64_t i = 0; i < shape.product(); ++i) {
    std::int64_t f = 0, t = 0;
    for (int d = 0; d < shape.size(); ++d) f += index[d] * from[d], t += index[d] * to[d];
    bad += static_cast<double>(dst[t]) != static_cast<double>(src[f]);
    for (int d = shape.size() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
  INFO(to_string(dtype_of<T>) << " " << to_string(shape) << " from " << to_string(from) << " to "
                              << to_string(to));
  CHECK(bad == 0);
}

template <class T>
void check_copies() {
  check_copy<T>({}, {}, {});
  check_copy<T>({5}, {1}, {1});
  check_copy<T>({50'000}, {1}, {1});
  check_copy<T>({301}, {3}, {2});
  check_copy<T>({100}, {0}, {1});
  check_copy<T>({97, 131}, {1, 97}, {131, 1});  // transpose
  check_copy<T>({97, 131}, {131, 1}, {1, 97});  // and back
  check_copy<T>({3, 97, 40}, {4000, 1, 100}, {3880, 40, 1});
  check_copy<T>({2, 9, 3, 10}, {270, 1, 90, 9}, {270, 30, 10, 1});
  check_copy<T>({7, 5}, {1, 7}, {5, 1});
  check_copy<T>({0, 3}, {3, 1}, {3, 1});
}

}  // namespace

TEST_CASE("copies within a dtype, any strides") {
  check_copies<half>();
  check_copies<bfloat16>();
  check_copies<float>();
  check_copies<double>();
  check_copies<std::int32_t>();
  check_copies<std::int64_t>();
  check_copies<std::uint8_t>();
  check_copies<bool>();
}

TEST_CASE("copies move bits, and casts keep subnormals") {
  const std::uint32_t payload[] = {0x7fc12345u, 0x7f812345u, 0x00000001u, 0x80000007u};
  std::uint32_t moved[4];
  const Shape four{4};
  cpu::copy({payload, f32, {}, four, {1}}, {moved, f32, {}, four, {1}}, {});
  CHECK(std::equal(moved, moved + 4, payload));

  const float tiny[] = {std::numeric_limits<float>::denorm_min(), -1e-40f, 1e-39f, 1.f};
  double wide[4];
  float back[4];
  cpu::copy({tiny, f32, {}, four, {1}}, {wide, f64, {}, four, {1}}, {});
  cpu::copy({wide, f64, {}, four, {1}}, {back, f32, {}, four, {1}}, {});
  for (int i = 0; i < 4; ++i) {
    CHECK(wide[i] == static_cast<double>(tiny[i]));
    CHECK(back[i] == tiny[i]);
  }
}

TEST_CASE("every dtype casts to every other") {
  const double values[] = {0, 1, 2, 7, 100};
  for (int s = 0; s < 8; ++s) {
    for (int d = 0; d < 8; ++d) {
      alignas(8) char a[40], b[40];
      double out[5];
      const auto from = static_cast<DType>(s), to = static_cast<DType>(d);
      const Shape five{5};
      cpu::copy({values, f64, {}, five, {1}}, {a, from, {}, five, {1}}, {});
      cpu::copy({a, from, {}, five, {1}}, {b, to, {}, five, {1}}, {});
      cpu::copy({b, to, {}, five, {1}}, {out, f64, {}, five, {1}}, {});
      for (int i = 0; i < 5; ++i) {
        const bool flags = from == boolean || to == boolean;
        INFO(to_string(from) << " to " << to_string(to) << ": " << values[i]);
        CHECK(out[i] == (flags ? (values[i] != 0 ? 1 : 0) : values[i]));
      }
    }
  }
  const std::int64_t big[] = {(std::int64_t{1} << 62) + 1};
  std::int64_t same[1];
  cpu::copy({big, i64, {}, {1}, {1}}, {same, i64, {}, {1}, {1}}, {});
  CHECK(same[0] == big[0]);
}

TEST_CASE("fill and arange") {
  std::vector<float> x(12, -1.f);
  cpu::fill({x.data(), f32, {}, {2, 3}, {6, 2}}, 2.5, {});
  CHECK(x == std::vector<float>{2.5, -1, 2.5, -1, 2.5, -1, 2.5, -1, 2.5, -1, 2.5, -1});
  std::vector<half> h(70'000);
  cpu::fill({h.data(), f16, {}, {70'000}, {1}}, -0.1, {});
  CHECK(h.front().bits == half(-0.1f).bits);
  CHECK(h.back().bits == half(-0.1f).bits);
  std::vector<std::uint8_t> flags(3);
  cpu::fill({flags.data(), boolean, {}, {3}, {1}}, 0.5, {});
  CHECK(flags == std::vector<std::uint8_t>{1, 1, 1});

  std::vector<std::int64_t> n(3000);
  cpu::arange({n.data(), i64, {}, {3000}, {1}}, 9007199254740992.0, -3, {});
  CHECK(n[2999] == 9007199254740992 - 3 * 2999);
  std::vector<float> f(5);
  cpu::arange({f.data(), f32, {}, {5}, {1}}, 1, 0.25, {});
  CHECK(f == std::vector<float>{1, 1.25, 1.5, 1.75, 2});
}
