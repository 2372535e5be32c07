// Training over NCCL: the steps of ranks with a device each are those of one device, to rounding,
// with the same bits on every rank; runs in files; what fails, and what is refused.
#include "dist/training.h"

#include <fmt/format.h>
#include <nccl.h>

#include <atomic>

#include "data/files.h"
#include "dist/zero/zero.h"
#include "firn/io/checkpoints.h"
#include "firn/metrics/classification.h"
#include "firn/optim/joint_step.h"
#include "nccl/ranks.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

template <class T>
std::vector<T> on_device_ranks(int ranks, const std::function<T(const Group&)>& fn) {
  std::vector<T> out(static_cast<std::size_t>(ranks));
  on_devices(ranks, [&](const Group& g) { out[static_cast<std::size_t>(g.rank())] = fn(g); });
  return out;
}

/// Where a rank trains: its device, or the first one of a group of one.
Device device_of(const Group& group) { return group.size() > 1 ? group.device() : Device::cuda(0); }

TrainedRun train(const Group& group, const OptimizerKind& kind, DType dtype,
                 const std::vector<std::int64_t>& sizes, int zero = 0) {
  return train_unevenly(group, kind, dtype, sizes, {.zero = zero}, device_of(group));
}

const std::vector<std::int64_t> kSizes = {13, 16, 2, 9};  // of 2, two ranks of four have none

TEST_CASE("[S40][S41] nccl: every optimizer trains as on one device, with uneven shares and none") {
  const FreshNccl fresh;
  for (const OptimizerKind& k : all_kinds()) {
    CAPTURE(k.name);
    const TrainedRun one = train(Group(), k, f32, kSizes);
    for (const int ranks : {2, 4}) {
      CAPTURE(ranks);
      const auto runs = on_device_ranks<TrainedRun>(
          ranks, [&](const Group& g) { return train(g, k, f32, kSizes); });
      CHECK(relative_distance(runs[0].weights, one.weights) <= 1e-5);
      for (const TrainedRun& r : runs) {
        CHECK(r.bits == runs[0].bits);
        CHECK(r.reports == runs[0].reports);
      }
    }
  }
}

TEST_CASE("[S40] nccl: divided state changes no bit of the weights") {
  const FreshNccl fresh;
  for (const OptimizerKind& k : all_kinds()) {
    if (std::string(k.name) == "ScheduleFreeAdamW") continue;
    CAPTURE(k.name);
    const auto runs = [&](int zero) {
      return on_device_ranks<TrainedRun>(
          3, [&](const Group& g) { return train(g, k, f64, kSizes, zero); });
    };
    const auto whole = runs(0), parts = runs(1);
    for (std::size_t r = 0; r < whole.size(); ++r) {
      CHECK(parts[r].weights == whole[r].weights);
      CHECK(parts[r].reports == whole[r].reports);
    }
  }
}

TEST_CASE("[S40] nccl: sharded gradients and weights train as whole ones, to rounding") {
  const FreshNccl fresh;
  for (const OptimizerKind& k : all_kinds()) {
    const std::string name = k.name;
    if (name == "ScheduleFreeAdamW") continue;
    const auto runs = [&](int zero, DType dtype) {
      return on_device_ranks<TrainedRun>(
          3, [&](const Group& g) { return train(g, k, dtype, kSizes, zero); });
    };
    const auto whole = runs(0, f64);
    for (const int zero : {2, 3}) {
      CAPTURE(name, zero);
      const auto parts = runs(zero, f64);
      for (const TrainedRun& r : parts) {
        CHECK(relative_distance(r.weights, whole[0].weights) <= 1e-12);
        CHECK(r.weights == parts[0].weights);
        CHECK(r.reports == parts[0].reports);
      }
    }
  }
}

