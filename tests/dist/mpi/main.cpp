// One rank of an MPI job: mpirun -np N firn_mpi_ranks MODE. Exit status 0: all is well; 3: a
// RankError, which is printed.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/checks.h"
#include "dist/mpi/world.h"
#include "firn/dist/distribute.h"
#include "firn/dist/local.h"
#include "firn/dist/mesh.h"
#include "firn/dist/mpi.h"
#include "firn/dist/parallel/layers.h"
#include "firn/dist/parallel/pipeline.h"
#include "firn/firn.h"
#include "firn/io/run.h"
#include "io/run/parts_file.h"

using namespace firn;
using dist::Group;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Every call, with the sizes of messages as they are and with tiny ones: pieces of all kinds.
void checks(const Group& group) {
  int calls = test::check_every_call(group, {0, 1, 7, 1000, 5003});
  const dist::MpiSizes usual = dist::mpi_sizes();
  for (const dist::MpiSizes sizes :
       {dist::MpiSizes{.whole = 0, .share = 64, .message = 1000},
        dist::MpiSizes{.whole = 0, .share = 1000, .message = 77},
        dist::MpiSizes{.whole = 1 << 20, .share = 1, .message = 4096}}) {
    dist::mpi_sizes() = sizes;
    calls += test::check_every_call(group, {0, 1, 7, 1000});
  }
  dist::mpi_sizes() = usual;
  for (const DType dtype : {f32, u8})
    test::check(group, {.call = test::Collective::all_reduce, .dtype = dtype, .count = 3'000'001});
  test::check(group, {.call = test::Collective::reduce_scatter, .dtype = f64, .count = 300'001});
  test::check_messages(group, {0, 1, 7, 1000, 100'003});
  dist::mpi_sizes().message = 77;
  test::check_messages(group, {0, 1, 7, 1000});
  dist::mpi_sizes() = usual;
  test::check_splits(group);
  for (std::uint64_t seed = 1; seed <= 200; ++seed) test::check_random_calls(group, seed, 12, 2000);
  std::printf("rank %d of %d: %d calls and 200 sequences\n", group.rank(), group.size(), calls);
}

/// A call that others do not make.
void mismatch(const Group& group) {
  group.barrier();
  if (group.rank() == 1) group.all_gather(ones({5}), empty({5 * group.size()}));
  group.all_reduce(ones({6}, f64), dist::Reduce::max);
}

void late(const Group& group) {
  group.barrier();
  const double begin = now();
  if (group.rank() == 1) sleep_for(group.deadline() + 0.7);
  try {
    group.all_reduce(ones({5}));
  } catch (const dist::RankError&) {
    std::printf("rank %d: %.1f s\n", group.rank(), now() - begin);
    throw;
  }
}

/// Rank 1 ends while the others wait for it.
void early(const Group& group) {
  test::check_random_calls(group, 1, 20, 500);
  if (group.rank() == 1) return;
  group.broadcast(ones({5}));
}

/// A message whose two sides differ, in a group that was split off: all that wait end.
void unlike(const Group& group) {
  const Group turned = group.split(0, -group.rank());
  if (group.rank() == 1) turned.send(ones({5}), turned.size() - 1);
  if (group.rank() == 0) turned.recv(ones({6}, f64), turned.size() - 2);
  turned.barrier();
}

/// Two ranks that both send, or both receive.
void same_way(const Group& group) {
  const Tensor x = ones({5 + group.rank()});
  if (group.rank() == 0) group.send(x, 1);
  if (group.rank() == 1) group.send(x, 0);
  if (group.rank() == 2) group.recv(x, 3);
  if (group.rank() == 3) group.recv(x, 2);
}

/// What rank 1 alone meets in a call of all ranks, and goes on after: so do the others.
void goes_on(const Group& group) {
  const std::string path = "firn-mpi-goes-on-" + std::to_string(group.size()) + ".run";
  const auto fails_on_all = [&](const char* what, const auto& fn) {
    try {
      fn();
    } catch (const std::exception&) {
      return;
    }
    throw std::runtime_error(std::string(what) + " did not fail");
  };
  for (const int zero : {0, 1, 2, 3})
    for (const std::int64_t chunk : {0, 4}) {
      manual_seed(3);
      nn::MLP net({8, 301, 2});
      optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = chunk}});
      dist::distribute(opt, group, {.zero = zero});
      const Tensor x = randn({32, 8}), y = zeros({32}, i64);
      const auto step = [&](bool fails) {
        opt.run_batch(32, 4, [&](std::int64_t first, std::int64_t last) {
          if (fails && group.rank() == 1) throw std::bad_alloc();
          return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
        });
      };
      step(false);
      fails_on_all("run_batch()", [&] { step(true); });
      step(false);
      // Half a cycle, of which a save makes copies. A process has a limit of its own.
      const bool half = chunk == 0 && zero == 0;
      if (half) opt.backward(cross_entropy(net(x), y));
      io::save_run(path, {net, opt});
      if (half) {
        release_cached_memory();
        if (group.rank() == 1) set_memory_limit(memory_stats().reserved);
        fails_on_all("save_run()", [&] { io::save_run(path, {net, opt}); });
        set_memory_limit(0);
        opt.zero_grad();
      }
      fails_on_all("load_run()", [&] {
        io::load_run(group.rank() == 1 ? path + ".none" : path, {net, opt});
      });
      io::load_run(path, {net, opt});
      opt.zero_grad();
      step(false);
    }
  group.barrier();
  if (group.rank() == 0) std::remove(path.c_str());
  std::printf("rank %d of %d: went on\n", group.rank(), group.size());
}

/// A stage that fails, and catches that: the others do not wait for it.
void stage_fails(const Group& group) {
  const dist::Mesh mesh(group, {.pp = group.size()});
  manual_seed(3);
  struct Stage : nn::Module {
    nn::Linear linear{16, 16};
    int fails_in = -1;
    FIRN_MEMBERS(linear)
    Tensor forward(const Tensor& x) override {
      if (fails_in-- == 0) throw std::runtime_error("no more disk");
      return linear(x);
    }
  } stage;
  optim::SGD opt(stage.parameters(), {.lr = 1e-2});
  dist::distribute(opt, mesh);
  dist::Pipeline pipeline(mesh, stage);
  const Tensor x = randn({16, 16});
  const auto step = [&] {
    pipeline.run_batch(
        opt, 16, 2, [&](auto first, auto last) { return x.slice(0, first, last); },
        [&](const Tensor& out, auto first, auto last) {
          return mse_loss(out, x.slice(0, first, last));
        });
  };
  step();
  if (group.rank() == 1) stage.fails_in = 2;
  try {
    step();
  } catch (const dist::RankError&) {
    throw;
  } catch (const std::runtime_error&) {
    step();
  }
}

/// Rank 1 ends while rank 0 waits for its message.
void silent(const Group& group) {
  const Group half = group.split(group.rank() / 2);
  const Tensor x = ones({5});
  if (group.rank() == 0) half.send(x, 1);
  if (group.rank() == 1) return half.recv(x, 0);
  if (group.rank() == 0) half.recv(x, 1);
}

/// Ranks that end at different times, and no collective: all is well.
void apart(const Group& group) {
  group.barrier();
  sleep_for(0.4 * group.rank());
}

/// Rank 1 gives what no rank can give, and ends by that exception.
void uncaught(const Group& group) {
  group.barrier();
  if (group.rank() == 1) std::abort();
  group.barrier();
}

/// For ever.
void loop(const Group& group) {
  const Tensor x = ones({100'000});
  for (int i = 0;; ++i) {
    group.all_reduce(x, dist::Reduce::max);
    if (i == 10 && group.rank() == 0) {
      std::printf("running\n");
      std::fflush(stdout);
    }
  }
}

/// The weights after three steps in f16 with dropout, in exact mode or not.
std::vector<float> trained(const Group& group, std::int64_t chunk, int zero = 0,
                           bool normed = false, std::optional<bool> overlap = {}) {
  manual_seed(3);
  nn::Sequential net{nn::Linear(6, 32), nn::Dropout(0.2)};
  if (normed) net.push_back(nn::BatchNorm1d(32, {.accumulation = nn::BatchNormMode::whole_batch}));
  net.push_back(nn::Linear(32, 3));
  net.to(f16);
  optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.clip_norm = 1, .exact = {.chunk = chunk}});
  dist::distribute(opt, group, {.zero = zero, .overlap = overlap});
  for (const std::int64_t n : {40, 21, 3}) {
    const Tensor x = randn({n, 6}).to(f16), y = zeros({n}, i64);
    opt.run_batch(n, 8, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
    });
  }
  std::vector<float> out;
  for (const Tensor& p : opt.parameters())
    for (const float v : p.to(f32).to_vector<float>()) out.push_back(v);
  return out;
}

