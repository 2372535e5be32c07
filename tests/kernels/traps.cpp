// Programs may trap invalid operations and divisions by 0: an elementwise kernel raises neither
// unless an element does, whatever lies in the unused lanes of the last register.
#include <cfenv>
#include <cmath>
#include <csignal>
#include <vector>

#include "kernels/elementwise.h"
#include "support/catch.h"
#include "support/formulas.h"
#include "support/values.h"

#if defined(__x86_64__) && defined(__GLIBC__)
#include <ucontext.h>

using namespace firn;
using firn::testing::args_of;
using firn::testing::formula;
using firn::testing::slope;

namespace {

constexpr int kTraps = FE_INVALID | FE_DIVBYZERO;
volatile std::sig_atomic_t trapped = 0;

/// Notes the trap, and goes on without any until the caller's mode is back.
void on_trap(int, siginfo_t*, void* context) {
  trapped = 1;
  auto* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.fpregs;
  registers->mxcsr = (registers->mxcsr | 0x1f80) & ~0x3fu;
  registers->cwd |= 0x3f;
  registers->swd &= 0x7f00;
}

/// While alive, traps are noted in `trapped`.
class Trapping {
 public:
  Trapping() {
    struct sigaction action {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGFPE, &action, &before_);
  }
  ~Trapping() { sigaction(SIGFPE, &before_, nullptr); }
  Trapping(const Trapping&) = delete;
  Trapping& operator=(const Trapping&) = delete;

  template <class Fn>
  bool in(Fn&& fn) const {
    trapped = 0;
    std::feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(kTraps);
    fn();
    fedisableexcept(FE_ALL_EXCEPT);
    return trapped != 0;
  }

 private:
  struct sigaction before_ {};
};

/// Whether the formula itself raises one of the two.
template <class Fn>
bool raises(Fn&& fn) {
  std::feclearexcept(FE_ALL_EXCEPT);
  volatile double y = fn();
  static_cast<void>(y);
  const bool raised = std::fetestexcept(kTraps) != 0;
  std::feclearexcept(FE_ALL_EXCEPT);
  return raised;
}

const std::vector<double> kNumbers = {0.625, 1.5, -0.5, 20, -20, 0, 1};
constexpr std::int64_t kMost = 33;

struct Memory {
  Tensor a, b, c, y;
  Memory(DType t, double x, double z, double w)
      : a(full({kMost}, x, t)),
        b(full({kMost}, z, t)),
        c(full({kMost}, w, t)),
        y(zeros({kMost}, t)) {}
};
ConstView first(const Tensor& t, std::int64_t n) { return t.as_strided({n}, {1}).view(); }
View first_out(const Tensor& t, std::int64_t n) { return t.as_strided({n}, {1}).mutable_view(); }

}  // namespace

TEST_CASE("unary kernels raise no exception that no element raises", "[host]") {
  const Trapping traps;
  for (const math::UnaryInfo& info : math::kUnaryOps) {
    if (!info.floats) continue;
    const math::Args p = args_of(info.op);
    for (const DType t : {f32, f64})
      for (const double x : kNumbers) {
        const Memory m(t, x, 1, 0);
        const Tensor out = info.gives_bool ? zeros({kMost}, boolean) : m.y;
        for (std::int64_t n = 1; n <= kMost; ++n) {
          INFO(info.name << " " << to_string(t) << ", " << n << " times " << x);
          const ConstView a = first(m.a, n), dy = first(m.b, n);
          const View y = first_out(out, n);
          if (!raises([&] { return formula(info.op, x, p); }))
            CHECK(!traps.in([&] { kernels::unary(info.op, a, y, p, Stream()); }));
          if (info.has_gradient() && !raises([&] { return slope(info.op, x, p); }))
            CHECK(!traps.in([&] { kernels::unary_backward(info.op, dy, a, y, p, 0, Stream()); }));
        }
      }
  }
}

/// Clang divides before it chooses a divisor: the gradient of atan2 at the origin raises 0 / 0.
#ifdef __clang__
constexpr bool kDividesFirst = true;
#else
constexpr bool kDividesFirst = false;
#endif

TEST_CASE("binary kernels raise no exception that no element raises", "[host]") {
  const Trapping traps;
  for (const math::BinaryInfo& info : math::kBinaryOps) {
    if (!info.floats) continue;
    const math::Args p{.a = 0.75};
    for (const DType t : {f32, f64})
      for (const double x : kNumbers)
        for (const double z : kNumbers) {
          const Memory m(t, x, z, 1);
          const Tensor out = info.gives_bool ? zeros({kMost}, boolean) : m.y;
          for (const std::int64_t n : {1, 3, 7, 8, 15, 16, 31, 33}) {
            INFO(info.name << " " << to_string(t) << ", " << n << " times " << x << ", " << z);
            const ConstView a = first(m.a, n), b = first(m.b, n), dy = first(m.c, n);
            const View y = first_out(out, n);
            if (!raises([&] { return formula(info.op, {x, z}, p); }))
              CHECK(!traps.in([&] { kernels::binary(info.op, a, b, y, p, Stream()); }));
            for (int i = 0; i < 2 && info.has_gradient(); ++i)
              if (!raises([&] {
                    return slope(info.op, i, {x, z}, p);
                  }) &&
                  !(kDividesFirst && info.op == math::BinaryOp::atan2 && x == 0 && z == 0))
                CHECK(!traps.in(
                    [&] { kernels::binary_backward(info.op, i, dy, a, b, y, p, 0, Stream()); }));
          }
        }
  }
}

TEST_CASE("ternary kernels raise no exception that no element raises", "[host]") {
  const Trapping traps;
  for (const math::TernaryInfo& info : math::kTernaryOps)
    for (const DType t : {f32, f64}) {
      const Memory m(t, 0.625, -0.5, 1.5);
      for (std::int64_t n = 1; n <= kMost; ++n) {
        INFO(info.name << " " << to_string(t) << ", " << n << " elements");
        const ConstView a = first(m.a, n), b = first(m.b, n), c = first(m.c, n);
        const View y = first_out(m.y, n);
        CHECK(!traps.in(
            [&] { kernels::ternary(info.op, a, b, c, y, math::Args{.a = 0.75}, Stream()); }));
      }
    }
}

TEST_CASE("operations on few numbers raise no exception", "[host]") {
  const Trapping traps;
  for (const DType t : {f32, f64})
    for (std::int64_t n = 2; n <= kMost; ++n) {  // one number has no variance
      INFO(to_string(t) << ", " << n << " elements");
      const Tensor x = full({n}, 3, t), y = full({n}, 2, t);
      CHECK(!traps.in([&] {
        x / y, fmod(x, y), x / 2.0, reciprocal(x), rsqrt(x), pow(x, y), softmax(x), log_softmax(x);
        layer_norm(x), var(x), norm(x), logsumexp(x), logcumsumexp(x, 0), softplus(x);
      }));
    }
}

#endif
