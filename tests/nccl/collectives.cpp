// Collectives over NCCL: the checks of all kinds of groups, with tensors on devices.
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>

#include "dist/checks.h"
#include "dist/nccl/world.h"
#include "engine/engine.h"
#include "nccl/ranks.h"
#include "support/device/simulator.h"

namespace firn::testing {
namespace {

using dist::Group;
using dist::NcclSizes;
using dist::Reduce;

/// While alive, reductions are cut like this.
class Sizes {
 public:
  explicit Sizes(NcclSizes sizes) : before_(dist::nccl_sizes()) { dist::nccl_sizes() = sizes; }
  ~Sizes() { dist::nccl_sizes() = before_; }
  Sizes(const Sizes&) = delete;
  Sizes& operator=(const Sizes&) = delete;

 private:
  NcclSizes before_;
};

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

TEST_CASE("nccl: every call, dtype and operation, with any number of ranks") {
  const FreshNccl fresh;
  for (const int ranks : {1, 2, 4})
    on_devices(ranks, [&](const Group& group) {
      require(group.kind() == "nccl" && group.device() == Device::cuda(group.rank()), "its kind");
      test::check_every_call(group, {0, 1, 7, 1000});
    });
  CHECK(cusim::nccl_stats().transfers > 0);
}

TEST_CASE("nccl: reductions in pieces of all kinds") {
  const FreshNccl fresh;
  // Shares and what is left of them, pieces that end in the midst, and none.
  for (const NcclSizes sizes :
       {NcclSizes{.whole = 0, .piece = 1 << 20}, NcclSizes{.whole = 0, .piece = 1000},
        NcclSizes{.whole = 100, .piece = 300}}) {
    const Sizes cut(sizes);
    on_devices(3, [](const Group& group) {
      for (const DType dtype : {f32, f64})
        for (const Reduce op : {Reduce::sum, Reduce::max, Reduce::min})
          for (const std::int64_t count : {1, 50, 501}) {
            test::Trial trial{.call = test::Collective::all_reduce,
                              .dtype = dtype,
                              .op = op,
                              .count = count,
                              .salt = 5};
            test::check(group, trial);
            trial.call = test::Collective::reduce_scatter;
            test::check(group, trial);
            trial.in_place = true;
            test::check(group, trial);
          }
    });
  }
}

TEST_CASE("nccl: 50 orders in which transfers end, with streams that run at once and late") {
  const FreshNccl fresh;
  const Sizes cut({.whole = 256, .piece = 2000});
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    cusim::seed_random(seed);
    cusim::nccl_settings().most_polls = static_cast<int>(seed % 6);
    std::optional<LazyStreams> late;
    if (seed % 2 == 0) late.emplace();
    on_devices(2 + static_cast<int>(seed % 3),
               [&](const Group& group) { test::check_random_calls(group, seed, 20, 800); },
               {.compare = seed % 4 != 0});
  }
}

TEST_CASE("nccl: sums of floats have the bits of other kinds of groups, unless that is off") {
  const FreshNccl fresh;
  const Sizes cut({.whole = 0, .piece = 4096});
  const auto given = [](int rank, Device device) {
    manual_seed(static_cast<std::uint64_t>(rank) + 1);
    const Tensor x = randn({3000}, {.device = Device::cpu()});
    return x.to(device);
  };
  std::vector<float> by_threads;
  dist::run_local(4, [&](const Group& group) {
    const Tensor x = given(group.rank(), Device::cpu());
    group.all_reduce(x);
    if (group.rank() == 0) by_threads = x.to_vector<float>();
  });
  for (const bool exact : {true, false}) {
    std::mutex mutex;
    std::map<std::string, int> calls;
    cusim::on_nccl_call([&](const cusim::NcclCall& call) {
      const std::lock_guard lock(mutex);
      ++calls[call.name];
      return 0;
    });
    std::vector<float> sums[4];
    bool nan = true;
    on_devices(4,
               [&](const Group& group) {
                 const Tensor x = given(group.rank(), group.device());
                 group.all_reduce(x);
                 sums[group.rank()] = x.to(Device::cpu()).to_vector<float>();
                 const Tensor y =
                     full({5}, group.rank() == 2 ? std::nan("") : 1., f32, group.device());
                 group.all_reduce(y, Reduce::max);
                 if (!std::isnan(y.to(Device::cpu()).to_vector<float>()[4])) nan = false;
               },
               {.exact_sums = exact});
    cusim::on_nccl_call(nullptr);
    for (const auto& s : sums) CHECK(s == sums[0]);
    CHECK((sums[0] == by_threads) == exact);
    for (std::size_t i = 0; i < by_threads.size(); ++i)
      REQUIRE(std::abs(sums[0][i] - by_threads[i]) < 1e-5f);
    CHECK(nan);  // NCCL's own maximum leaves it out
    CHECK(calls["ncclAllReduce"] == (exact ? 0 : 4));
  }
}

TEST_CASE(
    "nccl: collectives are queued in the order of the stream, and the host waits for nothing") {
  const FreshNccl fresh;
  const LazyStreams late;
  dist::run_local(3, [](const Group& hosts) {
    const Group group = dist::nccl_group(hosts, Device::cuda(hosts.rank()));
    const Tensor x = full({1000}, group.rank(), f32, group.device());
    const Tensor all = empty({3000}, f32, group.device());
    group.all_reduce(x);  // the first one connects
    group.barrier();
    hosts.barrier();  // all have counted their waits
    const std::uint64_t waits = host_waits();
    for (int i = 0; i < 5; ++i) {
      x.copy_(full({1000}, group.rank() + i, f32, group.device()));
      group.all_reduce(x);
      x.copy_(x * 2.);
      group.all_gather(x, all);
    }
    require(host_waits() == waits, "the host has waited");
    hosts.barrier();
    for (const float v : all.to(Device::cpu()).to_vector<float>()) require(v == 30, "a sum");
  });
}

TEST_CASE("nccl: ranks that share a device of the stand-in, with streams of their own") {
  const FreshNccl fresh;
  dist::run_local(2, [](const Group& hosts) {
    const Device device = Device::cuda(1);
    const SideStream stream(device);
    const StreamScope scope(stream);
    const Group group = dist::nccl_group(hosts, device);
    test::check_random_calls(group, 3, 20, 300);
  });
}

TEST_CASE("nccl: a dry run takes the memory of a reduction, and meets nobody") {
  const FreshNccl fresh;
  on_devices(2, [](const Group& group) {
    const Tensor x = ones({1 << 20}, f32, group.device());
    const auto exchange = [&] { group.all_reduce(x); };
    std::size_t planned = 0;
    if (group.rank() == 0) {
      planned = plan_memory(exchange, group.device()).peak;
      require(planned >= plan_memory([] {}, group.device()).peak + (2u << 20),
              "half of the tensor is received");
      reset_peak_memory(group.device());
    }
    exchange();
    if (group.rank() == 0)
      require(memory_stats(group.device()).total.peak == planned, "another peak");
    require(x.to(Device::cpu()).to_vector<float>()[77] == 2, "a sum");
  });
}

}  // namespace
}  // namespace firn::testing
