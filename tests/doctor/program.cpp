// firn-doctor as a program on this machine, beside /proc and the system's own tools.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "support/catch.h"
#include "support/program/manual.h"
#include "support/program/process.h"
#include "tools/doctor/check.h"
#include "tools/doctor/guard.h"

namespace doctor::test {
namespace {

using firn::test::Ran;
using firn::test::run_program;
using nlohmann::json;

// Without what the machine that runs the tests happens to have set.
const std::vector<std::string> kClean = {"FIRN_CPU_ISA",      "FIRN_DATA",        "FIRN_THREADS",
                                         "FIRN_MEMORY_LIMIT", "FIRN_TEST_DEVICE", "OMP_NUM_THREADS",
                                         "OMP_PROC_BIND"};

Ran doctor(const std::vector<std::string>& arguments, std::vector<std::string> settings = {}) {
  settings.insert(settings.begin(), kClean.begin(), kClean.end());
  return run_program(FIRN_DOCTOR, arguments, {.environment = settings});
}

json facts(const std::vector<std::string>& arguments = {},
           const std::vector<std::string>& settings = {}) {
  std::vector<std::string> all = {"--json"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const Ran ran = doctor(all, settings);
  INFO(ran.err);
  return json::parse(ran.out);
}

std::string value_in(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.rfind(name, 0) == 0)
      return line.substr(line.find_first_not_of(" \t", line.find(':') + 1));
  return "";
}

std::string output_of(const std::string& command) {
  const Ran ran = run_program("/bin/sh", {"-c", command});
  return ran.out.substr(0, ran.out.find('\n'));
}

/// Runs `work` in a child; what it wrote to stderr, and its status as run_program() has it.
template <class Work>
Ran in_child(const Work& work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    work();
    ::_exit(77);
  }
  ::close(ends[1]);
  Ran ran;
  char buffer[512];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    ran.err.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

}  // namespace

TEST_CASE("firn-doctor: its facts are those of /proc, uname and nproc", "[host]") {
  const Ran ran = doctor({"--json"});
  INFO(ran.out << ran.err);
  CHECK(ran.exit_code == 0);
  CHECK(ran.err.empty());
  const json out = json::parse(ran.out);
  CHECK(out["can_train"] == true);
  const json& e = out["environment"];
  CHECK(e["build"]["version"] == firn::version());
  CHECK(e["system"] == output_of("echo $(uname -s) $(uname -r)"));
  CHECK(std::to_string(e["cpu"]["usable"].get<int>()) == output_of("env -u OMP_NUM_THREADS nproc"));
  CHECK(std::to_string(e["cpu"]["cores"].get<int>()) == output_of("getconf _NPROCESSORS_ONLN"));
  CHECK(e["cpu"]["threads"] == e["cpu"]["usable"]);
  const std::string model = value_in("/proc/cpuinfo", "model name");
  CHECK(e["cpu"]["model"] == (model.empty() ? "unknown" : model));
  std::istringstream words(value_in("/proc/cpuinfo", "flags"));
  std::set<std::string> flags;
  for (std::string word; words >> word;) flags.insert(word);
  if (!flags.empty()) {
    std::set<std::string> expected;
    for (const char* name : {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_fp16",
                             "amx_tile", "amx_bf16", "amx_fp16"})
      if (flags.contains(name)) expected.insert(name);
    CHECK(e["cpu"]["features"].get<std::set<std::string>>() == expected);
  }
  const auto kib = std::stoull(value_in("/proc/meminfo", "MemTotal"));
  CHECK(e["memory"]["total"].get<std::uint64_t>() == kib * 1024);
  CHECK(e["memory"]["available"].get<std::uint64_t>() > 0);
  CHECK(e["memory"]["available"].get<std::uint64_t>() <= kib * 1024);
  CHECK((e["mpirun"] == "") == output_of("command -v mpirun").empty());
  CHECK(e["cuda"]["built"] == firn::built_with_cuda());
  CHECK(e["cuda"]["devices"].size() == static_cast<std::size_t>(firn::cuda_device_count()));
}

TEST_CASE("firn-doctor: the text has every section, and no colours without a terminal", "[host]") {
  const Ran ran = doctor({});
  CHECK(ran.exit_code == 0);
  for (const char* heading : {"Build", "CPU", "Memory", "GPU", "Libraries", "Ranks", "Data"}) {
    CAPTURE(heading);
    CHECK(("\n" + ran.out).find(std::string("\n") + heading + "\n  ") != std::string::npos);
  }
  CHECK(ran.out.find('\x1b') == std::string::npos);
  CHECK(ran.out.find("firn can train here, on the CPU") != std::string::npos);
  const Ran coloured = run_program(
      FIRN_DOCTOR, {"--quick"},
      {.environment = {"TERM=xterm", "NO_COLOR"}, .terminal_columns = 80, .terminal_out = true});
  CHECK(coloured.out.find("\x1b[32mok") != std::string::npos);
  const Ran plain = run_program(
      FIRN_DOCTOR, {"--quick"},
      {.environment = {"TERM=xterm", "NO_COLOR=1"}, .terminal_columns = 80, .terminal_out = true});
  CHECK(plain.out.find('\x1b') == std::string::npos);
}

TEST_CASE("firn-doctor: settings that limit or break something are seen", "[host]") {
  CHECK(facts({"--quick"}, {"FIRN_THREADS=3"})["environment"]["cpu"]["threads"] == 3);
  const json wrong = facts({"--quick"}, {"FIRN_THREADS=many"});
  CHECK(wrong["environment"]["cpu"]["threads"] == wrong["environment"]["cpu"]["usable"]);
  CHECK(wrong["can_train"] == false);
  const json base = facts({"--quick"}, {"FIRN_CPU_ISA=base"});
  CHECK(base["environment"]["cpu"]["level"] == "base");
  CHECK(base["environment"]["cpu"]["level_forced"] == true);
  CHECK(base["can_train"] == true);
  CHECK(facts({"--quick"}, {"FIRN_MEMORY_LIMIT=64MiB"})["environment"]["memory"]["limit"] ==
        64 << 20);

  const Ran isa = doctor({"--quick"}, {"FIRN_CPU_ISA=fast"});
  CHECK(isa.exit_code == 1);
  CHECK(isa.out.find("  broken   the CPU's kernels do not start\n"
                     "           why:  FIRN_CPU_ISA is 'fast'; set it to one of: base, avx2") !=
        std::string::npos);
  const Ran memory = doctor({"--quick"}, {"FIRN_MEMORY_LIMIT=plenty"});
  CHECK(memory.exit_code == 1);
  CHECK(memory.out.find("  broken   no tensor can be made\n") != std::string::npos);
  const Ran typo = doctor({"--quick"}, {"FIRN_THREAD=3"});
  CHECK(typo.exit_code == 0);
  CHECK(
      typo.out.find("FIRN_THREAD=3 has no effect\n           why:  firn knows no variable of this "
                    "name\n           mend: did you mean FIRN_THREADS?") != std::string::npos);
}

TEST_CASE("firn-doctor: one CPU by affinity is one thread, and says so on a machine with more",
          "[host]") {
  cpu_set_t all, one;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  if (CPU_COUNT(&all) < 2) return;
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &all)) {
      CPU_SET(i, &one);
      break;
    }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  const Ran ran = doctor({"--quick"});
  REQUIRE(::sched_setaffinity(0, sizeof all, &all) == 0);
  CHECK(ran.out.find("  ok       1 thread on 1 CPU\n  note     this process may run on 1 of ") !=
        std::string::npos);
}

