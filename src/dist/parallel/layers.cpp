// ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding, ParallelSwiGLU.
#include "firn/dist/parallel/layers.h"

#include "dist/parallel/exchange.h"
#include "firn/autograd.h"
#include "firn/dist/distribute.h"
#include "firn/dist/parallel/functions.h"
#include "firn/nn/layers/embedding.h"
#include "firn/ops/elementwise.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "tensor/impl.h"

namespace firn::dist {
namespace {

/// Returns a parameter with elements [part.first, part.last) of an axis of `whole`.
nn::Parameter sharded(const Tensor& whole, std::int64_t axis, const AxisPart& part) {
  nn::Parameter out(whole.detach().slice(axis, part.first, part.last).contiguous());
  if (part.size() < whole.size(axis)) mark_sharded(out);
  return out;
}

std::string sizes(std::int64_t in, std::int64_t out, bool bias, const Group& group) {
  return fmt::format("{}, {}{}, {} ranks", in, out, bias ? "" : ", bias = false", group.size());
}

constexpr const char* kEmbedding = "VocabParallelEmbedding";

}  // namespace

FIRN_DEFINE_MEMBERS(ColumnParallelLinear, weight, bias)
FIRN_DEFINE_MEMBERS(RowParallelLinear, weight, bias)
FIRN_DEFINE_MEMBERS(VocabParallelEmbedding, weight)
FIRN_DEFINE_MEMBERS(ParallelSwiGLU, gate, up, down)

OwnIndices own_indices(const Tensor& index, std::int64_t first, std::int64_t rows,
                       std::int64_t all) {
  const auto in = [&index](std::int64_t begin, std::int64_t end) {
    return logical_and(ge(index, static_cast<double>(begin)), lt(index, static_cast<double>(end)));
  };
  OwnIndices out{.at = {}, .here = in(first, first + rows)};
  const Tensor others = where(in(0, all), zeros_like(index), -1);
  out.at = where(out.here, index - static_cast<double>(first), others);
  return out;
}

Tensor with_bias(const Tensor& y, const Tensor& bias) {
  if (!bias.defined()) return y;
  return y + (bias.dtype() == y.dtype() ? bias : cast(bias, y.dtype()));
}

ColumnParallelLinear::ColumnParallelLinear(const Group& group, std::int64_t in, std::int64_t out,
                                           const ColumnParallelOptions& options)
    : group_(group), gather_output_(options.gather_output) {
  const AxisPart part = part_of("ColumnParallelLinear", "out", out, group);
  const nn::Linear whole(
      in, out, {.bias = options.bias, .dtype = options.dtype, .device = device_of(group)});
  weight = sharded(whole.weight, 0, part);
  if (options.bias) bias = sharded(whole.bias, 0, part);
}

Tensor ColumnParallelLinear::forward(const Tensor& x) {
  const Tensor y = linear(copy_to_ranks(x, group_), weight, bias);
  return gather_output_ ? gather_from_ranks(y, group_) : y;
}

std::string ColumnParallelLinear::extra_repr() const {
  return sizes(weight.size(1), weight.size(0) * group_.size(), bias.defined(), group_) +
         (gather_output_ ? ", gather_output = true" : "");
}

RowParallelLinear::RowParallelLinear(const Group& group, std::int64_t in, std::int64_t out,
                                     const RowParallelOptions& options)
    : group_(group), input_is_parallel_(options.input_is_parallel) {
  const AxisPart part = part_of("RowParallelLinear", "in", in, group);
  nn::Linear whole(in, out,
                   {.bias = options.bias, .dtype = options.dtype, .device = device_of(group)});
  weight = sharded(whole.weight, 1, part);
  bias = whole.bias;
}

Tensor RowParallelLinear::forward(const Tensor& x) {
  if (group_.size() == 1) return linear(x, weight, bias);
  const Tensor part = input_is_parallel_ ? x : scatter_to_ranks(x, group_);
  return with_bias(reduce_from_ranks(linear(part, weight), group_), bias);
}

std::string RowParallelLinear::extra_repr() const {
  return sizes(weight.size(1) * group_.size(), weight.size(0), bias.defined(), group_) +
         (input_is_parallel_ ? "" : ", input_is_parallel = false");
}

VocabParallelEmbedding::VocabParallelEmbedding(const Group& group, std::int64_t vocab,
                                               std::int64_t dim, DType dtype)
    : group_(group) {
  const AxisPart part = part_of("VocabParallelEmbedding", "vocab", vocab, group);
  const nn::Embedding whole(vocab, dim, {.dtype = dtype, .device = device_of(group)});
  weight = sharded(whole.weight, 0, part);
}

/// Checks indices on the CPU. A device finds a bad index as embedding() does.
void VocabParallelEmbedding::check_indices(const Tensor& index) const {
  if (!index.device().is_cpu() || runtime::dry_run()) return;
  const std::int64_t vocab = weight.size(0) * group_.size();
  const auto* const i = index.data<std::int64_t>();
  for (std::int64_t at = 0; at < index.numel(); ++at)
    FIRN_CHECK(i[at] >= 0 && i[at] < vocab, kEmbedding,
               "indices count from 0, over all ranks' rows",
               "index {} at position {} is outside of [0, {})", i[at], at, vocab);
}

Tensor VocabParallelEmbedding::forward(const Tensor& index) {
  require_defined(kEmbedding, index);
  FIRN_CHECK(index.dtype() == DType::i64 || index.dtype() == DType::i32, kEmbedding,
             "give i64 or i32", "{} are no indices", describe(index));
  if (group_.size() == 1) return embedding(weight, index);
  require_there(kEmbedding, index, group_);
  const std::int64_t rows = weight.size(0), first = rows * group_.rank();
  Tensor own, here;
  {
    const NoGrad guard;
    const Tensor numbers = cast(index, DType::i64).contiguous();
    check_indices(numbers);
    const OwnIndices mine = own_indices(numbers, first, rows, rows * group_.size());
    own = mine.at;
    here = mine.here;
  }
  return reduce_from_ranks(where(here.unsqueeze(-1), embedding(weight, own), 0.0), group_);
}

std::string VocabParallelEmbedding::extra_repr() const {
  return fmt::format("{}, {}, {} ranks", weight.size(0) * group_.size(), weight.size(1),
                     group_.size());
}

ParallelSwiGLU::ParallelSwiGLU(const Group& group, std::int64_t width, std::int64_t hidden,
                               const nn::SwiGLUOptions& options)
    : gate(group, width, hidden, {.bias = options.bias, .dtype = options.dtype}),
      up(group, width, hidden, {.bias = options.bias, .dtype = options.dtype}),
      down(group, hidden, width, {.bias = options.bias, .dtype = options.dtype}),
      group_(group) {
  require_device_of("ParallelSwiGLU", options.device, group);
  to(options.device);  // moves layers of one rank
}

/// Copies x once for both projections, so that their gradients are summed over the ranks at once.
Tensor ParallelSwiGLU::forward(const Tensor& x) {
  const Tensor h = copy_to_ranks(x, group_);
  return down(swiglu(linear(h, gate.weight, gate.bias), linear(h, up.weight, up.bias)));
}

std::string ParallelSwiGLU::extra_repr() const {
  return sizes(gate.weight.size(1), gate.weight.size(0) * group_.size(), gate.bias.defined(),
               group_);
}

}  // namespace firn::dist
