// Scans over the lanes of a register, for kernels that give one result for each element.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/device/tile.h"
#include "kernels/math/integer.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Numbers of a compute type that are scanned at once: those of a register, or one integer.
template <class C>
struct Lanes {
  using V = tiles::Tile<C>;
  static constexpr std::int64_t kWidth = V::size;

  /// Loads the first n > 0 numbers, at most kWidth.
  static V load(const C* p, std::int64_t n) { return n >= kWidth ? V::load(p) : V::load(p, n); }
  static void store(V x, C* p, std::int64_t n) { n >= kWidth ? x.store(p) : x.store(p, n); }
  static C lane(V x, std::int64_t i) { return x.v[i]; }
  static bool any(tiles::Mask<C> m) { return tiles::bits_of(m) != 0; }
  static V counting() {
    alignas(tiles::kTileBytes) C numbers[kWidth];
    for (std::int64_t i = 0; i < kWidth; ++i) numbers[i] = static_cast<C>(i);
    return V::load(numbers);
  }
  /// Returns the last lane in every lane.
  static V last(V x) { return repeat_last(x, std::make_integer_sequence<int, kWidth>()); }
  /// Returns x moved up by `by` lanes, with those of `fill` below.
  template <int by>
  static V moved(V fill, V x) {
    return moved_by<by>(fill, x, std::make_integer_sequence<int, kWidth>());
  }

 private:
  template <int... lane>
  static V repeat_last(V x, std::integer_sequence<int, lane...>) {
    return V(__builtin_shufflevector(x.v, x.v, (lane * 0 + static_cast<int>(kWidth) - 1)...));
  }
  template <int by, int... lane>
  static V moved_by(V fill, V x, std::integer_sequence<int, lane...>) {
    return V(__builtin_shufflevector(fill.v, x.v,
                                     (lane < by ? lane : static_cast<int>(kWidth) + lane - by)...));
  }
};
template <>
struct Lanes<std::int64_t> {
  using V = math::Wrapping;
  static constexpr std::int64_t kWidth = 1;

  static V load(const std::int64_t* p, std::int64_t) { return V(*p); }
  static void store(V x, std::int64_t* p, std::int64_t) { *p = x.n; }
  static std::int64_t lane(V x, std::int64_t) { return x.n; }
  static bool any(bool condition) { return condition; }
  static V counting() { return V(0); }
  static V last(V x) { return x; }
};

/// Joins every lane of a scan's state with the lanes below it. In S::join(a, b), a comes first. If
/// several lines lie in a register, `place` has the number of each lane in its line.
template <class S, class C, int by = 1>
typename S::State scan_lanes(typename S::State s, const typename Lanes<C>::V* place = nullptr) {
  using L = Lanes<C>;
  if constexpr (by < L::kWidth) {
    const auto move = [place](auto fill, auto x) {
      const auto moved = L::template moved<by>(fill, x);
      return place ? where(*place >= decltype(x)(by), moved, fill) : moved;
    };
    s = S::join(S::moved(s, move), s);
    return scan_lanes<S, C, 2 * by>(s, place);
  } else {
    return s;
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
