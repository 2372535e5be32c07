// The output of a run: a table on stdout for people, JSON lines in a file for other programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "firn/data/fashion_mnist.h"
#include "firn/memory.h"
#include "firn/optim/optimizer.h"
#include "options.h"

namespace sample {

/// The figures of one epoch.
struct EpochReport {
  int epoch = 0;             ///< counted from 1
  double train_loss = 0;     ///< mean over the epoch's samples, while the weights were changing
  double test_loss = 0;      ///< mean over the test set, after the epoch
  double accuracy = 0;       ///< share of test images classified correctly
  double seconds = 0;        ///< of training, without evaluation
  double test_seconds = 0;   ///< of evaluation
  double samples_per_s = 0;  ///< training samples / seconds
  std::int64_t effective_batch = 0;  ///< images per step
  double lr = 0;                     ///< of the next step
  double loss_scale = 1;
  std::int64_t applied_steps = 0;  ///< of the whole run so far
  std::int64_t skipped_steps = 0;  ///< of the whole run so far
  std::size_t peak_bytes = 0;      ///< most tensor memory held at once on the device
  /// The same for training alone, without evaluation, and per owner.
  firn::MemoryStats training_memory;
  std::size_t peak_rss_bytes = 0;  ///< most memory of the whole process so far
  std::vector<double> class_accuracy;
  std::vector<std::vector<std::int64_t>> confusion;  ///< by true class, then by predicted class
};

/// Prints the set-up and the table's head, a row per epoch, and the final figures.
void print_start(const Options& options, const firn::data::FashionMnist& set,
                 std::int64_t parameters, const firn::optim::Optimizer& optimizer);
void print_epoch(const EpochReport& r);
/// Before its last line comes the hash, unless it is empty.
void print_end(const EpochReport& last, const std::string& hash);
/// Prints the nodes of a graph, one a line, and their number.
void print_graph(const std::vector<std::string>& nodes);

/// A file with one JSON object per line. Each line is flushed at once, so that the file can be
/// followed and is complete however the run ends.
class RunLog {
 public:
  /// No log if `path` is empty.
  explicit RunLog(std::string path) : path_(std::move(path)) {}
  /// Begins the file. If `keep` > 0, it has these first bytes of the old file, if that is so long:
  /// what a run that is resumed had written. Throws IoError if the file cannot be created.
  void open(std::int64_t keep);
  /// Bytes written, with those kept; 0 without a log.
  std::int64_t bytes();

  /// The first record: settings, version, machine.
  void start(const Options& options, const firn::data::FashionMnist& set, std::int64_t parameters);
  /// Full-precision figures; a figure that is not finite is written as null.
  void epoch(const EpochReport& r);

 private:
  void write_line(const std::string& line);
  std::string path_;
  std::ofstream file_;
};

/// Most memory that the process has held, in bytes.
std::size_t peak_rss_bytes();

}  // namespace sample
