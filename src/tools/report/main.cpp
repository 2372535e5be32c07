// firn-report: shows the log of a run (docs/records.md) as a page, as text, as CSV or as an event
// file of TensorBoard.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "firn/error.h"
#include "tools/report/log/format.h"
#include "tools/report/log/run.h"
#include "tools/report/page/page.h"
#include "tools/report/write/events.h"
#include "tools/report/write/file.h"
#include "tools/report/write/tables.h"
#include "tools/report/write/text.h"

namespace firn::report {
namespace {

struct Options {
  std::vector<std::string> logs;
  std::string page, csv, tensorboard;
  bool text = false;
};

/// Returns the name of the page: run.jsonl becomes run.html.
std::string page_beside(const std::string& log) {
  const std::filesystem::path path(log);
  const bool replace = path.extension() == ".jsonl" || path.extension() == ".json";
  return replace ? std::filesystem::path(path).replace_extension(".html").string() : log + ".html";
}

/// Throws if the page would replace one of its own logs.
void refuse_own_log(const std::string& page, const std::vector<std::string>& logs) {
  for (const std::string& log : logs) {
    std::error_code none;
    if (std::filesystem::equivalent(page, log, none))
      throw IoError("report", page, "is the log itself", "name another file with -o");
  }
}

/// Returns a folder for each log, if there are several.
std::string folder_for(const std::string& folder, const std::vector<Run>& runs, std::size_t i) {
  if (runs.size() == 1) return folder;
  std::string name;
  for (const char c : runs[i].label) name += c == '/' ? '_' : c;
  return folder + "/" + std::to_string(i + 1) + "_" + name;
}

void run(const Options& o) {
  std::vector<Run> runs;
  for (const std::string& log : o.logs) runs.push_back(read_run(log));
  name_runs(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (o.text) std::fputs(((i > 0 ? "\n" : "") + text_report(runs[i])).c_str(), stdout);
    if (!o.csv.empty())
      for (const std::string& path : write_csv(runs[i], folder_for(o.csv, runs, i)))
        std::printf("%s\n", visible(path, 4096).c_str());
    if (!o.tensorboard.empty())
      std::printf("%s\n",
                  visible(write_events(runs[i], folder_for(o.tensorboard, runs, i)), 4096).c_str());
  }
  const bool other = o.text || !o.csv.empty() || !o.tensorboard.empty();
  if (other && o.page.empty()) return;
  if (runs.size() > kMostRuns)
    throw Error("report",
                "a page shows at most " + std::to_string(kMostRuns) + " runs, not " +
                    std::to_string(runs.size()),
                "name fewer logs");
  const std::string path = o.page.empty() ? page_beside(o.logs[0]) : o.page;
  refuse_own_log(path, o.logs);
  OutputFile file(path);
  file.write(page(runs));
  file.commit();
  std::printf("%s\n", visible(path, 4096).c_str());
}

}  // namespace
}  // namespace firn::report

int main(int argc, char** argv) {
  firn::report::Options o;
  CLI::App app{
      "Shows runs of firn by their logs (LogOptions::path of train::fit()). Without --text, --csv "
      "and "
      "--tensorboard it writes a page."};
  app.add_option("logs", o.logs, "logs of runs; a page shows up to 8 beside each other")
      ->required();
  app.add_option("-o,--output", o.page, "the page [the first log's name with .html]");
  app.add_flag("--text", o.text, "print the run in a screenful");
  app.add_option("--csv", o.csv, "write steps.csv and epochs.csv into this folder");
  app.add_option("--tensorboard", o.tensorboard, "write an event file into this folder");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 1;
  }
  try {
    firn::report::run(o);
    if (std::fflush(stdout) == 0) return 0;
    std::fprintf(stderr, "firn-report: stdout cannot be written to\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "firn-report: %s\n", firn::report::visible(e.what(), 4096).c_str());
  }
  return 1;
}
