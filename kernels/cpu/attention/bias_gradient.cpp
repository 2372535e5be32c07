// The gradient of attention's bias on the CPU: ds, summed over the axes along which the bias was
// repeated. A task owns a tile of the gradient. It computes the probabilities of all pairs that
// read the tile anew; otherwise the sums of a repeated axis would wait for each other's tasks.
#include <optional>

#include "kernels/cpu/attention/gradient_block.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/math/sequence/attention_bias.h"
#include "kernels/sequence/attention.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kMostBlocks = 4;  ///< most blocks of queries, and of keys, in a tile
constexpr std::int64_t kLeastTasks = 16;

template <class C>
class BiasGradient {
 public:
  BiasGradient(const ConstView& dout, const ConstView& q, const ConstView& k, const ConstView& v,
               const ConstView& o, const ConstView& log_sum_exp, const AttentionArgs& args,
               const View& grad, float beta)
      : dout_(dout),
        q_(q),
        k_(k),
        v_(v),
        o_(o),
        stats_(log_sum_exp.as<C>()),
        grad_(grad),
        beta_(beta),
        sizes_(q, k, v),
        masks_(sizes_, args),
        gradient_(sizes_, args),
        products_(q.dtype) {
    for (blocks_ = kMostBlocks;; blocks_ /= 2) {
      rows_ = blocks_ * kQueryBlock;
      cols_ = blocks_ * sizes_.key_block;
      const Shape& s = grad.shape;
      tiles_ = {{sizes_.batch, sizes_.heads, sizes_.queries, sizes_.keys},
                {s[0], s[1], s[2], s[3]},
                rows_,
                cols_,
                kLeastTasks};
      if (blocks_ == 1 || tiles_.count() >= kLeastTasks) break;
    }
    rows_ = std::min(rows_, std::max<std::int64_t>(1, sizes_.queries));
    q_left_ = parts_.add(products_.left_bytes(kQueryBlock, sizes_.depth));
    do_left_ = parts_.add(products_.left_bytes(kQueryBlock, sizes_.value_depth));
    delta_ = parts_.add(kQueryBlock * kBytes);
    k_turned_ = key_parts_.add(products_.right_bytes(sizes_.depth, sizes_.key_block));
    v_turned_ = key_parts_.add(products_.right_bytes(sizes_.value_depth, sizes_.key_block));
    keys_ = parts_.add(blocks_ * key_parts_.bytes());
    p_ = parts_.add(kBlockPairs * kBytes);
    ds_ = parts_.add(kBlockPairs * kBytes);
    words_ = parts_.add(gradient_.dropout().on ? kBlockPairs * 4 : 0);
    row_ = parts_.add(cols_ * kBytes);
    sum_ = parts_.add(tiles_.parts > 1 ? 0 : rows_ * cols_ * kBytes);
  }

  void run() const {
    const std::int64_t count = tiles_.count(), parts = tiles_.parts, tile = rows_ * cols_;
    const Workspace panels({parts > 1 ? count * parts * tile : 0}, dtype_of<C>);
    C* const sums = panels.view().template as<C>();
    parallel_for_with_scratch(parts_.bytes(), count * parts, sizes_.work(), [&](std::int64_t i) {
      const Workspace scratch({parts_.bytes()}, DType::u8);
      char* const memory = scratch.view().as<char>();
      C* const sum = parts > 1 ? sums + i * tile : reinterpret_cast<C*>(memory + sum_);
      add_pairs(i / parts, i % parts, memory, sum);
      if (parts == 1) write(i, sum, reinterpret_cast<C*>(memory + row_));
    });
    if (parts == 1) return;
    parallel_for_with_scratch(slot_bytes_of<C>(cols_), count, count * parts * tile,
                              [&](std::int64_t i) {
                                const Workspace row({cols_}, dtype_of<C>);
                                C* const sum = sums + i * parts * tile;
                                for (std::int64_t part = 1; part < parts; ++part)
                                  for (std::int64_t e = 0; e < tile; ++e)
                                    sum[e] += sum[part * tile + e];
                                write(i, sum, row.view().template as<C>());
                              });
  }

 private:
  using V = Tile<C>;
  static constexpr std::int64_t kBytes = sizeof(C);

  /// sum = ds over one part of a tile's pairs; rows are cols_ apart.
  void add_pairs(std::int64_t tile, std::int64_t part, char* memory, C* sum) const {
    std::fill_n(sum, rows_ * cols_, C(0));
    const std::int64_t end = tiles_.first_repeat(part + 1);
    for (std::int64_t i = tiles_.first_repeat(part); i < end; ++i)
      add_tile(tiles_.place(tile, i), memory, sum);
  }

  void add_tile(const math::AttentionBiasTiles::Place& at, char* memory, C* sum) const {
    const PairMasks::OfHead mask(masks_, at.batch, at.head);
    const std::int64_t first_query = at.queries * blocks_, first_key = at.keys * blocks_;
    bool packed[kMostBlocks] = {};  // true for packed blocks of keys
    for (std::int64_t i = first_query; i < std::min(first_query + blocks_, sizes_.query_blocks);
         ++i) {
      const std::int64_t query = i * kQueryBlock, rows = sizes_.rows_of(i);
      const auto [first, last] = mask.key_blocks(query, rows);
      std::optional<Queries> packed_queries;
      for (std::int64_t j = std::max(first, first_key); j < std::min(first_key + blocks_, last);
           ++j) {
        const PairBlock block{query, rows, j * sizes_.key_block, masks_.cols(at.batch, j)};
        const Cover cover = mask.cover(block);
        if (cover == Cover::none) continue;
        if (!packed_queries) packed_queries = pack_queries(at, block, memory);
        char* const keys = memory + keys_ + (j - first_key) * key_parts_.bytes();
        if (!packed[j - first_key]) pack_keys(at, block, keys);
        packed[j - first_key] = true;
        const C* const ds = gradients(mask, cover, at, block, *packed_queries, keys, memory);
        C* to = sum + (i - first_query) * kQueryBlock * cols_ + (j - first_key) * sizes_.key_block;
        for (std::int64_t r = 0; r < rows; ++r, to += cols_)
          for (std::int64_t c = 0; c < block.cols; ++c) to[c] += ds[r * sizes_.key_block + c];
      }
    }
  }

