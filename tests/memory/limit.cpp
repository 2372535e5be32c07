// Limits of memory: set by hand, by the environment, and by the process's control group.
#include "runtime/memory/limit.h"

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

TEST_CASE("FIRN_MEMORY_LIMIT is read once for each device, and must be a size", "[memory][host]") {
  ::setenv("FIRN_MEMORY_LIMIT", "123MiB", 1);
  CHECK(memory::initial_limit(Device::cuda(0)) == std::size_t{123} << 20);
  ::setenv("FIRN_MEMORY_LIMIT", "plenty", 1);
  const auto text = error_of([] { memory::initial_limit(Device::cpu()); });
  ::unsetenv("FIRN_MEMORY_LIMIT");
  CHECK(text.find("[FIRN_MEMORY_LIMIT] 'plenty' is no number of bytes") != std::string::npos);
}
