// Blocks of permuted, repeated, reversed and gapped views, against a loop over index tuples. All
// memory is dirty beforehand, and what lies between the elements of a destination must stay.
#include "kernels/cpu/device/blocks.h"

#include <cstring>
#include <vector>

#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

namespace isa = kernels::cpu::FIRN_ISA;

/// A view of memory of its own, whose first element is `before` elements past the memory's begin.
struct Held {
  Shape shape;
  Strides strides;
  std::int64_t before = 0, elements = 1;
  std::vector<char> memory;

  Held(const Shape& of, const Strides& by) : shape(of), strides(by) {
    for (int i = 0; i < of.size(); ++i) {
      const std::int64_t reach = (of[i] - 1) * by[i];
      elements += std::abs(reach);
      before += std::max<std::int64_t>(-reach, 0);
    }
  }
  void fill(Rng& rng, DType t) {
    memory.resize(static_cast<std::size_t>(elements) * size_of(t));
    for (char& c : memory) c = static_cast<char>(rng.below(256));
  }
  View view(DType t) {
    return {memory.data() + before * static_cast<std::int64_t>(size_of(t)), t, Device(), shape,
            strides};
  }
  /// Returns the place of an element, in elements.
  std::int64_t at(const std::int64_t* index) const {
    std::int64_t place = before;
    for (int i = 0; i < shape.size(); ++i) place += index[i] * strides[i];
    return place;
  }
};