TEST_CASE("[S40] nccl: of sharded weights a rank has a part of the device's memory") {
  const FreshNccl fresh;
  const SmallBuckets buckets(4 * 128 * 129);
  struct Peaks {
    std::size_t whole = 0, parts = 0;
  };
  const auto peaks = on_device_ranks<Peaks>(4, [](const Group& group) {
    const auto peak = [&](int zero) {
      manual_seed(1);
      nn::Sequential net;
      for (int i = 0; i < 12; ++i) net.push_back(nn::Linear(128, 128));
      net.to(group.device());
      optim::AdamW opt(net.parameters(), {.lr = 1e-3});
      distribute(opt, group, {.zero = zero});
      const Tensor x = zeros({16, 128}, f32, group.device());
      const auto step = [&] {
        opt.run_batch(16, 4, [&](std::int64_t first, std::int64_t last) {
          return mse_loss(net(x.slice(0, first, last)), x.slice(0, first, last));
        });
      };
      step();
      reset_peak_memory(group.device());
      step();
      return memory_stats(group.device()).total.peak;
    };
    const std::size_t whole = peak(0);
    return Peaks{whole, peak(3)};
  });
  for (const Peaks& p : peaks)
    CHECK(static_cast<double>(p.parts) <= 0.4 * static_cast<double>(p.whole));
}

TEST_CASE("[S40] nccl: accumulation by hand, no_samples(), a dropped cycle and totals") {
  const FreshNccl fresh;
  struct End {
    std::vector<double> weights;
    double loss = 0, weight = 0;
  };
  const auto by_hand = [](const Group& group) {
    const Device device = device_of(group);
    manual_seed(5);
    SmallMlp net(f64);
    net.to(device);
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.accumulate = 2});
    distribute(opt, group);
    const Rows rows(24, 7, 3, 77, f64);
    const Tensor x = rows.x.to(device), y = rows.y.to(device);
    const auto loss = [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
    };
    for (int cycle = 0; cycle < 3; ++cycle)
      for (int half = 0; half < 2; ++half) {
        for (std::int64_t i = 0; i < 4; ++i)
          if (i % group.size() == group.rank()) opt.backward(loss(6 * i, 6 * i + 1 + half));
        if (cycle == 1 && half == 0 && group.size() > 1) {
          opt.zero_grad();  // its losses leave the totals of ranks
          for (std::int64_t i = 0; i < 4; ++i)
            if (i % group.size() == group.rank()) opt.backward(loss(6 * i, 6 * i + 1));
        }
        opt.step();
      }
    if (group.rank() == 0)
      opt.backward(loss(0, 24));
    else
      opt.no_samples();
    opt.step();  // the first of two
    if (!opt.flush().applied()) throw std::runtime_error("the last cycle was not applied");
    const auto totals = opt.loss_totals();
    return End{weights_of(opt), totals.loss, totals.weight};
  };
  const End one = by_hand(Group());
  for (const int ranks : {2, 4}) {
    const auto ends = on_device_ranks<End>(ranks, by_hand);
    for (const End& e : ends) {
      CHECK(e.weights == ends[0].weights);
      CHECK(e.weight == one.weight);
      CHECK(std::abs(e.loss - one.loss) <= 1e-12 * std::abs(one.loss));
    }
    CHECK(relative_distance(ends[0].weights, one.weights) <= 1e-12);
  }
}

TEST_CASE("[S40] nccl: f16: a gradient that is not finite on one rank skips the step on all") {
  const FreshNccl fresh;
  struct End {
    bool skipped = false, applied_then = false;
    double scale = 0;
    std::vector<double> before, after;
  };
  for (const int bad : {0, 2}) {
    const auto ends = on_device_ranks<End>(3, [&](const Group& group) {
      manual_seed(6);
      SmallMlp net(f32);
      net.to(f16);
      net.to(group.device());
      optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.loss_scale = optim::LossScale::dynamic()});
      distribute(opt, group);
      const Rows rows(6, 7, 3, 8);
      const Tensor x = rows.x.to(group.device()).to(f16), y = rows.y.to(group.device());
      bool spoil = true;
      const auto loss = [&](std::int64_t first, std::int64_t last) {
        const Loss fine = cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
        return spoil && group.rank() == bad ? 1e5 * fine : fine;
      };
      End end;
      end.before = weights_of(opt);
      end.skipped = !opt.run_batch(6, 2, loss).applied();
      if (weights_of(opt) != end.before) throw std::runtime_error("a skipped step changed weights");
      end.scale = opt.loss_scale();
      spoil = false;
      for (int i = 0; i < 8 && !end.applied_then; ++i)
        end.applied_then = opt.run_batch(6, 2, loss).applied();
      end.after = weights_of(opt);
      return end;
    });
    for (const End& e : ends) {
      CHECK(e.skipped);
      CHECK(e.applied_then);
      CHECK(e.scale == ends[0].scale);
      CHECK(e.after == ends[0].after);
      CHECK(e.after != e.before);
    }
  }
}

