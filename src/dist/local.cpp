// run_local(): starts ranks as threads, sets their random streams, and picks the exception.
#include "firn/dist/local.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "dist/local/world.h"
#include "firn/device.h"
#include "firn/random.h"

namespace firn::dist {
namespace {

constexpr const char* kOp = "run_local";
constexpr int kMostRanks = 1024;

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalWorld> world, int rank)
      : world_(std::move(world)), rank_(rank) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return world_->size(); }
  std::string_view kind() const noexcept override { return "local"; }
  double deadline() const noexcept override { return world_->deadline(); }
  void run(const Call& call, const void* from, void* to) override {
    world_->run(rank_, call, from, to);
  }
  void exchange_messages(std::span<const Message> messages) override {
    world_->exchange_messages(rank_, messages);
  }
  void give_up(std::string_view why) noexcept override { world_->give_up(rank_, why); }
  bool is_concurrent() const noexcept override { return true; }
  std::shared_ptr<Transport> split(const SplitPart& part) override {
    return std::make_shared<LocalTransport>(world_->split(part), part.rank);
  }

 private:
  const std::shared_ptr<LocalWorld> world_;
  const int rank_;
};

/// State that the threads of a run share.
struct Run {
  enum Gate : int { closed, open, cancelled };

  const std::function<void(const Group&)>& function;
  const std::shared_ptr<LocalWorld> world;
  const RandomKey stream;
  const int threads;
  std::vector<Group> groups;
  std::vector<std::exception_ptr> thrown;
  std::atomic<int> gate{closed};  // no rank begins before all threads exist
};

void be_rank(Run& run, int rank) {
  run.gate.wait(Run::closed);
  if (run.gate.load() == Run::cancelled) return;
  auto& thrown = run.thrown[static_cast<std::size_t>(rank)];
  try {
    const NumThreadsScope limit(run.threads);
    seed_thread(0);  // otherwise the stream would take one of the program's thread numbers
    default_generator().set({run.stream.seed, run.stream.offset});
    run.function(run.groups[static_cast<std::size_t>(rank)]);
    run.world->leave(rank, nullptr);
  } catch (const std::exception& e) {
    thrown = std::current_exception();
    run.world->leave(rank, e.what());
  } catch (...) {
    thrown = std::current_exception();
    run.world->leave(rank, "something that is no std::exception");
  }
}

/// Starts the ranks and waits for them. Either all ranks run or none does.
void run_ranks(Run& run, int ranks) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  const auto let = [&](Run::Gate gate) {
    run.gate.store(gate);
    run.gate.notify_all();
    for (std::thread& t : threads) t.join();
  };
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(be_rank, std::ref(run), rank);
  } catch (const std::system_error&) {
    const std::size_t started = threads.size();
    let(Run::cancelled);
    detail::fail(kOp, "use fewer ranks", "the system gave {} threads for {} ranks", started, ranks);
  } catch (...) {
    let(Run::cancelled);
    throw;
  }
  let(Run::open);
}

bool is_rank_error(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const RankError&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// Runs the ranks. Returns the exception to throw, or null.
std::exception_ptr run_all(int ranks, const std::function<void(const Group&)>& rank,
                           const LocalOptions& options) try {
  const int threads = options.threads > 0 ? options.threads : std::max(1, num_threads() / ranks);
  Run run{.function = rank,
          .world = std::make_shared<LocalWorld>(ranks, options.deadline),
          .stream = default_generator().get(),
          .threads = threads,
          .groups = {},
          .thrown = std::vector<std::exception_ptr>(static_cast<std::size_t>(ranks))};
  for (int r = 0; r < ranks; ++r)
    run.groups.emplace_back(std::make_shared<LocalTransport>(run.world, r));
  run_ranks(run, ranks);
  std::exception_ptr first;
  for (const std::exception_ptr& thrown : run.thrown) {
    if (!thrown) continue;
    if (!is_rank_error(thrown)) return thrown;
    if (!first) first = thrown;
  }
  return first;
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace

void run_local(int ranks, const std::function<void(const Group& group)>& rank,
               const LocalOptions& options) {
  FIRN_CHECK(ranks >= 1 && ranks <= kMostRanks, kOp, "each rank is a thread",
             "{} ranks, not 1 to {}", ranks, kMostRanks);
  require_function(kOp, rank, "give it what each rank does");
  FIRN_CHECK(options.deadline > 0, kOp, "it is the seconds that a rank waits for the others",
             "the deadline is {}", options.deadline);
  FIRN_CHECK(options.threads >= 0, kOp, "0 divides the process's threads by the ranks",
             "{} threads for each rank", options.threads);
  if (const std::exception_ptr thrown = run_all(ranks, rank, options))
    std::rethrow_exception(thrown);
}

}  // namespace firn::dist