TEST_CASE("firn-doctor: --device cuda asks for a device", "[host]") {
  const Ran ran = doctor({"--device", "cuda"});
  CHECK(ran.exit_code == (firn::cuda_device_count() > 0 ? 0 : 1));
  CHECK(doctor({"--device", "tpu"}).exit_code == 2);
  CHECK(doctor({"--device", "cuda", "--quick"}).exit_code == 2);
  CHECK(doctor({"--chek"}).exit_code == 2);
  CHECK(doctor({"--help"}).exit_code == 0);
  CHECK(doctor({"--version"}).out ==
        std::string(firn::version()) + " (" + firn::revision() + ")\n");
}

TEST_CASE("firn-doctor: --check finds this machine right, and measures", "[host]") {
  const json out = facts({"--check"});
  REQUIRE(out["check"].size() >= 4);
  std::set<std::string> cpu;
  for (const json& c : out["check"]) {
    CAPTURE(c.dump());
    CHECK(c["ok"] == true);
    CHECK(c["error"].get<double>() <= 1);
    CHECK(c["failure"] == "");
    const std::string what = c["what"];
    CHECK((c["gflops"].get<double>() > 0) == (what != "training step"));
    if (c["device"] == "cpu") cpu.insert(what);
  }
  CHECK(cpu ==
        std::set<std::string>{"product f32", "product f16", "product bf16", "training step"});
  CHECK(out["findings"].back()["section"] == "Check");
}

TEST_CASE("firn-doctor: a check that fails is broken, with its reason", "[host]") {
  const std::vector<Finding> all = findings(
      {{.device = "cpu", .what = "product f32", .gflops = 12.3, .error = 1.5, .failure = ""},
       {.device = "cuda:0",
        .what = "training step",
        .gflops = 0,
        .error = 0,
        .failure = "[matmul] no kernel image"}});
  CHECK(to_text(all) ==
        "Check\n"
        "  broken   cpu: product f32, 12.3 GFLOP/s\n"
        "           why:  the error is 1.5 times its bound\n"
        "           mend: report this with the output of firn-doctor --json --check\n"
        "  broken   cuda:0: training step\n"
        "           why:  [matmul] no kernel image\n");
  const auto no_device = check(firn::Device::cuda(100));
  REQUIRE(no_device.size() == 4);
  for (const Checked& c : no_device) CHECK(c.failure.find("cuda:100") != std::string::npos);
}

TEST_CASE("firn-doctor: an illegal instruction and a hang end with a line and status 1", "[host]") {
  const Ran illegal = in_child([] {
    explain_illegal_instructions();
    ::raise(SIGILL);
  });
  CHECK(illegal.exit_code == 1);
  CHECK(illegal.err.find("this CPU lacks an instruction that the build uses") != std::string::npos);
  CHECK(illegal.err.find("-DFIRN_NATIVE=OFF") != std::string::npos);
  using namespace std::chrono_literals;
  const Ran late = in_child([] {
    const Deadline deadline("a test", 1s);
    std::this_thread::sleep_for(60s);
  });
  CHECK(late.exit_code == 1);
  CHECK(late.err == "firn-doctor: no end of a test after 1 seconds\n");
  const Ran early = in_child([] { const Deadline deadline("a test", 60s); });
  CHECK(early.exit_code == 77);
  CHECK(early.err.empty());
}

TEST_CASE("firn-doctor: the manual page has the options of --help", "[host]") {
  const auto options = firn::test::options_of_help(doctor({"--help"}).out);
  CHECK(options.count("--quick") == 1);
  CHECK(firn::test::options_of_manual("src/tools/doctor/firn-doctor.1") == options);
}

}  // namespace doctor::test
