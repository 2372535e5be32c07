// Attention on the CPU. Key heads are taken in waves, whose keys and values are packed. Every block
// of queries then passes over the blocks of keys that it sees, with the maximum and the sum of its
// rows so far. A block of queries is one task, so the order of its sums depends on the shape alone.
#include <cmath>

#include "kernels/cpu/attention/score_bias.h"
#include "kernels/cpu/attention/tile_scratch.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/math/rows.h"
#include "kernels/sequence/attention.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kWaveBytes = std::int64_t{8} << 20;

template <class C>
class Forward {
 public:
  Forward(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionArgs& args,
          const View& o, const View& log_sum_exp)
      : q_(q),
        k_(k),
        v_(v),
        o_(o),
        stats_(log_sum_exp),
        sizes_(q, k, v),
        scale_(C(args.scale)),
        bias_(args),
        masks_(sizes_, args),
        dropout_(sizes_, args),
        products_(q.dtype) {
    key_bytes_ = products_.right_bytes(sizes_.depth, sizes_.key_block);
    block_bytes_ = key_bytes_ + products_.right_bytes(sizes_.key_block, sizes_.value_depth);
    left_ = parts_.add(products_.left_bytes(kQueryBlock, sizes_.depth));
    scores_ = parts_.add(kBlockPairs * kBytes);
    rounded_ = parts_.add(kBlockPairs * 2);
    weights_ = parts_.add(products_.left_bytes(kQueryBlock, kKeyBlock));
    words_ = parts_.add(dropout_.on ? kBlockPairs * 4 : 0);
    sums_ = parts_.add(kQueryBlock * sizes_.value_depth * kBytes);
  }

  void run() {
    const std::int64_t heads = sizes_.batch * sizes_.key_heads;
    const std::int64_t head_bytes = std::max<std::int64_t>(1, sizes_.key_blocks * block_bytes_);
    const std::int64_t wave = std::clamp<std::int64_t>(kWaveBytes / head_bytes, 1, heads);
    const Workspace panels({wave * head_bytes}, DType::u8);
    panels_ = panels.view().as<char>();
    finite_.resize(static_cast<std::size_t>(wave * sizes_.key_blocks));
    const std::int64_t work = sizes_.work() / heads * wave;
    for (first_ = 0; first_ < heads; first_ += wave) {
      const std::int64_t count = std::min(wave, heads - first_);
      parallel_for(count * sizes_.key_blocks, work / kQueryBlock,
                   [&](std::int64_t i) { pack(i / sizes_.key_blocks, i % sizes_.key_blocks); });
      const std::int64_t tasks = sizes_.group * sizes_.query_blocks;
      parallel_for_with_scratch(parts_.bytes(), count * tasks, work, [&](std::int64_t i) {
        const std::int64_t in_head = i % tasks;
        queries(i / tasks, in_head / sizes_.query_blocks, in_head % sizes_.query_blocks);
      });
    }
  }

 private:
  using V = Tile<C>;
  static constexpr std::int64_t kBytes = sizeof(C);

  char* panel(std::int64_t head, std::int64_t block) const {
    return panels_ + (head * sizes_.key_blocks + block) * block_bytes_;
  }
  std::uint8_t& finite(std::int64_t head, std::int64_t block) {
    return finite_[static_cast<std::size_t>(head * sizes_.key_blocks + block)];
  }

  /// Packs a block of keys and values of key head first_ + head.
  void pack(std::int64_t head, std::int64_t block) {
    const std::int64_t b = (first_ + head) / sizes_.key_heads;
    const std::int64_t key_head = (first_ + head) % sizes_.key_heads,
                       key = block * sizes_.key_block;
    const std::int64_t cols = masks_.cols(b, block);
    if (cols <= 0) return;
    const Matrix values = rows_of(v_, b, key_head, key);
    products_.pack_right(rows_of(k_, b, key_head, key).transposed(), sizes_.depth, cols,
                         panel(head, block));
    products_.pack_right(values, cols, sizes_.value_depth, panel(head, block) + key_bytes_);
    finite(head, block) = is_finite(values, cols, sizes_.value_depth);
  }

