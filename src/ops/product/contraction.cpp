// The sum of products of two tensors over letters, as one batched matrix product.
#include "ops/product/contraction.h"

#include <algorithm>
#include <utility>

namespace firn::ops {

namespace {

int place_of(const Lettered& t, std::int64_t of) noexcept {
  const auto* const at = std::find(t.letters.begin(), t.letters.end(), of);
  return static_cast<int>(at - t.letters.begin());
}

/// Returns the letters of t that are in `wanted`, the slowest in memory first: in this order axes
/// merge if they do in any order.
Dims by_memory(const Lettered& t, Letters wanted) {
  Dims out;
  for (const std::int64_t l : t.letters)
    if ((wanted & letter(l)) != 0) out.push_back(l);
  std::stable_sort(out.begin(), out.end(), [&](std::int64_t m, std::int64_t n) {
    return t.x.strides()[place_of(t, m)] > t.x.strides()[place_of(t, n)];
  });
  return out;
}

/// True if these axes of t are one axis without a copy.
bool merges(const Lettered& t, const Dims& letters) {
  for (int i = 0; i + 1 < letters.size(); ++i) {
    const int outer = place_of(t, letters[i]), inner = place_of(t, letters[i + 1]);
    if (t.x.strides()[outer] != t.x.strides()[inner] * t.x.shape()[inner]) return false;
  }
  return true;
}

/// Returns one order for letters of both tensors: one in which both merge, or the larger's.
Dims common_order(const Lettered& a, const Lettered& b, Letters both) {
  const Dims of_a = by_memory(a, both), of_b = by_memory(b, both);
  if (merges(b, of_a) && merges(a, of_a)) return of_a;
  if (merges(a, of_b) && merges(b, of_b)) return of_b;
  return a.x.numel() >= b.x.numel() ? of_a : of_b;
}

Tensor permuted(const Tensor& x, const Axes& order) {
  for (int i = 0; i < order.size(); ++i)
    if (order[i] != i) return permute(x, order);
  return x;
}

Tensor reshaped(const Tensor& x, const Shape& shape) {
  return x.shape() == shape ? x : reshape(x, shape);
}

Shape sizes_of(const Lettered& t, const Dims& letters) {
  Shape out;
  for (const std::int64_t l : letters) out.push_back(t.x.shape()[place_of(t, l)]);
  return out;
}

/// Returns t as [batch, first, second], or without the batch if there is none.
Tensor as_factor(const Lettered& t, const Dims& batch, const Dims& first, const Dims& second) {
  Axes order;
  Shape shape;
  if (!batch.empty()) shape.push_back(sizes_of(t, batch).product());
  shape.push_back(sizes_of(t, first).product());
  shape.push_back(sizes_of(t, second).product());
  for (const Dims* group : {&batch, &first, &second})
    for (const std::int64_t l : *group) order.push_back(place_of(t, l));
  return reshaped(permuted(t.x, order), shape);
}

}  // namespace

Letters set_of(const Dims& letters) noexcept {
  Letters out = 0;
  for (const std::int64_t l : letters) out |= letter(l);
  return out;
}

Lettered without_ones(const Lettered& t) {
  Lettered out;
  Shape shape;
  for (int i = 0; i < t.letters.size(); ++i) {
    if (t.x.shape()[i] == 1) continue;
    out.letters.push_back(t.letters[i]);
    shape.push_back(t.x.shape()[i]);
  }
  out.x = reshaped(t.x, shape);
  return out;
}

Lettered summed_to(const Lettered& t, Letters keep) {
  Axes axes;
  Dims left;
  for (int i = 0; i < t.letters.size(); ++i)
    ((keep & letter(t.letters[i])) != 0 ? left : axes)
        .push_back((keep & letter(t.letters[i])) != 0 ? t.letters[i] : i);
  if (axes.empty()) return t;
  return {sum(t.x, axes), left};
}

Tensor arranged(const Lettered& t, const Dims& letters) {
  Axes order;
  Shape shape;
  for (const std::int64_t l : letters) {
    const int at = place_of(t, l);
    shape.push_back(at < t.letters.size() ? t.x.shape()[at] : 1);
    if (at < t.letters.size()) order.push_back(at);
  }
  return reshaped(permuted(t.x, order), shape);
}

Lettered contract(Lettered a, Lettered b, Letters keep, const Dims& order) {
  a = summed_to(a, keep | set_of(b.letters));
  b = summed_to(b, keep | set_of(a.letters));
  const Letters in_a = set_of(a.letters), in_b = set_of(b.letters), both = in_a & in_b;
  if ((both & ~keep) == 0) {  // nothing is summed
    Dims all;
    for (const Dims* from : {&order, &std::as_const(a).letters, &std::as_const(b).letters})
      for (const std::int64_t l : *from)
        if (((in_a | in_b) & letter(l)) != 0 && !all.contains(l)) all.push_back(l);
    return {mul(arranged(a, all), arranged(b, all)), all};
  }
  // The factor whose own letters come first in the result is the left one.
  const auto own = std::find_if(order.begin(), order.end(),
                                [&](std::int64_t l) { return ((in_a ^ in_b) & letter(l)) != 0; });
  if (own != order.end() && (in_b & letter(*own)) != 0) std::swap(a, b);
  const Dims batch = common_order(a, b, both & keep), inner = common_order(a, b, both & ~keep);
  const Dims rows = by_memory(a, ~both), columns = by_memory(b, ~both);
  // A batch of single numbers. In 16 bits mul() would round each product.
  if (rows.empty() && columns.empty() && !batch.empty() && size_of(a.x.dtype()) > 2 &&
      !autocast_on()) {
    Dims all = batch;
    for (const std::int64_t l : inner) all.push_back(l);
    return summed_to({mul(arranged(a, all), arranged(b, all)), all}, keep);
  }
  Lettered out;
  Shape shape;
  for (const auto& [from, group] : {std::pair(&a, &batch), {&a, &rows}, {&b, &columns}}) {
    for (const std::int64_t l : *group) out.letters.push_back(l);
    for (const std::int64_t n : sizes_of(*from, *group)) shape.push_back(n);
  }
  out.x = reshaped(matmul(as_factor(a, batch, rows, inner), as_factor(b, batch, inner, columns)),
                   shape);
  return out;
}

}  // namespace firn::ops
