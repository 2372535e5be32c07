// Exact mode on devices: the same bits for any cut, on one device and on several ranks.
#include "data/files.h"
#include "dist/exact_runs.h"
#include "dist/zero/zero.h"
#include "firn/io/checkpoints.h"
#include "nccl/ranks.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

/// On one device in micro-batches of any size, and on ranks with one each.
template <class Net>
void check_cuts_on_devices(DType dtype, double loss_scale = 0,
                           const std::vector<std::int64_t>& micro_batches = {16, 64},
                           const std::vector<int>& of_ranks = {2, 3, 4}) {
  const auto run = [&](const Group& group, std::int64_t micro_batch, Device device) {
    return train<Net>(
        group,
        {.dtype = dtype, .micro_batch = micro_batch, .loss_scale = loss_scale, .device = device});
  };
  const std::string expected = run(Group(), 8, Device::cuda(0));
  for (const std::int64_t micro_batch : micro_batches) {
    CAPTURE(dtype, micro_batch);
    CHECK(run(Group(), micro_batch, Device::cuda(1)) == expected);
  }
  for (const int ranks : of_ranks) {  // 21 samples are three chunks
    CAPTURE(dtype, ranks);
    std::vector<std::string> runs(static_cast<std::size_t>(ranks));
    on_devices(ranks, [&](const Group& g) {
      runs[static_cast<std::size_t>(g.rank())] = run(g, 8 * (1 + ranks % 3), g.device());
    });
    for (const auto& r : runs) CHECK(r == expected);
  }
}

TEST_CASE("[S39] nccl: exact: a network of dense layers has one set of bits for every cut") {
  const FreshNccl fresh;
  for (const DType dtype : {f32, f16}) check_cuts_on_devices<Mlp>(dtype);
}
TEST_CASE("[S39] nccl: exact: a transformer has one set of bits for every cut") {
  const FreshNccl fresh;
  check_cuts_on_devices<Gpt>(f16, 0, {}, {3});
}
TEST_CASE("[S39] nccl: exact: a convolutional network has one set of bits for every cut") {
  const FreshNccl fresh;
  check_cuts_on_devices<Conv>(f32);
}
TEST_CASE("[S39][S05] nccl: exact: steps that overflow are the same ones for every cut") {
  const FreshNccl fresh;
  check_cuts_on_devices<Mlp>(f16, 0x1p24);
}

/// A batch norm that normalises the whole batch.
struct Normed : nn::Module {
  static constexpr bool kImages = true;
  nn::Conv2d a{1, 4, 3, {.padding = 1}};
  nn::BatchNorm2d norm{4, {.accumulation = nn::BatchNormMode::whole_batch}};
  nn::Linear head{4 * 3 * 2, 3};
  FIRN_MEMBERS(a, norm, head)
  Tensor forward(const Tensor& x) override { return head(flatten(relu(norm(a(x))), 1)); }
};

TEST_CASE("[S19][S39] nccl: exact: a batch norm of the whole batch has one set of bits") {
  const FreshNccl fresh;
  check_cuts_on_devices<Normed>(f32);
}

TEST_CASE("[S39][S43] nccl: exact: ranks that divide gradients and weights have the bits of one") {
  const FreshNccl fresh;
  const auto run = [](const Group& group, Device device, DType dtype, int zero) {
    manual_seed(4);
    Mlp net;
    net.to(dtype);
    net.to(device);
    optim::StepOptions step{
        .clip_norm = 0.5, .clip_value = 0.01, .ema = 0.9, .exact = {.chunk = 4}};
    if (dtype == f16)
      step.loss_scale =
          optim::LossScale::dynamic({.init = 0x1p24, .on_overflow = optim::OverflowPolicy::retry});
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, step);
    distribute(opt, group, {.zero = zero});
    std::string out;
    std::uint64_t seed = 30;
    for (const std::int64_t n : {20, 9, 5}) {
      const Rows rows(n, 6, 3, seed += 2);
      const auto report = opt.run_batch(n, 8, [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(rows.x.slice(0, first, last).to(dtype).to(device)),
                             rows.y.slice(0, first, last).to(device));
      });
      out += fmt::format("{} {} {:a} {:a} {:a} {}\n", report.applied(), report.weight(),
                         report.norm(), report.loss(), report.loss_scale(), report.micro_steps());
    }
    const optim::GatheredWeights whole(opt);
    for (const Tensor& p : net.parameters()) out += bits_of(p.to(Device::cpu())).bytes;
    return out;
  };
  for (const DType dtype : {f32, f16}) {
    const std::string one = run(Group(), Device::cuda(0), dtype, 0);
    CHECK(one.find("true") != std::string::npos);
    for (const int zero : {1, 2, 3})
      for (const int ranks : {2, 3}) {
        CAPTURE(dtype, zero, ranks);
        const SmallBuckets buckets(ranks == 3 ? 4 << 20 : 400);
        std::vector<std::string> runs(static_cast<std::size_t>(ranks));
        on_devices(ranks, [&](const Group& g) {
          runs[static_cast<std::size_t>(g.rank())] = run(g, g.device(), dtype, zero);
        });
        for (const auto& r : runs) CHECK((r == one));
      }
  }
}

TEST_CASE("[S33][S39] nccl: exact: a batch saved between two chunks goes on with its bits") {
  const FreshNccl fresh;
  const test::TempFolder folder;
  const std::string file = folder.file("run");
  const Rows rows(48, 6, 3, 40);
  const auto run = [&](const Group& group, Device device, bool saves, bool loads) {
    manual_seed(2);
    Mlp net;
    net.to(device);
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = 4}});
    distribute(opt, group);
    if (loads) io::load_run(file, {net, opt});
    const auto between = [&](std::int64_t done) {
      if (done == 3) io::save_run(file, {net, opt});
    };
    const optim::MicroBatch micro =
        saves ? optim::MicroBatch{.size = 8, .between = between} : optim::MicroBatch{.size = 8};
    for (int step = loads ? 1 : 0; step < 2; ++step)
      opt.run_batch(48, step == 1 && saves ? micro : optim::MicroBatch{.size = 8},
                    [&](std::int64_t first, std::int64_t last) {
                      return cross_entropy(net(rows.x.slice(0, first, last).to(device)),
                                           rows.y.slice(0, first, last).to(device));
                    });
    return bits_of_training(opt).bytes;
  };
  const std::string whole = run(Group(), Device::cuda(0), false, false);
  on_devices(2, [&](const Group& g) {
    if (run(g, g.device(), true, false) != whole) throw std::runtime_error("saving changed bits");
  });
  CHECK(run(Group(), Device::cuda(2), false, true) == whole);
  on_devices(3, [&](const Group& g) {
    if (run(g, g.device(), false, true) != whole) throw std::runtime_error("other bits");
  });
}

}  // namespace
}  // namespace firn::testing
