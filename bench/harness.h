// Parts that firn's and the peer's benchmark programs share: the data, the clock, and the line that
// they print. It includes no header of firn or of the peer: both sides do equal work on equal
// floats.
#pragma once

#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

inline double seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

/// Returns the middle value, or the mean of the two in the middle.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Prints `what <tab> median <tab> unit <tab> min <tab> max <tab> samples`.
inline void report(const std::string& what, const char* unit, std::vector<double> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  std::printf("%s\t%.6g\t%s\t%.6g\t%.6g\t%zu\n", what.c_str(), median(values), unit, *low, *high,
              values.size());
  std::fflush(stdout);
}

/// Returns several values of nanoseconds a call; each is the mean of enough calls to fill 20 ms.
template <class Fn>
std::vector<double> nanoseconds(Fn&& fn, int repeats = 9) {
  int calls = 1;
  for (;; calls *= 2) {
    const double start = seconds();
    for (int i = 0; i < calls; ++i) fn();
    if (seconds() - start >= 0.02) break;
  }
  std::vector<double> values;
  for (int r = 0; r < repeats; ++r) {
    const double start = seconds();
    for (int i = 0; i < calls; ++i) fn();
    values.push_back((seconds() - start) / calls * 1e9);
  }
  return values;
}

/// Reports `amount` (bytes, operations) of a call divided by its time: GB/s or GFLOP/s.
inline void report_rate(const std::string& what, const char* unit, double amount,
                        std::vector<double> nanoseconds) {
  for (double& v : nanoseconds) v = amount / v;
  report(what, unit, std::move(nanoseconds));
}

inline void report_ms(const std::string& what, std::vector<double> nanoseconds) {
  for (double& v : nanoseconds) v /= 1e6;
  report(what, "ms", std::move(nanoseconds));
}

inline double peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// A temporary folder, which the destructor removes.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "firn-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return (path / name).string(); }
};

/// The command line of every program:
///   [WORK] [--threads N] [--epochs N] [--images N] [--steps N] [--precision P] [--quick]
/// A program reads the options that it needs. Any other word on the line ends it with status 2.
struct Options {
  std::string work;
  int threads = 2, epochs = 3, steps = 40;
  std::int64_t images = 60000;    ///< number of training images
  std::string precision = "f32";  ///< f32, bf16, f16; firn's programs: see precision.h
  bool quick = false;             ///< true: fewer repeats

  Options(int argc, char** argv) {
    const auto value = [&](int i) {
      if (i >= argc) refuse(argv[i - 1]);
      return argv[i];
    };
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "--quick")
        quick = true;
      else if (word == "--threads")
        threads = std::atoi(value(++i));
      else if (word == "--epochs")
        epochs = std::atoi(value(++i));
      else if (word == "--images")
        images = std::atoll(value(++i));
      else if (word == "--steps")
        steps = std::atoi(value(++i));
      else if (word == "--precision")
        precision = value(++i);
      else if (work.empty() && word[0] != '-')
        work = word;
      else
        refuse(word);
    }
  }
  int repeats() const { return quick ? 3 : 15; }
  int all_steps() const { return epochs * steps; }
  /// Returns `name`, with the precision if it is not f32: mlp_sgd, mlp_sgd_bf16.
  std::string named(const std::string& name) const {
    return precision == "f32" ? name : name + "_" + precision;
  }

  [[noreturn]] static void refuse(const std::string& word) {
    std::fprintf(stderr, "cannot use '%s'; options: %s\n", word.c_str(),
                 "[WORK] [--threads N] [--epochs N] [--images N] [--steps N] [--precision P] "
                 "[--quick]");
    std::exit(2);
  }
};

/// FashionMNIST as floats in [0, 1], in file order, which are in memory before the clock starts.
struct Images {
  std::vector<float> pixels;  // [count, 784]
  std::vector<std::int64_t> labels;
  std::int64_t count = 0;
};

inline std::vector<unsigned char> read_gz(const std::string& path, std::size_t header,
                                          std::size_t bytes) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (!file) throw std::runtime_error("cannot open " + path + "; hint: scripts/setup data");
  std::vector<unsigned char> out(header + bytes);
  const int got = gzread(file, out.data(), static_cast<unsigned>(out.size()));
  gzclose(file);
  if (got != static_cast<int>(out.size())) throw std::runtime_error(path + " is truncated");
  out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(header));
  return out;
}

inline Images load_images(const char* part, std::int64_t count) {
  const char* dir = std::getenv("FIRN_DATA");
  const std::string base =
      std::string(dir ? dir : "/usr/share/datasets/fashion-mnist") + "/" + part;
  const auto pixels =
      read_gz(base + "-images-idx3-ubyte.gz", 16, static_cast<std::size_t>(count) * 784);
  const auto labels = read_gz(base + "-labels-idx1-ubyte.gz", 8, static_cast<std::size_t>(count));
  Images out;
  out.count = count;
  out.pixels.resize(pixels.size());
  for (std::size_t i = 0; i < pixels.size(); ++i)
    out.pixels[i] = static_cast<float>(pixels[i]) / 255.f;
  out.labels.assign(labels.begin(), labels.end());
  return out;
}

}  // namespace bench