TEST_CASE("[S19][S40] nccl: running statistics of a step are those of all ranks' samples") {
  const FreshNccl fresh;
  const auto statistics = [](const Group& group) {
    const Device device = device_of(group);
    manual_seed(4);
    nn::Sequential net(
        nn::Linear(7, 5, {.dtype = f64}),
        nn::BatchNorm1d(5, {.accumulation = nn::BatchNormMode::per_step, .dtype = f64}),
        nn::Linear(5, 3, {.dtype = f64}));
    net.to(device);
    optim::SGD opt(net.parameters(), {.lr = 0.0});
    distribute(opt, group);
    const Rows rows(16, 7, 3, 5, f64);
    const Tensor x = rows.x.to(device), y = rows.y.to(device);
    opt.run_batch(16, 4, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
    });
    std::vector<double> out;
    for (const auto& b : net.named_buffers())
      for (const double v : values_of(b.tensor.to(Device::cpu()))) out.push_back(v);
    return out;
  };
  const auto one = statistics(Group());
  REQUIRE(one.size() >= 10);
  const auto all = on_device_ranks<std::vector<double>>(2, statistics);
  for (const auto& s : all) {
    CHECK(s == all[0]);
    CHECK(relative_distance(s, one) <= 1e-12);
  }
}

/// Steps [first, last) over batches of 12 rows.
void train_on(const Group& group, nn::Module& net, optim::Optimizer& opt, int first, int last) {
  const Device device = device_of(group);
  for (int step = first; step < last; ++step) {
    const Rows rows(12, 7, 3, 100 + static_cast<std::uint64_t>(step), f64);
    const Tensor x = rows.x.to(device), y = rows.y.to(device);
    opt.run_batch(12, 4, [&](std::int64_t from, std::int64_t to) {
      return cross_entropy(net(x.slice(0, from, to)), y.slice(0, from, to));
    });
  }
}

TEST_CASE("[S33][S40] nccl: a saved run goes on with any number of ranks, in mid-cycle too") {
  const FreshNccl fresh;
  const test::TempFolder folder;
  for (const int zero : {0, 1, 2, 3})
    for (const bool mid_cycle : {false, true}) {
      CAPTURE(zero, mid_cycle);
      const std::string file = folder.file(fmt::format("run{}{}", zero, mid_cycle));
      const auto part = [&](const Group& group, int first, int last, bool load) {
        manual_seed(2);
        SmallMlp net(f64);
        net.to(device_of(group));
        optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.accumulate = mid_cycle ? 2 : 1});
        distribute(opt, group, {.zero = group.size() > 1 ? zero : 0});
        if (load) io::load_run(file, {net, opt});
        if (!mid_cycle) {
          train_on(group, net, opt, first, last);
        } else {
          const Rows rows(12, 7, 3, 9, f64);
          const Tensor x = rows.x.to(device_of(group)), y = rows.y.to(device_of(group));
          for (int i = first; i < last; ++i) {
            for (std::int64_t q = 0; q < 6; ++q)  // two rows each
              if (q % group.size() == group.rank())
                opt.backward(
                    cross_entropy(net(x.slice(0, 2 * q, 2 * q + 2)), y.slice(0, 2 * q, 2 * q + 2)));
            opt.step();
          }
        }
        if (last < 6) io::save_run(file, {net, opt});
        return weights_of(opt);
      };
      const auto whole = part(Group(), 0, 6, false);
      on_device_ranks<std::vector<double>>(3, [&](const Group& g) { return part(g, 0, 3, false); });
      CHECK(relative_distance(part(Group(), 3, 6, true), whole) <= 1e-12);
      for (const int ranks : {2, 3}) {
        const auto ends = on_device_ranks<std::vector<double>>(
            ranks, [&](const Group& g) { return part(g, 3, 6, true); });
        for (const auto& w : ends) CHECK(w == ends[0]);
        CHECK(relative_distance(ends[0], whole) <= 1e-12);
      }
    }
}

