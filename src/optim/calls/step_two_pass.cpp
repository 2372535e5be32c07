// Losses that couple the samples of a batch, for batches too large for one graph.
#include <vector>

#include "firn/ops/losses.h"
#include "firn/random.h"
#include "firn/runtime/rollback.h"
#include "kernels/copy.h"
#include "optim/calls/scopes.h"
#include "optim/impl.h"

namespace firn::optim {
namespace {

/// Returns rows [first, first + count) of `t`, a view.
Tensor rows(const Tensor& t, std::int64_t first, std::int64_t count) {
  Shape shape = t.shape();
  shape[0] = count;
  return t.as_strided(shape, t.strides(), first * t.strides()[0]);
}

/// A part's data that the first pass keeps for the second.
struct Part {
  RandomKey random;
  Tensor encoding;
};

/// While alive, layers know the number of parts of the step.
class PartsOf {
 public:
  PartsOf(std::int64_t& parts, std::int64_t n) noexcept : parts_(parts) { parts_ = n; }
  ~PartsOf() { parts_ = 0; }
  PartsOf(const PartsOf&) = delete;
  PartsOf& operator=(const PartsOf&) = delete;

 private:
  std::int64_t& parts_;
};

Tensor joined(const std::string& op, const std::vector<Part>& parts) {
  const Tensor& first = parts.front().encoding;
  Shape shape = first.shape();
  shape[0] = 0;
  for (const Part& p : parts) {
    Shape like_first = p.encoding.shape();
    if (like_first.size() == shape.size()) like_first[0] = first.shape()[0];
    FIRN_CHECK(like_first == first.shape() && p.encoding.dtype() == first.dtype() &&
                   p.encoding.device() == first.device(),
               op, "parts may differ in their first axis only", "encodings {} and {}",
               firn::describe(first), firn::describe(p.encoding));
    shape[0] += p.encoding.shape()[0];
  }
  Tensor all = empty(shape, first.dtype(), first.device());
  std::int64_t at = 0;
  for (const Part& p : parts) {
    const std::int64_t n = p.encoding.shape()[0];
    kernels::copy(p.encoding.view(), rows(all, at, n).mutable_view(), current_stream(all.device()));
    at += n;
  }
  return all;
}

}  // namespace

StepReport Optimizer::step_two_pass(std::int64_t parts,
                                    const std::function<Tensor(std::int64_t i)>& encode,
                                    const std::function<Loss(const Tensor& all)>& loss) try {
  Impl& impl = this->impl();
  const std::string& op = impl.store.op();
  impl.require_outside_cycle("step_two_pass()");
  FIRN_CHECK(parts >= 1, op, "give at least 1", "{} parts make no batch", parts);
  FIRN_CHECK(encode && loss, op, "give both", "{} of step_two_pass() is empty",
             encode ? "the loss" : "the encoder");
  require_no_retry(impl, "step_two_pass()");
  impl.require_no_cycle();
  impl.extension->check_coupled(true);
  const MakerScope maker(impl, "step_two_pass()");
  runtime::refuse_capture(op.c_str(), impl.store.device(),
                          "the host puts random numbers back between the two passes");

  // Restores what the first pass changes, because the second pass changes it again.
  RollbackPoint start({Rollback::random, Rollback::statistics, Rollback::data});
  about_to_change_restored(impl);
  std::vector<Part> first_pass;
  try {
    const NoGrad guard;
    for (std::int64_t i = 0; i < parts; ++i) {
      const RandomKey random = default_generator().get();
      first_pass.push_back({random, encode(i)});
      const Tensor& e = first_pass.back().encoding;
      FIRN_CHECK(e.defined() && e.rank() >= 1 && is_floating(e.dtype()), op,
                 "return [samples, ...] of a floating dtype", "part {} was encoded as {}", i,
                 firn::describe(e));
    }
  } catch (...) {
    start.roll_back();
    throw;
  }
  start.roll_back(Rollback::statistics);
  about_to_change_restored(impl);
  Tensor all = joined(op, first_pass);
  all.set_requires_grad();
  const RandomKey after = default_generator().get();
  const PartsOf of_this_step(impl.call.parts, parts);
  const autograd::CycleScope cycle(impl);
  const auto second_pass = [&] {
    const Loss whole = loss(all);
    require_weight(impl, whole);
    impl.backward(whole.sum, {.tensor = whole.weight}, {});
    const Tensor gradient = all.grad();
    FIRN_CHECK(gradient.defined(), op, "compute the loss from its argument",
               "the loss does not depend on the encodings {}", firn::describe(all));
    impl.now.phase = Phase::failed;
    start.roll_back(Rollback::random);
    start.roll_back(Rollback::data);
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < parts; ++i) {
      const Part& p = first_pass[static_cast<std::size_t>(i)];
      default_generator().set(p.random);
      const Tensor again = encode(i);
      FIRN_CHECK(again.shape() == p.encoding.shape() && again.dtype() == p.encoding.dtype(), op,
                 "encode must return the same both times", "part {} was {}, and then {}", i,
                 firn::describe(p.encoding), firn::describe(again));
      firn::backward(
          again, {.initial_gradient = rows(gradient, at, again.shape()[0]), .retain_graph = false});
      at += again.shape()[0];
    }
    default_generator().set(after);
    impl.now.phase = Phase::collecting;
    impl.store.ledger().note();
  };
  return impl.whole_cycle(second_pass, [&] { start.roll_back(); });
}
FIRN_OUT_OF_MEMORY("step_two_pass")

}  // namespace firn::optim
