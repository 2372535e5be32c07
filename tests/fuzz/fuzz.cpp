// Every public operation with hostile numbers: sizes, axes, steps and positions near the ends of 64
// bits, views of every kind, NaN and infinities. A call returns or throws firn::Error: it does not
// crash, throw anything else, or do what a sanitizer reports. What was drawn is printed if it does.
//
//   FIRN_FUZZ_CALLS=1000000   so many calls in all (default 20,000)
//   FIRN_FUZZ_SEED=7          calls are numbered from here on: each has the seed of its number
//   FIRN_FUZZ_ONLY=attention  calls of this name alone
//   FIRN_FUZZ_SLOW=2          names calls that take as many seconds
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fuzz/draw.h"
#include "support/catch.h"

// ---- Limits, and last words ----

// Requests of more than 256 MB fail, as they do if memory is short.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=256";
}
extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

namespace {

using namespace firn;
using fuzz::Call;
using fuzz::Draw;

void print_current_call() {
  const auto print = [](const char* text) {
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text));
  };
  print("\nThe fuzzer was at: ");
  print(Draw::current());
  print("\n");
}

void on_signal(int signal) {
  print_current_call();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// While alive: the process may take 512 MB more, and its end names the call.
class Guards {
 public:
  Guards() {
    if (__sanitizer_set_death_callback != nullptr) {
      __sanitizer_set_death_callback(&print_current_call);
    } else {
      for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) std::signal(s, &on_signal);
      // Threads and what libraries keep are made before the limit.
      const Tensor image = ones({1, 8, 32, 32}), kernel = ones({8, 8, 3, 3});
      conv2d(image, kernel);
      matmul(ones({256, 256}), ones({256, 256}));
      getrlimit(RLIMIT_AS, &before_);
      rlimit limit = before_;
      limit.rlim_cur = address_space() + (rlim_t{512} << 20);
      setrlimit(RLIMIT_AS, &limit);
      limited_ = true;
    }
  }
  ~Guards() {
    if (!limited_) return;
    setrlimit(RLIMIT_AS, &before_);
    for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) std::signal(s, SIG_DFL);
  }
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;

 private:
  static rlim_t address_space() {
    long pages = 0;
    if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(f, "%ld", &pages) != 1) pages = 0;
      std::fclose(f);
    }
    return static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  }
  rlimit before_{};
  bool limited_ = false;
};

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::atoll(text);
}

// ---- One call ----

/// Reads a result as a user would, and goes back from it.
void use(Draw& d, const Tensor& t) {
  if (!t.defined() || !fuzz::is_small(t)) return;
  t.to_vector<double>();
  if (d.chance(5)) to_string(t);
  if (!t.requires_grad() || !d.chance(80)) return;
  d.say(" backward");
  (d.chance(50) ? t.sum() : mul(t, t).sum()).backward();
}

struct Tally {
  std::int64_t returned = 0, refused = 0;
};

/// Makes call number `seed` and says what was wrong with it: nothing, mostly.
std::string problem_of(const std::vector<Call>& calls, std::uint64_t seed, Tally& tally) {
  Draw d(seed);
  const Call& call =
      calls[static_cast<std::size_t>(d.below(static_cast<std::int64_t>(calls.size())))];
  if (const char* only = std::getenv("FIRN_FUZZ_ONLY"))
    d.say("FIRN_FUZZ_ONLY=" + std::string(only) + " ");
  d.say("FIRN_FUZZ_SEED=" + std::to_string(seed) + " FIRN_FUZZ_CALLS=1: " + call.name);
  manual_seed(seed);
  const auto start = std::chrono::steady_clock::now();
  std::string problem;
  try {
    const auto run = [&] {
      for (const Tensor& t : call.run(d)) use(d, t);
    };
    if (d.chance(4)) {
      d.say(" autocast");
      const Autocast autocast(d.chance(50) ? f16 : bf16);
      run();
    } else {
      run();
    }
    ++tally.returned;
  } catch (const Error&) {
    ++tally.refused;
  } catch (const std::exception& e) {
    problem = std::string("threw ") + e.what() + ": " + d.text();
  } catch (...) {
    problem = "threw something: " + d.text();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (took.count() > static_cast<double>(setting("FIRN_FUZZ_SLOW", 1000000)))
    std::fprintf(stderr, "%.1f s: %s\n", took.count(), d.text().c_str());
  return problem;
}

/// One of `kParts` cases, so that they run side by side.
constexpr std::int64_t kParts = 4;
void run_part(std::int64_t part) {
  std::vector<Call> calls = fuzz::elementwise_calls();
  for (const auto& more :
       {fuzz::shape_calls(), fuzz::image_calls(), fuzz::other_calls(), fuzz::transformer_calls(),
        fuzz::rearrange_calls(), fuzz::product_calls(), fuzz::linalg_calls()})
    calls.insert(calls.end(), more.begin(), more.end());
  if (const char* only = std::getenv("FIRN_FUZZ_ONLY"))
    std::erase_if(calls, [&](const Call& c) { return std::strcmp(c.name, only) != 0; });
  REQUIRE(!calls.empty());
  const std::int64_t first = setting("FIRN_FUZZ_SEED", 1);
  const std::int64_t count = setting("FIRN_FUZZ_CALLS", 20000);
  const DeviceScope host(Device::cpu());
  Tally tally;
  std::vector<std::string> problems;
  {
    const Guards guards;
    for (std::int64_t i = part; i < count && problems.size() < 20; i += kParts) {
      const std::string problem = problem_of(calls, static_cast<std::uint64_t>(first + i), tally);
      if (!problem.empty()) problems.push_back(problem);
    }
  }
  std::string all;
  for (const std::string& p : problems) all += p + "\n";
  INFO(all);
  CHECK(problems.empty());
  if (std::getenv("FIRN_FUZZ_CALLS") != nullptr)
    std::printf("%lld calls returned, %lld were refused\n", static_cast<long long>(tally.returned),
                static_cast<long long>(tally.refused));
  if (count < 10000) return;
  // Most draws are ordinary: a fuzzer whose calls are all refused shows nothing.
  CHECK(tally.returned > tally.refused);
  CHECK(tally.refused > tally.returned / 20);
}

}  // namespace

TEST_CASE("operations with hostile numbers return or throw Error, part 1 of 4", "[host]") {
  run_part(0);
}
TEST_CASE("operations with hostile numbers return or throw Error, part 2 of 4", "[host]") {
  run_part(1);
}
TEST_CASE("operations with hostile numbers return or throw Error, part 3 of 4", "[host]") {
  run_part(2);
}
TEST_CASE("operations with hostile numbers return or throw Error, part 4 of 4", "[host]") {
  run_part(3);
}