TEST_CASE("[S40] nccl: optimizers that share a loss scale step together") {
  const FreshNccl fresh;
  const auto gan = [](const Group& group) {
    const Device device = device_of(group);
    manual_seed(8);
    SmallMlp g(f32), d(f32);
    g.to(device);
    d.to(device);
    const optim::LossScaler scaler(optim::LossScale::dynamic(), device);
    optim::Adam a(g.parameters(), {.lr = 1e-2}, {.scaler = scaler});
    optim::Adam b(d.parameters(), {.lr = 1e-2}, {.scaler = scaler});
    distribute(a, group);
    distribute(b, group);
    const Rows rows(8, 7, 3, 6);
    const auto own = std::int64_t{8} / group.size(), first = own * group.rank();
    const Tensor x = rows.x.slice(0, first, first + own).to(device),
                 y = rows.y.slice(0, first, first + own).to(device);
    for (int i = 0; i < 3; ++i) {
      a.backward(cross_entropy(g(x), y));
      b.backward(cross_entropy(d(x) + g(x).detach(), y));
      optim::step_all({&a, &b});
    }
    auto out = weights_of(a);
    for (const double w : weights_of(b)) out.push_back(w);
    return out;
  };
  const auto one = gan(Group());
  const auto ends = on_device_ranks<std::vector<double>>(2, gan);
  CHECK(ends[0] == ends[1]);
  CHECK(relative_distance(ends[0], one) <= 1e-5);
}

TEST_CASE("nccl: weights of rank 0 are taken over, and others refused") {
  const FreshNccl fresh;
  const auto ends = on_device_ranks<std::string>(2, [](const Group& group) -> std::string {
    manual_seed(static_cast<std::uint64_t>(group.rank()));
    SmallMlp net;
    net.to(group.device());
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    try {
      distribute(opt, group);
    } catch (const Error& e) {
      distribute(opt, group, {.broadcast = true});
      return e.what() + fmt::format("{}", weights_of(opt)[5]);
    }
    return "";
  });
  CHECK(ends[0] == ends[1]);
  CHECK(mentions(ends[0], {"rank 1", "other values than that of rank 0"}));
}

TEST_CASE("nccl: the group on the CPU carries what is there") {
  const FreshNccl fresh;
  on_devices(2, [](const Group& group) {
    const Group host = group.host();
    if (!host.device().is_cpu() || host.rank() != group.rank() || host.size() != group.size())
      throw std::runtime_error("not the same ranks");
    metrics::Accuracy accuracy;
    const auto label = static_cast<double>(group.rank());
    accuracy.update(make({1, 0, 1, 0}, {2, 2}).to(group.device()),
                    tensor({std::int64_t{0}, std::int64_t(label)}, {2}).to(group.device()));
    accuracy.combine(group);
    if (accuracy.values()[0].value != 0.75) throw std::runtime_error("not the accuracy of both");
  });
}

/// Ranks that only a file brings together.
void on_file_ranks(int ranks, const std::string& path, const RankFunction& fn) {
  dist::run_local(ranks, [&](const Group& hosts) {
    fn(dist::nccl_group(hosts.rank(), hosts.size(), path, Device::cuda(hosts.rank())));
  });
}