  /// Computes one block of queries of query head `member` of a key head.
  void queries(std::int64_t head, std::int64_t member, std::int64_t query_block) {
    const std::int64_t b = (first_ + head) / sizes_.key_heads;
    const std::int64_t key_head = (first_ + head) % sizes_.key_heads;
    const std::int64_t query_head = key_head * sizes_.group + member;
    const std::int64_t query = query_block * kQueryBlock, rows = sizes_.rows_of(query_block);
    const std::int64_t first_row = (b * sizes_.heads + query_head) * sizes_.queries + query;

    const Workspace scratch({parts_.bytes()}, DType::u8);
    char* const memory = scratch.view().as<char>();
    C* const scores = reinterpret_cast<C*>(memory + scores_);
    C* const sums = reinterpret_cast<C*>(memory + sums_);
    auto* const words = reinterpret_cast<std::uint32_t*>(memory + words_);
    const Left q =
        products_.pack_left(rows_of(q_, b, query_head, query), rows, sizes_.depth, memory + left_);
    C max[kQueryBlock], sum[kQueryBlock];
    std::fill_n(max, rows, C(-HUGE_VALF));
    std::fill_n(sum, rows, C(0));
    bool begun = false;

    const PairMasks::OfHead mask(masks_, b, query_head);
    const auto [first, end] = mask.key_blocks(query, rows);
    for (std::int64_t j = first; j < end; ++j) {
      const PairBlock block{query, rows, j * sizes_.key_block, masks_.cols(b, j)};
      const Cover cover = mask.cover(block);
      if (cover == Cover::none) continue;
      const char* const keys = panel(head, j);
      products_.multiply(rows, block.cols, sizes_.depth, q, keys, scores, sizes_.key_block, false);
      const bool whole = cover == Cover::all && block.cols % V::size == 0 && !bias_.given();
      if (!whole) scale_and_hide(mask, block, b, query_head, scores);
      const C scale = whole ? scale_ : C(1);
      for (std::int64_t r = 0; r < rows; ++r) {
        const C before = max[r];
        const C added = softmax_row(scores + r * sizes_.key_block, block.cols, scale, max[r]);
        if (max[r] == before) {
          sum[r] += added;
          continue;
        }
        const C factor = std::exp(before - math::softmax_shift(max[r]));
        sum[r] = sum[r] * factor + added;
        C* const row = sums + r * sizes_.value_depth;
        for (std::int64_t i = 0; i < sizes_.value_depth && begun; ++i) row[i] *= factor;
      }
      if (dropout_.on) drop(first_row, block, words, scores);
      if (cover == Cover::some && !finite(head, j)) {
        if (!begun) std::fill_n(sums, rows * sizes_.value_depth, C(0));
        add_seen_rows(mask, block, scores, sizes_.key_block, rows_of(v_, b, key_head, block.key),
                      sizes_.value_depth, sums);
      } else {
        const Left p = products_.take_left(
            as_factor(scores, sizes_.key_block, block, sizes_.dtype, memory + rounded_), rows,
            block.cols, memory + weights_);
        products_.multiply(rows, sizes_.value_depth, block.cols, p, keys + key_bytes_, sums,
                           sizes_.value_depth, begun);
      }
      begun = true;
    }
    if (!begun) std::fill_n(sums, rows * sizes_.value_depth, C(0));
    for (std::int64_t r = 0; r < rows; ++r) {
      C* const row = sums + r * sizes_.value_depth;
      const C share = math::softmax_share(sum[r]) * C(dropout_.share);
      for (std::int64_t i = 0; i < sizes_.value_depth; ++i) row[i] *= share;
      const std::int64_t at =
          b * o_.strides[0] + query_head * o_.strides[1] + (query + r) * o_.strides[2];
      store_row(row, advance(o_.data, o_.dtype, at), o_.dtype, 1, sizes_.value_depth);
      if (stats_.data) stats_.as<C>()[first_row + r] = math::log_sum_exp(max[r], sum[r]);
    }
  }

  /// Scales products and adds the bias, then writes -inf for hidden pairs and for the rest of a
  /// row's last tile.
  void scale_and_hide(const PairMasks::OfHead& mask, const PairBlock& block, std::int64_t b,
                      std::int64_t head, C* scores) const {
    const std::int64_t whole = math::ceil_div(block.cols, V::size) * V::size;
    const bool biased = bias_.given();
    if (biased) bias_.add(b, head, block, scores, sizes_.key_block);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      C* const row = scores + r * sizes_.key_block;
      for (std::int64_t c = 0; c < block.cols && !biased; ++c) row[c] *= scale_;
      std::fill(row + block.cols, row + whole, C(-HUGE_VALF));
    }
    mask.hide(block, scores, sizes_.key_block, C(-HUGE_VALF));
  }

  /// Replaces x by e^(scale x - shift) and returns their sum. `max` is the largest score so far,
  /// and decides the shift.
  static C softmax_row(C* row, std::int64_t cols, C scale, C& max) {
    const V factor(scale);
    V largest(max);
    for_tiles<C>(cols,
                 [&](std::int64_t i) { largest = tiles::max(largest, V::load(row + i) * factor); });
    max = fold_lanes(largest, [](C a, C b) { return math::max(a, b); });
    const math::ShiftedExp<V> term{V(math::softmax_shift(max))};
    V terms(0);
    for_tiles<C>(cols, [&](std::int64_t i) {
      const V p = term(V::load(row + i) * factor);
      p.store(row + i);
      terms += p;
    });
    return fold_lanes(terms, [](C a, C b) { return a + b; });
  }

  void drop(std::int64_t first_row, const PairBlock& block, std::uint32_t* words, C* p) const {
    dropout_.words(first_row, block, words);
    for (std::int64_t r = 0; r < block.rows; ++r, p += sizes_.key_block, words += kKeyBlock)
      for (std::int64_t c = 0; c < block.cols; ++c)
        p[c] = words[c] >= dropout_.threshold ? p[c] : C(0);
  }

  const ConstView &q_, &k_, &v_;
  const View &o_, &stats_;
  AttentionSizes sizes_;
  C scale_;
  ScoreBias<C> bias_;
  PairMasks masks_;
  AttentionDropout dropout_;
  Products<C> products_;
  std::int64_t key_bytes_, block_bytes_;  ///< packed keys of a block, and keys with values
  Parts parts_;
  std::int64_t left_, scores_, rounded_, weights_, words_, sums_;  ///< parts of a task's scratch
  std::int64_t first_ = 0;                                         ///< first key head of the wave
  char* panels_ = nullptr;
  std::vector<std::uint8_t> finite_;  ///< true if all values of a block are finite
};

}  // namespace

void attention(const ConstView& q, const ConstView& k, const ConstView& v,
               const AttentionArgs& args, const View& o, const View& log_sum_exp, Stream) {
  if (o.numel() == 0 && (!log_sum_exp.data || log_sum_exp.numel() == 0)) return;
  if (q.dtype == DType::f64) {
    Forward<double>(q, k, v, args, o, log_sum_exp).run();
  } else {
    Forward<float>(q, k, v, args, o, log_sum_exp).run();
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
