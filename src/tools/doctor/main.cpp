// firn-doctor: describes this build of firn and what this machine offers it, what is missing, and
// how to mend it. Exit status: 0 if nothing is broken, 1 if something requested is broken, 2 for
// wrong arguments.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "tools/doctor/check.h"
#include "tools/doctor/diagnose.h"
#include "tools/doctor/guard.h"

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  bool json = false;
  bool check = false;
  bool quick = false;
  std::string device = "cpu";
};

/// Runs before any other code of the program, since the CPU may lack the build's instructions.
[[gnu::constructor(101)]] void first() { doctor::explain_illegal_instructions(); }

std::vector<doctor::Checked> check_devices(const firn::Environment& environment) {
  using namespace std::chrono_literals;
  std::vector<doctor::Checked> all;
  const auto add = [&all](firn::Device device) {
    const doctor::Deadline deadline("the check of " + firn::to_string(device), 120s);
    const auto checked = doctor::check(device);
    all.insert(all.end(), checked.begin(), checked.end());
  };
  if (environment.cpu.kernels_run) add(firn::Device::cpu());
  const auto& devices = environment.cuda.devices;
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (environment.cuda.covers(devices[i])) add(firn::Device::cuda(static_cast<int>(i)));
  return all;
}

std::string verdict(const firn::Environment& environment, bool well) {
  if (!well) return "Something that was asked for is broken: see the lines above.";
  std::string devices;
  for (std::size_t i = 0; i < environment.cuda.devices.size(); ++i)
    if (environment.cuda.covers(environment.cuda.devices[i]))
      devices += " and cuda:" + std::to_string(i);
  return "firn can train here, on the CPU" + devices + ".";
}

int run(const Options& options) {
  using namespace std::chrono_literals;
  firn::set_warning_handler({});  // the findings contain the warnings
  firn::Environment environment;
  {
    const doctor::Deadline deadline(
        "the search for devices and libraries (--quick leaves out the CUDA driver)", 60s);
    environment = firn::environment({.open = !options.quick});
  }
  auto findings = doctor::diagnose(environment, {.cuda = options.device == "cuda"});
  std::vector<doctor::Checked> checks;
  if (options.check) {
    checks = check_devices(environment);
    const auto more = doctor::findings(checks);
    findings.insert(findings.end(), more.begin(), more.end());
  }
  const bool well = doctor::all_well(findings);
  if (options.json) {
    Json out = {{"environment", Json::parse(firn::to_json(environment))},
                {"findings", Json::parse(doctor::to_json(findings))},
                {"can_train", well}};
    if (options.check) {
      out["check"] = Json::array();
      for (const doctor::Checked& c : checks)
        out["check"].push_back({{"device", c.device},
                                {"what", c.what},
                                {"gflops", c.gflops},
                                {"error", c.error},
                                {"failure", c.failure},
                                {"ok", c.ok()}});
    }
    std::printf("%s\n", out.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    std::printf("%s\n%s\n", doctor::to_text(findings, firn::train::may_draw(STDOUT_FILENO)).c_str(),
                verdict(environment, well).c_str());
  }
  // If the report could not be written, the exit status must not be that of success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw std::runtime_error("standard output cannot be written");
  return well ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Says what this build of firn is and what this machine offers it: what is missing, "
      "why, and how to mend it.",
      "firn-doctor");
  app.add_flag("--json", options.json, "Print JSON: the facts and the findings");
  app.add_flag("--check", options.check,
               "Also compute: products beside plain loops, their speed, and a training step");
  app.add_flag("--quick", options.quick, "Do not ask the CUDA driver, and open no library of CUDA");
  app.add_option("--device", options.device, "What must be able to train: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.set_version_flag("--version", std::string(firn::version()) + " (" + firn::revision() + ")");
  app.footer(
      "Exit status: 0 if nothing is broken, 1 if something that was asked for is, 2 for wrong "
      "arguments.");
  try {
    app.parse(argc, argv);
    if (options.quick && options.device == "cuda")
      throw CLI::ValidationError("--device cuda", "contradicts --quick, which looks at no device");
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    return run(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "firn-doctor: %s\n", e.what());
    return 1;
  }
}
