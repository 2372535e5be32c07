// The gradients of attention on the CPU. With probabilities p = e^(scale q k + bias - log_sum_exp),
//   dv = p^T do,  dp = do v^T,  ds = p (dp - delta),  delta = sum of do o,
//   dq = scale ds k,  dk = scale ds^T q,  dbias = ds (bias_gradient.cpp).
// A task takes every chunks-th block of keys of a key head, since under a causal mask the first
// blocks are seen most. It adds dk and dv of one block after the other over all queries that see
// it, and dq into a sum of its own. The sums of the chunks are added in their order. Chunks and
// waves of heads depend on the shape alone.
#include "kernels/cpu/attention/gradient_block.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/cpu/device/transpose.h"
#include "kernels/sequence/attention.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kWaveBytes = std::int64_t{16} << 20;
constexpr std::int64_t kLeastTasks = 8;

template <class C>
class Backward {
 public:
  Backward(const ConstView& dout, const ConstView& q, const ConstView& k, const ConstView& v,
           const ConstView& o, const ConstView& log_sum_exp, const AttentionArgs& args,
           const AttentionGrads& grads)
      : dout_(dout),
        q_(q),
        k_(k),
        v_(v),
        o_(o),
        grads_(grads),
        stats_(log_sum_exp.as<C>()),
        sizes_(q, k, v),
        scale_(C(args.scale)),
        masks_(sizes_, args),
        gradient_(sizes_, args),
        products_(q.dtype) {
    const std::int64_t d = sizes_.depth, dv = sizes_.value_depth;
    q_left_ = query_parts_.add(products_.left_bytes(kQueryBlock, d));
    const auto turned_bytes = [&](std::int64_t depth) {
      return products_.any_strides() ? products_.right_bytes(kQueryBlock, depth)
                                     : products_.left_bytes(depth, kQueryBlock);
    };
    q_turned_ = query_parts_.add(turned_bytes(d));
    do_left_ = query_parts_.add(products_.left_bytes(kQueryBlock, dv));
    do_turned_ = query_parts_.add(turned_bytes(dv));
    delta_ = query_parts_.add(kQueryBlock * kBytes);
    k_turned_ = key_parts_.add(products_.right_bytes(d, sizes_.key_block));
    k_right_ = key_parts_.add(products_.right_bytes(sizes_.key_block, d));
    v_turned_ = key_parts_.add(products_.right_bytes(dv, sizes_.key_block));
    p_ = parts_.add(kBlockPairs * kBytes);
    ds_ = parts_.add(kBlockPairs * kBytes);
    rounded_ = parts_.add(kBlockPairs * 2);
    words_ = parts_.add(gradient_.dropout().on ? kBlockPairs * 4 : 0);
    left_ = parts_.add(products_.left_bytes(kQueryBlock, kKeyBlock));
    right_ = parts_.add(products_.right_bytes(kQueryBlock, kKeyBlock));
    dk_ = parts_.add(d * kKeyBlock * kBytes);
    dv_ = parts_.add(dv * kKeyBlock * kBytes);
    rows_ = parts_.add((kKeyBlock + 1) * std::max(d, dv) * kBytes);
  }

