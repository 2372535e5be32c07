// Operations for `scripts/interop onnx`, a graph for each family: every output is one operation.
#include <cmath>

#include "interop/onnx/models.h"

namespace firn::interop {
namespace {

Tensor integers(const Shape& shape, std::int64_t bound, DType dtype = i64) {
  return rand(shape, {.high = static_cast<double>(bound)}).to(dtype).clone();
}

Tensors unary(const Tensors& in) {
  const Tensor &x = in[0], positive = abs(x) + 0.1;
  return {neg(x),
          abs(x),
          exp(x),
          log(positive),
          sqrt(positive),
          rsqrt(positive),
          square(x),
          reciprocal(positive),
          relu(x),
          leaky_relu(x, 0.2),
          elu(x, 0.7),
          gelu(x),
          gelu_tanh(x),
          sigmoid(x),
          silu(x),
          tanh(x),
          softplus(x),
          sin(x),
          cos(x),
          clamp(x, -0.5, 1.25),
          x + 1.5,
          x - 2,
          x * 3.25,
          x / 7,
          pow(positive, 1.7),
          pow(x, 2),
          pow(positive, 0.5),
          pow(positive, -1),
          2 - x,
          3 / positive};
}

Tensors functions(const Tensors& in) {
  const Tensor &x = in[0], positive = abs(x) + 0.1,
               odd = where(x > 1, INFINITY, x / (x > -1).to(f32));
  return {log1p(positive),
          expm1(x),
          log2(positive),
          exp2(x),
          tan(x),
          asin(0.9 * tanh(x)),
          acos(0.9 * tanh(x)),
          atan(x),
          sinh(x),
          cosh(x),
          asinh(x),
          acosh(1 + positive),
          atanh(0.9 * tanh(x)),
          log10(positive),
          hardshrink(x, 0.3),
          softshrink(x, 0.3),
          tanhshrink(x),
          relu6(5 * x),
          erf(x),
          erfc(x),
          floor(3 * x),
          ceil(3 * x),
          round(3 * x),
          trunc(3 * x),
          sign(x),
          nan_to_num(odd, 0.5, 7, -8),
          isnan(odd),
          isinf(odd),
          isfinite(odd),
          logical_not(floor(x)),
          hardtanh(x, -0.5, 1.25),
          hardswish(3 * x),
          hardsigmoid(3 * x),
          softsign(x),
          mish(x),
          celu(x, 0.7),
          selu(x),
          logsigmoid(x),
          threshold(x, 0.25, -2)};
}

Tensors operands(const Tensors& in) {
  const Tensor &a = in[0], &b = in[1], row = select(b, 1, 0);
  Tensor written = 2 * a;
  masked_fill_(written, b > 0, 3);
  return {written,
          atan2(a, b),
          hypot(a, b),
          fmod(3 * a, b),
          remainder(3 * a, b),
          fmod(3 * a, -0.7),
          remainder(3 * a, 0.7),
          logaddexp(a, b),
          prelu(a, tensor({0.25f, -0.5f, 2.f})),
          prelu(a, tensor({0.25f})),
          lerp(a, b, 0.3),
          lerp(a, b, unsqueeze(row, 1)),
          addcmul(a, b, b, -1.5),
          clamp(a, b, abs(b) + 0.1),
          clamp(a, Tensor(), b),
          masked_fill(a, a > b, -7),
          logical_and(a > 0, b > 0),
          logical_or(a > 0, b > 0),
          logical_xor(a > 0, b > 0),
          isclose(a, b, {.rtol = 0.5, .atol = 0.25}),
          isclose(a / a, a / a, {.equal_nan = true})};
}

Tensors binary(const Tensors& in) {
  const Tensor &a = in[0], &b = in[1], row = select(b, 1, 0), positive = abs(a) + 0.1;
  const Tensor condition = a < b;
  return {a + b,
          a - b,
          a * b,
          a / (abs(b) + 0.5),
          pow(positive, b),
          minimum(a, b),
          maximum(a, b),
          swiglu(a, b),
          a + unsqueeze(row, 1),
          maximum(a, 0.25),
          minimum(a, 0.25),
          eq(a, b),
          ne(a, b),
          condition,
          a <= b,
          a > b,
          a >= b,
          a < 0.5,
          where(condition, a, b),
          where(condition, a, 0.0),
          where(condition, 1.0, b),
          where(condition, 2.0, 3.0)};
}

Tensors reductions(const Tensors& in) {
  const Tensor& x = in[0];  // [n, 4, 5]
  return {sum(x, 1),
          sum(x, {1, 2}, true),
          mean(x, 2),
          mean(x),
          max(x, 2),
          min(x, {1, 2}),
          max(x, 0, true),
          argmax(x),
          argmax(x, 1, true),
          var(x, 2),
          var(x, {1, 2}, 0, true),
          var(x, 0, 0),
          var(x, {}, 0),
          norm(x, 1),
          norm(x),
          std(x, 2),
          prod(x, {1, 2}),
          logsumexp(x, 2),
          logsumexp(x, {0, 1}, true),
          argmin(x),
          argmin(x, 1, true),
          any(x > 0, 2),
          all(x, {1, 2}, true),
          all(x > 0, 1),
          count_nonzero(x, 2),
          cumsum(x, 1),
          cumsum(x > 0, -1),
          quantile(x, 0.3, {.axes = 1}),
          sum(x > 0, 2),
          sum(arange(20).reshape({4, 5}) + argmax(x, 1, true), 1),
          softmax(x),
          softmax(x, 1),
          log_softmax(x, 1)};
}

Tensors views(const Tensors& in) {
  const Tensor& x = in[0];  // [n, 4, 6]
  const std::int64_t n = x.size(0);
  const auto pieces = split(x, {1, 3}, 1);
  const auto even = split(x, 2, 2);
  return {reshape(x, {n, 24}),
          reshape(x, {n * 4, 6}),
          flatten(x),
          permute(x, {2, 0, 1}),
          transpose(x, 0, 1) * 2,
          unsqueeze(x, 1),
          squeeze(slice(x, 1, 2, 3), 1),
          expand(unsqueeze(x, 1), {n, 3, 4, 6}),
          expand(slice(x, 0, 0, 1), {n, 4, 6}),
          expand(select(x, 0, 0), {2, 4, 6}),
          slice(x, 2, 1, 6, 2),
          slice(x, 0, 0, n, 1),
          slice(x, 1, -3, -1),
          select(x, 1, -1),
          pieces[0] - pieces[1],
          cat({even[0], even[2]}, 2),
          cat({x, x}, 0),
          stack({select(x, 1, 0), select(x, 1, 1)}, 1),
          pad(x, {0, 1, 2}, {0, 0, 1}, -1.5),
          flip(x, {1, 2}),
          roll(x, 2, 1),
          rot90(x, 1, 1, 2),
          movedim(x, 1, 2),
          narrow(x, 2, -2, 2),
          repeat(x, {1, 2, 3}),
          repeat_interleave(x, 2, 2),
          tril(x, 1),
          triu(x),
          diagonal(x, 1, 1, 2),
          diagonal(x, -1, 2, 1),
          matmul(x, transpose(x, 1, 2)),
          matmul(x, arange(12, f32).reshape({6, 2})),
          matmul(flatten(x, 1), transpose(flatten(x, 1), 0, 1)),
          matmul(x, arange(6, f32)),
          contiguous(permute(x, {0, 2, 1})),
          arange(n, f32) + 0.0,
          clone(x)};
}

Tensors products(const Tensors& in) {
  const Tensor &x = in[0], &y = in[1];  // [n, 4, 6], [n, 6]
  const Tensor w = cos(arange(24, f32)).reshape({4, 6}), v = sin(arange(4, f32));
  return {einsum("nij,nj->ni", {x, y}),
          einsum("nij,kj->nki", {x, w}),
          einsum("nij,nkj->nik", {x, x}),
          einsum("nij,ij,i->n", {x, w, v}),
          einsum("...j,ij->...i", {y, w}),
          einsum("nij->jn", {x}),
          tensordot(x, w, {1, 2}, {0, 1}),
          tensordot(y, x, {0}, {0}),
          outer(v, v) + sum(x),
          vecdot(x, unsqueeze(y, 1)),
          bmm(x, transpose(x, 1, 2)),
          addmm(v, y, transpose(w, 0, 1), {.beta = 0.5, .alpha = 2}),
          baddbmm(x, bmm(x, transpose(x, 1, 2)), x, {.alpha = 0.25}),
          bilinear(y, sum(x, 2), reshape(cat({w, w, w}, 0), {3, 6, 4}), slice(v, 0, 0, 3))};
}

Tensors indices(const Tensors& in) {
  const Tensor &x = in[0], &index = in[1];  // [n, 6], [n, 3] below 6
  const Sorted up = sort(x), down = sort(x, 1, {.descending = true});
  const Sorted top = topk(x, 2), low = topk(x, 3, -1, {.largest = false});
  const Tensor wide = index.to(i64);
  return {gather(x, 1, index),
          take_along(x, tensor<std::int64_t>({5, 1}, {1, 2}), 1),
          scatter_add(x, 1, wide, gather(x, 1, wide) * 2),
          index_add(x, 1, tensor<std::int64_t>({5, 0, 5}, {3}), slice(x, 1, 0, 3), 0.5),
          slice_scatter(x, 2 * slice(x, 1, 0, 2), 1, 1, 5, 2),
          select_scatter(x, select(x, 1, 0) + 1, 1, -2),
          diagonal_scatter(reshape(x, {-1, 2, 3}), sin(slice(x, 1, 0, 2)), -1, 2, 1),
          diag_embed(x, -1, 0, 2),
          kthvalue(x, 2).values,
          index_select(x, 1, tensor<std::int64_t>({5, 0, 2}, {3})),
          embedding(arange(12, f32).reshape({6, 2}), index),
          embedding(arange(12, f32).reshape({6, 2}), index, 1),
          embedding_bag(arange(12, f32).reshape({6, 2}), index),
          embedding_bag(arange(12, f32).reshape({6, 2}), index,
                        {.mode = BagMode::sum, .padding_idx = 2}),
          embedding_bag(arange(12, f32).reshape({6, 2}), index, {.mode = BagMode::max}),
          cosine_similarity(x, 2 * x + 1),
          pairwise_distance(x, 2 * x, {.p = 1}),
          pairwise_distance(x, 2 * x + 1),
          one_hot(index, 6),
          one_hot(index, 6, i64),
          up.values,
          up.indices,
          down.values,
          down.indices,
          argsort(x),
          argsort(x, 1, {.descending = true}),
          top.values,
          top.indices,
          low.values,
          low.indices};
}

Tensors dtypes(const Tensors& in) {
  const Tensor &x = in[0], &i = in[1], &b = in[2];  // f32, i32, u8
  const Tensor wide = i.to(i64), truth = i > 2;
  return {i + i,
          wide * 3 - 1,
          square(i),
          neg(wide),
          abs(i - 5),
          maximum(i, 4),
          b + b,
          b * 2,
          eq(b, 3),
          b < b * 2,
          eq(truth, x > 0),
          where(truth, i, neg(i)),
          where(truth, b, b + 1),
          x.to(f64) * 2,
          x.to(i32),
          (x * 4).to(i64).to(boolean),
          i.to(f32) / 3,
          x.to(f16).to(f32),
          truth.to(f32),
          max(i, 1),
          min(b, 1),
          max(truth, 1),
          argmax(i, 1),
          sort(i).values,
          cat({truth, truth}, 1),
          pad(i, {0, 1}, {0, 0}, 7),
          slice(b, 1, 1, 3)};
}

Tensors pooling(const Tensors& in) {
  const Tensor& x = in[0];  // [n, 2, 9, 7]
  const Tensor row = select(x, 2, 3);
  return {max_pool2d(x, 2),
          max_pool2d(x, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}}),
          max_pool2d(x, 3, {.stride = 2, .ceil_mode = true}),
          max_pool2d(x, 2, {.stride = 1, .dilation = 2}),
          avg_pool2d(x, 2),
          avg_pool2d(x, 3, {.stride = 2, .padding = 1}),
          avg_pool2d(x, 3, {.stride = 2, .padding = 1, .count_padding = false}),
          avg_pool2d(x, {2, 3}, {.stride = {2, 3}, .padding = {1, 1}, .ceil_mode = true}),
          avg_pool2d(x, 2, {.ceil_mode = true, .count_padding = false}),
          adaptive_max_pool2d(x, {3, 7}),
          adaptive_max_pool2d(x, {4, 3}),
          adaptive_avg_pool2d(x, {3, 1}),
          adaptive_avg_pool2d(x, {4, 3}),
          adaptive_avg_pool2d(x, 1),
          global_avg_pool2d(x),
          max_pool1d(row, 3, {.stride = 2}),
          avg_pool1d(row, 2),
          adaptive_max_pool1d(row, 3),
          adaptive_avg_pool1d(row, 7),
          adaptive_avg_pool1d(row, 3),
          lp_pool2d(abs(x) + 0.1, 3, 2),
          lp_pool1d(row, 2, 3),
          local_response_norm(x, 2, 0.5),
          max_pool3d(unsqueeze(x, 1), {2, 3, 2}),
          avg_pool3d(unsqueeze(x, 1), {1, 2, 2}, {.stride = 1}),
          adaptive_max_pool3d(unsqueeze(x, 1), {1, 3, 2}),
          adaptive_avg_pool3d(unsqueeze(x, 1), {2, 2, 3}),
          pad(x, {0, 0, 3, 2}, {0, 0, 1, 0}, PadMode::reflect),
          pad(x, {0, 0, 0, 2}, {0, 0, 0, 9}, PadMode::replicate),
          pad(x, {0, 1, 2, 0}, {0, 0, 1, 3}, PadMode::circular),
          pixel_unshuffle(slice(x, 3, 0, 6), 3),
          pixel_shuffle(reshape(slice(x, 2, 0, 8), {x.size(0), 16, 1, 7}), 4),
          channel_shuffle(reshape(x, {x.size(0), 6, 21}), 2),
          upsample2d(x, {18, 14}),
          upsample2d(x, {13, 5}),
          upsample2d(x, {18, 21}, Upsampling::bilinear),
          upsample2d(x, {5, 10}, Upsampling::bilinear),
          upsample2d(x, {18, 21}, Upsampling::bilinear, {.align_corners = true}),
          upsample2d(x, {5, 10}, Upsampling::bicubic),
          upsample2d(x, {18, 10}, Upsampling::bicubic, {.align_corners = true}),
          upsample2d(x, {7, 11}, Upsampling::nearest_exact),
          upsample1d(select(x, 2, 0), 9, Upsampling::linear),
          upsample1d(select(x, 2, 0), 5, Upsampling::nearest),
          upsample3d(unsqueeze(x, 2), {2, 5, 10}, Upsampling::trilinear),
          max_pool2d(select(x, 1, 0), 2),
          upsample2d(select(x, 1, 0), {4, 4}, Upsampling::bilinear)};
}