/// Bytes of masters, moments and averages that a rank keeps of a training.
std::size_t state_of(const Group& group, int zero) {
  const auto now_kept = [] {
    const MemoryStats stats = memory_stats();
    return stats.of(Owner::optimizer).current + stats.of(Owner::masters).current;
  };
  const std::size_t before = now_kept();
  manual_seed(3);
  nn::Sequential net;
  for (int i = 0; i < 4; ++i) net.push_back(nn::Linear(96, 96));
  net.to(bf16);
  optim::AdamW opt(net.parameters(), {}, {.ema = 0.9});
  const std::size_t whole = now_kept() - before;
  dist::distribute(opt, group, {.zero = zero});
  const std::size_t kept = now_kept() - before;
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t states = 4 * 16 * (96 * 96 + 96);  // four of 4 bytes, of four layers
  // In addition: tables, and what the exchange needs.
  if (zero > 0 && kept > whole - states + states / ranks + 8 * 4 * 64 + 8192)
    throw std::runtime_error("zero: a rank keeps " + std::to_string(kept) + " bytes of " +
                             std::to_string(whole));
  return kept;
}

std::string bytes_of(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

/// Processes write one file, with and without a path that all can open, and load it.
void save_and_load(const Group& group) {
  std::string paths[3];
  for (int i = 0; i < 3; ++i)
    paths[i] = "firn-mpi-ranks-" + std::to_string(group.size()) + "-" + std::to_string(i) + ".run";
  for (int i = 0; i < 3; ++i) {  // of one state, of divided state by offset, and by messages
    manual_seed(3);
    nn::MLP net({8, 301, 2});
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = 4}});
    dist::distribute(opt, group, {.zero = i == 0 ? 0 : 3});
    const Tensor x = randn({32, 8}), y = zeros({32}, i64);
    const auto step = [&] {
      opt.run_batch(32, 8, [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
      });
    };
    step();
    io::ranks_open_one_file() = i < 2;
    io::save_run(paths[i], {net, opt});
    step();
    io::load_run(paths[i], {net, opt});
    io::save_run(paths[i], {net, opt});  // what was loaded
    io::ranks_open_one_file() = true;
    group.barrier();
    if (group.rank() == 0 && bytes_of(paths[i]) != bytes_of(paths[0]))
      throw std::runtime_error("ranks write another file");
  }
  group.barrier();
  for (const std::string& path : paths)
    if (group.rank() == 0) std::remove(path.c_str());
}

