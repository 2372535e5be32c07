// The three products of a dense layer, in the shapes of the MLP and of GPT-2. They are timed with
// firn's epilogues (`fused`), as a bare product (`plain`), and gradients as a product and separate
// kernels (`separate`).
#include <cmath>

#include "bench.h"
#include "kernels/dense.h"
#include "kernels/gemm.h"
#include "kernels/settings/settings.h"
#include "replayed.h"

namespace bench {
namespace {

using firn::ConstView;
using firn::DType;
using firn::Shape;
using firn::Tensor;
using firn::View;
namespace kernels = firn::kernels;
using kernels::Activation;

/// y [m, n] = relu(x [m, k] w^T [k, n] + bias).
struct Layer {
  std::int64_t m, n, k;
};

std::string name(const char* product, const Layer& l) {
  return std::string(product) + "_" + std::to_string(l.m) + "x" + std::to_string(l.n) + "x" +
         std::to_string(l.k);
}

/// Products of few rows take no longer than their launch, so a chain of them is replayed as a
/// graph.
void figure(const char* product, const Layer& l, const char* mode, DType t,
            const std::function<void()>& call) {
  constexpr int kChain = 20;
  const double flop =
      2.0 * static_cast<double>(l.m) * static_cast<double>(l.n) * static_cast<double>(l.k);
  Figure f{.work = name(product, l),
           .mode = mode,
           .dtype = firn::to_string(t),
           .values = {},
           .flop = flop};
  if (l.m <= 4096) {
    Replayed chain([&] {
      for (int i = 0; i < kChain; ++i) call();
    });
    f.values = device_us([&] { chain.replay(); });
    for (double& v : f.values) v /= kChain;
    f.nodes = (chain.nodes() + kChain / 2) / kChain;
  } else {
    f.values = device_us(call);
  }
  report(f);
}

/// Times a call with the epilogue and with separate kernels.
void both(const char* product, const Layer& l, DType t, const std::function<void()>& call) {
  const auto before = kernels::epilogues().exchange(kernels::Epilogues::fused);
  figure(product, l, "fused", t, call);
  kernels::epilogues() = kernels::Epilogues::unfused;
  figure(product, l, "separate", t, call);
  kernels::epilogues() = before;
}

void forward(const Layer& l, DType t) {
  const Tensor x = random({l.m, l.k}, t), w = random({l.n, l.k}, t), bias = random({l.n}, t);
  const Tensor y = firn::empty({l.m, l.n}, t, kDevice);
  const auto saved = kernels::dense_saved(Activation::relu, l.m, l.n, t);
  const Tensor mask = firn::empty(saved.shape, saved.dtype, kDevice);
  const auto run = [&](const ConstView& b, Activation activation, const View& saves) {
    kernels::dense_forward(x.view(), w.view(), b, activation, y.mutable_view(), saves, stream());
  };
  figure("fwd", l, "plain", t, [&] { run(ConstView{}, Activation::none, View{}); });
  figure("fwd", l, "bias", t, [&] { run(bias.view(), Activation::none, View{}); });
  // relu is a separate kernel after the product in both cases.
  figure("fwd", l, "fused", t, [&] { run(bias.view(), Activation::relu, mask.mutable_view()); });
}

void data_gradient(const Layer& l, DType t) {
  const Tensor dy = random({l.m, l.n}, t), w = random({l.n, l.k}, t);
  const Tensor dx = firn::empty({l.m, l.k}, t, kDevice);
  // The mask that a layer with this output saves, made by a product of 8 columns.
  const auto saved = kernels::dense_saved(Activation::relu, l.m, l.k, t);
  const Tensor mask = firn::empty(saved.shape, saved.dtype, kDevice);
  const Tensor x = random({l.m, 8}, t), below = random({l.k, 8}, t);
  kernels::dense_forward(x.view(), below.view(), ConstView{}, Activation::relu, dx.mutable_view(),
                         mask.mutable_view(), stream());
  const auto run = [&](Activation activation, const ConstView& saves) {
    kernels::dense_data_gradient(dy.view(), w.view(), activation, saves, dx.mutable_view(),
                                 stream());
  };
  figure("dgrad", l, "plain", t, [&] { run(Activation::none, ConstView{}); });
  both("dgrad", l, t, [&] { run(Activation::relu, mask.view()); });
}

void weight_gradient(const Layer& l, DType t) {
  const Tensor dy = random({l.m, l.n}, t), x = random({l.m, l.k}, t);
  const Tensor dw = firn::zeros({l.n, l.k}, firn::f32, kDevice);
  const Tensor db = firn::zeros({l.n}, firn::f32, kDevice);
  const auto run = [&](float beta, const View& bias) {
    kernels::dense_weight_gradient(dy.view(), x.view(), dw.mutable_view(), beta, bias, beta,
                                   stream());
  };
  figure("wgrad", l, "plain", t, [&] { run(0, View{}); });
  figure("wgrad", l, "accumulate", t, [&] { run(1, View{}); });
  both("wgrad", l, t, [&] { run(0, db.mutable_view()); });
  figure("wgrad", l, "all_accumulate", t, [&] { run(1, db.mutable_view()); });
}

void square(std::int64_t n, DType t) {
  const Tensor a = random({n, n}, t), b = random({n, n}, t);
  const Tensor c = firn::empty({n, n}, t, kDevice);
  figure("gemm", {n, n, n}, "plain", t, [&] {
    kernels::gemm(a.view(), b.view(), c.mutable_view(), kernels::GemmArgs{}, stream());
  });
}

}  // namespace

void gemm() {
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
      square(n, t);
    }
    for (const Layer& l : layers) {
      if (t == firn::f32 && l.m > 4096) continue;  // takes seconds, and no model has it
      forward(l, t);
      data_gradient(l, t);
      weight_gradient(l, t);
      firn::release_cached_memory(kDevice);
    }
  }
}

}  // namespace bench
