// Recurrent layers: products and cells step by step, recorded as one op. The states of all steps
// lie in one tensor with the one before the first step, so that the weight's gradient is one
// product. The final c follows them, so that one node gives all results.
#include "firn/ops/recurrent.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "firn/ops/elementwise.h"
#include "firn/ops/rearrange.h"
#include "kernels/copy.h"
#include "kernels/dense.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/sequence/recurrent.h"
#include "ops/common.h"
#include "ops/product/dense.h"

namespace firn {
namespace {

using namespace ops;

constexpr const char* kRecurrent = "recurrent";

/// Sizes of a call, and places of its data.
struct Layout {
  RecurrentCell cell;
  std::int64_t steps, batch, n, p;
  bool reverse, projected;

  kernels::CellSizes sizes() const { return kernels::cell_sizes(cell); }
  std::int64_t states() const { return (steps + 1) * batch * p; }
  std::int64_t numel() const { return states() + (sizes().has_c ? batch * n : 0); }
  /// Returns the place in time of step i, counted in the order of computation.
  std::int64_t time(std::int64_t i) const { return reverse ? steps - 1 - i : i; }
  /// Returns the row that holds the state before step i; row i + 1 is the one after.
  std::int64_t row(std::int64_t i) const { return reverse ? steps - i : i; }
  /// Returns the first of the rows that hold the states before all steps, or after them.
  std::int64_t first_before() const { return reverse ? 1 : 0; }
  std::int64_t first_after() const { return reverse ? 0 : 1; }

  /// Parts of the result, or of its gradient.
  Tensor states_of(const Tensor& all) const {
    return all.as_strided({steps + 1, batch, p}, {batch * p, p, 1});
  }
  Tensor c_of(const Tensor& all) const {
    return all.as_strided({batch, n}, {n, 1}, batch * n > 0 ? states() : 0);
  }
};

/// Returns row i of a dense [rows, a, b], or of [rows, a]. One with fewer rows holds the last.
View row_of(const Tensor& t, std::int64_t i) {
  View v = t.mutable_view();
  v.data = static_cast<char*>(v.data) +
           i % v.shape[0] * v.strides[0] * static_cast<std::int64_t>(size_of(v.dtype));
  v.shape.erase(0);
  v.strides.erase(0);
  return v;
}
ConstView maybe_row(const Tensor& t, std::int64_t i) {
  return t.defined() ? ConstView(row_of(t, i)) : ConstView{};
}
/// Returns `count` rows of [rows, batch, n] from `first` on, as a matrix.
Tensor rows_of(const Tensor& t, std::int64_t first, std::int64_t count) {
  const std::int64_t batch = t.size(1), n = t.size(2);
  return t.as_strided({count * batch, n}, {n, 1},
                      t.storage_offset() + (count * batch * n > 0 ? first * batch * n : 0));
}

/// The right factor of a product in every step. The CPU packs it once for all steps.
class StepFactor {
 public:
  StepFactor(const ConstView& factor, const Layout& at) : factor_(factor) {
    if (at.steps < 2 || !factor.device.is_cpu()) return;
    packed_ = kernels::plan_right(factor, at.batch);
    if (!packed_.unit) return;
    memory_ = empty({packed_.bytes}, u8, factor.device);
    packed_.data = memory_.mutable_view().data;
    kernels::pack_right(factor, packed_);
  }

  /// c = left factor + beta c + bias.
  void multiply(const ConstView& left, const View& c, double beta, const ConstView& bias,
                Stream stream) const {
    kernels::gemm(left, factor_, c,
                  kernels::GemmArgs{.beta = beta, .bias = bias, .packed = packed_}, stream);
  }