  void run() {
    const std::int64_t heads = sizes_.batch * sizes_.key_heads;
    const std::int64_t blocks = sizes_.group * sizes_.query_blocks;  // query blocks of a key head
    dq_bytes_ = grads_.dq.data ? kQueryBlock * sizes_.depth * kBytes : 0;
    const std::int64_t head_bytes = std::max<std::int64_t>(
        1, blocks * (query_parts_.bytes() + dq_bytes_) + sizes_.key_blocks * key_parts_.bytes());
    wave_ = std::clamp<std::int64_t>(kWaveBytes / head_bytes, 1, heads);
    if (wave_ > kLeastTasks) wave_ = wave_ / kLeastTasks * kLeastTasks;
    chunks_ = std::clamp<std::int64_t>(math::ceil_div(kLeastTasks, wave_), 1,
                                       std::max<std::int64_t>(1, sizes_.key_blocks));
    const Workspace queries({wave_ * blocks * query_parts_.bytes()}, DType::u8);
    const Workspace keys({wave_ * sizes_.key_blocks * key_parts_.bytes()}, DType::u8);
    const Workspace dq({chunks_ * wave_ * blocks * dq_bytes_}, DType::u8);
    query_panels_ = queries.view().as<char>();
    key_panels_ = keys.view().as<char>();
    dq_panels_ = dq.view().as<char>();
    query_state_.resize(static_cast<std::size_t>(wave_ * blocks));
    key_finite_.resize(static_cast<std::size_t>(wave_ * sizes_.key_blocks));

    const std::int64_t work = sizes_.work() / heads * wave_;
    for (first_ = 0; first_ < heads; first_ += wave_) {
      const std::int64_t count = std::min(wave_, heads - first_);
      dq_begun_.assign(static_cast<std::size_t>(chunks_ * wave_ * blocks), 0);
      parallel_for(count * (blocks + sizes_.key_blocks), work / kQueryBlock, [&](std::int64_t i) {
        i < count* blocks ? pack_queries(i) : pack_keys(i - count * blocks);
      });
      parallel_for_with_scratch(parts_.bytes(), count * chunks_, work,
                                [&](std::int64_t i) { keys_of(i / chunks_, i % chunks_); });
      if (!grads_.dq.data) continue;
      const std::int64_t rows = std::min(kQueryBlock, sizes_.queries) + 1;
      parallel_for_with_scratch(slot_bytes_of<C>(rows * sizes_.depth), count * blocks,
                                work / kQueryBlock, [&](std::int64_t i) { write_dq(i); });
    }
  }

 private:
  static constexpr std::int64_t kBytes = sizeof(C);

  /// Position of block `block` of head `head` of batch entry b.
  struct Place {
    std::int64_t b, key_head, head, block;
  };
  /// Returns the place of the wave's block of queries i. Blocks are ordered by key head, then query
  /// head.
  Place query_place(std::int64_t i) const {
    const std::int64_t member = i / sizes_.query_blocks % sizes_.group;
    const std::int64_t key = first_ + i / (sizes_.query_blocks * sizes_.group);
    const std::int64_t key_head = key % sizes_.key_heads;
    return {key / sizes_.key_heads, key_head, key_head * sizes_.group + member,
            i % sizes_.query_blocks};
  }
  Place key_place(std::int64_t i) const {
    const std::int64_t key = first_ + i / sizes_.key_blocks, key_head = key % sizes_.key_heads;
    return {key / sizes_.key_heads, key_head, key_head, i % sizes_.key_blocks};
  }
  /// Rows of a block of queries as add_to_keys() takes them: packed as its right factor, or
  /// transposed as its left one.
  struct Turned {
    Left left;
    const char* right;
  };
  Turned turned(const Matrix& x, std::int64_t rows, std::int64_t depth, char* to) const {
    if (!products_.any_strides())
      return {products_.pack_left(x.transposed(), depth, rows, to), nullptr};
    products_.pack_right(x, rows, depth, to);
    return {{}, to};
  }
  char* query_panel(std::int64_t i) const { return query_panels_ + i * query_parts_.bytes(); }
  char* key_panel(std::int64_t i) const { return key_panels_ + i * key_parts_.bytes(); }
  std::int64_t dq_number(std::int64_t chunk, std::int64_t i) const {
    return chunk * wave_ * sizes_.group * sizes_.query_blocks + i;
  }
  C* dq_panel(std::int64_t number) const {
    return reinterpret_cast<C*>(dq_panels_ + number * dq_bytes_);
  }
  std::int64_t row_number(const Place& at) const {
    return (at.b * sizes_.heads + at.head) * sizes_.queries + at.block * kQueryBlock;
  }

