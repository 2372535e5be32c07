// Products: matmul(), linear(), chains of layers, and sums of products over named axes. The latter
// are made of matmul(), linear(), mul(), sum() and views. So a contraction adds in f32 (f64 for
// f64) and takes strided operands without a copy. Operands share a floating dtype.
// Under autocast contractions run in the guard's 16-bit dtype, as matmul() does. If no letter of
// both operands is summed, the product and the sums keep the dtypes of mul() and sum().
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "firn/ops/activation.h"
#include "firn/tensor.h"

namespace firn {

// ---- Products of matrices, and chains of them ----
/// [m, k] x [k, n] -> [m, n]; leading batch axes broadcast; a 1-D operand is a row (left) or column
/// (right) whose axis is removed. Sums run in f32 (f64 for f64). Transposed views are not copied.
Tensor matmul(const Tensor& a, const Tensor& b);
/// x [..., in] with weight [out, in] and bias [out] (or undefined): x weightᵀ + bias, [..., out].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

const char* to_string(Activation activation) noexcept;
/// A chain of linear layers with `activation` after each but the last, as one op. x [..., in],
/// weights[i] [out_i, out_{i-1}] and biases[i] [out_i] (or undefined; an empty `biases` means none)
/// give [..., out_last]. It computes linear() and the activation in turn, with fewer launches (the
/// idea of Apex's fused MLP): two per layer at most, forward and backward. One backward launch
/// computes the gradients of weight and bias, the other that of the data with the activation's
/// derivative. gelu_tanh is applied to the sum before the sum is rounded to 16 bits.
Tensor mlp(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases = {},
           Activation activation = Activation::relu);
Tensor mlp(const Tensor& x, std::initializer_list<Tensor> weights,
           std::initializer_list<Tensor> biases = {}, Activation activation = Activation::relu);

/// The sum of products that `equation` names, as PyTorch's einsum: "bij,bjk->bik". Each operand has
/// a letter (a-z, A-Z) for each of its axes. The result has the axes after the arrow, and sums over
/// all others.
///
/// - If there is no arrow, the result has the axes of "...", then the letters that occur once in
///   their order, with A-Z first.
/// - A letter that is twice in one operand takes the diagonal: "ii->i". Spaces mean nothing.
/// - "..." stands for the axes that have no letter, the last ones aligned. They are summed if there
///   is an arrow and no "..." behind it.
/// - An axis of size 1 is repeated if the letter is larger in another operand.
///
/// Two operands are one batched matmul: letters that both and the result have are the batch, those
/// that are summed the inner axis. Operands are permuted, and only copied if axes cannot be merged.
/// In f32 and f64, if neither has further letters, it is the sum of mul(). A summed letter that is
/// of size 1 in one operand is summed in the other first, and rounded to the dtype.
/// The result may be a view that is not contiguous, or of the operand if there is only one.
///
/// With more operands, the cheapest pair is contracted first: the one with the fewest
/// multiplications, then with the smallest result, then the first. Each result between is rounded
/// to the dtype. A single operand may have integers, too, and its sums are those of sum(): i64.
/// Dtypes must support arithmetic.
///
/// Throws Error, which shows the equation (its first 60 characters), for: another number of
/// operands or axes; a letter whose sizes differ; a result that has a letter twice, or one that no
/// operand has; a result, also one between, of more than kMaxRank axes.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands);

/// Sums over the last `n_axes` axes of a and the first of b, in their order: a [x..., s...] and b
/// [s..., y...] give [x..., y...]. With 0 it is the product of each element with each. A size of 1
/// is repeated. Throws Error if sizes differ, or the result has more than kMaxRank axes.
Tensor tensordot(const Tensor& a, const Tensor& b, std::int64_t n_axes = 2);
/// Sums over axis axes_a[i] of a and axes_b[i] of b.
Tensor tensordot(const Tensor& a, const Tensor& b, const Axes& axes_a, const Axes& axes_b);

/// a [n] and b [m]: a[i] b[j], [n, m]; the dtype must support arithmetic.
Tensor outer(const Tensor& a, const Tensor& b);
/// a [n] and b [n]: the sum of a[i] b[i], a scalar. Throws Error if sizes differ.
Tensor dot(const Tensor& a, const Tensor& b);
/// dot() along `axis` of a and b, which broadcast: their shape without that axis. `axis` counts in
/// the broadcast shape.
Tensor vecdot(const Tensor& a, const Tensor& b, std::int64_t axis = -1);
/// a [batch, m, k] and b [batch, k, n]: [batch, m, n]. matmul() broadcasts the batch.
Tensor bmm(const Tensor& a, const Tensor& b);

/// Factors of a sum with a product.
struct AddmmOptions {
  double beta = 1;   ///< factor of c; with 0, c is not read and gets no gradient
  double alpha = 1;  ///< factor of the product
};
/// beta c + alpha a b, for a [m, k], b [k, n], and c, which broadcasts to [m, n]. In 16 bits the
/// product, each factor and the sum round. Under autocast c takes the product's dtype.
Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
/// beta c + alpha a b for a [batch, m, k], b [batch, k, n], and c, which broadcasts to [batch, m,
/// n].
Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});

/// y[..., o] = sum over i and j of x1[..., i] weight[o, i, j] x2[..., j], plus bias[o]. x1 [...,
/// in1] and x2 [..., in2] with equal leading axes, weight [out, in1, in2] and bias [out] (or
/// undefined) give [..., out]. One matrix product with the in1 in2 products of each row, which take
/// memory and are rounded to the dtype.
Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias = {});

/// The Kronecker product: block (i, j) is a[i][j] b. The lower rank gets leading axes of size 1;
/// both ranks together are at most the most axes of a tensor.
Tensor kron(const Tensor& a, const Tensor& b);

}  // namespace firn
