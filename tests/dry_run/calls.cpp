#include "dry_run/calls.h"

#include <cstdint>

namespace firn::testing {
namespace {

using Operands = std::vector<Tensor>;

Tensor values(const Shape& shape, DType dtype) {
  Generator g(7);
  return randn(shape, {.generator = &g}).to(dtype);
}
Tensor transposed(const Tensor& t) { return transpose(t, 0, 1); }

/// n indices in [0, bound), of which every one occurs several times.
Tensor indices(const Shape& shape, std::int64_t bound) {
  std::vector<std::int64_t> v;
  for (std::int64_t i = 0; i < shape.product(); ++i) v.push_back(i * 7 % bound);
  return tensor<std::int64_t>(v, shape);
}

void add_products(std::vector<LargeCall>& calls, DType t) {
  const auto add = [&](const char* name, const Tensor& a, const Tensor& b) {
    calls.push_back({name, {a, b}, [](const Operands& x) { return matmul(x[0], x[1]); }});
  };
  add("matmul", values({150, 90}, t), values({90, 130}, t));
  add("matmul with a transposed factor", values({150, 200}, t), transposed(values({170, 200}, t)));
  add("matmul with both factors transposed", transposed(values({200, 150}, t)),
      transposed(values({170, 200}, t)));
  add("matmul of a small batch", values({16, 300}, t), transposed(values({520, 300}, t)));
  add("matmul of a batch", values({9, 40, 50}, t), values({9, 50, 60}, t));
  add("matmul of a batch with transposed factors", transpose(values({9, 50, 40}, t), 1, 2),
      transpose(values({9, 200, 50}, t), 1, 2));
  calls.push_back({"mlp",
                   {values({64, 100}, t), values({120, 100}, t), values({40, 120}, t)},
                   [](const Operands& x) {
                     return mlp(x[0], {x[1], x[2]}, {}, Activation::gelu_tanh);
                   }});
}

void add_convolutions(std::vector<LargeCall>& calls, DType t) {
  const auto add = [&](const char* name, const Shape& x, const Shape& w, Conv2dOptions o,
                       bool channels_last_images) {
    const Tensor images = values(x, t);
    calls.push_back({name,
                     {channels_last_images ? channels_last(images) : images, values(w, t)},
                     [o](const Operands& a) { return conv2d(a[0], a[1], {}, o); }});
  };
  add("conv2d", {19, 3, 20, 20}, {8, 3, 3, 3}, {.padding = 1}, false);
  add("conv2d channels-last", {19, 16, 16, 16}, {32, 16, 3, 3}, {.padding = 1}, true);
  add("conv2d depthwise", {9, 24, 20, 20}, {24, 1, 3, 3}, {.padding = 1, .groups = 24}, true);
  add("conv2d in groups, with strides", {9, 12, 21, 21}, {8, 6, 3, 3}, {.stride = 2, .groups = 2},
      false);
  add("conv2d of single pixels", {9, 48, 12, 12}, {40, 48, 1, 1}, {}, true);
  calls.push_back({"conv3d",
                   {values({5, 6, 9, 12, 11}, t), values({8, 6, 3, 3, 3}, t)},
                   [](const Operands& a) { return conv3d(a[0], a[1], {}, {.padding = 1}); }});
  calls.push_back(
      {"conv_transpose3d",
       {values({5, 6, 5, 9, 8}, t), values({6, 8, 3, 2, 2}, t)},
       [](const Operands& a) { return conv_transpose3d(a[0], a[1], {}, {.stride = 2}); }});
}

void add_recurrent(std::vector<LargeCall>& calls, DType t) {
  const auto add = [&](const char* name, RecurrentCell cell, std::int64_t p,
                       const Tensor& lengths) {
    const std::int64_t n = 24, rows = gates_of(cell) * n;
    std::vector<Tensor> operands = {values({9, 5, rows}, t), values({rows, p ? p : n}, t)};
    if (p) operands.push_back(values({p, n}, t));
    calls.push_back({name, operands, [=](const Operands& x) {
                       const RecurrentResult y =
                           recurrent(cell, x[0], x[1],
                                     {.projection = p ? x[2] : Tensor(), .lengths = lengths});
                       return flatten(y.output) + sum(y.h);
                     }});
  };
  add("gru", RecurrentCell::gru, 0, {});
  add("lstm with a projection", RecurrentCell::lstm, 7, {});
  add("lstm with lengths and a projection", RecurrentCell::lstm, 7, indices({5}, 10));
}

void add_attention(std::vector<LargeCall>& calls, DType t) {
  const auto add = [&](const char* name, const Shape& q, const Shape& k, AttentionOptions o) {
    calls.push_back({name, {values(q, t), values(k, t), values(k, t)}, [o](const Operands& x) {
                       return attention(x[0], x[1], x[2], o);
                     }});
  };
  add("attention", {2, 3, 130, 24}, {2, 3, 130, 24}, {});
  add("attention, causal, grouped heads", {2, 4, 130, 16}, {2, 2, 150, 16}, {.causal = true});
  add("attention with lengths", {2, 2, 70, 16}, {2, 2, 140, 16}, {.lengths = indices({2}, 100)});
  add("attention with dropout", {2, 2, 70, 16}, {2, 2, 70, 16}, {.dropout = 0.25});
  for (const Shape& bias : {Shape{2, 4, 130, 150}, Shape{4, 1, 150}, Shape{130, 150}}) {
    calls.push_back({"attention with a bias",
                     {values({2, 4, 130, 16}, t), values({2, 2, 150, 16}, t), values(bias, t)},
                     [](const Operands& x) {
                       return attention(x[0], x[1], x[1], {.causal = true, .bias = x[2]});
                     }});
  }
  calls.push_back(
      {"rope", {values({4, 6, 70, 32}, t)}, [](const Operands& x) { return rope(x[0]); }});
  calls.push_back({"rope of given positions",
                   {transpose(values({4, 70, 6, 32}, t), 1, 2)},
                   [at = indices({4, 70}, 1000)](const Operands& x) {
                     return rope(x[0], {.positions = at, .interleaved = true});
                   }});
}

void add_rows(std::vector<LargeCall>& calls, DType t) {
  const auto add = [&](const char* name, Operands operands, auto op) {
    calls.push_back({name, std::move(operands), op});
  };
  const Tensor x = values({300, 700}, t), row = values({700}, t);
  add("softmax", {x}, [](const Operands& a) { return softmax(a[0]); });
  add("log_softmax", {x}, [](const Operands& a) { return log_softmax(a[0]); });
  add("layer_norm", {x, row, row}, [](const Operands& a) { return layer_norm(a[0], a[1], a[2]); });
  add("rms_norm", {x, row}, [](const Operands& a) { return rms_norm(a[0], a[1]); });
  const Tensor target = indices({300}, 700);
  add("cross_entropy", {x},
      [=](const Operands& a) { return cross_entropy(a[0], target, {.label_smoothing = 0.1}).sum; });
  add("linear_cross_entropy", {values({300, 40}, t), values({700, 40}, t)}, [=](const Operands& a) {
    return linear_cross_entropy(a[0], a[1], target, {}, {.chunk_rows = 128, .chunk_classes = 256})
        .sum;
  });
  add("ctc_loss", {values({60, 20, 30}, t)},
      [=, labels = indices({20, 8}, 29), steps = full({20}, 60, i64), counts = full({20}, 8, i64)](
          const Operands& a) { return ctc_loss(a[0], labels, steps, counts, {.blank = 29}).sum; });
  const Tensor images = values({6, 20, 30, 30}, t), channel = values({20}, t);
  for (const bool last : {false, true}) {
    const Tensor y = last ? channels_last(images) : images;
    add(last ? "batch_norm channels-last" : "batch_norm", {y, channel, channel},
        [](const Operands& a) { return batch_norm(a[0], a[1], a[2]); });
    add(last ? "group_norm channels-last" : "group_norm", {y, channel, channel},
        [](const Operands& a) { return group_norm(a[0], 4, a[1], a[2]); });
  }
  add("sum of columns", {x}, [](const Operands& a) { return sum(a[0], {0}); });
  add("sum of all", {x}, [](const Operands& a) { return sum(a[0]); });
  add("sum of columns of many rows", {values({70000, 5}, t)},
      [](const Operands& a) { return sum(a[0], {0}); });
  add("max of rows", {x}, [](const Operands& a) { return max(a[0], {1}); });
  add("embedding", {values({500, 40}, t)},
      [at = indices({3000}, 500)](const Operands& a) { return embedding(a[0], at); });
  add("gather", {values({100, 1200}, t)},
      [at = indices({90, 1200}, 100)](const Operands& a) { return gather(a[0], 0, at); });
  add("sort of rows", {x}, [](const Operands& a) { return sort(a[0]).values; });
  add("sort of long lines", {values({2, 140000}, t)},
      [](const Operands& a) { return sort(a[0]).values; });
  add("topk of columns", {x}, [](const Operands& a) { return topk(a[0], 20, 0).values; });
  add("cumsum of rows", {x}, [](const Operands& a) { return cumsum(a[0], 1); });
  add("cumsum of one long line", {values({100000}, t)},
      [](const Operands& a) { return cumsum(a[0], 0); });
  add("cumprod of columns", {x}, [](const Operands& a) { return cumprod(a[0], 0); });
  add("cummax of one long line", {values({100000}, t)},
      [](const Operands& a) { return cummax(a[0], 0).values; });
  add("prod of rows", {x}, [](const Operands& a) { return prod(a[0], {1}); });
  add("logsumexp of columns", {x}, [](const Operands& a) { return logsumexp(a[0], {0}); });
  add("std of rows", {x}, [](const Operands& a) { return firn::std(a[0], {1}); });
  add("median of rows", {x}, [](const Operands& a) { return median(a[0], 1).values; });
  add("max_pool2d", {images}, [](const Operands& a) { return max_pool2d(a[0], 3); });
  add("upsample2d", {images}, [](const Operands& a) {
    return upsample2d(a[0], {45, 47}, Upsampling::bilinear);
  });
  add("dropout", {x}, [](const Operands& a) { return dropout(a[0], 0.5); });
}

}  // namespace

std::vector<Tensor> LargeCall::run() const {
  std::vector<Tensor> x;
  for (const Tensor& t : operands) x.push_back(t.detach().set_requires_grad());
  std::vector<Tensor> results = {op(x)};
  backward(results[0], {.initial_gradient = ones_like(results[0])});
  for (const Tensor& t : x) results.push_back(t.grad());
  return results;
}

std::vector<LargeCall> large_calls(DType dtype) {
  std::vector<LargeCall> calls;
  add_products(calls, dtype);
  add_convolutions(calls, dtype);
  add_attention(calls, dtype);
  add_recurrent(calls, dtype);
  add_rows(calls, dtype);
  return calls;
}

}  // namespace firn::testing