  void pack_queries(std::int64_t i) {
    const Place at = query_place(i);
    const std::int64_t query = at.block * kQueryBlock, rows = sizes_.rows_of(at.block);
    const std::int64_t d = sizes_.depth, dv = sizes_.value_depth;
    const Matrix q = rows_of(q_, at.b, at.head, query), dout = rows_of(dout_, at.b, at.head, query);
    const Matrix o = rows_of(o_, at.b, at.head, query);
    char* const to = query_panel(i);
    QueryState& state = query_state_[static_cast<std::size_t>(i)];
    state = {products_.pack_left(q, rows, d, to + q_left_),
             products_.pack_left(dout, rows, dv, to + do_left_),
             turned(q, rows, d, to + q_turned_),
             turned(dout, rows, dv, to + do_turned_),
             is_finite(q, rows, d),
             is_finite(dout, rows, dv)};
    sum_products(dout, o, rows, dv, reinterpret_cast<C*>(to + delta_));
  }

  void pack_keys(std::int64_t i) {
    const Place at = key_place(i);
    const std::int64_t key = at.block * sizes_.key_block, cols = masks_.cols(at.b, at.block);
    if (cols <= 0) return;
    const Matrix k = rows_of(k_, at.b, at.head, key);
    char* const to = key_panel(i);
    products_.pack_right(k.transposed(), sizes_.depth, cols, to + k_turned_);
    products_.pack_right(k, cols, sizes_.depth, to + k_right_);
    products_.pack_right(rows_of(v_, at.b, at.head, key).transposed(), sizes_.value_depth, cols,
                         to + v_turned_);
    key_finite_[static_cast<std::size_t>(i)] = is_finite(k, cols, sizes_.depth);
  }

  /// Computes the blocks of keys of a chunk, one after the other.
  void keys_of(std::int64_t head, std::int64_t chunk) {
    const Workspace scratch({parts_.bytes()}, DType::u8);
    for (std::int64_t j = chunk; j < sizes_.key_blocks; j += chunks_) {
      const std::int64_t number = head * sizes_.key_blocks + j;
      const Place at = key_place(number);
      const std::int64_t key = j * sizes_.key_block, cols = masks_.cols(at.b, j);
      bool begun = false;
      for (std::int64_t member = 0; member < sizes_.group; ++member) {
        const std::int64_t query_head = at.key_head * sizes_.group + member;
        const PairMasks::OfHead mask(masks_, at.b, query_head);
        const auto [first, last] = mask.query_blocks(key, cols);
        for (std::int64_t i = first; i < last; ++i) {
          const PairBlock block{i * kQueryBlock, sizes_.rows_of(i), key, cols};
          const Cover cover = mask.cover(block);
          if (cover == Cover::none) continue;
          const std::int64_t queries = (head * sizes_.group + member) * sizes_.query_blocks + i;
          pairs(mask, cover, block, number, queries, chunk, begun, scratch.view().as<char>());
          begun = true;
        }
      }
      write_keys(at, begun ? cols : 0, scratch.view().as<char>());
    }
  }