/// Exact mode has the bits of one rank, the ordinary mode those of as many ranks that are threads.
void run_training(const Group& group) {
  save_and_load(group);
  if (trained(group, 4) != trained(Group(), 4)) throw std::runtime_error("exact mode: other bits");
  for (const int zero : {0, 1})
    if (trained(group, 4, zero, true) != trained(Group(), 4, 0, true))
      throw std::runtime_error("exact mode with batch norm: other bits");
  for (const int zero : {0, 2, 3}) {
    std::vector<float> by_threads;
    dist::run_local(group.size(), [&](const Group& threads) {
      const auto weights = trained(threads, 0, zero);
      if (threads.rank() == 0) by_threads = weights;
    });
    if (trained(group, 0, zero) != by_threads)
      throw std::runtime_error("ranks over MPI: other bits");
  }
  for (const std::int64_t chunk : {0, 4})
    if (trained(group, chunk, 1) != trained(group, chunk))
      throw std::runtime_error("zero: other bits");
  for (const int zero : {2, 3})
    if (trained(group, 4, zero) != trained(group, 4))
      throw std::runtime_error("zero " + std::to_string(zero) + ": other bits");
  for (const int zero : {0, 1})
    if (trained(group, 0, zero, false, true) != trained(group, 0, zero, false, false))
      throw std::runtime_error("sums exchanged beside the pass: other bits");
  for (const int zero : {1, 2, 3})
    if (group.size() > 1 && state_of(group, zero) >= state_of(group, 0))
      throw std::runtime_error("zero: no less memory");
  // Processes have allocators of their own, so a rank's peak can be compared with its plan.
  for (const std::int64_t chunk : {0, 4})
    for (const int zero : {0, 2, 3}) {
      if (chunk == 0 && zero == 0) continue;  // elsewhere
      manual_seed(3);
      nn::MLP net({8, 301, 2});
      optim::AdamW opt(net.parameters(), {}, {.exact = {.chunk = chunk}});
      dist::distribute(opt, group, {.zero = zero});
      const std::int64_t n = 12 * group.size();  // as many micro-steps on each
      const Tensor x = randn({n, 8}), y = zeros({n}, i64);
      const auto step = [&] {
        opt.run_batch(n, 4, [&](std::int64_t first, std::int64_t last) {
          return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
        });
      };
      for (int round = 0; round < 2; ++round) {
        const std::size_t planned = plan_memory(step).peak;
        reset_peak_memory();
        step();
        if (const std::size_t peak = memory_stats().total.peak; peak != planned)
          throw std::runtime_error("zero " + std::to_string(zero) + ", chunk " +
                                   std::to_string(chunk) + ": a peak of " + std::to_string(peak) +
                                   " and not " + std::to_string(planned));
      }
    }
  std::printf("rank %d of %d: trained\n", group.rank(), group.size());
}

/// Two divided layers: a stage of a pipeline, or all of a model.
struct Layers : nn::Module {
  dist::ColumnParallelLinear up;
  dist::RowParallelLinear down;
  FIRN_MEMBERS(up, down)
  explicit Layers(const Group& tp) : up(tp, 16, 64), down(tp, 64, 16) {}
  Tensor forward(const Tensor& x) override { return x + down(relu(up(x))); }
};

