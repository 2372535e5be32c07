// The last product of a model and its cross-entropy as one op that never holds all logits. They are
// made chunk by chunk, some rows times some classes. Forward folds each chunk into the states of
// its rows. Backward makes the chunk again, turns it into its gradient, and adds its products.
#include <algorithm>
#include <optional>

#include "firn/thread_context.h"
#include "kernels/copy.h"
#include "kernels/dense.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"
#include "ops/gradient/again.h"
#include "ops/loss/class_loss.h"
#include "ops/parts.h"
#include "ops/product/dense.h"

namespace firn {
namespace {

using namespace ops;

constexpr const char* kLinearCrossEntropy = "linear_cross_entropy";

/// `count` entries of the first axis, from `first` on.
template <class V>
V entries(V v, std::int64_t first, std::int64_t count) {
  return part(v, 0, first, count);
}
ConstView entries_of(const Tensor& t, std::int64_t first, std::int64_t count) {
  return t.defined() ? entries(t.view(), first, count) : ConstView{};
}

/// One axis of the logits in equal pieces; an empty axis is one empty piece.
struct Cut {
  std::int64_t size, piece;

  /// Pieces of at most `most`, which begin at multiples of `step`.
  static Cut evenly(std::int64_t size, std::int64_t most, std::int64_t step) {
    const auto pieces = math::ceil_div(size, std::max<std::int64_t>(most, 1));
    const auto even = math::ceil_div(size, std::max<std::int64_t>(pieces, 1));
    return {size, std::max<std::int64_t>(math::ceil_div(even, step) * step, 1)};
  }
  bool whole() const { return piece >= size; }

  template <class Fn>
  void each(Fn&& fn) const {
    std::int64_t first = 0;
    do {
      fn(first, std::min(piece, size - first));
      first += piece;
    } while (first < size);
  }
};

/// Division of the logits into chunks, by their shape and the options alone.
struct Chunks {
  Cut rows, classes;

  static Chunks of(std::int64_t rows, std::int64_t classes,
                   const LinearCrossEntropyOptions& options) {
    // Products of fewer rows or classes read their operands too often; larger chunks leave the
    // cache. With a 16-bit copy, the f32 gradient of x's rows and the products' workspace, this
    // takes less than 64 MiB.
    constexpr std::int64_t kLogits = std::int64_t{3} << 20, kRows = 4096, kStep = 64;
    const auto given = [](std::int64_t size, std::int64_t piece) {
      return Cut{size, std::max<std::int64_t>(std::min(piece, size), 1)};
    };
    const auto fitting = [&](std::int64_t size, const Cut& other, std::int64_t most) {
      return Cut::evenly(size, std::min(most, std::max(kStep, kLogits / other.piece)), kStep);
    };
    if (options.chunk_rows > 0) {
      const Cut r = given(rows, options.chunk_rows);
      return {r, options.chunk_classes > 0 ? given(classes, options.chunk_classes)
                                           : fitting(classes, r, classes)};
    }
    const Cut c = options.chunk_classes > 0
                      ? given(classes, options.chunk_classes)
                      : fitting(classes, Cut::evenly(rows, kRows, 1), classes);
    return {fitting(rows, c, std::max(rows, kStep)), c};
  }
};

/// Weights of some classes in the dtype of x: a view, or under autocast a copy of f32 ones.
class WeightRows {
 public:
  WeightRows(const Tensor& w, DType dtype, std::int64_t first, std::int64_t count, Stream stream)
      : view_(entries(w.view(), first, count)) {
    if (w.dtype() == dtype) return;
    const OwnerScope owner(Owner::workspace);
    own_ = empty(view_.shape, dtype, w.device());
    kernels::copy(view_, own_.mutable_view(), stream);
    view_ = own_.view();
  }
  const ConstView& view() const { return view_; }

 private:
  ConstView view_;
  Tensor own_;
};

/// Operands with which both passes make a chunk of the logits.
struct Operands {
  Tensor x, w, bias, target, class_weights, row_weights;
  ClassTerms terms;

