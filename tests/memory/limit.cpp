// Limits of memory: set by hand, by the environment, and by the process's control group.
#include "runtime/memory/limit.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "data/files.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;

TEST_CASE("parse_bytes reads what bytes_to_string writes, and common units", "[memory][host]") {
  CHECK(parse_bytes("0") == 0);
  CHECK(parse_bytes("4096") == 4096);
  CHECK(parse_bytes("17 B") == 17);
  CHECK(parse_bytes("64KiB") == 65536);
  CHECK(parse_bytes("1.5 GiB") == std::size_t{3} << 29);
  CHECK(parse_bytes("1e9") == 1'000'000'000);
  CHECK(parse_bytes("2GB") == 2'000'000'000);
  CHECK(parse_bytes("3TiB") == std::size_t{3} << 40);
  for (const char* bad :
       {"", "MiB", "-1", "5 parsecs", "1MiB ", "nan", "inf", "1e30", "0x10", "1,5MiB"})
    CHECK(error_of([&] { parse_bytes(bad); }).find("is no number of bytes") != std::string::npos);
  CHECK(bytes_to_string(0) == "0 B");
  CHECK(bytes_to_string(1023) == "1023 B");
  CHECK(bytes_to_string(1024) == "1 KiB");
  CHECK(bytes_to_string(1536) == "1.5 KiB");
  CHECK(bytes_to_string((1 << 20) - 1) == "1 MiB");
  CHECK(bytes_to_string(std::size_t{5} << 30) == "5 GiB");
}

TEST_CASE("a limit: cached blocks go first, then OutOfMemory names it", "[memory]") {
  release_cached_memory();
  const Tensor kept = zeros({1 << 18});
  const std::size_t mib = 1 << 20;
  const std::size_t reserved = memory_stats().reserved;
  set_memory_limit(reserved + 8 * mib);
  CHECK(memory_stats().limit == reserved + 8 * mib);
  { const Tensor a = empty({6 << 20}, u8); }  // stays cached
  { const Tensor b = empty({7 << 20}, u8); }  // fits once the other is returned
  CHECK(memory_stats().reserved <= reserved + 8 * mib);
  const auto text = error_of([] { empty({9 << 20}, u8); });
  set_memory_limit(0);
  INFO(text);
  CHECK(text.find("the limit is reached: 9437184 bytes on") != std::string::npos);
  CHECK(text.find("limit " + std::to_string(reserved + 8 * mib)) != std::string::npos);
  CHECK(memory_stats().limit == 0);
  const Tensor c = empty({9 << 20}, u8);
  CHECK(c.defined());
}

TEST_CASE("a limit below what is in use stops new memory only", "[memory]") {
  const Tensor a = zeros({1 << 16});
  { const Tensor b = zeros({1 << 12}); }
  set_memory_limit(1);
  CHECK_THROWS_AS(empty({32 << 20}, u8), OutOfMemory);
  set_memory_limit(0);
  CHECK(a.defined());
}

TEST_CASE("the limit of a control group is the lowest on the way to the root", "[memory][host]") {
  const firn::test::TempFolder dir;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path file = dir.path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  };
  const auto limit = [&](const std::string& membership) {
    write("cgroup", membership);
    return memory::cgroup_limit((dir.path() / "cgroup").c_str(), dir.path().c_str());
  };
  write("a/memory.max", "2000000\n");
  write("a/b/memory.max", "max\n");
  write("a/b/c/memory.max", "3000000\n");
  CHECK(limit("0::/a/b/c\n") == 2000000);
  CHECK(limit("0::/a/b\n") == 2000000);
  CHECK(limit("0::/elsewhere\n") == 0);
  CHECK(limit("0::/\n") == 0);
  write("memory.max", "1000000\n");
  CHECK(limit("0::/\n") == 1000000);
  write("memory/x/memory.limit_in_bytes", "500000\n");
  CHECK(limit("5:cpu:/y\n4:memory:/x\n0::/\n") == 500000);
  write("memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(limit("4:memory:/x\n") == 0);
  CHECK(memory::cgroup_limit("/no/such/file", "/") == 0);
}

namespace {

/// A made-up folder of control groups.
class Groups {
 public:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = dir_.path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  memory::GroupLimits limits(const std::string& membership) const {
    write("cgroup", membership);
    return {(dir_.path() / "cgroup").c_str(), dir_.path().c_str()};
  }

 private:
  firn::test::TempFolder dir_;
};
constexpr std::size_t kMiB = 1 << 20;

std::string mib(std::size_t n) { return std::to_string(n * kMiB) + "\n"; }

}  // namespace

TEST_CASE("a control group leaves what others of it do not have, less some room",
          "[memory][host]") {
  const Groups groups;
  groups.write("a/memory.max", mib(1600));
  groups.write("a/memory.current", mib(300));
  groups.write("a/memory.stat", "anon 1\ninactive_file " + mib(60) + "active_file " + mib(40));
  auto limits = groups.limits("0::/a\n");
  CHECK_FALSE(limits.empty());
  // 200 MiB are not the allocator's, 100 MiB of files can go, and a sixteenth stays free.
  CHECK(limits.most(0) == 1300 * kMiB);
  // The allocator has 500 MiB, of which it has written to none.
  CHECK(limits.most(500 * kMiB) == 1300 * kMiB);
  groups.write("a/memory.current", mib(800));  // now to all
  CHECK(limits.most(500 * kMiB) == 1300 * kMiB);
  groups.write("a/memory.current", mib(1000));  // others have taken 200 MiB more
  CHECK(limits.most(500 * kMiB) == 1100 * kMiB);
  groups.write("a/memory.current", mib(250));  // others have at most 150 MiB left
  CHECK(limits.most(500 * kMiB) == 1350 * kMiB);
  groups.write("a/memory.max", mib(160));  // lowered meanwhile: nothing is left
  CHECK(limits.most(500 * kMiB) == 1);
  groups.write("a/memory.max", "max\n");
  CHECK(limits.most(0) == SIZE_MAX);
}

TEST_CASE("the room that a control group leaves, by its version and by its parents",
          "[memory][host]") {
  const Groups groups;
  groups.write("memory/x/y/memory.limit_in_bytes", mib(400));
  groups.write("memory/x/y/memory.usage_in_bytes", mib(100));
  groups.write("memory/x/y/memory.stat", "inactive_file " + mib(1) + "total_inactive_file " +
                                             mib(30) + "total_active_file " + mib(20));
  CHECK(groups.limits("4:memory:/x/y\n").most(0) == (400 - 50 - 25) * kMiB);
  groups.write("memory/x/memory.limit_in_bytes", mib(200));
  groups.write("memory/x/memory.usage_in_bytes", mib(150));
  CHECK(groups.limits("4:memory:/x/y\n").most(0) == (200 - 150 - 16) * kMiB);
  // Small groups keep a quarter free, and files that cannot be read say that nothing is used.
  groups.write("small/memory.max", mib(40));
  CHECK(groups.limits("0::/small\n").most(0) == 30 * kMiB);
  groups.write("memory/free/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(groups.limits("4:memory:/free\n").empty());
  CHECK(memory::GroupLimits("/no/such/file", "/").empty());
}

TEST_CASE("FIRN_MEMORY_LIMIT must be a size", "[memory][host]") {
  ::setenv("FIRN_MEMORY_LIMIT", "123MiB", 1);
  CHECK(memory::initial_limit() == std::size_t{123} << 20);
  ::setenv("FIRN_MEMORY_LIMIT", "plenty", 1);
  const auto text = error_of([] { memory::initial_limit(); });
  ::unsetenv("FIRN_MEMORY_LIMIT");
  CHECK(text.find("[FIRN_MEMORY_LIMIT] 'plenty' is no number of bytes") != std::string::npos);
}

TEST_CASE("[S45] FIRN_THREADS that is no number is an error of the first allocation",
          "[memory][host]") {
  const char* const before = std::getenv("FIRN_THREADS");
  const std::string kept = before ? before : "";
  for (const char* bad : {"many", "0", "-1", "2.5", "3 "}) {
    ::setenv("FIRN_THREADS", bad, 1);
    CAPTURE(bad);
    CHECK(error_of([] { memory::initial_limit(); }) ==
          "[FIRN_THREADS] '" + std::string(bad) +
              "' is no number of threads; hint: set it to a whole number of 1 or more");
  }
  ::setenv("FIRN_THREADS", "3", 1);
  CHECK(memory::initial_limit() == 0);
  ::unsetenv("FIRN_THREADS");
  CHECK(memory::initial_limit() == 0);
  if (before) ::setenv("FIRN_THREADS", kept.c_str(), 1);
}
