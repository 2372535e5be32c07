// The interface of a sample: its names and options, and a training. run() does the rest, and is all
// of a sample's main().
//
//   class Spirals : public Sample { ... training() makes model, batches, loss ... };
//   int main(int argc, char** argv) { Spirals spirals; return sample::run(spirals, argc, argv); }
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "firn/data/loader.h"
#include "firn/data/resident_batches.h"
#include "firn/dist/mesh.h"
#include "firn/dist/parallel/pipeline.h"
#include "firn/metrics/metric.h"
#include "firn/nn/module.h"
#include "firn/train/record.h"
#include "program/options.h"

namespace CLI {
class App;
}

namespace sample {

/// Batches of images on the device, or a Loader for anything else.
using Batches = std::variant<firn::data::ResidentBatches, firn::data::Loader>;

/// Options of the batches for training. Resident batches are micro-batches. A loader makes
/// micro-batches too, or whole batches if ranks or chunks divide them.
firn::data::LoaderOptions resident_options(const Options& options, firn::Device device);
firn::data::LoaderOptions loader_options(const Options& options, firn::Device device);

/// A sharded model, of which ranks have parts: --tensor-parallel and --pipeline.
class Sharded {
 public:
  virtual ~Sharded() = default;
  virtual const firn::dist::Mesh& mesh() const = 0;
  virtual firn::dist::Pipeline& pipeline() = 0;     ///< runs the whole model
  virtual std::int64_t num_parameters() const = 0;  ///< number for the whole model
  /// Returns the whole model with the current weights of all ranks. All ranks make the call.
  virtual std::unique_ptr<firn::nn::Module> whole() const = 0;
};

/// The training of one rank. When it is made, the random stream is at its seed.
class Training {
 public:
  virtual ~Training() = default;

  virtual std::string name() const = 0;   ///< name of the model
  virtual firn::nn::Module& model() = 0;  ///< the whole model, or this rank's stage of divided()
  virtual Sharded* sharded() { return nullptr; }

  virtual std::string data() const = 0;  ///< the set in one line
  /// Returns batches to train on, by resident_options() or loader_options() of `options`. Their
  /// micro-batches may be smaller than those with which the training was made.
  virtual Batches batches(const Options& options) = 0;
  virtual Batches& tests() = 0;
  /// Returns the loss for training, or that for a test.
  virtual firn::Loss loss(const firn::Tensor& output, const firn::Tensor& y, bool training) = 0;

  /// Returns the metrics over tests() that are columns of the table and of the log.
  virtual std::vector<firn::metrics::Metric*> figures() = 0;
  /// Returns further metrics that describe_epoch() and details() need.
  virtual std::vector<firn::metrics::Metric*> others() { return {}; }
  /// Adds the sample's options and set, and an epoch's members other than figures, to the log.
  virtual void describe_run(firn::train::Record& settings) const = 0;
  virtual void describe_epoch(firn::train::Record&) const {}

  /// Shows the model at the end, with the trained or loaded weights.
  virtual void show(firn::nn::Module&) {}
  /// Return lines with the last test's details, and its result in one line.
  virtual std::string details() const { return {}; }
  virtual std::string result() const = 0;
};

/// Texts with which the program describes a sample.
struct About {
  std::string program;         ///< name in errors and in the log
  std::string purpose;         ///< text for --help
  std::string one = {};        ///< a sample of the set: "image"
  std::int64_t most = 60'000;  ///< largest number of them in a step
  std::string blocks = {};   ///< part for --recompute: "the ResNet's blocks"; empty: no such option
  std::string sharded = {};  ///< the model that ranks can shard; empty: no such options
  bool graph = false;        ///< true if steps are graphs on a GPU, which --show-graph lists
};

/// A program that trains.
class Sample {
 public:
  virtual ~Sample() = default;
  virtual About about() const = 0;
  /// Adds the sample's own options.
  virtual void add_options(CLI::App& app) = 0;
  /// Called after parsing. Calls refuse() or check_contradiction() for invalid options.
  virtual void check(const Options&) {}
  /// Called once, before the ranks begin. Reads the files that may be missing.
  virtual void prepare(const Options&) {}
  /// Returns true if --epochs 0 tests the weights of --load.
  virtual bool tests_loaded() const { return true; }
  /// Makes the training; each rank calls it.
  virtual std::unique_ptr<Training> training(const Options& options, firn::Device device,
                                             const firn::dist::Group& group) const = 0;
};

/// Does all the work of main(). Returns the exit code: 0; 1 after an error, which is one line on
/// stderr; 130 if the run was interrupted; the parser's code for a mistake in the options.
int run(Sample& sample, int argc, char** argv);

}  // namespace sample
