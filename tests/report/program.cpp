// firn-report on logs of real runs: what it writes is read back and compared with every record.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "data/files.h"
#include "fit/small_runs.h"
#include "report/runs.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/program/manual.h"
#include "tools/report/page/html.h"

namespace firn::testing {
namespace {

/// Without printing a whole page if not.
bool has(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

std::string doubled_quotes(const std::string& text) {
  std::string out;
  for (const char c : text) out += std::string(c == '"' ? 2 : 1, c);
  return out;
}

TEST_CASE("report: page, CSV and events of real runs have the numbers of their logs", "[host]") {
  const test::TempFolder folder;
  const std::pair<const char*, void (*)(const std::string&)> runs[] = {
      {"plain", plain_run}, {"overflow", overflow_run}, {"gan", gan_run}, {"stopped", stopped_run}};
  for (const auto& [name, make] : runs) {
    CAPTURE(name);
    const std::string log = folder.file(std::string(name) + ".jsonl");
    const std::string page = folder.file(std::string(name) + ".html");
    const std::string tables = folder.file(std::string(name) + "_csv");
    const std::string events = folder.file(std::string(name) + "_events");
    make(log);
    const test::Ran made = report({log});
    CAPTURE(made.err);
    REQUIRE(made.exit_code == 0);
    CHECK(made.out == page + "\n");
    CHECK(faults({"page", page, log}) == "");
    REQUIRE(report({log, "--csv", tables, "--tensorboard", events}).exit_code == 0);
    CHECK(faults({"csv", tables, log}) == "");
    std::string event_file;
    for (const auto& entry : std::filesystem::directory_iterator(events))
      event_file = entry.path().string();
    CHECK(faults({"events", event_file, log}) == "");
    // Once more, the same bytes.
    const std::string before = contents(page);
    REQUIRE(report({log, "-o", page}).exit_code == 0);
    CHECK(contents(page) == before);
  }
}

TEST_CASE("report: the manual page has the options of --help", "[host]") {
  const auto options = test::options_of_help(report({"--help"}).out);
  CHECK(options.count("-o") == 1);
  CHECK(options.count("--tensorboard") == 1);
  CHECK(test::options_of_manual("src/tools/report/firn-report.1") == options);
}

TEST_CASE("report: several runs beside each other", "[host]") {
  const test::TempFolder folder;
  const std::string a = folder.file("a.jsonl"), b = folder.file("b.jsonl"),
                    gan = folder.file("gan.jsonl");
  plain_run(a);
  overflow_run(b);
  gan_run(gan);
  const std::string page = folder.file("all.html");
  REQUIRE(report({a, b, gan, "-o", page}).exit_code == 0);
  CHECK(faults({"page", page, a, b, gan}) == "");
  const std::string html = contents(page);
  CHECK(html.find("Settings that differ") < html.find("<h2 id=\"loss\""));
  CHECK(has(html, "optimizers.critic.clip_norm"));
  // One run beside itself: nothing differs.
  REQUIRE(report({a, a, "-o", page}).exit_code == 0);
  CHECK(has(contents(page), "All settings that the logs name are the same."));
  CHECK(faults({"page", page, a, a}) == "");
  const test::Ran many = report({a, a, a, a, a, a, a, a, a, "-o", page});
  CHECK(many.exit_code == 1);
  CHECK_THAT(many.err, test::contains("at most 8 runs"));
  REQUIRE(report({a, b, "--csv", folder.file("csv")}).exit_code == 0);
  CHECK(faults({"csv", folder.file("csv/1_a"), a}) == "");
  CHECK(faults({"csv", folder.file("csv/2_b"), b}) == "");
}

TEST_CASE("report: a planted overflow has one step, cause and parameter everywhere", "[host]") {
  const test::TempFolder folder;
  const std::string log = folder.file("run.jsonl");
  overflow_run(log);
  Json skip;
  for (const Json& r : records_of(log))
    if (r["record"] == "step" && r["applied"] == false) skip = r;
  REQUIRE(skip["step"] == 4);
  const std::string cause = skip["cause"], parameter = skip["parameter"];
  REQUIRE(parameter.find("hidden.weight") != std::string::npos);
  REQUIRE(report({log, "--csv", folder.file("csv"), "--tensorboard", folder.file("tb"), "-o",
                  folder.file("page.html")})
              .exit_code == 0);
  const test::Ran text = report({log, "--text"});
  CHECK_THAT(text.out, test::contains("skipped steps: 1"));
  CHECK_THAT(text.out, test::contains("after step 4, scale 1024: " + cause.substr(0, 40)));
  CHECK_THAT(text.out, test::contains("parameter " + parameter));
  CHECK(has(contents(folder.file("csv/steps.csv")), doubled_quotes(parameter)));
  // The rows of the page are compared with records by read_back.py; here, that the skip is one.
  const std::string html = contents(folder.file("page.html"));
  CHECK(has(html, "<tr><td>4<td>1<td>40<td"));
  CHECK(has(html, "<td class=t>" + report::escaped(parameter)));
  CHECK(has(html, "1 step was skipped."));
  CHECK(faults({"page", folder.file("page.html"), log}) == "");
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("tb"))) {
    CHECK(faults({"events", entry.path().string(), log}) == "");
    CHECK(has(contents(entry.path().string()), parameter));
  }
}

TEST_CASE("report: the text has the run in a screenful", "[host]") {
  const test::TempFolder folder;
  const std::string log = folder.file("run.jsonl");
  plain_run(log);
  const test::Ran text = report({log, "--text"});
  CAPTURE(text.out);
  CHECK(text.exit_code == 0);
  CHECK(!std::filesystem::exists(folder.file("run.html")));
  const std::vector<std::string> lines = test::lines_of(text.out);
  CHECK(lines.size() < 50);
  for (const std::string& line : lines) CHECK(line.size() < 125);
  const std::vector<Json> records = records_of(log);
  CHECK_THAT(text.out, test::contains("all epochs done"));
  CHECK_THAT(text.out, test::contains("12 applied steps, 0 skipped"));
  CHECK_THAT(text.out, test::contains("accuracy"));
  for (const Json& r : records)
    if (r["record"] == "epoch")
      CHECK_THAT(text.out,
                 test::contains(fmt::format("{:.5g}", r["validation_loss"].get<double>())));
  make_log({"--steps", "3000", "--epochs", "200", "--skip-every", "10"}, log);
  CHECK(test::lines_of(report({log, "--text"}).out).size() < 60);
}

TEST_CASE("report: what accumulation does is computed from the run's own numbers", "[host]") {
  const test::TempFolder folder;
  const std::string log = folder.file("run.jsonl");
  plain_run(log);
  double peak = 0, activations = 0;
  for (const Json& r : records_of(log)) {
    if (r["record"] != "epoch" || r["measured"]["training_peak_bytes"].get<double>() <= peak)
      continue;
    peak = r["measured"]["training_peak_bytes"];
    activations = r["measured"]["training_bytes_at_peak"]["activations"];
  }
  REQUIRE(report({log}).exit_code == 0);
  const std::string html = contents(folder.file("run.html"));
  const std::string guide = html.substr(html.find("<h2 id=\"accumulation\""));
  // 16 samples a step in 2 micro-batches of 8; in one piece, activations are twice what they were.
  CHECK(has(guide, "<th scope=row>run<td>16<td>2<td>8<td>1<td>4<td>12<td>"));
  CHECK(has(guide, "<th scope=row>1, in one piece<td>16<td>" +
                       bytes_to_string(static_cast<std::size_t>(2 * activations))));
  CHECK(has(guide, bytes_to_string(static_cast<std::size_t>(peak + activations)) + "<td>estimate"));
  CHECK(has(guide, "<strong>" + bytes_to_string(static_cast<std::size_t>(peak)) +
                       "</strong><td>measured"));
}

TEST_CASE("report: sizes of pages", "[host]") {
  const test::TempFolder folder;
  const std::string log = folder.file("run.jsonl"), page = folder.file("run.html");
  // 40,961 records fill the ranges as far as they go.
  for (const char* steps : {"1000", "1024", "20000", "40959"}) {
    CAPTURE(steps);
    make_log({"--steps", steps, "--epochs", "20"}, log);
    REQUIRE(report({log}).exit_code == 0);
    CHECK(faults({"page", page, log}) == "");
  }
  make_log({"--steps", "8192", "--skip-every", "2", "--epochs", "400", "--classes", "30"}, log);
  REQUIRE(report({log}).exit_code == 0);
  CHECK(faults({"page", page, log}) == "");
  CHECK(has(contents(page), "300 of 4,0"));
  make_log({"--steps", "4000", "--epochs", "4000", "--no-steps", "--classes", "40"}, log);
  REQUIRE(report({log}).exit_code == 0);
  CHECK(faults({"page", page, log}) == "");
  make_log({"--steps", "6000", "--optimizers", "a,b,c,d"}, log);
  REQUIRE(report({log, log, log, log, log, log, log, log}).exit_code == 0);
  CHECK(faults({"page", page, log, log, log, log, log, log, log, log}) == "");
}

}  // namespace
}  // namespace firn::testing
