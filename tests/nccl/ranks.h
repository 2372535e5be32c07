// Ranks that are threads, each with a device of the simulator, and what comes of them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cusim.h"
#include "firn/dist/local.h"
#include "firn/dist/nccl.h"
#include "firn/firn.h"
#include "libraries/nccl_fake.h"
#include "support/catch.h"
#include "support/thread_check.h"

namespace firn::testing {

inline constexpr int kMostRanks = 4;
inline const bool has_devices = [] {
  cusim::config().devices = std::max(cusim::config().devices, kMostRanks);
  return true;
}();

/// While alive, the stand-in is as new; at the end no communicator may be left, and none may have
/// been used as NCCL forbids.
class FreshNccl {
 public:
  FreshNccl() {
    for (int i = 0; i < kMostRanks; ++i) {
      try {
        synchronize(Device::cuda(i));  // what an earlier test has left to say
      } catch (const dist::RankError&) {
      }
    }
    cusim::reset_nccl();
  }
  ~FreshNccl() {
    CHECK(cusim::nccl_stats().alive == 0);
    CHECK(cusim::nccl_stats().misuse == 0);
    cusim::reset_nccl();
  }
  FreshNccl(const FreshNccl&) = delete;
  FreshNccl& operator=(const FreshNccl&) = delete;
};

using RankFunction = std::function<void(const dist::Group&)>;

/// Runs `rank` in so many threads with a group over NCCL that the threads' group has brought
/// together.
inline void on_devices(int ranks, const RankFunction& rank, const dist::NcclOptions& options = {},
                       double bootstrap_deadline = 60) {
  dist::run_local(ranks,
                  [&](const dist::Group& hosts) {
                    rank(dist::nccl_group(hosts, Device::cuda(hosts.rank()), options));
                  },
                  {.deadline = bootstrap_deadline});
}

inline std::string file_path(const char* name) {
  return (std::filesystem::temp_directory_path() /
          ("firn-nccl-" + std::to_string(::getpid()) + "-" + name))
      .string();
}

/// Ranks with nothing but the file in common; what each has thrown.
inline std::vector<std::string> by_file(int ranks, const std::string& path, double deadline,
                                        const RankFunction& rank, int size_of_last = 0) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        const int size = r == ranks - 1 && size_of_last > 0 ? size_of_last : ranks;
        rank(dist::nccl_group(r, size, path, Device::cuda(r), {.deadline = deadline}));
      } catch (const std::exception& e) {
        errors[static_cast<std::size_t>(r)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

/// What a rank has thrown.
struct Outcome {
  std::string what, op;
  int rank = -2, peer = -2;
  bool is_rank_error = false;
  double seconds = 0;
};

/// The same, and what each rank has thrown: in `connect` too.
inline std::vector<std::optional<Outcome>> outcomes(int ranks, const RankFunction& rank,
                                                    const dist::NcclOptions& options,
                                                    double bootstrap_deadline = 60) {
  std::vector<std::optional<Outcome>> all(static_cast<std::size_t>(ranks));
  const auto begin = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto body = [&](const dist::Group& hosts) {
    auto& outcome = all[static_cast<std::size_t>(hosts.rank())];
    try {
      rank(dist::nccl_group(hosts, Device::cuda(hosts.rank()), options));
    } catch (const dist::RankError& e) {
      outcome = {e.what(), e.op(), e.rank(), e.peer(), true, spent()};
      throw;
    } catch (const Error& e) {
      outcome = {e.what(), e.op(), hosts.rank(), -2, false, spent()};
      throw;
    }
  };
  try {
    dist::run_local(ranks, body, {.deadline = bootstrap_deadline});
  } catch (const std::exception&) {  // its choice is not under test
  }
  return all;
}

inline bool mentions(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) != std::string::npos) continue;
    if (on_main_thread()) UNSCOPED_INFO("\"" << part << "\" is not in: " << text);
    return false;
  }
  return true;
}

inline bool has(const std::optional<Outcome>& outcome, const std::string& part) {
  return outcome && outcome->what.find(part) != std::string::npos;
}

}  // namespace firn::testing
