// Hostile numbers and the tensors made with them.
#include "fuzz/draw.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>

namespace fuzz {

using namespace firn;

namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kSmall = 1 << 12;

constexpr std::int64_t kHostile[] = {kMin,
                                     kMin + 1,
                                     kMax,
                                     kMax - 1,
                                     kMax / 2,
                                     kMax / 2 + 1,
                                     kMin / 2,
                                     kMax / 3 + 1,
                                     std::int64_t{1} << 31,
                                     (std::int64_t{1} << 31) - 1,
                                     -(std::int64_t{1} << 31),
                                     std::int64_t{1} << 32,
                                     (std::int64_t{1} << 32) + 1,
                                     std::int64_t{1} << 55,
                                     std::int64_t{1} << 56,
                                     (std::int64_t{1} << 56) - 1,
                                     std::int64_t{1} << 61,
                                     2635249153387078804,
                                     3037000500,
                                     65536,
                                     46341,
                                     -1,
                                     -2,
                                     0};
constexpr double kReals[] = {0.0,    -0.0,  1,      -1,     0.5,     1e-3, 1e-8,  0.9,
                             2,      3,     300,    -129,   65505,   1e10, -1e10, 1e39,
                             -1e300, 1e308, 5e-324, 9.3e18, -9.3e18, kInf, -kInf, kNan};

std::array<char, 4096> last_words{};

std::string write(double v) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.17g", v);
  return text.data();
}

}  // namespace

Draw::Draw(std::uint64_t seed) : rng_(seed) { say(""); }
Draw::~Draw() { last_words[0] = '\0'; }

const char* Draw::current() noexcept { return last_words.data(); }

void Draw::say(std::string_view words) {
  text_ += words;
  const std::size_t n = std::min(text_.size(), last_words.size() - 1);
  std::memcpy(last_words.data(), text_.data(), n);
  last_words[n] = '\0';
}

std::int64_t Draw::integer(std::int64_t low, std::int64_t high) {
  constexpr std::int64_t kFar = std::int64_t{1} << 40;  // bounds may be hostile themselves
  const std::int64_t from = std::clamp(low, -kFar, kFar), to = std::clamp(high, from, kFar);
  if (!chance(12)) return from + below(to - from + 1);
  if (chance(10)) return static_cast<std::int64_t>(rng_.next());
  return kHostile[below(std::size(kHostile))];
}

double Draw::real_number() {
  return chance(50) ? rng_.uniform(-3, 3) : kReals[below(std::size(kReals))];
}

Dims Draw::list(int length, std::int64_t low, std::int64_t high) {
  Dims d;
  for (int i = 0; i < length && i < kMaxRank; ++i) d.push_back(integer(low, high));
  return d;
}

Shape Draw::small_shape(int least_rank, int most_rank) {
  const auto rank =
      least_rank +
      below((chance(85) ? std::min(most_rank, least_rank + 4) : most_rank) - least_rank + 1);
  Shape shape;
  std::int64_t left = kSmall;
  for (int i = 0; i < rank; ++i) {
    const std::int64_t n =
        chance(5) ? 0 : 1 + below(std::min<std::int64_t>(chance(10) ? 33 : 5, left));
    shape.push_back(n);
    left /= std::max<std::int64_t>(n, 1);
  }
  return shape;
}

// ---- Named ----

std::int64_t Draw::number(std::string_view name, std::int64_t low, std::int64_t high) {
  const std::int64_t n = integer(low, high);
  say(" " + std::string(name) + "=" + std::to_string(n));
  return n;
}
double Draw::real(std::string_view name) {
  const double v = real_number();
  say(" " + std::string(name) + "=" + write(v));
  return v;
}
bool Draw::flag(std::string_view name) {
  const bool on = chance(50);
  say(" " + std::string(name) + (on ? "=true" : "=false"));
  return on;
}
DType Draw::dtype(std::string_view name) {
  const DType t = static_cast<DType>(below(kDTypes));
  say(" " + std::string(name) + "=" + to_string(t));
  return t;
}
Dims Draw::numbers(std::string_view name, int length, std::int64_t low, std::int64_t high) {
  const Dims d = list(length, low, high);
  say(" " + std::string(name) + "=" + to_string(d));
  return d;
}
std::int64_t Draw::axis(const Tensor& x) {
  return number("axis", -x.rank(), x.rank() - (x.rank() > 0));
}
Dims Draw::axes(const Tensor& x) {
  const int count = static_cast<int>(below(std::min(3, x.rank() + 1)));
  return numbers("axes", count, -x.rank(), x.rank() - (x.rank() > 0));
}

