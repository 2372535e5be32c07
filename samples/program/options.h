// The options of any training: what a command line says of epochs, steps, ranks, files and memory.
// A sample adds its own (training.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sample {

class Sample;

struct Options {
  int epochs = 5;                  ///< 0 if --load is given without --epochs
  std::string precision = "fp32";  ///< fp32, fp16, bf16, amp-fp16, amp-bf16
  std::int64_t micro_batch = 64;   ///< of each rank
  /// Micro-batches per step from an epoch on: {{0, 8}, {4, 2}}.
  std::vector<std::pair<std::int64_t, std::int64_t>> accumulate = {{0, 1}};
  std::string loss_scale;              ///< none, dynamic, or a power of two; else by precision
  double clip = 0;                     ///< 0: none
  double ema = 0;                      ///< decay of the weights' moving average; 0: none
  std::optional<double> weight_decay;  ///< nullopt: the optimizer's default
  double lr = 0;                       ///< if not given: the optimizer's default
  std::string schedule = "constant";
  std::int64_t warmup = 0;  ///< steps
  std::string optimizer = "adam";
  std::uint64_t seed = 1;
  int threads = 0;  ///< if not given: firn's default
  int ranks = 1;
  int tensor_parallel = 1;  ///< ranks that divide a layer
  int pipeline = 1;         ///< stages of the model
  /// With ranks or exact mode: samples per step, which they divide as they can; 0: the product of
  /// the others.
  std::int64_t batch = 0;
  std::int64_t exact = 0;  ///< samples of a quantum; 0: the ordinary mode
  int zero = 0;            ///< stage: what ranks divide among them
  std::string device = "cpu";
  std::string log;                    ///< JSON lines; empty: none
  std::int64_t log_every = 0;         ///< applied steps; 0: epochs alone
  std::string profile;                ///< file for a trace; empty: none
  std::string save, load;             ///< safetensors files; empty: none
  std::string checkpoint;             ///< folder; empty: none
  std::int64_t checkpoint_every = 0;  ///< applied steps; 0: only at the end of an epoch
  bool resume = false;                ///< go on from the newest checkpoint, if there is one
  bool hash = false;                  ///< print the SHA-256 of the weights
  bool show_graph = false;
  std::size_t memory = 0;             ///< bytes; 0: no limit
  std::string recompute = "nothing";  ///< what the model's blocks compute again
  bool plan = false;                  ///< print what the training costs in memory, and end

  /// Micro-batches per step in an epoch (counted from 0).
  std::int64_t accumulate_in(std::int64_t epoch) const;
  /// Whether ranks have parts of the model.
  bool divided() const { return tensor_parallel > 1 || pipeline > 1; }
  /// Whether whole batches are cut (run_batch()), not micro-batches added up.
  bool by_batches() const { return ranks > 1 || exact > 0; }
  /// Copies of the model, each with samples of its own.
  int copies() const { return ranks / (tensor_parallel * pipeline); }
  /// Samples per step in an epoch, of all ranks.
  std::int64_t effective_batch(std::int64_t epoch) const {
    return batch > 0 ? batch : micro_batch * accumulate_in(epoch) * copies();
  }
  /// Steps of the whole run on a set of so many samples; the last step of an epoch may have fewer.
  std::int64_t total_steps(std::int64_t samples) const;
};

/// The options, those of the sample included, or nullopt if the program should exit with
/// `exit_code` (after --help, or a mistake that has been reported). All are checked, so that
/// mistakes are reported before anything is loaded.
std::optional<Options> parse_options(Sample& sample, int argc, char** argv, int& exit_code);

/// How many processes mpirun has started; 1 without it, and if the samples have no MPI.
int job_size();

/// Refuses an option, for parse_options() to report.
[[noreturn]] void refuse(const std::string& option, const std::string& why);
/// Refuses two options that exclude each other, if they do; a conflict names both.
void check_contradiction(bool found, const std::string& a, const std::string& b,
                         const std::string& why);

}  // namespace sample