/// Calls fn(index) for every index tuple of a shape.
template <class Fn>
void each_index(const Shape& shape, Fn&& fn) {
  std::int64_t index[kMaxRank] = {};
  for (std::int64_t i = 0; i < shape.product(); ++i) {
    fn(static_cast<const std::int64_t*>(index));
    for (int d = shape.size() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
}

/// Draws axes in any order, with gaps. Those of a source may also be repeated or reversed.
Held random_view(Rng& rng, const Shape& shape, bool source) {
  std::vector<int> order;
  for (int i = 0; i < shape.size(); ++i)
    order.insert(order.begin() + static_cast<int>(rng.below(i + 1)), i);
  Strides strides = Dims::filled(shape.size(), 0);
  std::int64_t step = rng.below(4) == 0 ? 1 + rng.below(4) : 1;
  for (const int axis : order) {
    if (source && rng.below(5) == 0) continue;  // repeated
    strides[axis] = source && rng.below(4) == 0 ? -step : step;
    step = step * shape[axis] + (rng.below(5) == 0 ? rng.below(5) : 0);
  }
  return {shape, strides};
}

/// Draws sizes around those of tiles.
Shape random_shape(Rng& rng) {
  constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33, 65, 300, 1100};
  Shape shape;
  std::int64_t numel = 1;
  for (std::int64_t left = 1 + rng.below(5); left > 0; --left) {
    const std::int64_t size = kSizes[rng.below(std::ssize(kSizes))];
    shape.push_back(numel * size <= 20'000 ? size : 1 + rng.below(3));
    numel *= shape.back();
  }
  return shape;
}

std::vector<char> copied(const Held& from, const Held& to, std::size_t size) {
  std::vector<char> want = to.memory;
  each_index(to.shape, [&](const std::int64_t* index) {
    std::memcpy(want.data() + static_cast<std::size_t>(to.at(index)) * size,
                from.memory.data() + static_cast<std::size_t>(from.at(index)) * size, size);
  });
  return want;
}

std::string told(const Held& from, const Held& to, DType t) {
  return std::string(to_string(t)) + " " + to_string(to.shape) + " from " +
         to_string(from.strides) + " to " + to_string(to.strides);
}

void check_copy(Rng& rng, Held& from, Held& to, DType t) {
  from.fill(rng, t);
  to.fill(rng, t);
  const std::vector<char> want = copied(from, to, size_of(t));
  kernels::cpu::FIRN_ISA::copy(from.view(t), to.view(t), Stream{});
  INFO(told(from, to, t));
  CHECK(to.memory == want);
}

}  // namespace

TEST_CASE("blocks cover views of any strides once", "[host]") {
  Rng rng(1);
  for (int round = 0; round < 300; ++round) {
    const Shape shape = random_shape(rng);
    Held from = random_view(rng, shape, true), to = random_view(rng, shape, false);
    for (const DType t : {u8, bf16, f32, i64}) {
      from.fill(rng, t);
      to.fill(rng, t);
      const std::vector<char> want = copied(from, to, size_of(t));
      const Strides* const strides[] = {&to.strides, &from.strides};
      const std::int64_t limit = rng.below(2) == 0 ? 1024 : 16 * 1024;
      const isa::Blocks blocks(shape, strides, 2, limit);
      bool fits = true;
      isa::visit_size(t, [&]<class T>() {
        const T* const source = from.view(t).as<T>();
        T* const target = to.view(t).as<T>();
        for (std::int64_t c = blocks.chunks() - 1; c >= 0; --c)
          blocks.visit(c, [&](const std::int64_t* at, std::int64_t height, std::int64_t width) {
            fits = fits && height > 0 && width > 0 && height * width <= limit;
            isa::copy_block(source + at[1], blocks.steps(1), target + at[0], blocks.steps(0),
                            height, width);
          });
      });
      INFO(told(from, to, t));
      CHECK(fits);
      CHECK(to.memory == want);
    }
  }
}

TEST_CASE("copies of any strides move bits on any number of threads", "[host]") {
  Rng rng(2);
  for (int round = 0; round < 200; ++round) {
    const Threads threads(1 + round % 4);
    const Shape shape = random_shape(rng);
    Held from = random_view(rng, shape, true), to = random_view(rng, shape, false);
    for (const DType t : {boolean, f16, i32, f64}) check_copy(rng, from, to, t);
  }
}

TEST_CASE("copies of large views move bits on any number of threads", "[host]") {
  Rng rng(3);
  const Shape square{300, 301}, shuffled{2, 90, 3, 160, 3};
  for (const int n : {1, 2, 3, 4}) {
    const Threads threads(n);
    for (const DType t : {u8, bf16, f32, f64}) {
      for (const Strides& by :
           {Strides{1, 300}, Strides{-1, 300}, Strides{1, -300}, Strides{0, 1}, Strides{301, -1},
            Strides{602, 2}, Strides{2, 700}, Strides{1, 0}}) {
        Held from(square, by), to(square, {301, 1});
        check_copy(rng, from, to, t);
      }
      Held pixels(shuffled, {129'600, 160, 43'200, 1, 14'400});
      Held image(shuffled, {129'600, 1440, 480, 3, 1});
      check_copy(rng, pixels, image, t);
    }
  }
}

TEST_CASE("elementwise results do not depend on strides", "[host]") {
  // Whole numbers and their differences are exact in every dtype.
  Rng rng(4);
  const auto numbers = [&](Held& h, DType t) {
    h.fill(rng, t);
    std::vector<double> values(static_cast<std::size_t>(h.elements));
    for (double& v : values) v = static_cast<double>(rng.below(100));
    kernels::cpu::FIRN_ISA::copy({values.data(), f64, Device(), {h.elements}, {1}},
                                 {h.memory.data(), t, Device(), {h.elements}, {1}}, Stream{});
    return values;
  };
  for (int round = 0; round < 200; ++round) {
    const Threads threads(1 + round % 4);
    const Shape shape = random_shape(rng);
    Held a = random_view(rng, shape, true), b = random_view(rng, shape, true),
         out = random_view(rng, shape, false);
    for (const DType t : {f16, f32, f64, i64}) {
      const DType other = t == f16 && round % 2 == 0 ? f32 : t;
      const std::vector<double> x = numbers(a, t), y = numbers(b, other), before = numbers(out, t);
      std::vector<double> want = before;
      const bool adds = is_floating(t) && round % 3 == 0;
      each_index(shape, [&](const std::int64_t* index) {
        const auto place = [index](const Held& h) { return static_cast<std::size_t>(h.at(index)); };
        want[place(out)] = adds ? before[place(out)] + x[place(a)] : x[place(a)] - y[place(b)];
      });
      if (adds) {
        kernels::cpu::FIRN_ISA::axpby(1, a.view(t), 1, out.view(t), Stream{});
      } else {
        kernels::cpu::FIRN_ISA::binary(math::BinaryOp::sub, a.view(t), b.view(other), out.view(t),
                                       {}, Stream{});
      }
      std::vector<double> got(want.size());
      kernels::cpu::FIRN_ISA::copy({out.memory.data(), t, Device(), {out.elements}, {1}},
                                   {got.data(), f64, Device(), {out.elements}, {1}}, Stream{});
      INFO(told(a, out, t) << " and " << to_string(b.strides));
      CHECK(got == want);
    }
  }
}

TEST_CASE("triangles are runs of a row, whatever the operand's strides", "[host]") {
  Rng rng(5);
  for (int round = 0; round < 100; ++round) {
    const Threads threads(1 + round % 4);
    Shape shape = random_shape(rng);
    if (shape.size() < 2) continue;
    const std::int64_t n = shape[shape.size() - 2], m = shape.back();
    const std::int64_t diagonal = rng.below(n + m + 3) - n - 1;
    Held x = random_view(rng, shape, true), y(shape, contiguous_strides(shape));
    for (const DType t : {u8, bf16, f32, f64}) {
      x.fill(rng, t);
      y.fill(rng, t);
      for (const bool lower : {true, false}) {
        std::vector<char> want = copied(x, y, size_of(t));
        each_index(shape, [&](const std::int64_t* index) {
          const std::int64_t right = index[shape.size() - 1] - index[shape.size() - 2];
          if (lower ? right > diagonal : right < diagonal)
            std::memset(want.data() + static_cast<std::size_t>(y.at(index)) * size_of(t), 0,
                        size_of(t));
        });
        kernels::cpu::FIRN_ISA::triangle(x.view(t), y.view(t), lower, diagonal);
        INFO(told(x, y, t) << " diagonal " << diagonal << (lower ? " lower" : " upper"));
        CHECK(y.memory == want);
      }
    }
  }
}

}  // namespace firn::testing