// ---- Tensors ----

bool is_small(const Tensor& t) { return t.defined() && t.numel() <= 16 * kSmall; }

Tensor Draw::filled(const Shape& shape, DType dtype) {
  Tensor t = empty(shape, dtype);
  const bool hostile = chance(30);
  visit(dtype, [&]<class T>() {
    T* const p = t.data<T>();
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      const bool odd = hostile && chance(20);
      if constexpr (std::is_same_v<T, bool>) {
        p[i] = chance(50);
      } else if constexpr (std::is_integral_v<T>) {
        p[i] = static_cast<T>(odd ? integer(-3, 3) : below(7));
      } else {
        const double v = odd ? real_number() : rng_.uniform(-2, 2);
        if constexpr (std::is_same_v<T, double>) {
          p[i] = v;
        } else {
          p[i] = T(static_cast<float>(v));
        }
      }
    }
  });
  return t;
}

Tensor Draw::seen_otherwise(Tensor t) {
  if (t.rank() > 1 && chance(25)) t = transpose(t, below(t.rank()), below(t.rank()));
  if (t.rank() >= 3 && t.rank() <= 5 && chance(15)) t = channels_last(t);
  if (t.rank() > 0 && chance(15)) {  // every second of an axis
    const auto axis = below(t.rank());
    t = stack({t, t}, axis + 1).flatten(axis, axis + 1).slice(axis, below(2), kMax, 2);
  }
  return t;
}

Tensor Draw::named(const Tensor& t) {
  if (!t.defined()) {
    say(" undefined");
    return t;
  }
  say(" (" + describe(t) + " strides " + to_string(t.strides()) +
      (t.requires_grad() ? " grad)" : ")"));
  return t;
}

Tensor Draw::any() {
  if (!chance(8)) return small();
  Tensor t = filled(small_shape(0, 3), one_of({f32, f64, f16, i64, u8}));
  Shape shape = t.shape();
  for (auto& n : shape)
    if (n == 1) n = std::int64_t{1} << (20 + below(30));
  while (shape.size() < 5 && chance(60)) shape.insert(0, std::int64_t{1} << (10 + below(20)));
  // Whatever is made of it must fail at once, not take seconds.
  shape.insert(0, std::int64_t{1} << 30);
  try {
    t = t.expand(shape);
  } catch (const Error&) {  // too large even to be seen
  }
  return named(t);
}

Tensor Draw::small() {
  const DType dtype = chance(60) ? one_of({f32, f64}) : static_cast<DType>(below(kDTypes));
  Tensor t = seen_otherwise(filled(small_shape(0, kMaxRank), dtype));
  if (t.rank() > 0 && chance(10)) t = t.slice(0, 0, 1).expand(t.size(0) > 0 ? t.shape() : Shape{0});
  if (is_floating(dtype) && chance(40)) t = t.detach().set_requires_grad();
  return named(t);
}

Tensor Draw::floating(int least_rank, int most_rank) {
  const DType dtype = chance(97) ? one_of({f32, f32, f64, f16, bf16}) : i64;
  return of(small_shape(least_rank, most_rank), dtype);
}

Tensor Draw::of(const Shape& wanted, DType wanted_dtype) {
  Shape shape = wanted;
  DType dtype = wanted_dtype;
  if (chance(4)) {
    if (!shape.empty() && chance(70)) {
      shape[below(shape.size())] = below(4);
    } else if (shape.size() < kMaxRank) {
      shape.push_back(1 + below(3));
    }
  }
  if (chance(3)) dtype = static_cast<DType>(below(kDTypes));
  Tensor t = seen_otherwise(filled(shape, dtype));
  if (is_floating(dtype) && chance(40)) t = t.detach().set_requires_grad();
  return named(t);
}

Tensor Draw::index(const Shape& shape, std::int64_t bound) {
  const DType dtype = chance(95) ? one_of({i64, i64, i32}) : static_cast<DType>(below(kDTypes));
  Tensor t = empty(shape, i64);
  auto* const p = t.data<std::int64_t>();
  const bool wrong = chance(10);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    p[i] = wrong && chance(20) ? integer(-2, bound) : below(std::max<std::int64_t>(bound, 1));
  return named(seen_otherwise(cast(t, dtype)));
}

Tensor Draw::maybe(const Tensor& t) {
  if (!chance(30)) return t;
  say(" -> undefined");
  return {};
}

}  // namespace fuzz
