// Traces as files.
#include <zlib.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data/files.h"
#include "support/thread_check.h"
#include "trace/profiled.h"

using namespace firn;
using namespace firn::testing;
using Json = nlohmann::json;

namespace {

std::string read_gzip(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  REQUIRE(file);
  CHECK(gzdirect(file) == 0);
  std::string out;
  char buffer[4096];
  for (int n; (n = gzread(file, buffer, sizeof(buffer))) > 0;)
    out.append(buffer, static_cast<std::size_t>(n));
  CHECK(gzclose(file) == Z_OK);
  return out;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Complete events nest in every track, as a viewer demands.
void check_events(const Json& trace) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> open;
  std::map<std::pair<int, int>, double> last;
  for (const Json& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    const double start = e.at("ts"), end = start + e.at("dur").get<double>();
    const std::pair track{e.at("pid").get<int>(), e.at("tid").get<int>()};
    REQUIRE(start >= last[track]);
    last[track] = start;
    auto& stack = open[track];
    constexpr double kRounding = 1e-4;  // of us
    while (!stack.empty() && stack.back().second <= start + kRounding) stack.pop_back();
    if (!stack.empty()) REQUIRE(end <= stack.back().second + kRounding);
    stack.emplace_back(start, end);
  }
}

}  // namespace

TEST_CASE("trace: a file in Chrome's format has every span, nested, with counters", "[host]") {
  const test::TempFolder folder;
  const std::string path = folder.file("trace.json");
  manual_seed(2);
  ProfiledNet net;
  net.to(f16);
  optim::AdamW opt(net.parameters(), {.lr = 1e-3},
                   {.loss_scale = optim::LossScale::dynamic({.init = 1024})});
  Profile profile({.trace = path});
  for (int i = 0; i < 4; ++i) {
    const Tensor x = randn({8, 8}, f16);
    opt.backward(sum(net(x).to(f32)) * (i == 2 ? 1e30 : 1.0), 8);
    opt.step();
  }
  profile.stop();
  const Json trace = Json::parse(read(path));
  check_events(trace);
  std::size_t complete = 0;
  std::vector<double> scales, memory;
  std::set<std::string> names, categories;
  for (const Json& e : trace.at("traceEvents")) {
    if (e.at("ph") == "X") {
      ++complete;
      names.insert(e.at("name"));
      categories.insert(e.at("cat"));
    } else if (e.at("ph") == "C") {
      (e.at("name") == "loss scale, AdamW" ? scales : memory).push_back(e.at("args").at("value"));
    }
  }
  CHECK(complete == profile.log().spans.size());
  CHECK(categories == std::set<std::string>{"phase", "module", "operation", "gradient", "kernel"});
  CHECK(names.count("ProfiledNet.hidden") == 1);
  CHECK(names.count("optimizer step") == 1);
  // The scale that was in force in each step: the third one has overflowed.
  CHECK(scales == std::vector<double>{1024, 1024, 1024, 512});
  CHECK(memory.size() > 4);
  CHECK(trace.at("otherData").at("wall_ns") == profile.log().ns);
}

TEST_CASE("trace: .gz is compressed, and has the same text", "[host]") {
  const test::TempFolder folder;
  const Tensor x = randn({4, 4});
  Profile profile;
  for (int i = 0; i < 5000; ++i) (void)(x + x);
  profile.stop();
  profile.write_trace(folder.file("a.json"));
  profile.write_trace(folder.file("b.json.gz"));
  const std::string plain = read(folder.file("a.json"));
  CHECK(read_gzip(folder.file("b.json.gz")) == plain);
  CHECK(read(folder.file("b.json.gz")).size() < plain.size() / 5);
  check_events(Json::parse(plain));
}

TEST_CASE("trace: ranks and workers have tracks of their own", "[host]") {
  const test::TempFolder folder;
  Profile profile({.trace = folder.file("t.json")});
  dist::run_local(2, [](const dist::Group& group) {
    const Tensor x = full({8}, 1.0 + group.rank());
    group.all_reduce(x);
    THREAD_CHECK(x[0].item() == 3);
  });
  data::Loader loader(profiled_rows(40), {.batch = 4, .workers = 2});
  for (const auto& batch : loader.epoch(0)) CHECK(batch.size() == 4);
  profile.stop();
  check_nesting(profile.log());
  std::set<std::uint32_t> reduced, made;
  for (const runtime::SpanRecord& s : profile.log().spans) {
    if (std::string_view(s.name) == "all_reduce") reduced.insert(s.thread);
    if (std::string_view(s.name) == "make batch") made.insert(s.thread);
  }
  CHECK(reduced.size() == 2);
  CHECK(made.count(0) == 0);
  CHECK_FALSE(made.empty());
  check_events(Json::parse(read(folder.file("t.json"))));
}

TEST_CASE("trace: names of any bytes give valid JSON", "[host]") {
  const test::TempFolder folder;
  Profile profile({.trace = folder.file("t.json")});
  { const Range range("a \"quoted\"\\ name\n\x01 \xc3\xa9"); }
  { const Range range("no UTF-8: \xff\xfe"); }
  { const Range range(""); }
  profile.stop();
  const Json trace = Json::parse(read(folder.file("t.json")));
  std::set<std::string> names;
  for (const Json& e : trace.at("traceEvents"))
    if (e.at("ph") == "X") names.insert(e.at("name"));
  CHECK(names.count("a \"quoted\"\\ name\n\x01 \xc3\xa9") == 1);
  CHECK(names.size() == 3);
}

TEST_CASE("trace: a file that cannot be written is an error before anything is recorded",
          "[host]") {
  const test::TempFolder folder;
  CHECK_THROWS_AS(Profile({.trace = folder.file("none/t.json")}), IoError);
  CHECK_THROWS_AS(Profile({.trace = folder.path().string()}), IoError);
  Profile profile;  // none is running
  (void)(randn({2}) + 1);
  profile.stop();
  CHECK_THROWS_AS(profile.write_trace(folder.file("none/t.json")), IoError);
  CHECK(row(profile.rows(), "add").calls == 1);
}

TEST_CASE("trace: an existing file stays until the new one is complete", "[host]") {
  const test::TempFolder folder;
  const std::string path = folder.file("t.json");
  std::ofstream(path) << "old";
  {
    Profile profile({.trace = path});
    CHECK(read(path) == "old");
  }
  CHECK(Json::parse(read(path)).contains("traceEvents"));
}