  WeightRows weights(std::int64_t cls, std::int64_t m, Stream stream) const {
    return {w, x.dtype(), cls, m, stream};
  }
  /// Computes logits [n, m] of n rows and m classes; args() gives the row kernels' arguments.
  void multiply(std::int64_t row, std::int64_t cls, const WeightRows& weight, const View& logits,
                Stream stream) const {
    kernels::GemmArgs args;
    args.bias = entries_of(bias, cls, logits.shape[1]);
    kernels::gemm(entries(x.view(), row, logits.shape[0]), transposed(weight.view()), logits, args,
                  stream);
  }
  kernels::CrossEntropyArgs args(std::int64_t row, std::int64_t n, std::int64_t cls) const {
    kernels::CrossEntropyArgs out = terms.with(class_weights, row_weights);
    if (out.row_weights.data) out.row_weights = entries(flat(out.row_weights), row, n);
    out.first_row = row;
    out.first_class = cls;
    return out;
  }
  ConstView targets(std::int64_t row, std::int64_t n) const {
    return entries(flat(target.view()), row, n);
  }
};

/// A sink that several products add up to. A 16-bit sink collects them in f32 and is rounded once.
class Sum {
 public:
  Sum() = default;
  Sum(const View& sink, float beta, bool several) : sink_(sink), at_(sink), beta_(beta) {
    if (!several || size_of(sink.dtype) > 2) return;
    const OwnerScope owner(Owner::workspace);
    own_ = empty(sink.shape, f32, sink.device);
    at_ = own_.mutable_view();
  }
  bool wanted() const { return at_.data != nullptr; }
  /// Returns some entries, for their contribution `number`, counted from 0.
  View part(std::int64_t first, std::int64_t count) const { return entries(at_, first, count); }
  float beta(std::int64_t number) const {
    return number > 0 ? 1.0f : own_.defined() ? 0.0f : beta_;
  }
  void finish(Stream stream) const {
    if (own_.defined()) kernels::axpby(1.0, own_.view(), beta_, sink_, stream);
  }

 private:
  View sink_, at_;
  float beta_ = 0;
  Tensor own_;
};

/// Adds dw and db of a chunk, each if it is wanted.
void add_weight_gradients(const ConstView& dy, const ConstView& x, const View& dw, float dw_beta,
                          const View& db, float db_beta, Stream stream) {
  if (dw.data) return kernels::dense_weight_gradient(dy, x, dw, dw_beta, db, db_beta, stream);
  if (!db.data) return;
  View row = db;
  row.shape.insert(0, 1);
  row.strides.insert(0, 0);
  kernels::reduce(kernels::ReduceOp::sum, dy, row, 1.0, db_beta, stream);
}

/// Saved: x, w, target, stats, bias, class weights, row weights.
struct Gradient {
  ClassTerms terms;
  Chunks chunks;
  bool one_tensor;  ///< x and w are the same, so both gradients go to one sink

  void again(GraphBackward& b) const {
    const bool biased = b.saved(4).defined();
    add_composed(b,
                 {{0, b.input(0, 0)}, {1, b.input(1, 1)}, {2, biased ? b.input(2, 4) : Tensor()}},
                 [&](const std::vector<Tensor>& t) {
                   const Tensor logits = linear(t[0], cast(t[1], t[0].dtype()), t[2]);
                   return composed_class_loss(terms, logits, b.saved(2), b.saved(5), b.saved(6));
                 });
  }
  void operator()(Backward& b) const {
    const Operands in{b.saved(0), b.saved(1), b.saved(4), b.saved(2),
                      b.saved(5), b.saved(6), terms};
    const Tensor& stats = b.saved(3);
    const Stream stream = b.stream();
    const bool several_rows = !chunks.rows.whole();

    Sum dw, db;
    for (const auto& [sum, i] : {std::pair{&dw, 1}, std::pair{&db, 2}}) {
      if (!b.needs(i)) continue;
      const autograd::Sink sink = b.sink(i);
      *sum = Sum(sink.grad.mutable_view(), sink.beta, several_rows);
    }
    // The sink of one tensor takes dw first. dx is added to it when that is complete.
    Tensor apart;
    autograd::Sink dx{{}, 0};
    if (b.needs(0) && one_tensor) {
      const OwnerScope owner(Owner::workspace);
      dx.grad = apart = empty(in.x.shape(), compute_dtype(in.x.dtype()), in.x.device());
    } else if (b.needs(0)) {
      dx = b.sink(0);
    }

    const kernels::PendingGradient* pending = b.pending_gradient();
    std::int64_t row_number = 0;
    chunks.rows.each([&](std::int64_t row, std::int64_t n) {
      const ConstView x_rows = entries(in.x.view(), row, n);
      Sum dx_rows;
      if (dx.grad.defined())
        dx_rows = Sum(entries(dx.grad.mutable_view(), row, n), dx.beta, !chunks.classes.whole());
      std::int64_t class_number = 0;
      chunks.classes.each([&](std::int64_t cls, std::int64_t m) {
        const WeightRows weight = in.weights(cls, m, stream);
        const Tensor dlogits = chunk_gradient(b, in, stats, row, n, cls, weight, pending);
        pending = nullptr;  // the initial gradient is there now
        const ConstView dy = dlogits.view();
        if (dx_rows.wanted())
          kernels::gemm(dy, weight.view(), dx_rows.part(0, n),
                        kernels::GemmArgs{.beta = dx_rows.beta(class_number)}, stream);
        add_weight_gradients(dy, x_rows, dw.wanted() ? dw.part(cls, m) : View{},
                             dw.beta(row_number), db.wanted() ? db.part(cls, m) : View{},
                             db.beta(row_number), stream);
        ++class_number;
      });
      dx_rows.finish(stream);
      ++row_number;
    });
    dw.finish(stream);
    db.finish(stream);
    if (apart.defined()) b.accumulate(0, apart);
  }