 private:
  ConstView factor_;
  kernels::PackedRight packed_;
  Tensor memory_;
};

void check(RecurrentCell cell, const Tensor& gates, const Tensor& weight,
           const RecurrentOptions& o) {
  require_floating(kRecurrent, gates);
  require_factors(kRecurrent, gates, weight);
  const std::int64_t per_unit = gates_of(cell);
  FIRN_CHECK(per_unit > 0, kRecurrent, "take one of RecurrentCell", "there is no cell {}",
             static_cast<int>(cell));
  FIRN_CHECK(gates.rank() == 3, kRecurrent, "insert the batch with unsqueeze(x, 1)",
             "gates {} is not [steps, batch, gates n]", describe(gates));
  FIRN_CHECK(weight.rank() == 2 && weight.size(0) == gates.size(2), kRecurrent,
             "the weight is [gates n, p]", "weight {} does not fit to gates {}", describe(weight),
             describe(gates));
  FIRN_CHECK(gates.size(2) % per_unit == 0, kRecurrent,
             "an rnn has 1 gate for each unit, a gru 3, an lstm 4",
             "gates {}: the last axis is no multiple of {}", describe(gates), per_unit);
  const std::int64_t n = gates.size(2) / per_unit, batch = gates.size(1);
  const std::int64_t p = o.projection.defined() ? weight.size(1) : n;
  const bool lstm = cell == RecurrentCell::lstm;
  FIRN_CHECK(lstm || !o.projection.defined(), kRecurrent, "take RecurrentCell::lstm",
             "only an lstm has a projection, got {}", describe(o.projection));
  FIRN_CHECK(lstm || !o.c.defined(), kRecurrent, "leave it out",
             "only an lstm has a state c, got {}", describe(o.c));
  FIRN_CHECK(weight.size(1) == p, kRecurrent, "a state of another size needs a projection",
             "weight {} multiplies states of {} units, not {}", describe(weight), weight.size(1),
             p);
  const auto fits = [&](const char* name, const Tensor& t, const Shape& shape) {
    if (!t.defined()) return;
    require_factors(kRecurrent, gates, t);
    FIRN_CHECK(t.shape() == shape, kRecurrent, "see RecurrentOptions",
               "{} {} is not {}, for gates {}", name, describe(t), shape, describe(gates));
  };
  fits("bias", o.bias, {gates.size(2)});
  fits("projection", o.projection, {p, n});
  const auto state = [&](const char* name, const Tensor& t, std::int64_t units) {
    if (!t.defined()) return;
    require_floating(kRecurrent, t);
    FIRN_CHECK(t.device() == gates.device(), kRecurrent, "move it to the device of the input",
               "{} {} and gates {} are on two devices", name, describe(t), describe(gates));
    FIRN_CHECK((t.shape() == Shape{batch, units}), kRecurrent, "states are [batch, units]",
               "{} {} is not [{}, {}]", name, describe(t), batch, units);
  };
  state("h", o.h, p);
  state("c", o.c, n);
  if (!o.lengths.defined()) return;
  FIRN_CHECK(o.lengths.dtype() == i64 || o.lengths.dtype() == i32, kRecurrent,
             "cast it: lengths.to(firn::i64)", "lengths are i64 or i32, got {}",
             describe(o.lengths));
  FIRN_CHECK(o.lengths.shape() == Shape{batch} && o.lengths.device() == gates.device(), kRecurrent,
             "lengths is [batch]: the steps of each sequence", "lengths {} for gates {}",
             describe(o.lengths), describe(gates));
  if (!o.lengths.device().is_cpu() || runtime::dry_run()) return;
  const auto lengths = cast(o.lengths.detach(), i64).to_vector<std::int64_t>();
  for (std::size_t i = 0; i < lengths.size(); ++i)
    FIRN_CHECK(lengths[i] >= 0 && lengths[i] <= gates.size(0), kRecurrent,
               "lengths holds the steps of each sequence",
               "lengths[{}] is {}, and there are {} steps", i, lengths[i], gates.size(0));
}

/// True where step t belongs to a sequence: bool [steps, batch].
Tensor alive_steps(const Tensor& lengths, std::int64_t steps) {
  if (!lengths.defined()) return {};
  const NoGrad guard;
  const Tensor times = arange(steps, {.dtype = lengths.dtype(), .device = lengths.device()});
  return contiguous(lt(unsqueeze(times, 1), unsqueeze(lengths, 0)));
}

/// Tensors of the forward pass, and those that backward needs.
struct Pass {
  Layout at;
  Tensor gates, weight, bias, projection, alive;
  Tensor states;  ///< [steps + 1, batch, p]
  Tensor saved;   ///< [steps, batch, saved n], or one row if nothing is recorded
  Tensor cells;   ///< lstm: [steps + 1, batch, n] in the compute dtype, or two rows
  Tensor inner;   ///< projected: [steps, batch, n], the state before the projection, or one row

