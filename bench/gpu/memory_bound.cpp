// Kernels that are bound by memory, called through their contracts: outputs exist beforehand, as in
// a graph. Buffers rotate over more than the cache holds. In the small shapes, whose time is that
// of launches, a chain of calls is replayed as a graph instead.
#include <algorithm>
#include <cmath>

#include "bench.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/index.h"
#include "kernels/random.h"
#include "kernels/rows.h"
#include "replayed.h"

namespace bench {
namespace {

using firn::ConstView;
using firn::DType;
using firn::Shape;
using firn::Tensor;
namespace kernels = firn::kernels;
namespace math = firn::math;

constexpr double kRotate = 256.0 * (1 << 20);
constexpr int kChain = 100;

struct Case {
  std::string op;
  std::int64_t rows, cols;
  DType dtype;
  double bytes;  ///< bytes that one call moves
};

/// A function make(k) that allocates the k-th set of buffers and returns the call on it.
using Make = std::function<std::function<void()>(int k)>;

void run(const Case& c, const Make& make) {
  const std::string work = c.op + "_" + std::to_string(c.rows) + "x" + std::to_string(c.cols);
  const bool small = c.bytes < 4e6;
  const int sets = small || settings().smoke
                       ? 1
                       : static_cast<int>(std::clamp(std::ceil(kRotate / c.bytes), 1.0, 64.0));
  std::vector<std::function<void()>> calls;
  for (int k = 0; k < sets; ++k) calls.push_back(make(k));
  Figure figure{.work = work,
                .mode = small ? "chain" : "kernel",
                .dtype = firn::to_string(c.dtype),
                .values = {},
                .bytes = c.bytes};
  if (small) {
    const int length = sized(kChain, 2);
    Replayed chain([&] {
      for (int i = 0; i < length; ++i) calls[0]();
    });
    figure.values = device_us([&] { chain.replay(); });
    for (double& v : figure.values) v /= length;
    figure.nodes = (chain.nodes() + length / 2) / length;
  } else {
    std::size_t next = 0;
    figure.values = device_us([&] {
      calls[next]();
      next = (next + 1) % calls.size();
    });
  }
  report(figure);
}

Tensor out(const Shape& shape, DType dtype) { return firn::empty(shape, dtype, kDevice); }

/// Runs the elementwise cases of one shape and dtype.
void elementwise(std::int64_t rows, std::int64_t cols, DType t) {
  const Shape shape{rows, cols};
  const double n = static_cast<double>(rows * cols);
  const double size = static_cast<double>(firn::size_of(t));
  run({"add", rows, cols, t, 3 * n * size}, [&](int) {
    const Tensor a = random(shape, t), b = random(shape, t), y = out(shape, t);
    return [=] {
      kernels::binary(math::BinaryOp::add, a.view(), b.view(), y.mutable_view(), math::Args{},
                      stream());
    };
  });
  struct Unary {
    const char* name;
    math::UnaryOp op;
  };
  for (const Unary u : {Unary{"relu", math::UnaryOp::relu}, Unary{"gelu", math::UnaryOp::gelu},
                        Unary{"gelu_tanh", math::UnaryOp::gelu_tanh}}) {
    run({u.name, rows, cols, t, 2 * n * size}, [&](int) {
      const Tensor x = random(shape, t), y = out(shape, t);
      return [=] { kernels::unary(u.op, x.view(), y.mutable_view(), math::Args{}, stream()); };
    });
    run({std::string(u.name) + "_backward", rows, cols, t, 3 * n * size}, [&](int) {
      const Tensor dy = random(shape, t), saved = random(shape, t), dx = out(shape, t);
      return [=] {
        kernels::unary_backward(u.op, dy.view(), saved.view(), dx.mutable_view(), math::Args{}, 0,
                                stream());
      };
    });
  }
  if (t != firn::f32) {
    for (const bool widen : {false, true}) {
      const DType from = widen ? t : firn::f32, to = widen ? firn::f32 : t;
      run({widen ? "cast_to_f32" : "cast_from_f32", rows, cols, t, n * (size + 4)}, [&](int) {
        const Tensor x = random(shape, from), y = out(shape, to);
        return [=] { kernels::copy(x.view(), y.mutable_view(), stream()); };
      });
    }
  }
  run({"dropout", rows, cols, t, 2 * n * size}, [&](int k) {
    const Tensor x = random(shape, t), y = out(shape, t);
    const firn::RandomKey key{17, static_cast<std::uint64_t>(k) << 32, nullptr};
    return [=] { kernels::dropout(x.view(), y.mutable_view(), 0.1, key, 0, stream()); };
  });
}

void softmax(std::int64_t rows, std::int64_t cols, DType t) {
  const Shape shape{rows, cols};
  const double part = static_cast<double>(rows * cols) * static_cast<double>(firn::size_of(t));
  run({"softmax", rows, cols, t, 2 * part}, [&](int) {
    const Tensor x = random(shape, t), y = out(shape, t);
    return [=] { kernels::softmax(x.view(), y.mutable_view(), false, stream()); };
  });
  run({"softmax_backward", rows, cols, t, 3 * part}, [&](int) {
    const Tensor dy = random(shape, t), x = random(shape, t), y = out(shape, t);
    const Tensor dx = out(shape, t);
    kernels::softmax(x.view(), y.mutable_view(), false, stream());
    return [=] {
      kernels::softmax_backward(dy.view(), y.view(), dx.mutable_view(), false, 0, stream());
    };
  });
}

/// Runs layer norm, or RMS norm unless `center`, with weight (and bias).
void norms(bool center, std::int64_t rows, std::int64_t cols, DType t) {
  const Shape shape{rows, cols};
  const double part = static_cast<double>(rows * cols) * static_cast<double>(firn::size_of(t));
  const double statistics = (center ? 8.0 : 4.0) * static_cast<double>(rows);
  const std::string name = center ? "layer_norm" : "rms_norm";
  struct Buffers {
    Tensor x, weight, bias, y, mean, rstd;
  };
  const auto make = [=] {
    Buffers b{random(shape, t), random({cols}, t), {}, out(shape, t), {}, out({rows}, firn::f32)};
    if (center) {
      b.bias = random({cols}, t);
      b.mean = out({rows}, firn::f32);
    }
    return b;
  };
  const auto forward = [=](const Buffers& b) {
    kernels::norm(b.x.view(), b.weight.view(), center ? b.bias.view() : ConstView{}, 1e-5, center,
                  b.y.mutable_view(), center ? b.mean.mutable_view() : firn::View{},
                  b.rstd.mutable_view(), stream());
  };
  run({name, rows, cols, t, 2 * part + statistics}, [&](int) {
    const Buffers b = make();
    return [=] { forward(b); };
  });
  run({name + "_backward", rows, cols, t, 3 * part + statistics}, [&](int) {
    const Buffers b = make();
    forward(b);
    const Tensor dy = random(shape, t), dx = out(shape, t);
    const Tensor dweight = out({cols}, t), dbias = out({cols}, t);
    return [=] {
      kernels::NormGrads grads;
      grads.dx = dx.mutable_view();
      grads.dweight = dweight.mutable_view();
      if (center) grads.dbias = dbias.mutable_view();
      kernels::norm_backward(dy.view(), b.x.view(), b.weight.view(),
                             center ? b.mean.view() : ConstView{}, b.rstd.view(), center, grads,
                             stream());
    };
  });
}

/// Runs forward and backward together, as two launches over logits larger than the cache: forward
/// reads them, backward reads them again and writes their gradient. A row that does not fit in
/// registers (from 16,384 columns of 16 bits on) is read twice in the forward pass. The second read
/// counts as one from the cache.
void cross_entropy(std::int64_t rows, std::int64_t cols, DType t) {
  const Shape shape{rows, cols};
  const double part = static_cast<double>(rows * cols) * static_cast<double>(firn::size_of(t));
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < rows; ++i) labels.push_back((i * 7919) % cols);
  run({"cross_entropy", rows, cols, t, 3 * part}, [&](int) {
    const Tensor x = random(shape, t), dx = out(shape, t);
    const Tensor target = firn::tensor(labels, {rows}, kDevice);
    const Tensor loss = out({}, firn::f32), weight = out({}, firn::f32);
    const Tensor stats = out({rows, 2}, firn::f32);
    const Tensor dloss = firn::ones({}, firn::f32, kDevice);
    return [=] {
      const kernels::CrossEntropyArgs args;
      kernels::cross_entropy(x.view(), target.view(), args, loss.mutable_view(),
                             weight.mutable_view(), stats.mutable_view(), stream());
      kernels::cross_entropy_backward(dloss.view(), x.view(), target.view(), stats.view(), args,
                                      dx.mutable_view(), 0, nullptr, stream());
    };
  });
}

/// Runs a table of `vocabulary` rows, and `rows` indices into it; the gradient of the table is f32.
void embedding(std::int64_t vocabulary, std::int64_t rows, std::int64_t cols, DType t) {
  const double part = static_cast<double>(rows * cols) * static_cast<double>(firn::size_of(t));
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < rows; ++i) ids.push_back((i * 7919 + i / 3) % vocabulary);
  const Tensor index = firn::tensor(ids, {rows}, kDevice);
  run({"embedding", rows, cols, t, 2 * part}, [&](int) {
    const Tensor table = random({vocabulary, cols}, t), y = out({rows, cols}, t);
    return [=] {
      kernels::take_rows("embedding", table.view(), index.view(), y.mutable_view(), stream());
    };
  });
  // dy is read; every row of the table that an index selects is read and written.
  std::sort(ids.begin(), ids.end());
  const auto distinct = std::unique(ids.begin(), ids.end()) - ids.begin();
  const double table_bytes = 8.0 * static_cast<double>(distinct * cols);
  run({"embedding_backward", rows, cols, t, part + table_bytes}, [&](int) {
    const Tensor dy = random({rows, cols}, t);
    const Tensor grad = firn::zeros({vocabulary, cols}, firn::f32, kDevice);
    return [=] {
      kernels::add_rows("embedding", dy.view(), index.view(), grad.mutable_view(), 1, stream());
    };
  });
}

}  // namespace

void memory_bound() {
  using Sizes = std::vector<std::pair<std::int64_t, std::int64_t>>;
  const Sizes tiny{{8, 64}};
  const Sizes flat = sized(Sizes{{32768, 4096}, {64, 512}}, tiny);
  const Sizes rows = sized(Sizes{{32768, 256},
                                 {32768, 1024},
                                 {32768, 4096},
                                 {8192, 768},
                                 {8192, 50304},
                                 {64, 10},
                                 {64, 512}},
                           tiny);
  for (const DType t : {firn::f16, firn::bf16, firn::f32}) {
    for (const auto& [r, c] : flat) elementwise(r, c, t);
    for (const auto& [r, c] : rows) {
      softmax(r, c, t);
      norms(true, r, c, t);
      norms(false, r, c, t);
    }
    for (const auto& [r, c] : sized(Sizes{{32768, 1024}, {8192, 50304}, {64, 10}}, tiny))
      cross_entropy(r, c, t);
    for (const auto& [r, c] : sized(Sizes{{32768, 768}, {64, 512}}, tiny))
      embedding(sized<std::int64_t>(50304, 32), r, c, t);
  }
}

}  // namespace bench
