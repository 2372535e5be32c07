// How firn uses cuBLASLt, seen from the simulator's stand-in: which problems it asks about, what it
// allows, and what it does if the library refuses.
#ifdef FIRN_HAS_CUSIM
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cusim.h"
#include "firn/firn.h"
#include "firn/warning.h"
#include "kernels/dense.h"
#include "kernels/gemm.h"
#include "kernels/gemm/ways.h"
#include "kernels/settings/settings.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Kind = kernels::Activation;
using kernels::Epilogues;
using kernels::SplitK;

/// While alive, `hook` sees the calls of cuBLASLt and answers them.
class Calls {
 public:
  template <class Hook>
  explicit Calls(Hook hook) {
    cusim::on_product(std::move(hook));
  }
  ~Calls() { cusim::on_product(nullptr); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
};

/// While alive, warnings are kept here.
class Warnings {
 public:
  Warnings()
      : before_(set_warning_handler([this](const std::string& text) { texts.push_back(text); })) {}
  ~Warnings() { set_warning_handler(before_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  std::vector<std::string> texts;

 private:
  WarningHandler before_;
};

class Split {
 public:
  explicit Split(SplitK choice) : before_(kernels::split_k().exchange(choice)) {}
  ~Split() { kernels::split_k() = before_; }
  Split(const Split&) = delete;
  Split& operator=(const Split&) = delete;

 private:
  SplitK before_;
};

/// Small whole numbers, whose products every way computes exactly.
Tensor whole(const Shape& shape, DType dtype, std::uint64_t seed, Device device) {
  Rng rng(seed);
  std::vector<double> values(static_cast<std::size_t>(shape.product()));
  for (double& v : values) v = static_cast<double>(rng.below(7)) - 3;
  return make(values, shape, dtype, Layout::contiguous, device);
}

/// The products of a layer [m, k] -> [m, n] and of the one above it, which has `above` outputs:
/// results of each, in turn.
std::vector<std::vector<double>> products(Device device, DType dtype, Kind activation,
                                          std::int64_t m, std::int64_t n, std::int64_t k,
                                          std::int64_t above) {
  const Stream stream = current_stream(device);
  const auto operand = [&](const Shape& shape, std::uint64_t seed) {
    return whole(shape, dtype, seed, device);
  };
  const Tensor x = operand({m, k}, 1), w = operand({n, k}, 2), b = operand({n}, 3);
  const Tensor y = empty({m, n}, dtype, device), dx = empty({m, n}, dtype, device);
  const auto layout = kernels::dense_saved(activation, m, n, dtype);
  const Tensor saved = empty(layout.shape, layout.dtype, device);
  kernels::dense_forward(x.view(), w.view(), b.view(), activation, y.mutable_view(),
                         saved.mutable_view(), stream);
  kernels::dense_data_gradient(operand({m, above}, 4).view(), operand({above, n}, 5).view(),
                               activation, saved.view(), dx.mutable_view(), stream);
  std::vector<std::vector<double>> all = {values_of(y), values_of(dx)};
  const Tensor dy = operand({m, n}, 6);
  for (const float beta : {1.f, 0.f}) {
    const Tensor dw = full({n, k}, 5, f32, device), db = full({n}, 7, f32, device);
    kernels::dense_weight_gradient(dy.view(), x.view(), dw.mutable_view(), beta, db.mutable_view(),
                                   0, stream);
    all.push_back(values_of(dw));
    all.push_back(values_of(db));
  }
  return all;
}

void check_same(const std::vector<std::vector<double>>& got,
                const std::vector<std::vector<double>>& want, double gelu) {
  for (std::size_t i = 0; i < want.size(); ++i)
    expect_close("product " + std::to_string(i), got[i], want[i], i < 2 ? gelu : 0);
}

}  // namespace

TEST_CASE("dense: no problem with a size of 1 reaches an epilogue that has none", "[gpu]") {
  std::vector<std::string> refused;
  int asked = 0;
  const Calls calls([&](const cusim::ProductCall& call) {
    ++asked;
    if (call.answer != 0)
      refused.push_back(std::to_string(call.m) + " " + std::to_string(call.n) + " " +
                        std::to_string(call.k) + " epilogue " + std::to_string(call.epilogue));
    return call.answer;
  });
  const Twin twin(Epilogues::fused);
  for (const Kind activation : {Kind::relu, Kind::gelu_tanh}) {
    for (const auto& [m, n, k, above] : std::vector<std::array<std::int64_t, 4>>{
             {1, 43, 29, 2}, {43, 1, 29, 2}, {43, 29, 1, 2}, {43, 29, 31, 1}, {1, 1, 1, 1}}) {
      INFO(m << " " << n << " " << k << " " << above);
      check_same(products(default_device(), f32, activation, m, n, k, above),
                 products(Device::cpu(), f32, activation, m, n, k, above), 1e-4);
    }
  }
  CHECK(asked > 0);
  CHECK(refused == std::vector<std::string>{});
}

TEST_CASE("dense: what the library refuses to run is computed another way, once", "[gpu]") {
  const Warnings warnings;
  const std::uint32_t epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT,       CUBLASLT_EPILOGUE_BIAS,
                                     CUBLASLT_EPILOGUE_BGRADB,        CUBLASLT_EPILOGUE_DRELU,
                                     CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU};
  std::int64_t m = 50;  // another shape each time: plans are kept
  for (const cublasStatus_t status : {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE}) {
    for (const std::uint32_t epilogue : epilogues) {
      bool any = false;
      // The first algorithm alone, or all of an epilogue; a plain product has no other way.
      for (const bool all : {false, true}) {
        if (all && epilogue == CUBLASLT_EPILOGUE_DEFAULT) continue;
        for (const Kind activation : {Kind::relu, Kind::gelu_tanh}) {
          for (const DType dtype : {f32, f16}) {
            ++m;
            INFO("status " << status << " epilogue " << epilogue << (all ? " all" : " first")
                           << " activation " << static_cast<int>(activation) << " m " << m);
            int refused = 0;
            const Calls calls([&](const cusim::ProductCall& call) -> int {
              if (call.question || call.epilogue != epilogue || (refused > 0 && !all))
                return call.answer;
              ++refused;
              return status;
            });
            const Twin twin(epilogue == CUBLASLT_EPILOGUE_DEFAULT ? Epilogues::unfused
                                                                  : Epilogues::fused);
            const auto run = [&](Device device) {
              return products(device, dtype, activation, m, 6, 5, 4);
            };
            const double rounding = activation == Kind::relu ? 0 : dtype == f32 ? 1e-4 : 4e-2;
            check_same(run(default_device()), run(Device::cpu()), rounding);
            const int before = refused;
            run(default_device());
            CHECK(refused == before);  // what has been refused is not tried again
            any = any || refused > 0;
          }
        }
      }
      INFO("epilogue " << epilogue);
      CHECK(any);
    }
  }
  for (const std::uint32_t epilogue : epilogues) {
    if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) continue;  // other cases have it refused too
    const std::string name = ", epilogue " + std::to_string(epilogue) + ".";
    INFO(name);
    CHECK(std::count_if(warnings.texts.begin(), warnings.texts.end(), [&](const std::string& text) {
            return text.find(name) != std::string::npos;
          }) == 1);
  }
  for (const std::string& text : warnings.texts)
    CHECK(text.find("cublasLtMatmul answered CUBLAS_STATUS_NOT_SUPPORTED") != std::string::npos);
}