  void run(Stream stream) const {
    const DType compute = compute_dtype(gates.dtype());
    const OwnerScope owner(Owner::workspace);
    const Tensor products = empty({at.batch, gates.size(2)}, compute, gates.device());
    const bool masked = at.projected && alive.defined();
    const Tensor projected =
        masked ? empty({at.batch, at.p}, gates.dtype(), gates.device()) : Tensor();
    const StepFactor recurrent(transposed(weight.view()), at);
    std::optional<StepFactor> projecting;
    if (at.projected) projecting.emplace(transposed(projection.view()), at);
    const ConstView added = bias.defined() ? bias.view() : ConstView{};
    for (std::int64_t i = 0; i < at.steps; ++i) {
      const std::int64_t t = at.time(i), before = at.row(i), after = at.row(i + 1);
      const View h = row_of(states, after);
      recurrent.multiply(row_of(states, before), products.mutable_view(), 0, added, stream);
      const View unit_state = at.projected ? row_of(inner, t) : h;
      kernels::recurrent_forward(
          at.cell, unit_state,
          kernels::CellForward{
              .x = row_of(gates, t),
              .recurrent = products.view(),
              .h_before = at.projected ? ConstView{} : ConstView(row_of(states, before)),
              .c_before = maybe_row(cells, i),
              .alive = maybe_row(alive, t),
              .saved = saved.defined() ? row_of(saved, t) : View{},
              .c = cells.defined() ? row_of(cells, i + 1) : View{}},
          stream);
      if (!at.projected) continue;
      projecting->multiply(unit_state, masked ? projected.mutable_view() : h, 0, {}, stream);
      if (!masked) continue;
      ConstView condition = row_of(alive, t);
      condition.shape.push_back(at.p);
      condition.strides.push_back(0);
      kernels::where(condition, projected.view(), row_of(states, before), h, 0, stream);
    }
  }
};

/// Inputs: gates, weight, bias, projection, h, c.
struct Gradient {
  Layout at;

