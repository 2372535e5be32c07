// Files of runs whose state ranks divide: each rank writes its parts, and the bytes are those of
// one rank.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "data/files.h"
#include "dist/zero/zero.h"
#include "firn/io/checkpoints.h"
#include "firn/io/run.h"
#include "io/run/parts_file.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

/// While alive, ranks send rank 0 their parts, as if they had no file in common.
class NoCommonFile {
 public:
  explicit NoCommonFile(bool on) { io::ranks_open_one_file() = !on; }
  ~NoCommonFile() { io::ranks_open_one_file() = true; }
  NoCommonFile(const NoCommonFile&) = delete;
  NoCommonFile& operator=(const NoCommonFile&) = delete;
};

std::string bytes_of_file(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

/// A kernel in channels-last order, whose elements are not in row-major order.
struct Mixed : nn::Module {
  nn::Conv2d conv{2, 4, 3, {.padding = 1}};
  nn::Linear in{4 * 9, 33}, out{33, 3};
  FIRN_MEMBERS(conv, in, out)
  Mixed() { conv.weight = nn::Parameter(conv.weight.channels_last()); }
  Tensor forward(const Tensor& x) override {
    return out(gelu(in(flatten(relu(conv(x.reshape({x.size(0), 2, 3, 3}))), 1))));
  }
};

using Maker = std::function<OptimizerPtr(nn::Module&, const optim::StepOptions&)>;
std::vector<std::pair<const char*, Maker>> makers() {
  const auto of = [](const OptimizerKind& k) { return std::pair(k.name, k.make); };
  std::vector<std::pair<const char*, Maker>> out;
  for (const OptimizerKind& k : all_kinds())
    for (const char* name : {"AdamW", "Muon", "Adafactor", "LAMB"})
      if (std::string(k.name) == name) out.push_back(of(k));
  out.push_back(of(kind<optim::AdamW>(
      "AdamW, 8 bits", optim::AdamWOptions{.lr = 1e-2, .state = optim::StatePrecision::bits8})));
  return out;
}

TEST_CASE("[S33][S39][S43] zero: ranks write the file of one rank, byte by byte", "[host]") {
  const test::TempFolder folder;
  const SmallBuckets buckets(1000);
  for (const auto& maker : makers())
    for (const DType dtype : {f32, f16}) {
      const char* const name = maker.first;
      const auto save = [&](const Group& group, int zero, const std::string& path) {
        manual_seed(3);
        Mixed net;
        net.to(dtype);
        const OptimizerPtr opt = maker.second(net, {.ema = 0.9, .exact = {.chunk = 4}});
        distribute(*opt, group, {.zero = zero});
        for (int step = 0; step < 2; ++step) {
          const Rows rows(12, 18, 3, 40 + static_cast<std::uint64_t>(step));
          opt->run_batch(12, 4, [&, &net = net](std::int64_t first, std::int64_t last) {
            return cross_entropy(net(rows.x.slice(0, first, last).to(dtype)),
                                 rows.y.slice(0, first, last));
          });
        }
        io::save_run(path, {net, *opt});
      };
      const std::string one = folder.file("one");
      save(Group(), 0, one);
      const std::string expected = bytes_of_file(one);
      for (const int zero : {1, 2, 3})
        for (const bool apart : {false, true}) {
          CAPTURE(name, dtype, zero, apart);
          const NoCommonFile files(apart);
          const std::string path = folder.file("ranks");
          dist::run_local(3, [&, &save = save](const Group& g) { save(g, zero, path); });
          CHECK(bytes_of_file(path) == expected);
        }
    }
}

TEST_CASE("[S38][S43] zero 3: a run is saved and loaded without the memory of a whole", "[host]") {
  const test::TempFolder folder;
  constexpr int kRanks = 4, kLayers = 12;
  constexpr std::int64_t kWidth = 192;
  const SmallBuckets buckets(4 * kWidth * (kWidth + 1));
  std::size_t kept = 0, saving = 0, loading = 0;
  dist::run_local(kRanks, [&](const Group& group) {
    manual_seed(1);
    nn::Sequential net;
    for (int i = 0; i < kLayers; ++i) net.push_back(nn::Linear(kWidth, kWidth));
    optim::AdamW opt(net.parameters(), {.lr = 1e-3});
    distribute(opt, group, {.zero = 3});
    group.barrier();
    if (group.rank() == 0) {
      release_cached_memory();
      reset_peak_memory();
      kept = memory_stats().total.current;
    }
    group.barrier();
    io::save_run(folder.file("run"), {net, opt});
    group.barrier();
    if (group.rank() == 0) {
      saving = memory_stats().total.peak - kept;
      reset_peak_memory();
    }
    group.barrier();
    io::load_run(folder.file("run"), {net, opt});
    group.barrier();
    if (group.rank() == 0) loading = memory_stats().total.peak - kept;
  });
  CAPTURE(kept, saving, loading);
  CHECK(saving * 50 < kept);
  CHECK(loading * 50 < kept);  // the file is mapped
}

TEST_CASE("[S42][S43] zero: a save that fails on a rank fails on all, and the next one works",
          "[host]") {
  const test::TempFolder folder;
  for (const int zero : {1, 3})
    for (const bool apart : {false, true}) {
      CAPTURE(zero, apart);
      const NoCommonFile files(apart);
      const std::string path = folder.file("run");
      const auto errors = errors_on_ranks(3, [&](const Group& group) {
        manual_seed(1);
        SmallMlp net;
        optim::AdamW opt(net.parameters(), {.lr = 1e-2});
        distribute(opt, group, {.zero = zero});
        io::save_run(path, {net, opt});
        group.barrier();
        const std::string old = group.rank() == 0 ? bytes_of_file(path) : "";
        bool thrown = false;
        try {
          io::save_run(folder.file("missing/run"), {net, opt});
        } catch (const Error& e) {
          thrown = mentions(e.what(), {group.rank() == 0 ? "missing/run" : "rank 0 has failed"});
        }
        if (!thrown) throw Error("test", "no error of a folder that is not there");
        thrown = false;
        const io::RunPart part(group.rank() == 1 ? "other" : "optim", opt);
        try {
          io::save_run(path, {net, part});
        } catch (const Error& e) {
          thrown = mentions(e.what(), {group.rank() == 1 ? "rank 1 has parts of other entries"
                                                         : "rank 1 has failed"});
        }
        if (!thrown) throw Error("test", "no error of other entries");
        if (group.rank() == 0 && bytes_of_file(path) != old)
          throw Error("test", "the file changed");
        io::save_run(path, {net, opt});
        group.barrier();
        if (group.rank() == 0 && bytes_of_file(path) != old) throw Error("test", "another file");
        io::load_run(path, {net, opt});
      });
      for (const std::string& e : errors) CHECK(e.empty());
      for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
        CHECK(entry.path().filename() == "run");  // no left-overs
    }
}

TEST_CASE("[S33][S43] zero: checkpoints of divided state, written beside and at once", "[host]") {
  const test::TempFolder folder;
  const SmallBuckets buckets(400);
  for (const bool async : {false, true}) {
    const std::string path = folder.file(async ? "beside" : "once");
    const auto weights = [&](const Group& group, bool resumes) {
      manual_seed(1);
      SmallMlp net(f64);
      optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = 4}});
      distribute(opt, group, {.zero = resumes ? 2 : 3});
      if (group.rank() == 0) io::Checkpoints(path, {.async = async});  // makes the folder
      group.host().barrier();
      io::Checkpoints checkpoints(path, {.async = async});
      if (resumes && !checkpoints.resume({net, opt})) throw Error("test", "nothing to resume");
      for (int step = resumes ? 2 : 0; step < 4; ++step) {
        const Rows rows(12, 7, 3, 70 + static_cast<std::uint64_t>(step), f64);
        opt.run_batch(12, 4, [&](std::int64_t first, std::int64_t last) {
          return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
        });
        if (step == 1 && !resumes) checkpoints.save(2, {net, opt}, 0.5);
      }
      checkpoints.wait();
      return weights_of(opt);
    };
    const auto whole =
        on_ranks<std::vector<double>>(3, [&](const Group& g) { return weights(g, false); });
    const auto resumed =
        on_ranks<std::vector<double>>(2, [&](const Group& g) { return weights(g, true); });
    CHECK(resumed[0] == whole[0]);
  }
}

}  // namespace
}  // namespace firn::testing
