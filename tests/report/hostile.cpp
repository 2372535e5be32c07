// Logs that are cut off, broken, hostile or huge: firn-report shows what there is, or says in a
// line what is wrong, and never lets a text of the log become markup.
#include <algorithm>
#include <filesystem>
#include <random>

#include "data/files.h"
#include "fit/small_runs.h"
#include "report/runs.h"
#include "support/catch.h"
#include "support/matchers.h"

namespace firn::testing {
namespace {

constexpr const char* kHostile[] = {
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "\" onload=\"alert(1)",
    "' style='x",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "\x1b[2J\x07\x01",
    "\u202etxet\u2066",
    "=cmd|' /C calc'!A0",
    "a,\"b\"\r\nc",
    "javascript:alert(1)",
    "https://example.org/x.js",
};

/// A log whose every text is `text`.
std::string hostile_log(const std::string& text) {
  using train::Record;
  const std::vector<Record> modules = {Record()
                                           .add("name", text)
                                           .add("type", text)
                                           .add("parameters", 5)
                                           .add("summary", text + "\n" + text)};
  const std::vector<Record> optimizers = {Record()
                                              .add("name", text)
                                              .add("kind", text)
                                              .add("description", text)
                                              .add("accumulate", 2)
                                              .add("clip_norm", 1.0)
                                              .add("device", text)};
  std::string out = Record("run")
                        .add("schema", 1)
                        .add("modules", std::span<const Record>(modules))
                        .add("optimizers", std::span<const Record>(optimizers))
                        .add("settings", Record().add(text, text).add("x", Record().add(text, 1)))
                        .add("measured", Record().add("time", text))
                        .text() +
                    "\n";
  for (int i = 1; i <= 3; ++i)
    out += Record("step")
               .add("optimizer", text)
               .add("step", i)
               .add("epoch", 1)
               .add("samples", i)
               .add("applied", i != 2)
               .add("loss", 1.0 / i)
               .add("norm", 2.0)
               .add("lr", 0.1)
               .add("loss_scale", 8.0)
               .add("micro_steps", 2)
               .add("skipped_steps", i > 1)
               .add("cause", text)
               .add("parameter", text)
               .text() +
           "\n";
  const std::vector<std::string> classes = {text, text};
  out += Record("epoch")
             .add("epoch", 1)
             .add("samples", 3)
             .add("train_loss", 0.5)
             .add("validation_loss", 0.6)
             .add("metrics", Record().add(text, 0.25))
             .add("applied_steps", 2)
             .add("skipped_steps", 1)
             .add("classes", std::span<const std::string>(classes))
             .add("measured",
                  Record()
                      .add("seconds", 1.5)
                      .add("validation_seconds", 0.5)
                      .add("samples_per_second", 2.0)
                      .add("peak_bytes", 10)
                      .add("training_peak_bytes", 9)
                      .add("training_bytes_at_peak", Record().add(text, 4).add("activations", 5)))
             .text();
  out.pop_back();
  out += ",\"details\":{\"confusion\":[[1,2],[3,4]]}}\n";
  return out + Record("end").add("ended", text).add("epochs", 1).text() + "\n";
}

TEST_CASE("report: no text of a log becomes markup or a control byte", "[host]") {
  const test::TempFolder folder;
  const std::string log = folder.file("run.jsonl"), page = folder.file("run.html");
  for (const char* text : kHostile) {
    CAPTURE(text);
    write_file(log, hostile_log(text));
    REQUIRE(report({log}).exit_code == 0);
    CHECK(faults({"page", page, log}) == "");
    const test::Ran shown =
        report({log, "--text", "--csv", folder.file("csv"), "--tensorboard", folder.file("tb")});
    REQUIRE(shown.exit_code == 0);
    for (const char c : shown.out) CHECK((c == '\n' || static_cast<unsigned char>(c) >= 0x20));
    CHECK(faults({"csv", folder.file("csv"), log}) == "");
  }
}

TEST_CASE("report: random texts of special characters stay texts", "[host]") {
  const test::TempFolder folder;
  const std::string log = folder.file("run.jsonl"), page = folder.file("run.html");
  std::mt19937 draw(3);
  const std::string_view parts[] = {
      "<",    ">",    "&",      "\"",     "'", "/", "=", "script", "style", "on", "--",  "!",  "\\",
      "\x02", "\x7f", "\u2028", "\u202e", "ä", "𝄞", " ", "\n",     "{",     "}",  "-->", "]]", "x"};
  for (int i = 0; i < 12; ++i) {
    std::string text;
    for (int k = 0; k < 30; ++k) text += parts[draw() % std::size(parts)];
    CAPTURE(text);
    write_file(log, hostile_log(text));
    REQUIRE(report({log}).exit_code == 0);
    CHECK(faults({"page", page, log}) == "");
  }
}

TEST_CASE("report: logs that are cut off or broken show what there is", "[host]") {
  const test::TempFolder folder;
  const std::string log = folder.file("run.jsonl"), page = folder.file("run.html");
  plain_run(log);
  const std::string whole = contents(log);
  const std::size_t last = whole.rfind("{\"record\":\"end\"");
  // A run under way, and a last line in every state.
  for (const std::size_t size : {last, last + 1, last + 20, whole.size() - 2, whole.size() - 1}) {
    CAPTURE(size);
    write_file(log, whole.substr(0, size));
    REQUIRE(report({log}).exit_code == 0);
    CHECK(faults({"page", page, log}) == "");
    const std::string text = report({log, "--text"}).out;
    const bool ended = size >= whole.size() - 1;
    CHECK((text.find("no end record: under way, or killed") != std::string::npos) == !ended);
    CHECK((text.find("cut off") != std::string::npos) == (size > last && !ended));
  }
  // Only the first record, and only the steps.
  write_file(log, whole.substr(0, whole.find('\n') + 1));
  REQUIRE(report({log}).exit_code == 0);
  CHECK(faults({"page", page, log}) == "");
  write_file(log, whole.substr(whole.find('\n') + 1));
  REQUIRE(report({log}).exit_code == 0);
  CHECK(faults({"page", page, log}) == "");
  CHECK(contents(page).find("The record &quot;run&quot; is missing") != std::string::npos);
  // What is unknown, and what has other types.
  const std::string strange =
      "\n  "
      "\n[1,2]\n\"text\"\n{\"record\":5}\n{\"no\":\"kind\"}\nnonsense\n{\"record\":\"mine\",\"x\":["
      "{}]}\n"
      "{\"record\":\"step\",\"step\":\"x\",\"loss\":{},\"lr\":[],\"applied\":3,\"measured\":7}\n"
      "{\"record\":\"step\",\"step\":null,\"loss\":null}\n{\"record\":\"step\"}\n"
      "{\"record\":\"epoch\",\"metrics\":[1],\"measured\":{\"training_bytes_at_peak\":3},"
      "\"confusion\":[[1],[2]]}\n"
      "{\"record\":\"epoch\",\"epoch\":null,\"train_loss\":null,\"confusion\":[[null]],\"classes\":"
      "[3]}\n"
      "{\"record\":\"end\",\"ended\":4}\n{\"record\":\"run\",\"modules\":{},\"optimizers\":[7,{}],"
      "\"settings\":9}\n";
  write_file(log, strange);
  REQUIRE(report({log}).exit_code == 0);
  write_file(log, strange + whole.substr(whole.find('\n') + 1));
  const test::Ran ran = report({log});
  CAPTURE(ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(faults({"page", page, log}) == "");
  CHECK(contents(page).find("5 lines are no records") != std::string::npos);
  // Two runs in one file: the last one.
  write_file(log, whole + whole);
  REQUIRE(report({log, "--csv", folder.file("csv")}).exit_code == 0);
  CHECK(faults({"csv", folder.file("csv"), log}) == "");
  CHECK_THAT(report({log, "--text"}).out, test::contains("holds 2 runs"));
}

TEST_CASE("report: numbers of every size, and none", "[host]") {
  const test::TempFolder folder;
  const std::string log = folder.file("run.jsonl"), page = folder.file("run.html");
  const char* const numbers[] = {
      "1e308",   "-1e308", "5e-324", "0", "-0.0", "null", "18446744073709551615",
      "9.9e307", "1e-310", "true",   "1", "1e999"};
  for (const char* a : numbers) {
    std::string text = "{\"record\":\"run\",\"epochs\":1}\n";
    int step = 0;
    for (const char* b : numbers) {
      const std::string n = std::string(step++ % 2 == 0 ? a : b);
      text += "{\"record\":\"step\",\"step\":" + std::to_string(step) + ",\"loss\":" + n +
              ",\"norm\":" + b + ",\"lr\":" + a + ",\"loss_scale\":" + n + "}\n";
      text += "{\"record\":\"epoch\",\"epoch\":" + std::to_string(step) + ",\"train_loss\":" + n +
              ",\"validation_loss\":" + a + ",\"applied_steps\":" + std::to_string(step) +
              ",\"metrics\":{\"m\":" + b + "},\"measured\":{\"seconds\":" + n +
              ",\"validation_seconds\":" + b + ",\"training_peak_bytes\":" + a +
              ",\"training_bytes_at_peak\":{\"activations\":" + n + "}}}\n";
    }
    CAPTURE(a);
    write_file(log, text);
    const test::Ran ran = report({log});
    CAPTURE(ran.err);
    REQUIRE(ran.exit_code == 0);
    CHECK(faults({"page", page, log}) == "");
    CHECK(report({log, "--text", "--csv", folder.file("csv"), "--tensorboard", folder.file("tb")})
              .exit_code == 0);
    CHECK(faults({"csv", folder.file("csv"), log}) == "");
  }
}

TEST_CASE("report: a log of random bytes and of broken records never ends the program", "[host]") {
  const test::TempFolder folder;
  const std::string log = folder.file("run.jsonl"), good = folder.file("good.jsonl");
  overflow_run(good);
  const std::string whole = contents(good);
  std::mt19937 draw(11);
  for (int i = 0; i < 60; ++i) {
    std::string text = whole;
    for (int k = 0; k < 1 + i % 20; ++k) text[draw() % text.size()] = static_cast<char>(draw());
    write_file(log, text);
    const test::Ran ran = report({log, "-o", folder.file("page.html"), "--text"});
    CAPTURE(i, ran.err);
    CHECK((ran.exit_code == 0 || ran.exit_code == 1));
  }
  // Deep nesting and a long line.
  write_file(log, "{\"record\":\"run\",\"settings\":" + std::string(2'000'000, '[') + "\n" + whole);
  CHECK(report({log}).exit_code == 0);
  write_file(log, "{\"record\":\"run\",\"settings\":" + std::string(2'000'000, '[') +
                      std::string(2'000'000, ']') + "}\n" + whole);
  CHECK(report({log}).exit_code == 0);
  write_file(log, "{\"record\":\"run\",\"settings\":{\"x\":\"" + std::string(20'000'000, 'x') +
                      "\"}}\n" + whole);
  CHECK(report({log}).exit_code == 0);
  CHECK(std::filesystem::file_size(folder.file("run.html")) < 400'000);
  write_file(log,
             "{\"record\":\"run\",\"settings\":{\"x\":\"" + std::string(8'000'000, 'x') + "\"}}\n");
  CHECK(report({log}).exit_code == 0);
  CHECK(std::filesystem::file_size(folder.file("run.html")) < 400'000);
}

TEST_CASE("report: errors say what is wrong, in a line, and leave files as they were", "[host]") {
  const test::TempFolder folder;
  const std::string log = folder.file("run.jsonl"), other = folder.file("other");
  const auto fails = [](const std::vector<std::string>& arguments, const char* with) {
    const test::Ran ran = report(arguments);
    CAPTURE(ran.err);
    CHECK(ran.exit_code == 1);
    CHECK_THAT(ran.err, test::contains(with));
    CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') <= 2);
  };
  fails({folder.file("none.jsonl")}, "No such file");
  fails({folder.path().string()}, "no plain file");
  write_file(other, "");
  fails({other}, "is empty");
  write_file(other, "no log\nat all\n");
  fails({other}, "has no record of a run among 0 lines that are records and 2 that are none");
  fails({}, "logs is required");
  fails({other, "--nonsense"}, "nonsense");
  stopped_run(log);
  fails({log, "-o", folder.file("no/page.html")}, "No such file");
  fails({log, "-o", log}, "is the log itself");
  fails({log, "--csv", log + "/x"}, "is no folder");
  const std::string page = folder.file("run.html");
  REQUIRE(report({log}).exit_code == 0);
  const std::string before = contents(page);
  if (std::filesystem::exists("/dev/full")) fails({log, "-o", "/dev/full"}, "written to its end");
  CHECK(contents(page) == before);
  const std::vector<Json> records = records_of(log);
  CHECK(records.size() == 3);
  CHECK_THAT(report({log, "--text"}).out, test::contains("by a callback"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    CHECK(entry.path().string().find(".part-") == std::string::npos);
}

}  // namespace
}  // namespace firn::testing