  /// Adds what one block of pairs contributes. If `begun`, dk and dv hold sums already.
  void pairs(const PairMasks::OfHead& mask, Cover cover, const PairBlock& block, std::int64_t keys,
             std::int64_t queries, std::int64_t chunk, bool begun, char* memory) {
    const std::int64_t d = sizes_.depth, dv = sizes_.value_depth;
    const std::int64_t rows = block.rows, cols = block.cols;
    const Place at = query_place(queries);
    const QueryState& state = query_state_[static_cast<std::size_t>(queries)];
    const char* const k = key_panel(keys);
    C *const p = reinterpret_cast<C*>(memory + p_), *const ds = reinterpret_cast<C*>(memory + ds_);
    products_.multiply(rows, cols, d, state.q, k + k_turned_, p, sizes_.key_block, false);
    products_.multiply(rows, cols, dv, state.dout, k + v_turned_, ds, sizes_.key_block, false);
    const C* const delta = reinterpret_cast<const C*>(query_panel(queries) + delta_);
    const std::int64_t row = row_number(at);
    gradient_(mask, cover, block, at.b, at.head, row, stats_ + row, delta,
              reinterpret_cast<std::uint32_t*>(memory + words_), p, ds);
    if (grads_.dv.data) {
      const Matrix factor = as_factor(p, sizes_.key_block, block, sizes_.dtype, memory + rounded_);
      if (cover == Cover::some && !state.do_finite) {
        add_seen(mask, block, p, rows_of(dout_, at.b, at.head, block.query), dv, begun,
                 memory + dv_);
      } else {
        add_to_keys(block, factor, state.do_turned, dv, begun, memory, dv_);
      }
    }
    if (!grads_.dk.data && !grads_.dq.data) return;
    const Matrix factor = as_factor(ds, sizes_.key_block, block, sizes_.dtype, memory + rounded_);
    if (grads_.dk.data) {
      if (cover == Cover::some && !state.q_finite) {
        add_seen(mask, block, ds, rows_of(q_, at.b, at.head, block.query), d, begun, memory + dk_);
      } else {
        add_to_keys(block, factor, state.q_turned, d, begun, memory, dk_);
      }
    }
    if (grads_.dq.data) {
      const std::int64_t number = dq_number(chunk, queries);
      std::uint8_t& dq_begun = dq_begun_[static_cast<std::size_t>(number)];
      C* const sum = dq_panel(number);
      if (cover == Cover::some && key_finite_[static_cast<std::size_t>(keys)] == 0) {
        if (!dq_begun) std::fill_n(sum, rows * d, C(0));
        add_seen_rows(mask, block, ds, sizes_.key_block, rows_of(k_, at.b, at.key_head, block.key),
                      d, sum);
      } else {
        const Left left = products_.take_left(factor, rows, cols, memory + left_);
        products_.multiply(rows, d, cols, left, k + k_right_, sum, d, dq_begun != 0);
      }
      dq_begun = 1;
    }
  }

  /// sum += weights^T rows, for a block of queries whose rows are packed. The kernel decides which
  /// factor is cheaper to transpose, and hence whether the sum is transposed.
  void add_to_keys(const PairBlock& block, const Matrix& weights, const Turned& rows,
                   std::int64_t depth, bool begun, char* memory, std::int64_t part) const {
    C* const sum = reinterpret_cast<C*>(memory + part);
    if (products_.any_strides()) {
      const Left left =
          products_.take_left(weights.transposed(), block.cols, block.rows, memory + right_);
      products_.multiply(block.cols, depth, block.rows, left, rows.right, sum, depth, begun);
    } else {
      products_.pack_right(weights, block.rows, block.cols, memory + right_);
      products_.multiply(depth, block.cols, block.rows, rows.left, memory + right_, sum,
                         sizes_.key_block, begun);
    }
  }
  /// Does what add_to_keys() does, but one by one for the pairs that are seen.
  void add_seen(const PairMasks::OfHead& mask, const PairBlock& block, const C* weights,
                const Matrix& rows, std::int64_t depth, bool begun, char* to) const {
    C* const sum = reinterpret_cast<C*>(to);
    if (!begun) std::fill_n(sum, depth * sizes_.key_block, C(0));
    const bool upright = products_.any_strides();
    add_seen_columns(mask, block, weights, sizes_.key_block, rows, depth, sum, upright ? depth : 1,
                     upright ? 1 : sizes_.key_block);
  }

