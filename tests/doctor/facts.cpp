// environment() beside other sources: /proc, /sys, the sources of firn, planted files and
// variables.
#include "firn/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/files.h"
#include "environment/parts.h"
#include "firn/cpu.h"
#include "firn/device.h"
#include "support/catch.h"
#include "support/in_child.h"

namespace firn::testing {
namespace parts = environment_parts;

TEST_CASE("environment: cpu_quota() reads both versions of control groups", "[host]") {
  const test::TempFolder dir;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path file = dir.path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  };
  const auto quota = [&](const std::string& membership) {
    write("cgroup", membership);
    return parts::cpu_quota((dir.path() / "cgroup").c_str(), dir.path().c_str());
  };
  write("a/cpu.max", "250000 100000\n");
  write("a/b/cpu.max", "max 100000\n");
  write("a/b/c/cpu.max", "400000 100000\n");
  CHECK(quota("0::/a/b/c\n") == 2.5);
  CHECK(quota("0::/a/b\n") == 2.5);
  CHECK(quota("0::/elsewhere\n") == 0);
  write("cpu/x/cpu.cfs_quota_us", "50000\n");
  write("cpu/x/cpu.cfs_period_us", "100000\n");
  CHECK(quota("4:cpu,cpuacct:/y\n3:memory:/x\n") == 0);
  CHECK(quota("4:cpuset:/z\n3:cpu:/x\n") == 0.5);
  write("cpu/x/cpu.cfs_quota_us", "-1\n");
  CHECK(quota("3:cpu:/x\n") == 0);
  CHECK(parts::cpu_quota("/no/such/file", "/") == 0);
}

TEST_CASE("environment: a log has no home folder, no user's name and no bytes that are no UTF-8",
          "[host]") {
  const auto with = [](const char* text) {
    return in_child("HOME", "/home/alice/", [text] {
      ::setenv("USER", "alice", 1);
      return parts::presentable(text);
    });
  };
  CHECK(with("/home/alice/data") == "~/data");
  CHECK(with("/home/alice") == "~");
  CHECK(with("in /home/alice/a:/home/alice/b, /x") == "in ~/a:~/b, /x");
  CHECK(with("/home/alice2/data") == "/home/alice2/data");
  CHECK(with("/scratch/alice/data") == "/scratch/USER/data");
  CHECK(with("malice/x") == "malice/x");
  CHECK(with("a\xff\xc3\xa4") == "a?\xc3\xa4");
  CHECK(in_child("HOME", "/", [] { return parts::presentable("/etc/x"); }) == "/etc/x");
}

TEST_CASE("environment: variables have values, problems, and a similar name for a typo", "[host]") {
  const auto said = [](const char* name, const char* value) {
    return in_child(name, value, [name] {
      for (const auto& v : environment({.open = false}).variables)
        if (v.name == name)
          return v.value + "|" + (v.known ? "known" : "unknown") + "|" + v.problem + "|" +
                 v.closest;
      return std::string("not listed");
    });
  };
  CHECK(said("FIRN_THREADS", "3") == "3|known||");
  CHECK(said("FIRN_THREADS", "0") ==
        "0|known|is no number of threads: set it to a whole number of 1 or more|");
  CHECK(said("FIRN_THREDS", "3") == "3|unknown||FIRN_THREADS");
  CHECK(said("FIRN_ENTIRELY_ELSE", "3") == "3|unknown||");
  CHECK(said("FIRN_DATA", "/no/such/folder") == "/no/such/folder|known|is no folder|");
  CHECK(said("FIRN_OFFLOAD_DIR", "/proc/self/comm") == "/proc/self/comm|known|is no folder|");
  CHECK(said("FIRN_MEMORY_LIMIT", "plenty").find("|known|'plenty' is no number of bytes") !=
        std::string::npos);
  CHECK(said("FIRN_SPLIT_K", "depth") ==
        "depth|known|is 'depth'; set it to one of: by_depth, automatic|");
  CHECK(said("FIRN_ATTENTION", "own") == "own|known||");
  CHECK(said("OMP_NUM_THREADS", "5") == "5|known||");
  CHECK(said("PATH", "/bin") == "not listed");
}

TEST_CASE("environment: JSON has the facts, and nothing of it is opened without being asked for",
          "[host]") {
  const Environment e = environment({.open = false});
  const auto json = nlohmann::json::parse(to_json(e));
  CHECK(json["build"]["version"] == version());
  CHECK(json["build"]["revision"] == revision());
  CHECK(json["cpu"]["threads"] == num_threads());
  CHECK(json["cpu"]["features"] == e.cpu.features);
  CHECK(json["memory"]["total"] == e.memory.total);
  CHECK(json["onednn"]["version"] == e.onednn.version);
  CHECK(json["data"][0]["name"] == "FashionMNIST");
  CHECK(json["cuda"]["built"] == e.cuda.built);
  CHECK(json["cuda"]["devices"].empty());
  CHECK(json["cuda"]["found"] == (e.cuda.built ? "not looked for" : "no"));
  char host[256] = {};
  REQUIRE(::gethostname(host, sizeof host - 1) == 0);
  // The name could be a word of the page by chance if it is short.
  if (std::string(host).size() > 6) CHECK(to_json(e).find(host) == std::string::npos);
}

TEST_CASE("environment: JSON is right for any texts and numbers", "[host]") {
  Environment e;
  e.system = "a\xff\"\n";
  e.cpu.quota = std::numeric_limits<double>::quiet_NaN();
  e.cpu.features = {"b\x1b", "c\xc3"};
  const auto json = nlohmann::json::parse(to_json(e));
  CHECK(json["system"] == "a?\"\n");
  CHECK(json["cpu"]["quota"].is_null());
  CHECK(json["cpu"]["features"] == std::vector<std::string>{"b\x1b", "c?"});
}

TEST_CASE("environment: the page names build, CPU, kernels and libraries", "[host]") {
  const Environment e = environment({.open = false});
  const std::string page = to_string(e);
  const auto has = [&page](const std::string& text) {
    CAPTURE(text, page);
    CHECK(page.find(text) != std::string::npos);
  };
  has(std::string("firn ") + version() + " (" + revision() + "), " + e.build.type);
  has("system: Linux ");
  has("CPU: " + e.cpu.model + ", ");
  has("level " + e.cpu.level + ", products: f32 by " + e.cpu.f32);
  has("Eigen: ");
  has("zlib: 1.");
  has("FashionMNIST: ");
  // The same facts as describe_cpu().
  const std::string cpu = describe_cpu();
  CHECK(cpu.find("kernels for " + e.cpu.kernels) != std::string::npos);
  CHECK(cpu.find("bf16 by " + e.cpu.bf16 + ", f16 by " + e.cpu.f16) != std::string::npos);
}

}  // namespace firn::testing
