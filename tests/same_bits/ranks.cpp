// The trainings of one to three ranks.
#include <fmt/format.h>

#include <mutex>

#include "firn/dist/distribute.h"
#include "firn/dist/local.h"
#include "firn/optim/gathered_weights.h"
#include "same_bits.h"

namespace same_bits {
namespace {

using namespace firn;

/// Hashes weights, loss scale and the reports of each rank, in the order of ranks.
void train(Hash& hash, int ranks, int zero, DType dtype, std::int64_t chunk) {
  std::vector<Hash> of_ranks(static_cast<std::size_t>(ranks));
  dist::run_local(ranks, [&](const dist::Group& group) {
    Hash& mine = of_ranks[static_cast<std::size_t>(group.rank())];
    manual_seed(1);
    Net net;
    net.to(dtype);
    optim::StepOptions step{.clip_norm = 0.5, .ema = 0.9};
    step.exact.chunk = chunk;
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, step);
    dist::distribute(opt, group, {.zero = zero});
    for (const std::int64_t rows : {48, 21, 48}) {
      const Batch batch(rows, 800 + static_cast<std::uint64_t>(rows), dtype);
      const auto report = opt.run_batch(rows, 8, [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(batch.x.slice(0, first, last)), batch.y.slice(0, first, last));
      });
      mine.add(report.loss());
      mine.add(report.norm());
    }
    mine.add(opt.loss_scale());
    const optim::GatheredWeights whole(opt);
    for (const auto& p : net.named_parameters()) mine.add(p.tensor);
    group.barrier();
  });
  for (const Hash& rank : of_ranks) hash.add(&rank, sizeof rank);
}

}  // namespace

std::vector<Training> trainings_over_ranks() {
  std::vector<Training> list;
  for (const int ranks : {1, 2, 3})
    for (const int zero : {0, 1, 2, 3})
      for (const std::int64_t chunk : {0, 8})
        for (const DType dtype : {f32, f16})
          list.push_back({fmt::format("{} ranks, ZeRO {}{} {}", ranks, zero, chunk ? ", exact" : "",
                                      name_of(dtype)),
                          [=](Hash& hash) { train(hash, ranks, zero, dtype, chunk); }});
  return list;
}

}  // namespace same_bits