TEST_CASE("gemm: describe() has a line for what the library refused", "[gpu]") {
  const Warnings warnings;
  const Device device = default_device();
  const std::string before = describe(device);
  CHECK(before.find("multiprocessors, products by cuBLASLt 130000 (simulator)") !=
        std::string::npos);
  // Other cases refuse no product of bf16 numbers. Two shapes, one algorithm of each.
  for (const std::int64_t m : {71, 72}) {
    bool refuse = true;
    const Calls calls([&](const cusim::ProductCall& call) -> int {
      return call.question || !std::exchange(refuse, false) ? call.answer
                                                            : CUBLAS_STATUS_NOT_SUPPORTED;
    });
    const Tensor a = ones({m, 3}, bf16, device), b = ones({3, 7}, bf16, device);
    CHECK(values_of(matmul(a, b)) == std::vector<double>(static_cast<std::size_t>(m) * 7, 3));
  }
  const std::string line =
      "\ncuBLASLt refused 2 of the algorithms that it had chosen for bf16 products with no "
      "epilogue "
      "(CUBLAS_STATUS_NOT_SUPPORTED): others run, or separate kernels";
  const std::string after = describe(device);
  CHECK(before.find(line) == std::string::npos);
  CHECK(after.find(line) != std::string::npos);
  CHECK(after.size() == before.size() + line.size());
}

