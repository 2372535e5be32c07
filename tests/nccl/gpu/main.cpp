// Ranks on the GPUs of this machine, which scripts/gpu-check --ranks runs. Without arguments each
// is a thread; firn_nccl_ranks RANK SIZE FILE is one of SIZE processes that meet through the file.
// Exit status 0: all is well, or there is one GPU.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dist/checks.h"
#include "dist/nccl/library.h"
#include "dist/nccl/world.h"
#include "firn/dist/distribute.h"
#include "firn/dist/local.h"
#include "firn/dist/nccl.h"
#include "firn/dist/parallel/layers.h"
#include "firn/dist/parallel/pipeline.h"
#include "firn/firn.h"

using namespace firn;
using dist::Group;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Every call, with pieces as they are and with small ones, and calls in random orders.
void checks(const Group& group, bool alone_in_process) {
  int calls = test::check_every_call(group, {0, 1, 7, 1000, 100'003});
  if (alone_in_process) {  // ranks that are threads share the sizes
    const dist::NcclSizes usual = dist::nccl_sizes();
    for (const dist::NcclSizes sizes :
         {dist::NcclSizes{.whole = 0, .piece = 1000}, dist::NcclSizes{.whole = 100, .piece = 64}}) {
      dist::nccl_sizes() = sizes;
      calls += test::check_every_call(group, {1, 7, 1000});
    }
    dist::nccl_sizes() = usual;
  }
  for (std::uint64_t seed = 1; seed <= 50; ++seed)
    test::check_random_calls(group, seed, 12, 20'000);
  for (const DType dtype : {f32, u8})
    test::check(group, {.call = test::Collective::all_reduce, .dtype = dtype, .count = 30'000'001});
  const int messages = test::check_messages(group, {0, 1, 1000, 100'003});
  test::check_splits(group);
  if (group.rank() == 0)
    std::printf("%d ranks: %d calls, 50 sequences, %d messages, parts of the group\n", group.size(),
                calls, messages);
}

/// Weights after 20 steps of an f16 MLP on batches of 256 rows.
std::vector<float> trained(const Group& group, Device device, int zero) {
  manual_seed(1);
  nn::MLP net({64, 512, 10}, {.dtype = f32});
  net.to(f16);
  net.to(device);
  optim::AdamW opt(net.parameters(), {.lr = 1e-3}, {.clip_norm = 1});
  dist::distribute(opt, group, {.zero = zero});
  const Tensor x = randn({256, 64}).to(f16).to(device), y = zeros({256}, i64).to(device);
  for (int step = 0; step < 20; ++step)
    opt.run_batch(256, 32, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
    });
  std::vector<float> out;
  for (const Tensor& p : net.parameters()) {
    const auto values = p.to(f32).to(Device::cpu()).to_vector<float>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

/// Ranks get the same bits, with divided state too, and those of one device to rounding.
void training(const Group& group) {
  const auto one = trained(Group(), group.device(), 0), all = trained(group, group.device(), 0);
  if (trained(group, group.device(), 1) != all)
    throw std::runtime_error("divided state changes the weights");
  const Group host = group.host();
  const auto n = static_cast<std::int64_t>(all.size());
  const Tensor every = empty({host.size() * n}, f32, Device::cpu());
  host.all_gather(tensor(all, {n}, Device::cpu()), every);
  const auto values = every.to_vector<float>();
  double distance = 0, norm = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float own = all[i % all.size()], single = one[i % all.size()];
    if (values[i] != own) throw std::runtime_error("the ranks have different weights");
    distance += (own - single) * (own - single);
    norm += single * single;
  }
  if (!(distance <= 1e-4 * norm)) throw std::runtime_error("not the weights of one device");
  if (group.rank() == 0)
    std::printf("%d ranks: trained, %.1e from one device\n", group.size(),
                std::sqrt(distance / norm));
}

/// Losses of ten steps of two dense layers. The ranks of `tp` divide them; with two ranks of `pp`
/// the second one is on the second stage.
std::vector<double> trained_in_parts(const dist::Mesh& mesh, Device device) {
  const DeviceScope scope(device);
  manual_seed(1);
  dist::ColumnParallelLinear a(mesh.tp(), 64, 512);
  dist::RowParallelLinear b(mesh.tp(), 512, 12);
  nn::Sequential stage;
  if (mesh.pp().rank() == 0) stage.push_back(a), stage.push_back(nn::ReLU());
  if (mesh.pp().rank() + 1 == mesh.pp().size()) stage.push_back(b);
  stage.to(device);
  optim::AdamW opt(stage.parameters(), {.lr = 1e-3}, {.clip_norm = 1});
  dist::distribute(opt, mesh);
  const Tensor x = randn({64, 64}).to(device), y = zeros({64}, i64).to(device);
  dist::Pipeline pipeline(mesh, stage);
  std::vector<double> losses;
  for (int step = 0; step < 10; ++step) {
    const auto report = pipeline.run_batch(
        opt, 64, 8, [&](auto first, auto last) { return x.slice(0, first, last); },
        [&](const Tensor& out, auto first, auto last) {
          return cross_entropy(out, y.slice(0, first, last));
        });
    losses.push_back(report.loss());
  }
  return losses;
}

/// Divided layers and stages have the losses of one device to rounding.
void parts(const Group& group) {
  const auto one = trained_in_parts(dist::Mesh(Group()), group.device());
  const int n = group.size();
  std::vector<dist::MeshSizes> meshes{{.dp = n / 2, .pp = 2}};
  if (512 % n == 0) meshes.push_back({.tp = n});
  if (n % 4 == 0) meshes.push_back({.dp = n / 4, .tp = 2, .pp = 2});
  for (const dist::MeshSizes& sizes : meshes) {
    if (sizes.dp * sizes.tp * sizes.pp != n) continue;
    const auto all = trained_in_parts(dist::Mesh(group, sizes), group.device());
    for (std::size_t i = 0; i < one.size(); ++i)
      if (!(std::abs(all[i] - one[i]) <= 1e-3 * std::abs(one[i])))
        throw std::runtime_error("a divided model has not the losses of one device");
    if (group.rank() == 0)
      std::printf("%d ranks as dp %d, tp %d, pp %d: trained\n", n, sizes.dp, sizes.tp, sizes.pp);
  }
}

/// GB/s of bus bandwidth, as NCCL's own tests count it: 2 (n - 1)/n of the bytes. The median.
double all_reduce_rate(const Group& group, std::int64_t bytes) {
  const Tensor x = zeros({bytes / 4}, f32, group.device());
  std::vector<double> seconds;
  for (int i = 0; i < 12; ++i) {
    group.barrier();
    const double begin = now();
    for (int k = 0; k < 5; ++k) group.all_reduce(x);
    synchronize(group.device());
    seconds.push_back((now() - begin) / 5);
  }
  std::sort(seconds.begin() + 2, seconds.end());  // the first two warm up
  return 2. * (group.size() - 1) / group.size() * static_cast<double>(bytes) / seconds[7] / 1e9;
}

void figures(const Group& exact, const Group& engine) {
  for (const std::int64_t bytes : {std::int64_t{64} << 10, std::int64_t{4} << 20,
                                   std::int64_t{64} << 20, std::int64_t{512} << 20}) {
    const double a = all_reduce_rate(exact, bytes), b = all_reduce_rate(engine, bytes);
    if (exact.rank() == 0)
      std::printf(
          "all_reduce of %lld KiB: %.1f GB/s in the order of the ranks, %.1f GB/s by NCCL\n",
          static_cast<long long>(bytes >> 10), a, b);
  }
}

/// Rank 1 does not come: the others throw in time, and their devices go on.
void late(const Group& group) {
  const Tensor x = ones({100'000}, f32, group.device());
  group.all_reduce(x);
  synchronize(group.device());
  if (group.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(4));
  const double begin = now();
  try {
    group.all_reduce(x);
    synchronize(group.device());
  } catch (const dist::RankError& e) {
    std::printf("rank %d, after %.1f s: %s\n", group.rank(), now() - begin, e.what());
    synchronize(group.device());
    if (now() - begin < 3.5) return;
  }
  throw std::runtime_error("no RankError in time");
}

void as_threads(int ranks) {
  dist::run_local(ranks, [](const Group& hosts) {
    const Device device = Device::cuda(hosts.rank());
    {
      const Group exact = dist::nccl_group(hosts, device);
      checks(exact, false);
      training(exact);
      parts(exact);
      figures(exact, dist::nccl_group(hosts, device, {.exact_sums = false}));
    }
    late(dist::nccl_group(hosts, device, {.deadline = 2, .compare = false}));
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::printf("NCCL %s (%s)\n", dist::nccl_version_text(dist::nccl().version).c_str(),
                dist::nccl().path.c_str());
    const int devices = cuda_device_count();
    if (devices < 2 && argc != 4) {
      std::printf("skipped: %d CUDA device(s), and ranks need two\n", devices);
      return 0;
    }
    if (argc == 4) {
      const int rank = std::atoi(argv[1]);
      const Group group =
          dist::nccl_group(rank, std::atoi(argv[2]), argv[3], Device::cuda(rank % devices));
      checks(group, true);
      training(group);
      parts(group);
    } else {
      for (const int ranks : {2, devices})
        if (ranks == 2 || devices > 2) as_threads(ranks);
    }
    std::printf("all is well\n");
    return 0;
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
    return 1;
  }
}
