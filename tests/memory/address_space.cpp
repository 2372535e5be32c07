// Plans, and optimizers that plan their updates, where address space is limited (ulimit -v): what a
// plan stands for takes none.
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "firn/firn.h"
#include "firn/memory/plan.h"
#include "support/catch.h"
#include "support/in_child.h"
#include "support/values.h"

// AddressSanitizer needs terabytes of address space.
#if !defined(__SANITIZE_ADDRESS__)

using namespace firn;
using firn::testing::error_of;

namespace {

/// The address space that this process has.
std::size_t address_space() {
  std::ifstream in("/proc/self/statm");
  std::size_t pages = 0;
  in >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// What `work` says in a child process that may have so many bytes more of address space.
std::string said_within(std::size_t more, const std::function<std::string()>& work) {
  return testing::in_child([&]() -> std::string {
    const rlim_t most = address_space() + more;  // once: reading it allocates memory
    const rlimit limit{most, most};
    return ::setrlimit(RLIMIT_AS, &limit) == 0 ? work() : "no limit could be set";
  });
}

constexpr std::size_t kMore = std::size_t{1} << 30;

template <class Optimizer, class Options>
std::string trained(const Options& options) {
  manual_seed(1);
  nn::MLP net({6, 8, 3});
  Optimizer opt(net.parameters(), options);
  opt.backward(cross_entropy(net(randn({8, 6})), zeros({8}, i64)));
  return opt.step().applied() ? "applied" : "skipped";
}

}  // namespace

TEST_CASE("optimizers that plan their updates work where address space is limited",
          "[memory][host]") {
  CHECK(said_within(kMore, [] { return trained<optim::Muon>(optim::MuonOptions{}); }) == "applied");
  CHECK(said_within(kMore, [] { return trained<optim::Adafactor>(optim::AdafactorOptions{}); }) ==
        "applied");
  const optim::CustomOptions custom{
      .lr = 0.1, .update = [](const optim::CustomInput& in) -> optim::CustomUpdate {
        return {in.weight - in.lr * in.gradient};
      }};
  CHECK(said_within(kMore, [&] { return trained<optim::Custom>(custom); }) == "applied");
}

TEST_CASE("[S38] a plan has the same peak where address space is limited", "[memory][host]") {
  manual_seed(1);
  nn::MLP net({64, 512, 512, 10});
  optim::SGD opt(net.parameters());
  const Tensor x = randn({4096, 64}), y = zeros({4096}, i64);
  const auto step = [&] {
    opt.run_batch(4096, 4096, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
    });
  };
  const auto peak = [&] { return std::to_string(plan_memory(step).peak); };
  const std::string planned = peak();
  CHECK(said_within(kMore, peak) == planned);
  // A plan of far more than there is.
  const auto huge = [] {
    const MemoryPlan plan = plan_memory([] {
      const Tensor a = zeros({1 << 20, 1 << 14}, Device::cpu());  // 64 GiB
      const Tensor b = a + 1.0;
      Tensor c = b;
      mul_(c, a);
      exp_(c);
    });
    return std::string(plan.peak >= std::size_t{128} << 30 ? "planned" : "too little");
  };
  CHECK(said_within(kMore, huge) == "planned");
  CHECK(said_within(kMore, [&] {
          const auto report = opt.run_batch(64, optim::MicroBatch::within(std::size_t{64} << 20),
                                            [&](std::int64_t first, std::int64_t last) {
                                              return cross_entropy(net(x.slice(0, first, last)),
                                                                   y.slice(0, first, last));
                                            });
          return std::string(report.applied() ? "applied" : "skipped");
        }) == "applied");
}

TEST_CASE("a tensor that was made in a plan without memory cannot be read after it",
          "[memory][host]") {
  const auto said = said_within(kMore, [] {
    Tensor kept;
    std::string out;
    plan_memory([&] {
      kept = zeros({1 << 20}, Device::cpu());
      out = error_of([&] { kept.data<float>(); }) + "\n";
      const Tensor small = zeros({100}, Device::cpu());
      small.data<float>()[99] = 1;  // small ones have some
    });
    return out + error_of([&] { kept.to_vector<float>(); }) + "\n" +
           error_of([&] { const Tensor sum = kept + 1.0; });
  });
  INFO(said);
  CHECK(said.find("[data]") != std::string::npos);
  CHECK(said.find("is a part of a plan, and has no memory") != std::string::npos);
  const auto first = said.find("a tensor that was made in a plan has no memory after it");
  REQUIRE(first != std::string::npos);
  CHECK(said.find("has no memory after it", first + 60) != std::string::npos);
}

#endif
