// The three products of a dense layer, in the shapes of the MLP and of GPT-2: with their epilogues
// as firn makes them (`fused`), as a bare product (`plain`), and as product and separate kernels
// (`separate`).
#include <cmath>

#include "bench.h"
#include "kernels/dense.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"

namespace bench {
namespace {

using firn::ConstView;
using firn::DType;
using firn::Shape;
using firn::Tensor;
using firn::View;
namespace kernels = firn::kernels;
namespace math = firn::math;
using kernels::Activation;

/// y [m, n] = relu(x [m, k] w^T [k, n] + bias).
struct Layer {
  std::int64_t m, n, k;
};

std::string name(const char* product, const Layer& l) {
  return std::string(product) + "_" + std::to_string(l.m) + "x" + std::to_string(l.n) + "x" +
         std::to_string(l.k);
}

void figure(const char* product, const Layer& l, const char* mode, DType t,
            const std::function<void()>& call) {
  const double flop =
      2.0 * static_cast<double>(l.m) * static_cast<double>(l.n) * static_cast<double>(l.k);
  report({.work = name(product, l),
          .mode = mode,
          .dtype = firn::to_string(t),
          .values = device_us(call),
          .flop = flop});
}

View no_view() { return {}; }

void forward(const Layer& l, DType t, firn::Stream s) {
  const Tensor x = random({l.m, l.k}, t), w = random({l.n, l.k}, t), bias = random({l.n}, t);
  const Tensor y = firn::empty({l.m, l.n}, t, kDevice);
  const Tensor z = firn::empty({l.m, l.n}, t, kDevice);
  const auto saved = kernels::dense_saved(Activation::relu, l.m, l.n, t);
  const Tensor mask = firn::empty(saved.shape, saved.dtype, kDevice);
  figure("fwd", l, "plain", t, [&] {
    kernels::dense_forward(x.view(), w.view(), ConstView{}, Activation::none, y.mutable_view(),
                           no_view(), s);
  });
  figure("fwd", l, "bias", t, [&] {
    kernels::dense_forward(x.view(), w.view(), bias.view(), Activation::none, y.mutable_view(),
                           no_view(), s);
  });
  figure("fwd", l, "fused", t, [&] {
    kernels::dense_forward(x.view(), w.view(), bias.view(), Activation::relu, y.mutable_view(),
                           mask.mutable_view(), s);
  });
  figure("fwd", l, "separate", t, [&] {
    kernels::dense_forward(x.view(), w.view(), bias.view(), Activation::none, z.mutable_view(),
                           no_view(), s);
    kernels::unary(math::UnaryOp::relu, z.view(), y.mutable_view(), math::Args{}, s);
  });
}

void data_gradient(const Layer& l, DType t, firn::Stream s) {
  const Tensor dy = random({l.m, l.n}, t), w = random({l.n, l.k}, t);
  const Tensor below = random({l.m, l.k}, t);  // what the layer below gave
  const Tensor dx = firn::empty({l.m, l.k}, t, kDevice);
  const Tensor dz = firn::empty({l.m, l.k}, t, kDevice);
  figure("dgrad", l, "plain", t, [&] {
    kernels::dense_data_gradient(dy.view(), w.view(), Activation::none, ConstView{},
                                 dx.mutable_view(), s);
  });
  // The mask of a layer [m, k] with k inputs of one column each: any layer with that output does.
  const auto saved = kernels::dense_saved(Activation::relu, l.m, l.k, t);
  const Tensor mask = firn::empty(saved.shape, saved.dtype, kDevice);
  const Tensor one = random({l.m, 8}, t), columns = random({l.k, 8}, t);
  kernels::dense_forward(one.view(), columns.view(), ConstView{}, Activation::relu,
                         dz.mutable_view(), mask.mutable_view(), s);
  figure("dgrad", l, "fused", t, [&] {
    kernels::dense_data_gradient(dy.view(), w.view(), Activation::relu, mask.view(),
                                 dx.mutable_view(), s);
  });
  figure("dgrad", l, "separate", t, [&] {
    kernels::dense_data_gradient(dy.view(), w.view(), Activation::none, ConstView{},
                                 dz.mutable_view(), s);
    kernels::unary_backward(math::UnaryOp::relu, dz.view(), below.view(), dx.mutable_view(),
                            math::Args{}, 0, s);
  });
}

void weight_gradient(const Layer& l, DType t, firn::Stream s) {
  const Tensor dy = random({l.m, l.n}, t), x = random({l.m, l.k}, t);
  const Tensor dw = firn::zeros({l.n, l.k}, firn::f32, kDevice);
  const Tensor db = firn::zeros({l.n}, firn::f32, kDevice);
  const auto gradient = [&](float beta, const View& bias) {
    kernels::dense_weight_gradient(dy.view(), x.view(), dw.mutable_view(), beta, bias, beta, s);
  };
  figure("wgrad", l, "plain", t, [&] { gradient(0, no_view()); });
  figure("wgrad", l, "accumulate", t, [&] { gradient(1, no_view()); });
  figure("wgrad", l, "fused", t, [&] { gradient(0, db.mutable_view()); });
  figure("wgrad", l, "fused_accumulate", t, [&] { gradient(1, db.mutable_view()); });
  View row = db.mutable_view();
  row.shape = {1, l.n};
  row.strides = {l.n, 1};
  figure("wgrad", l, "separate", t, [&] {
    gradient(0, no_view());
    kernels::reduce(kernels::ReduceOp::sum, dy.view(), row, 1, 0, s);
  });
}

void square(std::int64_t n, DType t, firn::Stream s) {
  const Tensor a = random({n, n}, t), b = random({n, n}, t);
  const Tensor c = firn::empty({n, n}, t, kDevice);
  figure("gemm", {n, n, n}, "plain", t,
         [&] { kernels::gemm(a.view(), b.view(), c.mutable_view(), kernels::GemmArgs{}, s); });
}

}  // namespace

void gemm() {
  const firn::Stream s = firn::current_stream(kDevice);
  const std::vector<Layer> layers = sized(std::vector<Layer>{{64, 512, 784},
                                                             {64, 512, 512},
                                                             {64, 10, 512},
                                                             {4096, 512, 784},
                                                             {4096, 512, 512},
                                                             {65536, 768, 768},
                                                             {65536, 2304, 768},
                                                             {65536, 3072, 768},
                                                             {65536, 768, 3072},
                                                             {65536, 50304, 768}},
                                          std::vector<Layer>{{8, 16, 24}, {8, 10, 16}});
  for (const DType t : {firn::f16, firn::bf16, firn::f32}) {
    for (const std::int64_t n : sized(std::vector<std::int64_t>{1024, 4096, 8192}, {32})) {
      if (t == firn::f32 && n > 4096) continue;
      square(n, t, s);
    }
    for (const Layer& l : layers) {
      if (t == firn::f32 && l.m > 4096) continue;  // seconds each, and of no model
      forward(l, t, s);
      data_gradient(l, t, s);
      weight_gradient(l, t, s);
      firn::release_cached_memory(kDevice);
    }
  }
}

}  // namespace bench