  /// Writes dk and dv of a block of keys from their sums, of which the first `cols`
  /// columns have been computed; the gradients of other keys are 0.
  void write_keys(const Place& at, std::int64_t cols, char* memory) const {
    const auto write = [&](const View& grad, float beta, std::int64_t part, std::int64_t depth,
                           C factor) {
      if (!grad.data) return;
      C *rows = reinterpret_cast<C*>(memory + part),
        *upright = reinterpret_cast<C*>(memory + rows_);
      C* const buffer = upright + sizes_.key_block * depth;
      if (!products_.any_strides()) {
        transpose_block(rows, sizes_.key_block, upright, depth, cols, depth);
        rows = upright;
      }
      const std::int64_t all =
          std::min(sizes_.key_block, sizes_.keys - at.block * sizes_.key_block);
      for (std::int64_t i = 0; i < cols * depth; ++i) rows[i] *= factor;
      std::fill_n(rows + cols * depth, (all - cols) * depth, C(0));
      for (std::int64_t c = 0; c < all; ++c)
        write_gradient(grad, at.b, at.head, at.block * sizes_.key_block + c, beta, rows + c * depth,
                       buffer);
    };
    write(grads_.dk, grads_.dk_beta, dk_, sizes_.depth, scale_);
    write(grads_.dv, grads_.dv_beta, dv_, sizes_.value_depth, C(gradient_.dropout().share));
  }

  /// Adds the chunks' sums of a block of queries, and writes dq.
  void write_dq(std::int64_t i) const {
    const Place at = query_place(i);
    const std::int64_t d = sizes_.depth, rows = sizes_.rows_of(at.block);
    const Workspace total({rows + 1, d}, dtype_of<C>);
    C* const sum = total.view().as<C>();
    std::fill_n(sum, rows * d, C(0));
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      const std::int64_t number = dq_number(chunk, i);
      if (!dq_begun_[static_cast<std::size_t>(number)]) continue;
      const C* const part = dq_panel(number);
      for (std::int64_t e = 0; e < rows * d; ++e) sum[e] += part[e];
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      C* const row = sum + r * d;
      for (std::int64_t e = 0; e < d; ++e) row[e] *= scale_;
      write_gradient(grads_.dq, at.b, at.head, at.block * kQueryBlock + r, grads_.dq_beta, row,
                     sum + rows * d);
    }
  }

  const ConstView &dout_, &q_, &k_, &v_, &o_;
  const AttentionGrads& grads_;
  const C* stats_;
  AttentionSizes sizes_;
  C scale_;
  PairMasks masks_;
  GradientBlock<C> gradient_;
  Products<C> products_;
  // Offsets within the panels of a block of queries, of a block of keys, and a task's scratch.
  Parts query_parts_, key_parts_, parts_;
  std::int64_t q_left_, q_turned_, do_left_, do_turned_, delta_;
  std::int64_t k_turned_, k_right_, v_turned_;
  std::int64_t p_, ds_, rounded_, words_, left_, right_, dk_, dv_, rows_;
  std::int64_t dq_bytes_ = 0, wave_ = 1, chunks_ = 1;
  std::int64_t first_ = 0;  ///< first key head of the wave
  char *query_panels_ = nullptr, *key_panels_ = nullptr, *dq_panels_ = nullptr;
  /// Packed factors of a block of queries. The flags are true if all elements are finite.
  struct QueryState {
    Left q, dout;
    Turned q_turned, do_turned;
    bool q_finite, do_finite;
  };
  std::vector<QueryState> query_state_;
  std::vector<std::uint8_t> key_finite_, dq_begun_;
};

}  // namespace

void attention_backward(const ConstView& dout, const ConstView& q, const ConstView& k,
                        const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                        const AttentionArgs& args, const AttentionGrads& grads, Stream) {
  const auto run = [&]<class C>(C) {
    if (grads.dbias.data)
      write_bias_gradient<C>(dout, q, k, v, o, log_sum_exp, args, grads.dbias, grads.dbias_beta);
    if (!grads.dq.data && !grads.dk.data && !grads.dv.data) return;
    if (q.shape[0] == 0 || k.shape[1] == 0) return;
    Backward<C>(dout, q, k, v, o, log_sum_exp, args, grads).run();
  };
  q.dtype == DType::f64 ? run(double()) : run(float());
}

}  // namespace firn::kernels::cpu::FIRN_ISA
