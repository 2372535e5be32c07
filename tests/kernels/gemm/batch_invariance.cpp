// require_batch_invariance(): a row of a product does not depend on how many rows there are.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "kernels/gemm.h"
#include "kernels/settings/isa.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

/// Batch invariance for as long as it lives.
struct Required {
  Required() { require_batch_invariance(true); }
  ~Required() { require_batch_invariance(false); }
};

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous(a), y = contiguous(b);
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.view().data, y.view().data,
                     static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

enum class Layout { plain, transposed };
/// The same values, contiguous along rows or columns.
Tensor laid_out(const Tensor& t, Layout layout) {
  return layout == Layout::plain ? t : transpose(contiguous(transpose(t, 0, 1)), 0, 1);
}

/// What is added to the product.
struct Target {
  double beta;
  bool bias;
};

/// beta c + x w [+ bias], computed for `rows` rows of x at a time.
Tensor in_parts(const Tensor& x, const Tensor& w, const Tensor& c, const Tensor& bias,
                const Target& target, std::int64_t rows) {
  const Tensor out = c.clone();
  for (std::int64_t i = 0; i < x.size(0); i += rows) {
    const std::int64_t end = std::min(i + rows, x.size(0));
    kernels::GemmArgs args;
    args.beta = target.beta;
    if (target.bias) args.bias = bias.view();
    kernels::gemm(slice(x, 0, i, end).view(), w.view(), slice(out, 0, i, end).mutable_view(), args,
                  current_stream(Device::cpu()));
  }
  return out;
}

}  // namespace

TEST_CASE("batch invariance: a row has the same bits in a product of any number of rows",
          "[host]") {
  manual_seed(39);
  const Required required;
  const std::int64_t m = 200;
#if defined(__SANITIZE_ADDRESS__)  // with which the larger ones take minutes
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {
      {1, 33}, {10, 300}, {100, 33}, {45, 64}};
#else
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {
      {1, 33}, {10, 300}, {100, 784}, {257, 1025}, {800, 170}, {45, 64}, {96, 1088}};
#endif
  for (const DType dtype : {f32, f64, bf16, f16}) {
    for (const auto& [n, k] : sizes) {
      const Tensor x = cast(randn({m, k}), dtype), w = cast(randn({k, n}), dtype);
      const Tensor bias = cast(randn({n}), dtype);
      for (const DType result : {dtype, compute_dtype(dtype)}) {
        const Tensor c = cast(randn({m, n}), result);
        for (const Layout left : {Layout::plain, Layout::transposed}) {
          for (const Layout right : {Layout::plain, Layout::transposed}) {
            for (const Target& target :
                 {Target{0, false}, Target{1, false}, Target{0.5, false}, Target{0, true}}) {
              const Tensor a = laid_out(x, left), b = laid_out(w, right);
              const Tensor whole = in_parts(a, b, c, bias, target, m);
              for (const std::int64_t rows : {1, 3, 16, 31, 64, 130}) {
                INFO(to_string(dtype)
                     << " to " << to_string(result) << ", " << k << " x " << n << ", beta "
                     << target.beta << ", bias " << target.bias << ", layouts "
                     << static_cast<int>(left) << static_cast<int>(right) << ", rows " << rows);
                REQUIRE(same_bits(whole, in_parts(a, b, c, bias, target, rows)));
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("batch invariance: a few rows of 16 bits have the bits of rows among others", "[host]") {
  manual_seed(41);
  const auto random = [](const Shape& shape, DType t) { return cast(randn(shape), t); };
  for (const DType dtype : {bf16, f16}) {
    for (const std::int64_t k : {32, 64, 1024, 1056, 2080}) {
      for (const std::int64_t n : {1, 15, 16, 31, 32, 33, 64, 100, 352, 2112}) {
        if (n > 1000 && k != 2080) continue;  // one such product has work for threads
        // Rows and columns of the matrix are dense, or have room beside them.
        const Tensor x = random({17, k}, dtype), spread = random({17, 2 * k}, dtype);
        const Tensor w = slice(random({k, n + 5}, dtype), 1, 2, n + 2);
        const Tensor columns = slice(random({n, k + 3}, dtype), 1, 1, k + 1);
        fill_(select(select(w, 0, k / 3), 0, n - 1), std::numeric_limits<double>::infinity());
        fill_(select(select(columns, 0, n / 2), 0, k - 1), std::nan(""));
        for (const Tensor& a : {x, slice(spread, 1, 0, 2 * k, 2)}) {
          for (const Tensor& b :
               {w, contiguous(w), laid_out(w, Layout::transposed), transpose(columns, 0, 1)}) {
            const Tensor whole = matmul(a, b);
            for (const std::int64_t rows : {1, 2, 3, 5, 8}) {
              const Threads threads(static_cast<int>(1 + rows % 3));
              INFO(to_string(dtype) << ", " << k << " x " << n << ", " << rows << " rows");
              const Tensor part = slice(a, 0, 8, 8 + rows);
              REQUIRE(same_bits(slice(whole, 0, 8, 8 + rows), matmul(part, b)));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("batch invariance: layers of any batch size, on any number of threads", "[host]") {
  manual_seed(40);
  const Required required;
  const std::int64_t m = 96;
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const Tensor x = cast(randn({m, 300}), dtype);
    const std::vector<Tensor> weights = {cast(randn({256, 300}) * 0.05, dtype),
                                         cast(randn({10, 256}) * 0.05, dtype)};
    const std::vector<Tensor> biases = {cast(randn({256}), dtype), cast(randn({10}), dtype)};
    for (const Activation activation : {Activation::relu, Activation::gelu_tanh}) {
      const Tensor whole = mlp(x, weights, biases, activation);
      for (const std::int64_t rows : {1, 7, 32}) {
        for (std::int64_t i = 0; i < m; i += rows) {
          const std::int64_t end = std::min(i + rows, m);
          const Threads threads(static_cast<int>(1 + i % 3));
          INFO(to_string(dtype) << ", " << to_string(activation) << ", rows " << i << " to "
                                << end);
          REQUIRE(same_bits(slice(whole, 0, i, end),
                            mlp(slice(x, 0, i, end), weights, biases, activation)));
        }
      }
    }
  }
}

TEST_CASE("batch invariance: the switch is off by default, and describe_cpu() says what it chose",
          "[host]") {
  CHECK_FALSE(batch_invariance_required());
  {
    const Required required;
    CHECK(batch_invariance_required());
    CHECK(describe_cpu().find("oneDNN") == std::string::npos);
    CHECK(describe_cpu().find("Eigen") == std::string::npos);
  }
  CHECK_FALSE(batch_invariance_required());
}

TEST_CASE("batch invariance: products on a device refuse what cuBLASLt does not promise") {
  if (!default_device().is_cuda()) return;
  const Tensor x = randn({4, 8}), w = randn({6, 8}), bias = randn({6});
  const Required required;
  const char* const refused =
      "[gemm] batch invariance is required, which cuBLASLt does not promise; hint: compute on the "
      "CPU, or call require_batch_invariance(false)";
  CHECK_THROWS_WITH(linear(x, w, bias), refused);
  CHECK_THROWS_WITH(mlp(x, {w}, {bias}), refused);
}

}  // namespace firn::testing