struct Convolutions : nn::Module {
  nn::Conv2d plain{4, 6, 3}, strided{4, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}}};
  nn::Conv2d dilated{4, 6, 3, {.padding = 2, .dilation = 2}};
  nn::Conv2d grouped{4, 8, 3, {.padding = kSamePadding, .groups = 4}};
  nn::Conv2d even{4, 2, 4, {.padding = kSamePadding}};
  nn::Conv2d active{4, 3, 1, {.activation = Activation::relu}};
  nn::Conv1d along{4, 5, 3, {.stride = 2, .padding = 1}};
  nn::ConvTranspose2d up{4, 3, 3, {.stride = 2}}, wide{4, 6, {2, 3}, {.padding = 1, .groups = 2}};
  nn::ConvTranspose2d spread{4, 2, 3, {.stride = 3, .output_padding = 2, .dilation = 2}};
  nn::Conv3d volumes{2, 3, {2, 3, 2}, {.stride = {1, 2, 1}, .padding = {1, 0, 1}}};
  nn::ConvTranspose3d grown{2, 3, 2, {.stride = {1, 2, 2}, .output_padding = {0, 1, 0}}};
  nn::ConvTranspose1d row{4, 6, 3, {.stride = 2, .padding = 1, .groups = 2}};
  FIRN_MEMBERS(plain, strided, dilated, grouped, even, active, along, up, wide, spread, volumes,
               grown, row)
};