/// Three steps of two such stages, if there are two ranks, with divided layers if there are four.
/// Returns the weights of this rank, and the peak of memory in the last step.
std::pair<std::vector<float>, std::size_t> staged(const Group& group, std::int64_t micro_batches) {
  const int stages = group.size() > 1 ? 2 : 1;
  const dist::Mesh mesh(group, {.tp = group.size() / stages, .pp = stages});
  manual_seed(3);
  Layers layers(mesh.tp());
  optim::AdamW opt(layers.parameters(), {.lr = 1e-2}, {.clip_norm = 0.1});
  dist::distribute(opt, mesh);
  dist::Pipeline pipeline(mesh, layers);
  std::size_t peak = 0;
  for (int step = 0; step < 3; ++step) {
    const std::int64_t n = 4 * micro_batches;
    const Tensor x = randn({n, 16}), y = randn({n, 16});
    reset_peak_memory();
    const std::size_t before = memory_stats().total.current;
    pipeline.run_batch(
        opt, n, 4, [&](auto first, auto last) { return x.slice(0, first, last); },
        [&](const Tensor& out, auto first, auto last) {
          return mse_loss(out, y.slice(0, first, last));
        });
    peak = memory_stats().total.peak - before;
  }
  std::vector<float> weights;
  for (const Tensor& p : opt.parameters())
    for (const float v : p.to_vector<float>()) weights.push_back(v);
  return {weights, peak};
}

/// A mesh of processes has the bits of one of threads. Here a rank's memory can be seen by itself:
/// more micro-batches need no more of it.
void stages(const Group& group) {
  const auto own = staged(group, 6);
  std::vector<float> by_threads;
  dist::run_local(group.size(), [&](const Group& threads) {
    const auto weights = staged(threads, 6).first;
    if (threads.rank() == group.rank()) by_threads = weights;
  });
  if (own.first != by_threads) throw std::runtime_error("stages over MPI: other bits");
  if (own.second == 0 || staged(group, 24).second != own.second)
    throw std::runtime_error("stages: memory grows with the micro-batches");
  std::printf("rank %d of %d: stages\n", group.rank(), group.size());
}

/// 64 MiB of f32 beside MPI's own sum, the median of some; one line of rank 0.
void bench(const Group& group) {
  const std::int64_t n = 16 << 20;
  const Tensor x = ones({n});
  const auto median = [&](const auto& work) {
    std::vector<double> seconds;
    for (int i = 0; i < 9; ++i) {
      group.barrier();
      const double begin = now();
      work();
      seconds.push_back(now() - begin);
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[4];
  };
  const double own = median([&] { group.all_reduce(x); });
  const double theirs = median([&] {
    MPI_Allreduce(MPI_IN_PLACE, x.data<float>(), static_cast<int>(n), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  });
  const Tensor few = ones({16});
  const double small = median([&] {
    for (int i = 0; i < 1000; ++i) group.all_reduce(few, dist::Reduce::max);
  });
  const double small_theirs = median([&] {
    for (int i = 0; i < 1000; ++i)
      MPI_Allreduce(MPI_IN_PLACE, few.data<float>(), 16, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
  });
  if (group.rank() == 0)
    std::printf(
        "%d ranks, 64 MiB: all_reduce %.1f ms, MPI_Allreduce %.1f ms, ratio %.2f; "
        "16 floats: %.2f us, MPI %.2f us\n",
        group.size(), own * 1e3, theirs * 1e3, own / theirs, small * 1e3, small_theirs * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  try {
    const Group group = dist::mpi_group({.deadline = argc > 2 ? std::atof(argv[2]) : 30});
    if (group.kind() != "mpi") throw std::runtime_error("no MPI group");
    const struct {
      const char* name;
      void (*run)(const Group&);
    } modes[] = {{"checks", checks},     {"mismatch", mismatch},  {"late", late},
                 {"early", early},       {"train", run_training}, {"apart", apart},
                 {"uncaught", uncaught}, {"loop", loop},          {"bench", bench},
                 {"unlike", unlike},     {"silent", silent},      {"stages", stages},
                 {"same_way", same_way}, {"goes_on", goes_on},    {"stage_fails", stage_fails}};
    for (const auto& m : modes)
      if (mode == m.name) return m.run(group), 0;
    throw std::runtime_error("no mode '" + mode + "'");
  } catch (const dist::RankError& e) {
    std::printf("rank %d blames %d: %s\n", e.rank(), e.peer(), e.what());
    std::fflush(stdout);
    // The first process of a broken group that ends takes the others with it: they may print first.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return 3;
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
    std::fflush(stdout);
    return 1;
  }
}