  struct Queries {
    Left q, dout;
  };
  /// Packs a block of queries, and computes its delta.
  Queries pack_queries(const math::AttentionBiasTiles::Place& at, const PairBlock& block,
                       char* memory) const {
    const Matrix q = rows_of(q_, at.batch, at.head, block.query),
                 dout = rows_of(dout_, at.batch, at.head, block.query),
                 o = rows_of(o_, at.batch, at.head, block.query);
    sum_products(dout, o, block.rows, sizes_.value_depth, reinterpret_cast<C*>(memory + delta_));
    return {products_.pack_left(q, block.rows, sizes_.depth, memory + q_left_),
            products_.pack_left(dout, block.rows, sizes_.value_depth, memory + do_left_)};
  }
  void pack_keys(const math::AttentionBiasTiles::Place& at, const PairBlock& block,
                 char* keys) const {
    const std::int64_t head = at.head / sizes_.group;
    products_.pack_right(rows_of(k_, at.batch, head, block.key).transposed(), sizes_.depth,
                         block.cols, keys + k_turned_);
    products_.pack_right(rows_of(v_, at.batch, head, block.key).transposed(), sizes_.value_depth,
                         block.cols, keys + v_turned_);
  }

  /// Returns ds of a block of pairs.
  const C* gradients(const PairMasks::OfHead& mask, Cover cover,
                     const math::AttentionBiasTiles::Place& at, const PairBlock& block,
                     const Queries& queries, const char* keys, char* memory) const {
    C *const p = reinterpret_cast<C*>(memory + p_), *const ds = reinterpret_cast<C*>(memory + ds_);
    products_.multiply(block.rows, block.cols, sizes_.depth, queries.q, keys + k_turned_, p,
                       sizes_.key_block, false);
    products_.multiply(block.rows, block.cols, sizes_.value_depth, queries.dout, keys + v_turned_,
                       ds, sizes_.key_block, false);
    const std::int64_t row = (at.batch * sizes_.heads + at.head) * sizes_.queries + block.query;
    gradient_(mask, cover, block, at.batch, at.head, row, stats_ + row,
              reinterpret_cast<const C*>(memory + delta_),
              reinterpret_cast<std::uint32_t*>(memory + words_), p, ds);
    return ds;
  }

  /// Adds the rows and columns of a sum that the bias repeats, and writes the tile.
  void write(std::int64_t tile, C* sum, C* buffer) const {
    const math::AttentionBiasTiles::Place at = tiles_.place(tile);
    std::int64_t rows = std::min(rows_, grad_.shape[2] - at.queries * blocks_ * kQueryBlock);
    if (grad_.shape[2] == 1) {
      for (std::int64_t r = 1; r < rows_; ++r)
        for (std::int64_t c = 0; c < cols_; ++c) sum[c] += sum[r * cols_ + c];
      rows = 1;
    }
    const std::int64_t key = at.keys * cols_;
    View part = grad_;
    part.data = advance(grad_.data, grad_.dtype, key * grad_.strides[3]);
    part.shape[3] = std::min(cols_, grad_.shape[3] - key);
    for (std::int64_t r = 0; r < rows; ++r) {
      C* const row = sum + r * cols_;
      if (grad_.shape[3] == 1) {
        V terms(0);
        for_tiles<C>(cols_, [&](std::int64_t c) { terms += V::load(row + c); });
        row[0] = fold_lanes(terms, [](C a, C b) { return a + b; });
      }
      write_gradient(part, at.batch, at.head, at.queries * blocks_ * kQueryBlock + r, beta_, row,
                     buffer);
    }
  }

  const ConstView &dout_, &q_, &k_, &v_, &o_;
  const C* stats_;
  const View& grad_;
  float beta_;
  AttentionSizes sizes_;
  PairMasks masks_;
  GradientBlock<C> gradient_;
  Products<C> products_;
  std::int64_t blocks_, rows_, cols_;  ///< blocks along both axes of a tile, its rows and columns
  math::AttentionBiasTiles tiles_;
  // Offsets within a task's scratch, and within a packed block of keys.
  Parts parts_, key_parts_;
  std::int64_t q_left_, do_left_, delta_, keys_, p_, ds_, words_, row_, sum_;
  std::int64_t k_turned_, v_turned_;
};

}  // namespace

template <class C>
void write_bias_gradient(const ConstView& dout, const ConstView& q, const ConstView& k,
                         const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                         const AttentionArgs& args, const View& grad, float beta) {
  if (grad.numel() == 0) return;
  BiasGradient<C>(dout, q, k, v, o, log_sum_exp, args, grad, beta).run();
}

#define FIRN_WRITE_BIAS_GRADIENT(C)                                                          \
  template void write_bias_gradient<C>(const ConstView&, const ConstView&, const ConstView&, \
                                       const ConstView&, const ConstView&, const ConstView&, \
                                       const AttentionArgs&, const View&, float);
FIRN_WRITE_BIAS_GRADIENT(float)
FIRN_WRITE_BIAS_GRADIENT(double)
#undef FIRN_WRITE_BIAS_GRADIENT

}  // namespace firn::kernels::cpu::FIRN_ISA
