// ../cpu/ops.cpp with LibTorch.
//   bench_torch_ops [--threads N] [--quick]
#include "../shapes.h"
#include "setup.h"

namespace {

torch::Tensor reals(at::IntArrayRef shape) {
  std::int64_t count = 1;
  for (const std::int64_t n : shape) count *= n;
  return torch::tensor(bench::reals(count)).reshape(shape);
}
torch::Tensor places(std::int64_t n, std::int64_t bound) {
  return torch::tensor(bench::places(n, bound));
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  bench::set_up(options);
  const torch::NoGradGuard guard;
  const auto time = [&](const char* name, auto&& call) {
    for (int i = 0; i < bench::kWarmUp; ++i) call();
    bench::report_ms(std::string("ops.") + name, bench::nanoseconds(call, options.repeats()));
  };
  {
    const auto list = reals({1'000'000}), lines = reals({1000, 1000}), wide = reals({1000, 10'000});
    time("sort_1e6", [&] { at::sort(list); });
    time("sort_1000x1000", [&] { at::sort(lines); });
    time("topk_50_of_1000x10000", [&] { at::topk(wide, 50); });
    time("cumsum_1000x1000_axis1", [&] { at::cumsum(lines, 1); });
    time("cumsum_1000x1000_axis0", [&] { at::cumsum(lines, 0); });
  }
  {
    const auto terms = reals({1'000'000}), sums = reals({100'000});
    const auto index = places(1'000'000, 100'000);
    time("scatter_add_1e6_into_1e5", [&] { at::scatter_add(sums, 0, index, terms); });
    const auto rows = reals({100'000, 64}), table = reals({10'000, 64});
    const auto to = places(100'000, 10'000);
    time("index_add_1e5x64_into_1e4", [&] { at::index_add(table, 0, to, rows); });
  }
  {
    const auto q = reals({4, 8, 128, 64}), k = reals({4, 8, 128, 64});
    time("einsum_bhqd_bhkd", [&] { at::einsum("bhqd,bhkd->bhqk", {q, k}); });
    const auto a = reals({32, 128, 256}), b = reals({32, 256, 64});
    time("einsum_bij_bjk", [&] { at::einsum("bij,bjk->bik", {a, b}); });
    const auto x = reals({256, 512}), y = reals({512, 128}), z = reals({128, 256});
    time("einsum_ij_jk_kl", [&] { at::einsum("ij,jk,kl->il", {x, y, z}); });
  }
}