  void operator()(Backward& b) const {
    const Stream stream = b.stream();
    const Tensor &weight = b.saved(0), &saved = b.saved(2), &cells = b.saved(3),
                 &inner = b.saved(4), &alive = b.saved(5), &projection = b.saved(6);
    const Tensor states = at.states_of(b.saved(1));
    const DType dtype = weight.dtype(), compute = compute_dtype(dtype);
    const Device device = weight.device();
    const kernels::CellSizes sizes = at.sizes();
    const Tensor dy = contiguous(b.grad()), dstates = at.states_of(dy);
    const std::int64_t columns = sizes.gates * at.n;

    const Tensor dx = empty({at.steps, at.batch, columns}, dtype, device);
    Tensor drecurrent = dx, dh, dc, dinner, dprojected;
    std::optional<StepFactor> recurrent, projecting;
    {
      const OwnerScope owner(Owner::workspace);
      recurrent.emplace(weight.view(), at);
      if (at.projected) projecting.emplace(projection.view(), at);
      if (sizes.two_gates) drecurrent = empty(dx.shape(), dtype, device);
      dh = zeros({at.batch, at.p}, compute, device);
      if (at.projected) {
        dinner = empty({at.batch, at.n}, compute, device);
        dprojected = empty({at.steps, at.batch, at.p}, dtype, device);
      }
      if (sizes.has_c) {
        dc = empty({at.batch, at.n}, compute, device);
        kernels::copy(at.c_of(dy).view(), dc.mutable_view(), stream);
      }
    }
    for (std::int64_t i = at.steps - 1; i >= 0; --i) {
      const std::int64_t t = at.time(i), before = at.row(i), after = at.row(i + 1);
      if (at.projected) {
        kernels::recurrent_take_gradient(dh.mutable_view(), row_of(dstates, after),
                                         maybe_row(alive, t), row_of(dprojected, t), stream);
        projecting->multiply(row_of(dprojected, t), dinner.mutable_view(), 0, {}, stream);
      }
      kernels::recurrent_backward(
          at.cell, at.projected ? dinner.mutable_view() : dh.mutable_view(),
          kernels::CellBackward{
              .saved = maybe_row(saved, t),
              .h_before = at.projected ? ConstView{} : ConstView(row_of(states, before)),
              .c_before = maybe_row(cells, i),
              .c = maybe_row(cells, i + 1),
              .alive = maybe_row(alive, t),
              .h = at.projected ? ConstView{} : ConstView(row_of(states, after)),
              .dy = at.projected ? ConstView{} : ConstView(row_of(dstates, after)),
              .dc = dc.defined() ? dc.mutable_view() : View{},
              .dx = row_of(dx, t),
              .drecurrent = row_of(drecurrent, t)},
          stream);
      recurrent->multiply(row_of(drecurrent, t), dh.mutable_view(), 1, {}, stream);
    }

    const Tensor drows = rows_of(drecurrent, 0, at.steps);
    accumulate_dense(b, 1, 2, drows, rows_of(states, at.first_before(), at.steps));
    if (b.needs(3)) {
      const auto [grad, beta] = b.sink(3);
      kernels::gemm(transposed(rows_of(dprojected, 0, at.steps).view()),
                    rows_of(inner, 0, at.steps).view(), grad.mutable_view(),
                    kernels::GemmArgs{.beta = beta}, stream);
    }
    if (b.needs(4)) {
      kernels::axpby(1.0, row_of(dstates, at.row(0)), 1.0, dh.mutable_view(), stream);
      b.accumulate(4, dh);
    }
    if (b.needs(5)) b.accumulate(5, dc);
    if (b.needs(0)) b.accumulate(0, dx);
  }
};

}  // namespace

std::int64_t gates_of(RecurrentCell cell) noexcept { return kernels::cell_sizes(cell).gates; }

RecurrentResult recurrent(RecurrentCell cell, const Tensor& given_gates, const Tensor& given_weight,
                          const RecurrentOptions& options) try {
  check(cell, given_gates, given_weight, options);
  const Autocasted in(Policy::lower, given_gates, given_weight, options.bias, options.projection);
  const Tensor gates = contiguous(in[0]), weight = contiguous(in[1]), projection = in[3];
  const DType dtype = gates.dtype(), compute = compute_dtype(dtype);
  const Device device = gates.device();
  const Layout at{
      cell,           gates.size(0),   gates.size(1),       gates.size(2) / gates_of(cell),
      weight.size(1), options.reverse, projection.defined()};
  const kernels::CellSizes sizes = at.sizes();
  const Tensor h = options.h.defined() ? cast(options.h, dtype) : Tensor();
  const Tensor c = options.c.defined() ? cast(options.c, compute) : Tensor();
  const std::initializer_list<const Tensor*> inputs = {&gates,      &weight, &in[2],
                                                       &projection, &h,      &c};
  const bool recorded = autograd::detail::needs_recording(inputs);

  const Stream stream = stream_of(gates);
  const Tensor all = empty({at.numel()}, dtype, device);
  const Tensor states = at.states_of(all);
  const auto rows = [&](std::int64_t all_rows, std::int64_t least, std::int64_t n, DType t) {
    return empty({recorded ? all_rows : least, at.batch, n}, t, device);
  };
  const Pass pass{at,
                  gates,
                  weight,
                  in[2],
                  projection,
                  alive_steps(options.lengths, at.steps),
                  states,
                  sizes.saved && recorded ? rows(at.steps, 1, sizes.saved * at.n, dtype) : Tensor(),
                  sizes.has_c ? rows(at.steps + 1, 2, at.n, compute) : Tensor(),
                  at.projected ? rows(at.steps, 1, at.n, dtype) : Tensor()};
  const auto begin = [stream](const Tensor& from, const View& to) {
    from.defined() ? kernels::copy(from.view(), to, stream) : kernels::fill(to, 0, stream);
  };
  begin(h, row_of(states, at.row(0)));
  if (sizes.has_c) begin(c, row_of(pass.cells, 0));
  pass.run(stream);
  if (sizes.has_c) kernels::copy(row_of(pass.cells, at.steps), at.c_of(all).mutable_view(), stream);

  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(kRecurrent, {{"cell", static_cast<std::int64_t>(cell)},
                                      {"reverse", options.reverse},
                                      {"lengths", &options.lengths}});
  const Tensor y =
      record(kRecurrent, all, inputs, {Saved::input(1), Saved::output()}, Gradient{at});
  if (recorded)
    autograd::save(y, {pass.saved, pass.cells, pass.inner, pass.alive,
                       projection.defined() ? projection.detach() : projection});
  RecurrentResult result;
  const Tensor line = reshape(slice(y, 0, 0, at.states()), {at.steps + 1, at.batch, at.p});
  result.output = slice(line, 0, at.first_after(), at.first_after() + at.steps);
  result.h = select(line, 0, at.row(at.steps));
  if (sizes.has_c) result.c = reshape(slice(y, 0, at.states(), at.numel()), {at.batch, at.n});
  if (pass.alive.defined()) result.output = where(unsqueeze(pass.alive, 2), result.output, 0.0);
  return result;
}
FIRN_OUT_OF_MEMORY(kRecurrent)

}  // namespace firn
