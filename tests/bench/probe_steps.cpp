// The report of bench/gpu/probe keeps its lines whatever a step does.
#include "bench/gpu/probe/steps.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <unistd.h>

#include "support/catch.h"

namespace {

using probe::Line;
using probe::Step;

struct Report {
  std::string text;
  int bad = 0;
};

Report report_of(const std::vector<Step>& steps, unsigned seconds = 20) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  REQUIRE(file);
  Report report;
  report.bad = probe::run_steps(steps, file.get(), seconds);
  std::rewind(file.get());
  for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get()))
    report.text += static_cast<char>(c);
  return report;
}

int calls = 0;  // in this process

const Step kCounts{"calls", [](Line& line) { line.add(std::to_string(++calls)); }};

}  // namespace

TEST_CASE("probe: a step that throws ends its line, and the next goes on") {
  const auto report = report_of({kCounts,
                                 {"throws",
                                  [](Line& line) {
                                    line.add("before");
                                    throw std::runtime_error("two\nlines");
                                  }},
                                 kCounts});
  CHECK(report.text == "calls: 1\nthrows: before error: two lines\ncalls: 2\n");
  CHECK(report.bad == 1);
  CHECK(calls == 0);
}

TEST_CASE("probe: a step that dies leaves what it has printed, and the next has a new process") {
  const auto report = report_of({kCounts,
                                 {"dies",
                                  [](Line& line) {
                                    line.add("before");
                                    std::raise(SIGKILL);
                                  }},
                                 kCounts,
                                 {"exits", [](Line&) { _exit(7); }},
                                 kCounts});
  CHECK(report.text.find("calls: 1\ndies: before died of signal 9 (") == 0);
  CHECK(report.text.find(")\ncalls: 1\nexits: ended the process with status 7\ncalls: 1\n") !=
        std::string::npos);
  CHECK(report.bad == 2);
}

TEST_CASE("probe: a step that hangs is ended") {
  const auto report = report_of({{"hangs",
                                  [](Line&) {
                                    for (;;) pause();
                                  }},
                                 kCounts},
                                1);
  CHECK(report.text == "hangs: took more than 1 s\ncalls: 1\n");
  CHECK(report.bad == 1);
}

TEST_CASE("probe: what breaks the process is followed by a new one") {
  const auto breaks = [](Line& line) {
    line.cell([]() -> std::string { throw std::runtime_error("this cell"); });
    line.cell([] { return std::string("a"); }, 3);
    line.cell([]() -> std::string { throw probe::Broken("all of it"); });
  };
  const auto report = report_of({kCounts, {"breaks", breaks}, kCounts});
  CHECK(report.text == "calls: 1\nbreaks: this cell a   error: all of it\ncalls: 1\n");
  CHECK(report.bad == 1);
}

TEST_CASE("probe: a step that wants a process for itself has one") {
  Step alone = kCounts;
  alone.alone = true;
  const auto report = report_of({kCounts, kCounts, alone, alone, kCounts});
  CHECK(report.text == "calls: 1\ncalls: 2\ncalls: 1\ncalls: 1\ncalls: 1\n");
  CHECK(report.bad == 0);
}