TEST_CASE("gemm: a product that the library refuses altogether leaves its result alone", "[gpu]") {
  const Warnings warnings;
  const Calls calls([](const cusim::ProductCall& call) -> int {
    return call.question ? call.answer : CUBLAS_STATUS_NOT_SUPPORTED;
  });
  const Device device = default_device();
  const Tensor a = ones({61, 3}, f32, device), b = ones({3, 7}, f32, device);
  const Tensor c = full({61, 7}, 5, f32, device), bias = ones({7}, f32, device);
  const auto product = [&] {
    kernels::gemm(a.view(), b.view(), c.mutable_view(),
                  kernels::GemmArgs{.alpha = 1, .beta = 1, .bias = bias.view()},
                  current_stream(device));
  };
  for (int i = 0; i < 2; ++i) {
    const std::string error = error_of(product);
    CHECK(error.find("[gemm] cublasLtMatmul answered CUBLAS_STATUS_NOT_SUPPORTED") == 0);
    CHECK(values_of(c) == std::vector<double>(61 * 7, 5));
  }
}

TEST_CASE("gemm: a handler of warnings that throws stops the product before it is queued",
          "[gpu]") {
  // Another thread has a context of its own, which has not warned yet.
  const auto before =
      set_warning_handler([](const std::string& text) { throw std::runtime_error(text); });
  bool refuse = true;
  const Calls calls([&](const cusim::ProductCall& call) -> int {
    return call.question || !std::exchange(refuse, false) ? call.answer
                                                          : CUBLAS_STATUS_NOT_SUPPORTED;
  });
  const Device device = default_device();
  bool thrown = false;
  std::vector<double> first, second;
  std::thread([&] {
    const Tensor a = ones({67, 3}, f32, device), b = ones({3, 7}, f32, device);
    const Tensor c = full({67, 7}, 5, f32, device);
    const auto product = [&] {
      kernels::gemm(a.view(), b.view(), c.mutable_view(),
                    kernels::GemmArgs{.alpha = 1, .beta = 1, .bias = {}}, current_stream(device));
    };
    try {
      product();
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    first = values_of(c);
    product();
    second = values_of(c);
  }).join();
  CHECK(thrown);
  CHECK(first == std::vector<double>(67 * 7, 5));
  CHECK(second == std::vector<double>(67 * 7, 8));
  set_warning_handler(before);
}

TEST_CASE("gemm: which products may be split along their inner axis", "[gpu]") {
  std::vector<std::uint32_t> allowed;
  const Calls calls([&](const cusim::ProductCall& call) {
    if (call.question) allowed.push_back(call.reductions);
    return call.answer;
  });
  const Device device = default_device();
  /// The reduction schemes that a product of this shape may use, in its first question.
  const auto schemes = [&](DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
    allowed.clear();
    const Tensor a = zeros({m, k}, dtype, device), b = zeros({k, n}, dtype, device);
    const Tensor c = empty({m, n}, dtype, device);
    kernels::gemm(a.view(), b.view(), c.mutable_view(), kernels::GemmArgs{},
                  current_stream(device));
    REQUIRE(allowed.size() == 1);
    return allowed[0];
  };
  const std::uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE,
                      compute = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  // The simulated device has 4 multiprocessors: one tile of 128x128 leaves more than half idle.
  CHECK(schemes(f32, 9, 100, 300) == compute);
  CHECK(schemes(f32, 9, 100, 256) == compute);
  CHECK(schemes(f32, 9, 100, 255) == none);
  CHECK(schemes(f32, 9, 129, 300) == none);
  CHECK(schemes(f32, 129, 9, 300) == none);
  CHECK(schemes(f16, 9, 100, 300) == none);
  CHECK(schemes(f64, 9, 100, 300) == none);
  CHECK(schemes(f16, 9, 10, 4096) == compute);
  const Split split(SplitK::by_depth);
  // The same shape again is another problem, and no number of rows makes a difference.
  CHECK(schemes(f32, 9, 100, 300) == none);
  for (const std::int64_t rows : {1, 2, 65, 130}) {
    CHECK(schemes(f32, rows, 101, 300) == none);
    CHECK(schemes(f32, rows, 11, 4096) == compute);
  }
}

}  // namespace firn::testing
#endif
