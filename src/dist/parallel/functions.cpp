// Exchanges between ranks with their gradients.
#include "firn/dist/parallel/functions.h"

#include "autograd/node.h"
#include "base/check.h"
#include "dist/parallel/exchange.h"
#include "firn/autograd.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"

namespace firn::dist {

using autograd::Backward;
using autograd::record;

namespace {

void check_operand(const char* op, const Tensor& x, const Group& group) {
  require_defined(op, x);
  FIRN_CHECK(is_floating(x.dtype()), op, "cast it to a floating dtype", "{} is not floating",
             describe(x));
  require_there(op, x, group);
}

/// Joins the ranks' shards along the last axis.
Tensor side_by_side(const Tensor& x, const Group& group) {
  const NoGrad guard;
  const Tensor part = x.contiguous();
  Shape by_rank = x.shape(), whole = x.shape();
  by_rank.insert(0, group.size());
  whole.back() *= group.size();
  const Tensor all = empty(by_rank, x.dtype(), x.device());
  group.all_gather(part, all);
  Axes order;
  for (int i = 1; i < x.rank(); ++i) order.push_back(i);
  order.push_back(0);
  order.push_back(x.rank());
  return all.permute(order).contiguous().reshape(whole);
}

Tensor own_part(const Tensor& x, const Group& group) {
  const std::int64_t n = x.shape().back() / group.size();
  return x.detach().slice(-1, n * group.rank(), n * (group.rank() + 1));
}

}  // namespace

Tensor sum_over_ranks(const Tensor& x, const Group& group) {
  const NoGrad guard;
  const bool narrow = x.dtype() == DType::f16 || x.dtype() == DType::bf16;
  const Tensor sum = narrow ? cast(x, DType::f32).contiguous() : x.contiguous().clone();
  group.all_reduce(sum);
  return narrow ? cast(sum, x.dtype()) : sum;
}

Tensor copy_to_ranks(const Tensor& x, const Group& group) {
  check_operand("copy_to_ranks", x, group);
  if (group.size() == 1) return x;
  return record("copy_to_ranks", x.as_strided(x.shape(), x.strides()), {&x}, {},
                [group](Backward& b) { b.accumulate(0, sum_over_ranks(b.grad(), group)); });
}

Tensor reduce_from_ranks(const Tensor& x, const Group& group) {
  check_operand("reduce_from_ranks", x, group);
  if (group.size() == 1) return x;
  return record("reduce_from_ranks", sum_over_ranks(x, group), {&x}, {},
                [](Backward& b) { b.accumulate(0, b.grad()); });
}

Tensor gather_from_ranks(const Tensor& x, const Group& group) {
  check_operand("gather_from_ranks", x, group);
  FIRN_CHECK(x.rank() > 0, "gather_from_ranks", "the ranks' parts form the last axis",
             "{} has no axis", describe(x));
  if (group.size() == 1) return x;
  return record("gather_from_ranks", side_by_side(x, group), {&x}, {},
                [group](Backward& b) { b.accumulate(0, own_part(b.grad(), group)); });
}

Tensor scatter_to_ranks(const Tensor& x, const Group& group) {
  check_operand("scatter_to_ranks", x, group);
  FIRN_CHECK(x.rank() > 0 && x.shape().back() % group.size() == 0, "scatter_to_ranks",
             "make the last axis a multiple of the ranks",
             "the last axis of {} cannot be divided by {} ranks", describe(x), group.size());
  if (group.size() == 1) return x;
  return record("scatter_to_ranks", own_part(x, group), {&x}, {},
                [group](Backward& b) { b.accumulate(0, side_by_side(b.grad(), group)); });
}

namespace {

/// Returns a stream that follows from this thread's stream and the rank. The thread's stream
/// advances by one block.
Generator own_numbers(const Group& group) {
  Generator& stream = default_generator();
  if (group.size() == 1) return stream;
  runtime::about_to_draw(stream);
  const RandomKey at = stream.reserve(1);
  const Generator here = Generator::of_thread(at.seed, at.offset + 1);
  return Generator::of_thread(here.get().seed, static_cast<std::uint64_t>(group.rank()) + 1);
}

}  // namespace

RankNumbers::RankNumbers(const Group& group)
    : own_(own_numbers(group)), scope_(group.size() == 1 ? default_generator() : own_) {}

}  // namespace firn::dist
