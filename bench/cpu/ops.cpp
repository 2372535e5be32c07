// Operations that move and order elements, and contractions: milliseconds a call, in f32.
//   bench_ops [--threads N] [--quick]
// The peer's program reads the same numbers (../shapes.h).
#include <firn/firn.h>

#include "../harness.h"
#include "../shapes.h"

using namespace firn;

namespace {

Tensor reals(const Shape& shape) { return tensor(bench::reals(shape.product()), shape); }
Tensor places(std::int64_t n, std::int64_t bound) { return tensor(bench::places(n, bound), {n}); }

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  set_num_threads(options.threads);
  const NoGrad guard;
  const auto time = [&](const char* name, auto&& call) {
    bench::report_ms(std::string("ops.") + name, bench::nanoseconds(call, options.repeats()));
  };
  {
    const Tensor list = reals({1'000'000}), lines = reals({1000, 1000}),
                 wide = reals({1000, 10'000});
    time("sort_1e6", [&] { sort(list); });
    time("sort_1000x1000", [&] { sort(lines); });
    time("topk_50_of_1000x10000", [&] { topk(wide, 50); });
    time("cumsum_1000x1000_axis1", [&] { cumsum(lines, 1); });
    time("cumsum_1000x1000_axis0", [&] { cumsum(lines, 0); });
  }
  {
    const Tensor terms = reals({1'000'000}), sums = reals({100'000});
    const Tensor at = places(1'000'000, 100'000);
    time("scatter_add_1e6_into_1e5", [&] { return scatter_add(sums, 0, at, terms); });
    const Tensor rows = reals({100'000, 64}), table = reals({10'000, 64});
    const Tensor to = places(100'000, 10'000);
    time("index_add_1e5x64_into_1e4", [&] { return index_add(table, 0, to, rows); });
  }
  {
    const Tensor q = reals({4, 8, 128, 64}), k = reals({4, 8, 128, 64});
    time("einsum_bhqd_bhkd", [&] { einsum("bhqd,bhkd->bhqk", {q, k}); });
    const Tensor a = reals({32, 128, 256}), b = reals({32, 256, 64});
    time("einsum_bij_bjk", [&] { einsum("bij,bjk->bik", {a, b}); });
    const Tensor x = reals({256, 512}), y = reals({512, 128}), z = reals({128, 256});
    time("einsum_ij_jk_kl", [&] { einsum("ij,jk,kl->il", {x, y, z}); });
  }
}
