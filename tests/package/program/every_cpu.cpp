// The same library on every CPU: results of kernels under the instruction set that FIRN_CPU_ISA
// names, against f64, with the same bits for any number of threads and in every run.
#include <firn/firn.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

using namespace firn;

namespace {

int wrong = 0;
std::uint64_t hash = 1;  // of all results

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("wrong: %s\n", what.c_str());
  ++wrong;
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// The result and the gradients of its sum of squares, one after the other.
std::vector<Tensor> compute(const Function& f, const std::vector<Tensor>& inputs, DType dtype) {
  std::vector<Tensor> xs;
  for (const Tensor& x : inputs) xs.push_back(x.to(dtype).detach().set_requires_grad());
  const Tensor y = f(xs);
  sum(square(y.to(f32))).backward();
  std::vector<Tensor> out{y.detach()};
  for (const Tensor& x : xs) out.push_back(x.grad());
  return out;
}

/// The elements as f64, which holds each exactly.
std::vector<double> elements(const Tensor& t) {
  const NoGrad guard;
  return contiguous(t.to(f64)).to_vector<double>();
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = elements(a), y = elements(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

/// f32 and the 16-bit types against f64, on 1, 2 and 3 threads and again.
void check(const char* name, const Function& f, const std::vector<Tensor>& inputs) {
  for (const auto& [dtype, bound] : {std::pair{f32, 2e-6}, {bf16, 3e-2}, {f16, 4e-3}}) {
    std::vector<Tensor> rounded;  // what every dtype holds, so that only the arithmetic differs
    for (const Tensor& x : inputs) rounded.push_back(x.to(dtype));
    const auto exact = compute(f, rounded, f64);
    set_num_threads(1);
    const auto first = compute(f, rounded, dtype);
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      const auto again = compute(f, rounded, dtype);
      for (std::size_t i = 0; i < first.size(); ++i)
        expect(same_bits(first[i], again[i]), std::string(name) + " " + to_string(dtype) +
                                                  " has other bits on " + std::to_string(threads) +
                                                  " threads");
    }
    for (std::size_t i = 0; i < first.size(); ++i) {
      const NoGrad guard;
      const double error = norm(first[i].to(f64) - exact[i].to(f64)).item();
      const double size = norm(exact[i].to(f64)).item();
      expect(error <= bound * size, std::string(name) + " " + to_string(dtype) + ", part " +
                                        std::to_string(i) + ": error " +
                                        std::to_string(error / size));
      for (const double x : elements(first[i])) {
        hash = (hash ^ std::bit_cast<std::uint64_t>(x)) * 1099511628211u;
        hash ^= hash >> 29;
      }
    }
  }
}

}  // namespace

int main() try {
  std::printf("%s\n", describe_cpu().c_str());
  manual_seed(1);
  const auto draw = [](const Shape& shape) { return randn(shape) * 0.5; };
  using Inputs = const std::vector<Tensor>&;
  check("elementwise", [](Inputs x) { return gelu(x[0]) * tanh(x[1]) + exp(-square(x[0])); },
        {draw({257, 301}), draw({257, 301})});
  check("softmax", [](Inputs x) { return softmax(x[0]); }, {draw({301, 257})});
  check("layer_norm", [](Inputs x) { return layer_norm(x[0], x[1], x[2]); },
        {draw({301, 257}), draw({257}), draw({257})});
  check("sum", [](Inputs x) { return sum(x[0], 0); }, {draw({301, 257})});
  check("transposed copy", [](Inputs x) { return contiguous(transpose(x[0], 0, 1)); },
        {draw({301, 257})});
  check("matmul", [](Inputs x) { return matmul(x[0], x[1]); },
        {draw({131, 150}), draw({150, 139})});
  check("mlp",
        [](Inputs x) {
          return mlp(x[0], {x[1], x[2]}, {x[3], x[4]});
        },
        {draw({65, 70}), draw({90, 70}), draw({33, 90}), draw({90}), draw({33})});
  check("conv2d", [](Inputs x) { return conv2d(x[0], x[1]); },
        {draw({4, 3, 18, 17}), draw({16, 3, 3, 3})});
  check("avg_pool2d", [](Inputs x) { return avg_pool2d(x[0], 2); }, {draw({8, 16, 18, 18})});

  // An error that a kernel of a variant throws is caught like any other.
  bool caught = false;
  try {
    static_cast<void>(cross_entropy(draw({4, 3}), tensor<std::int64_t>({0, 1, 2, 3}, {4})).item());
  } catch (const Error& e) {
    caught = std::strstr(e.what(), "cross_entropy") != nullptr;
  }
  expect(caught, "the error of a kernel");
  std::printf("%s %016llx\n", wrong == 0 ? "right" : "wrong",
              static_cast<unsigned long long>(hash));
  return wrong == 0 ? 0 : 1;
} catch (const Error& e) {
  std::printf("%s\n", e.what());
  return 2;
}
