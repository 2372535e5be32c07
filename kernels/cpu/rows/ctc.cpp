// Connectionist temporal classification on the CPU. A task is a sequence.
#include "kernels/sequence/ctc.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/cpu/device/tile.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// The inputs that the passes read of one sequence.
template <class C>
class Sequence {
 public:
  Sequence(const ConstView& x, const CtcTargets& t, std::int64_t i, C* buffer)
      : target{t.labels.as<std::int64_t>() + t.starts.as<std::int64_t>()[i],
               t.target_lengths.as<std::int64_t>()[i], t.blank},
        steps(t.input_lengths.as<std::int64_t>()[i]),
        x_(x),
        data_(advance(x.data, x.dtype, i * x.strides[1])),
        buffer_(buffer) {}

  /// Returns the log-probabilities of step t.
  const C* row(std::int64_t t) const {
    return load_row<C>(advance(data_, x_.dtype, t * x_.strides[0]), x_.dtype, x_.strides[2],
                       x_.shape[2], buffer_);
  }
  /// True if it has states: a target with more labels than steps has no probability.
  bool fits() const { return steps > 0 && target.count <= steps; }

  math::CtcTarget target;
  std::int64_t steps;

 private:
  const ConstView& x_;
  const void* data_;
  C* buffer_;
};

/// Returns alpha's rows of sequence i.
template <class C, class AnyView>
auto rows_of(const AnyView& alpha, std::int64_t i) {
  return
      [first = alpha.template as<C>() + i * alpha.shape[1] * alpha.shape[2], rows = alpha.shape[1],
       states = alpha.shape[2]](std::int64_t t) { return first + t % rows * states; };
}

/// Number of element operations, of which a state takes dozens.
std::int64_t work_of(const ConstView& x, const ConstView& alpha) {
  return x.shape[0] * x.shape[1] * (alpha.shape[2] * 32 + x.shape[2]);
}

template <class C>
void forward(const ConstView& x, const CtcTargets& targets, const View& terms, const View& alpha) {
  const std::int64_t n = x.shape[1], classes = x.shape[2];
  C* const out = terms.as<C>();
  parallel_for_with_scratch(slot_bytes_of<C>(classes), n, work_of(x, alpha), [&](std::int64_t i) {
    const ScratchMemory buffer(classes * static_cast<std::int64_t>(sizeof(C)));
    const Sequence<C> sequence(x, targets, i, static_cast<C*>(buffer.data()));
    const math::CtcTarget& target = sequence.target;
    const auto row = rows_of<C>(alpha, i);
    const std::int64_t states = target.states();
    for (std::int64_t t = 0; t < sequence.steps && sequence.fits(); ++t) {
      const C* const now = sequence.row(t);
      C* const a = row(t);
      if (t == 0) {
        for (std::int64_t s = 0; s < states; ++s)
          a[s] = target.first_alpha(s, now[target.label(s)]);
      } else {
        const C* const before = row(t - 1);
        for (std::int64_t s = 0; s < states; ++s)
          a[s] = target.next_alpha(s, before, now[target.label(s)]);
      }
    }
    const C term = target.term(
        sequence.steps, static_cast<const C*>(row(std::max<std::int64_t>(sequence.steps - 1, 0))));
    out[i] = math::has_no_path(term) && targets.zero_infinity ? C(0) : term;
  });
}

/// out = g (e^x - q) of one step.
template <class C>
void gradient_row(const math::CtcTarget& target, const C* x, std::int64_t classes, const C* alpha,
                  const C* beta, C term, C g, C* out) {
  using V = tiles::Tile<C>;
  for (std::int64_t c = 0; c < classes; c += V::size) {
    const std::int64_t count = std::min<std::int64_t>(V::size, classes - c);
    count == V::size ? exp(V::load(x + c)).store(out + c)
                     : exp(V::load(x + c, count)).store(out + c, count);
  }
  for (std::int64_t s = 0; s < target.states(); ++s)
    out[target.label(s)] -= math::exp(alpha[s] + beta[s] + term);
  for (std::int64_t c = 0; c < classes; ++c) out[c] *= g;
}

template <class C>
void backward(const ConstView& dterms, const ConstView& x, const CtcTargets& targets,
              const ConstView& alpha, const View& dx, float keep) {
  const std::int64_t steps = x.shape[0], n = x.shape[1], classes = x.shape[2],
                     most = alpha.shape[2];
  const std::int64_t bytes = 3 * slot_bytes_of<C>(classes) + 2 * slot_bytes_of<C>(most);
  const auto array = [](std::int64_t count) {
    return ScratchMemory(count * static_cast<std::int64_t>(sizeof(C)));
  };
  parallel_for_with_scratch(bytes, n, work_of(x, alpha), [&](std::int64_t i) {
    const ScratchMemory row_memory = array(classes), new_memory = array(classes),
                        old_memory = array(classes), beta_memory = array(most),
                        after_memory = array(most);
    C *const values = static_cast<C*>(new_memory.data()),
             *const old = static_cast<C*>(old_memory.data()),
             *const beta = static_cast<C*>(beta_memory.data()),
             *const after = static_cast<C*>(after_memory.data());
    const Sequence<C> sequence(x, targets, i, static_cast<C*>(row_memory.data()));
    const math::CtcTarget& target = sequence.target;
    const auto row = rows_of<C>(alpha, i);
    const std::int64_t states = target.states(), last = sequence.steps - 1;
    const C g = dterms.as<C>()[i * dterms.strides[0]];
    const C term = target.term(sequence.steps, row(std::max<std::int64_t>(last, 0)));
    const bool infinite = math::has_no_path(term);
    for (std::int64_t t = steps - 1; t >= 0; --t) {
      if (t > last || (infinite && targets.zero_infinity)) {
        if (keep != 0) continue;
        std::fill_n(values, classes, C(0));
      } else if (infinite) {
        std::fill_n(values, classes, std::numeric_limits<C>::quiet_NaN());
      } else {
        const C* const now = sequence.row(t);
        for (std::int64_t s = 0; s < states; ++s)
          beta[s] = t == last ? target.template last_beta<C>(s) : target.next_beta(s, after);
        gradient_row(target, now, classes, row(t), beta, term, g, values);
        for (std::int64_t s = 0; s < states; ++s) after[s] = beta[s] + now[target.label(s)];
      }
      void* const to = advance(dx.data, dx.dtype, (t * n + i) * classes);
      if (keep != 0) {
        const C* const before = load_row<C>(to, dx.dtype, 1, classes, old);
        for (std::int64_t c = 0; c < classes; ++c) values[c] += static_cast<C>(keep) * before[c];
      }
      store_row<C>(values, to, dx.dtype, 1, classes);
    }
  });
}

}  // namespace

void ctc(const ConstView& x, const CtcTargets& targets, const View& terms, const View& alpha,
         Stream) {
  terms.dtype == DType::f64 ? forward<double>(x, targets, terms, alpha)
                            : forward<float>(x, targets, terms, alpha);
}

void ctc_backward(const ConstView& dterms, const ConstView& x, const CtcTargets& targets,
                  const ConstView& alpha, const View& dx, float beta, Stream) {
  alpha.dtype == DType::f64 ? backward<double>(dterms, x, targets, alpha, dx, beta)
                            : backward<float>(dterms, x, targets, alpha, dx, beta);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