OnnxModel convolutions() {
  const auto m = std::make_shared<Convolutions>();
  return {.name = "convolutions",
          .f =
              [m](const Tensors& in) {
                const Tensor& x = in[0];  // [n, 4, 8, 7]
                const Tensor last = channels_last(x);
                return Tensors{m->plain(x),
                               m->strided(x),
                               m->dilated(last),
                               m->grouped(x),
                               m->even(x),
                               m->active(last),
                               m->up(x),
                               m->wide(x),
                               m->spread(x),
                               m->along(select(x, 2, 0)),
                               m->volumes(reshape(x, {x.size(0), 2, 2, 8, 7})),
                               m->grown(reshape(x, {x.size(0), 2, 2, 8, 7})),
                               m->row(select(x, 2, 0))};
              },
          .inputs =
              [](std::int64_t n) {
                return Tensors{channels_last(randn({n, 4, 8, 7}))};
              },
          .module = m};
}

Tensors attentions(const Tensors& in) {
  const Tensor &q = in[0], &k = in[1], &v = in[2], &lengths = in[3], &mask = in[4];
  const Tensor frequencies = arange(q.size(-1) / 2).to(f64) * 0.3;
  const Tensor band = ge(arange(6).reshape({1, 6}), arange(5).reshape({5, 1}));
  return {attention(q, k, v),
          attention(q, k, v, {.causal = true}),
          attention(q, k, v, {.causal = true, .window = 2}),
          attention(q, k, v, {.window = 3, .scale = 0.3}),
          attention(q, k, v, {.lengths = lengths}),
          attention(q, k, v, {.causal = true, .lengths = lengths}),
          attention(q, k, v, {.mask = mask}),
          attention(q, k, v, {.mask = band}),
          attention(q, k, v, {.causal = true, .mask = mask, .bias = in[6]}),
          attention(q, k, v, {.bias = cast(band, f32) * 1.5}),
          attention(q, slice(q, 2, 0, 3), slice(q, 2, 1, 4),
                    {.causal = true}),  // 2 queries see nothing
          rope(q),
          rope(q, {.offset = 3, .theta = 100}),
          rope(q, {.interleaved = true}),
          rope(select(q, 1, 0)),
          rope(q, {.positions = in[5]}),
          rope(q, {.positions = arange(5) * 7, .interleaved = true}),
          rope(select(q, 1, 0), {.positions = in[5]}),
          rope(q, {.offset = 2, .frequencies = frequencies}),
          rope(q, {.positions = in[5], .frequencies = frequencies, .interleaved = true})};
}