TEST_CASE("[S40] nccl: ranks that a file has brought together train, too") {
  const FreshNccl fresh;
  const test::TempFolder folder;
  const OptimizerKind kind = all_kinds()[2];
  const TrainedRun one = train(Group(), kind, f64, kSizes);
  std::vector<TrainedRun> runs(3);
  on_file_ranks(3, folder.file("id"), [&](const Group& group) {
    const Group host = group.host();
    const Tensor part = full({2}, group.rank(), i64, Device::cpu());
    const Tensor all = zeros({6}, i64, Device::cpu());
    host.all_gather(part, all);
    if (all.to_vector<std::int64_t>() != std::vector<std::int64_t>{0, 0, 1, 1, 2, 2})
      throw std::runtime_error("not what the ranks gave");
    const Tensor to = zeros({6}, i64, Device::cpu());
    host.all_to_all(all, to);
    host.reduce_scatter(all, part);
    host.broadcast(part, 2);
    host.all_reduce(to);
    host.barrier();
    const auto r = static_cast<std::int64_t>(group.rank());
    if (part.to_vector<std::int64_t>() != std::vector<std::int64_t>{6, 6} ||
        to.to_vector<std::int64_t>() != std::vector<std::int64_t>(6, 3))
      throw std::runtime_error("wrong sums");
    runs[static_cast<std::size_t>(r)] = train(group, kind, f64, kSizes);
  });
  for (const TrainedRun& r : runs) {
    CHECK(r.bits == runs[0].bits);
    CHECK(relative_distance(r.weights, one.weights) <= 1e-12);
  }
}

// ---- What fails, and what is refused ----

/// Every call of NCCL in a step fails once, on rank 1. Returns how many there are.
int fail_every_call(int zero) {
  static thread_local int this_rank;
  for (int k = 0;; ++k) {
    CAPTURE(zero, k);
    const FreshNccl fresh;
    std::atomic<bool> armed{false};
    std::string failed;
    int calls = 0;
    cusim::on_nccl_call([&](const cusim::NcclCall& call) -> int {
      if (!armed || this_rank != 1 || std::string(call.name) == "ncclCommGetAsyncError") return 0;
      if (calls++ != k) return 0;
      failed = call.name;
      return ncclSystemError;
    });
    std::array<bool, 2> kept{}, thrown{};
    outcomes(
        2,
        [&](const Group& group) {
          const auto r = static_cast<std::size_t>(group.rank());
          this_rank = group.rank();
          manual_seed(2);
          SmallMlp net(f64);
          net.to(group.device());
          optim::AdamW opt(net.parameters(), {.lr = 1e-2});
          distribute(opt, group, {.zero = zero});
          train_on(group, net, opt, 0, 1);
          const auto before = weights_of(opt);
          group.host().barrier();
          armed = true;
          group.host().barrier();
          try {
            train_on(group, net, opt, 1, 2);
          } catch (const dist::RankError&) {
            thrown[r] = true;
          }
          if (thrown[r] && zero == 0) kept[r] = weights_of(opt) == before;
          armed = false;
          if (thrown[r]) throw std::runtime_error("the group is broken");
        },
        {.deadline = 0.3}, 5);
    if (failed.empty()) {
      if (thrown[0] || thrown[1]) continue;  // a deadline, on a machine that is slow
      return k;
    }
    CAPTURE(failed);
    CHECK(thrown[1]);
    for (const std::size_t r : {0u, 1u})
      if (thrown[r] && zero == 0) CHECK(kept[r]);
  }
}

TEST_CASE("[S42] nccl: a step whose exchange fails leaves the weights of the last one") {
  CHECK(fail_every_call(0) >= 3);
}
TEST_CASE("[S42] nccl: an exchange of divided state that fails is an error and no hang") {
  for (const int zero : {1, 2, 3}) CHECK(fail_every_call(zero) >= 3);
}

TEST_CASE("nccl: what training over devices does not do is refused") {
  const FreshNccl fresh;
  const auto error_of = [](const RankFunction& fn) {
    return on_device_ranks<std::string>(2, [&](const Group& group) -> std::string {
      try {
        fn(group);
      } catch (const Error& e) {
        return e.what();
      }
      return "";
    });
  };
  const auto with = [](const Group& group, Device device, const dist::DistributeOptions& options) {
    manual_seed(1);
    SmallMlp net;
    net.to(device);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    distribute(opt, group, options);
  };
  for (const std::string& e : error_of([&](const Group& g) { with(g, Device::cpu(), {}); }))
    CHECK(mentions(e, {"the parameters are on", "cuda", "host()"}));
  for (const std::string& e : error_of([&](const Group& g) { with(g.host(), g.device(), {}); }))
    CHECK(mentions(e, {"the parameters are on cuda", "nccl_group"}));
}

}  // namespace
}  // namespace firn::testing