 private:
  /// The gradient of a chunk of the logits, in the operands' dtype.
  static Tensor chunk_gradient(Backward& b, const Operands& in, const Tensor& stats,
                               std::int64_t row, std::int64_t n, std::int64_t cls,
                               const WeightRows& weight, const kernels::PendingGradient* pending) {
    const OwnerScope owner(Owner::workspace);
    const DType dtype = in.x.dtype(), compute = compute_dtype(dtype);
    const std::int64_t m = weight.view().shape[0];
    const Tensor logits = empty({n, m}, compute, in.x.device());
    in.multiply(row, cls, weight, logits.mutable_view(), b.stream());
    const Tensor out = dtype == compute ? logits : empty({n, m}, dtype, in.x.device());
    kernels::cross_entropy_backward(b.grad().view(), logits.view(), in.targets(row, n),
                                    entries(stats.view(), row, n), in.args(row, n, cls),
                                    out.mutable_view(), 0, pending, b.stream());
    return out;
  }
};

}  // namespace

Loss linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& target,
                          const CrossEntropyOptions& options,
                          const LinearCrossEntropyOptions& linear) try {
  require_dense(kLinearCrossEntropy, x, w, linear.bias);
  require_defined(kLinearCrossEntropy, target);
  FIRN_CHECK(w.size(0) > 0, kLinearCrossEntropy, "weight is [classes, in]",
             "weight {} has no classes", describe(w));
  Shape rows_shape = x.shape();
  rows_shape.pop_back();
  FIRN_CHECK(target.shape() == rows_shape, kLinearCrossEntropy,
             "give one class number per row of x", "target {} for x {}: expected shape {}",
             describe(target), describe(x), rows_shape);
  FIRN_CHECK(!options.axis, kLinearCrossEntropy,
             "leave the axis out: the classes are the rows of the weight", "axis = {}",
             *options.axis);
  FIRN_CHECK(linear.chunk_rows >= 0 && linear.chunk_classes >= 0, kLinearCrossEntropy,
             "0 lets the shapes choose", "chunk_rows = {}, chunk_classes = {}", linear.chunk_rows,
             linear.chunk_classes);

  const Tensor x_rows = as_matrix(x);
  // An f32 weight under autocast is cast chunk by chunk. A copy of it all could be the largest
  // tensor of a model.
  const bool in_chunks =
      autocast_on() && w.dtype() == f32 && thread_context.op_mode.autocast_dtype != f32;
  const Tensor none;
  const Autocasted casted(Policy::lower, x_rows, in_chunks ? none : w, linear.bias);
  const Tensor &rows = casted[0], &weight = in_chunks ? w : casted[1], &bias = casted[2];
  const std::int64_t n = rows.size(0), classes = weight.size(0);
  const ClassOperands given =
      class_operands(kLinearCrossEntropy, rows, classes, target, options, false);
  const Operands in{rows,       weight, bias, given.target, given.class_weights, given.row_weights,
                    given.terms};
  const Chunks chunks = Chunks::of(n, classes, linear);

  const DType compute = compute_dtype(rows.dtype());
  const Stream stream = stream_of(rows);
  const Tensor sum = empty({}, compute, rows.device());
  const Tensor denominator = empty({}, compute, rows.device());
  const Tensor stats = empty({n, 2}, compute, rows.device());
  {
    const OwnerScope owner(Owner::workspace);
    const Tensor states = empty({n, 4}, f64, rows.device());
    chunks.rows.each([&](std::int64_t row, std::int64_t count) {
      chunks.classes.each([&](std::int64_t cls, std::int64_t m) {
        const Tensor logits = empty({count, m}, compute, rows.device());
        in.multiply(row, cls, in.weights(cls, m, stream), logits.mutable_view(), stream);
        kernels::cross_entropy_part(logits.view(), in.targets(row, count), in.args(row, count, cls),
                                    entries(states.mutable_view(), row, count), stream);
      });
    });
    kernels::cross_entropy_total(states.view(), in.targets(0, n), in.args(0, n, 0),
                                 sum.mutable_view(), denominator.mutable_view(),
                                 stats.mutable_view(), stream);
  }
  const bool one_tensor =
      rows.requires_grad() && autograd::node_of(rows) == autograd::node_of(weight);
  const Tensor recorded =
      record(kLinearCrossEntropy, sum, {&rows, &weight, &bias},
             {Saved::input(0), Saved::input(1), Saved::other(in.target), Saved::other(stats)},
             Gradient{given.terms, chunks, one_tensor});
  if (autograd::Node* node = autograd::node_of(recorded)) {
    autograd::save(recorded,
                   {bias.defined() ? bias.detach() : bias, in.class_weights, in.row_weights});
    node->takes_pending_gradient = n > 0;  // without rows no kernel runs that could compute it
  }
  return {recorded, denominator, false, class_count(target, options)};
}
FIRN_OUT_OF_MEMORY(kLinearCrossEntropy)

}  // namespace firn