/// Writes in place, and copies into buffers.
Tensors writes(const Tensors& in) {
  Tensor x = in[0] * 2;  // [n, 4]
  x += in[0];
  relu_(x);
  x *= 0.5;
  Tensor y = zeros({x.size(0), 4});
  y += x;
  add_(y, arange(4, f32));
  const Tensor buffer = empty({x.size(0), 2, 4}, f32);
  buffer.copy_(unsqueeze(y, 1));
  Tensor once = exp(in[0]);
  const Tensor before = once.clone();
  once.fill_(3);
  const Tensor cleared = tanh(in[0]);
  cleared.zero_();
  return {x, y, buffer, before, once, cleared, in[0], arange(3, f32)};
}

}  // namespace

std::vector<OnnxModel> operation_models() {
  manual_seed(2);
  std::vector<OnnxModel> out;
  const auto add = [&out](const char* name, Tensors (*f)(const Tensors&),
                          std::function<Tensors(std::int64_t)> inputs) {
    out.push_back({.name = name, .f = f, .inputs = std::move(inputs)});
  };
  add("unary", unary, [](std::int64_t n) { return Tensors{randn({n, 7})}; });
  add("functions", functions, [](std::int64_t n) { return Tensors{2 * randn({n, 7})}; });
  add("operands", operands, [](std::int64_t n) {
    return Tensors{randn({n, 3, 4}), randn({n, 3, 4})};
  });
  add("binary", binary, [](std::int64_t n) { return Tensors{randn({n, 3, 4}), randn({n, 3, 4})}; });
  add("reductions", reductions, [](std::int64_t n) { return Tensors{randn({n, 4, 5})}; });
  add("views", views, [](std::int64_t n) { return Tensors{randn({n, 4, 6})}; });
  add("products", products, [](std::int64_t n) {
    return Tensors{randn({n, 4, 6}), randn({n, 6})};
  });
  add("indices", indices, [](std::int64_t n) {
    return Tensors{randn({n, 6}), integers({n, 3}, 6)};
  });
  add("dtypes", dtypes, [](std::int64_t n) {
    return Tensors{randn({n, 4}), integers({n, 4}, 9, i32), integers({n, 4}, 100, u8)};
  });
  add("pooling", pooling, [](std::int64_t n) { return Tensors{randn({n, 2, 9, 7})}; });
  add("attentions", attentions, [](std::int64_t n) {
    return Tensors{randn({n, 4, 5, 8}), randn({n, 2, 6, 8}),       randn({n, 2, 6, 3}),
                   integers({n}, 7),    rand({n, 1, 5, 6}) > 0.3f, integers({n, 5}, 3000),
                   randn({n, 4, 5, 6})};
  });
  add("writes", writes, [](std::int64_t n) { return Tensors{randn({n, 4})}; });
  out.push_back(convolutions());
  return out;
}

}  // namespace firn::interop
