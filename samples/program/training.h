// What a sample fills in: its names and options, and a training of them. run() does the rest, and
// is all of a sample's main().
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

/// Images on the device, or a Loader for anything else.
using Batches = std::variant<firn::data::ResidentBatches, firn::data::Loader>;

/// How batches for training are made: what resident ones are asked for, micro-batches; and what a
/// loader is asked for, whole batches if ranks or quanta divide them.
firn::data::LoaderOptions resident_options(const Options& options, firn::Device device);
firn::data::LoaderOptions loader_options(const Options& options, firn::Device device);

/// A model of which ranks have parts: --tensor-parallel and --pipeline.
class Divided {
 public:
  virtual ~Divided() = default;
  virtual const firn::dist::Mesh& mesh() const = 0;
  virtual firn::dist::Pipeline& pipeline() = 0;     ///< runs the whole model
  virtual std::int64_t num_parameters() const = 0;  ///< of the whole model
  /// The whole model with the weights of all ranks, as they are now. A call of all ranks.
  virtual std::unique_ptr<firn::nn::Module> whole() const = 0;
};

/// A training of one rank. The random stream is at its seed when it is made.
class Training {
 public:
  virtual ~Training() = default;

  virtual std::string name() const = 0;   ///< of the model
  virtual firn::nn::Module& model() = 0;  ///< the whole one, or this rank's stage of divided()
  virtual Divided* divided() { return nullptr; }

  virtual std::string data() const = 0;  ///< the set in one line
  /// Batches to train on: resident_options() or loader_options() of `options`, whose micro-batches
  /// may be smaller than those that the training was made with.
  virtual Batches batches(const Options& options) = 0;
  virtual Batches& tests() = 0;
  /// The loss that is trained, or that of a test.
  virtual firn::Loss loss(const firn::Tensor& output, const firn::Tensor& y, bool training) = 0;

  /// What is collected over tests(): columns of the table and of the log,
  virtual std::vector<firn::metrics::Metric*> figures() = 0;
  /// and what describe() and details() need beside.
  virtual std::vector<firn::metrics::Metric*> others() { return {}; }
  /// What the log says of the sample's options and set, and of an epoch beside figures.
  virtual void describe_run(firn::train::Record& settings) const = 0;
  virtual void describe_epoch(firn::train::Record&) const {}

  /// At the end, with the trained or loaded weights: what the sample shows of its model,
  virtual void show(firn::nn::Module&) {}
  /// lines with the last test's details, and its result in one.
  virtual std::string details() const { return {}; }
  virtual std::string result() const = 0;
};

/// Texts with which the program describes a sample.
struct About {
  std::string program;         ///< in errors and in the log
  std::string purpose;         ///< for --help
  std::string one = {};        ///< a sample of the set: "image"
  std::int64_t most = 60'000;  ///< of them in a step
  std::string blocks = {};   ///< whose --recompute is: "the ResNet's blocks"; empty: no such option
  std::string divided = {};  ///< the model that ranks can divide; empty: no such options
  bool graph = false;        ///< whether steps are graphs on a GPU, which --show-graph lists
};

/// A program that trains.
class Sample {
 public:
  virtual ~Sample() = default;
  virtual About about() const = 0;
  /// The sample's own options.
  virtual void add_options(CLI::App& app) = 0;
  /// Calls refuse() or check_contradiction() for what makes no sense. After parsing.
  virtual void check(const Options&) {}
  /// Once, before the ranks begin: reads what can be missing.
  virtual void prepare(const Options&) {}
  /// Whether --epochs 0 tests the weights of --load.
  virtual bool tests_loaded() const { return true; }
  /// A call of each rank.
  virtual std::unique_ptr<Training> training(const Options& options, firn::Device device,
                                             const firn::dist::Group& group) const = 0;
};

/// The whole of main(). Returns the exit code: 0; 1 after an error, which is said in one line on
/// stderr; 130 if the run was interrupted; and that of the parser for a mistake in the options.
int run(Sample& sample, int argc, char** argv);

}  // namespace sample
