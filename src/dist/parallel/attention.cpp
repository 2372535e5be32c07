// ParallelMultiHeadAttention: an nn::MultiHeadAttention of this rank's heads.
#include <optional>
#include <vector>

#include "dist/parallel/exchange.h"
#include "firn/autograd.h"
#include "firn/dist/distribute.h"
#include "firn/dist/parallel/functions.h"
#include "firn/dist/parallel/layers.h"
#include "firn/ops/ops.h"

namespace firn::dist {
namespace {

constexpr const char* kLayer = "ParallelMultiHeadAttention";

/// Makes the layer of one rank from the options of the whole layer.
nn::MultiHeadAttention heads_of_rank(const Group& group, std::int64_t width, std::int64_t heads,
                                     nn::MultiHeadAttentionOptions o) {
  require_device_of(kLayer, o.device, group);
  if (heads > 0 && o.head_width == 0) o.head_width = width / heads;
  if (o.key_heads > 0) o.key_heads = part_of(kLayer, "key_heads", o.key_heads, group).size();
  const AxisPart own = part_of(kLayer, "heads", heads, group);
  Generator unused;  // its weights are replaced
  const GeneratorScope scope(unused);
  return nn::MultiHeadAttention(width, own.size(), o);
}

/// Returns this rank's rows of `whole`, whose blocks (of `blocks` rows each) are sharded.
nn::Parameter rows_of(const Tensor& whole, const std::vector<std::int64_t>& blocks,
                      const Group& group) {
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (const std::int64_t rows : blocks) {
    const AxisPart own = part_of(kLayer, "rows", rows, group);
    parts.push_back(whole.detach().slice(0, begin + own.first, begin + own.last));
    begin += rows;
  }
  nn::Parameter out(cat(parts, 0));
  if (group.size() > 1) mark_sharded(out);
  return out;
}

void take_rows(nn::Linear& to, const nn::Linear& whole, const std::vector<std::int64_t>& blocks,
               const Group& group) {
  to.weight = rows_of(whole.weight, blocks, group);
  if (whole.bias.defined()) to.bias = rows_of(whole.bias, blocks, group);
}

/// Returns this rank's heads of a mask or bias with an axis of all `heads`; else returns `t`.
Tensor part_of_rank(const Tensor& t, std::int64_t heads, const Group& group) {
  if (group.size() == 1 || !t.defined() || t.rank() < 3 || t.size(-3) != heads) return t;
  const AxisPart own = part_of(kLayer, "heads", heads, group);
  return slice(t, t.rank() - 3, own.first, own.last);
}

}  // namespace

FIRN_DEFINE_MEMBERS(ParallelMultiHeadAttention, heads, bias)

ParallelMultiHeadAttention::ParallelMultiHeadAttention(const Group& group, std::int64_t width,
                                                       std::int64_t head_count,
                                                       const nn::MultiHeadAttentionOptions& options)
    : heads(heads_of_rank(group, width, head_count, options)),
      group_(group),
      heads_(head_count / group.size()),
      own_numbers_(options.dropout > 0) {
  nn::MultiHeadAttention whole(width, head_count, options);
  const std::int64_t d = options.head_width > 0 ? options.head_width : width / head_count;
  const std::int64_t keys = d * (options.key_heads > 0 ? options.key_heads : head_count);
  if (whole.qkv) {
    take_rows(*heads.qkv, *whole.qkv, {d * head_count, keys, keys}, group);
  } else {
    take_rows(*heads.q, *whole.q, {d * head_count}, group);
    take_rows(*heads.kv, *whole.kv, {keys, keys}, group);
  }
  const AxisPart own = part_of(kLayer, "inputs of `out`", d * head_count, group);
  heads.out.weight =
      nn::Parameter(whole.out.weight.detach().slice(1, own.first, own.last).contiguous());
  if (group.size() > 1) mark_sharded(heads.out.weight);
  heads.out.bias = nn::Parameter();
  bias = whole.out.bias;
}

Tensor ParallelMultiHeadAttention::forward(const Tensor& x) { return forward(x, nn::SeenKeys{}); }

Tensor ParallelMultiHeadAttention::forward(const Tensor& x, const nn::SeenKeys& seen) {
  const Tensor h = copy_to_ranks(x, group_);
  std::optional<RankNumbers> numbers;
  if (own_numbers_ && training()) numbers.emplace(group_);
  return finish(heads(h, of_rank(seen)));
}

Tensor ParallelMultiHeadAttention::forward(const Tensor& x, const Tensor& memory,
                                           const nn::SeenKeys& seen) {
  const Tensor h = copy_to_ranks(x, group_), m = copy_to_ranks(memory, group_);
  std::optional<RankNumbers> numbers;
  if (own_numbers_ && training()) numbers.emplace(group_);
  return finish(heads(h, m, of_rank(seen)));
}

nn::SeenKeys ParallelMultiHeadAttention::of_rank(nn::SeenKeys seen) const {
  const std::int64_t all = heads_ * group_.size();
  if (seen.bias.defined()) seen.bias = part_of_rank(copy_to_ranks(seen.bias, group_), all, group_);
  seen.mask = part_of_rank(seen.mask, all, group_);
  return seen;
}

Tensor ParallelMultiHeadAttention::finish(const Tensor& partial) const {
  return with_bias(reduce_from_ranks(partial, group_), bias);
}

std::string ParallelMultiHeadAttention::extra_repr() const {
  return fmt::format("{} ranks", group_.size());
}

}  // namespace firn::dist
