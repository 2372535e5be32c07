// The common options of trainings: epochs, steps, ranks, files and memory. A sample adds its own
// (training.h).
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
  std::int64_t micro_batch = 64;   ///< samples on each rank
  /// Micro-batches per step from an epoch on: {{0, 8}, {4, 2}}.
  std::vector<std::pair<std::int64_t, std::int64_t>> accumulate = {{0, 1}};
  std::string loss_scale;              ///< none, dynamic or a power of two; default: by precision
  double clip = 0;                     ///< largest norm of the gradient; 0: no clipping
  double ema = 0;                      ///< decay of the weights' moving average; 0: none
  std::optional<double> weight_decay;  ///< nullopt: the optimizer's default
  double lr = 0;                       ///< default: the optimizer's
  std::string schedule = "constant";
  std::int64_t warmup = 0;  ///< steps
  std::string optimizer = "adam";
  std::uint64_t seed = 1;
  int threads = 0;  ///< default: firn's
  int ranks = 1;
  int tensor_parallel = 1;  ///< ranks that shard a layer
  int pipeline = 1;         ///< stages of the model
  /// Samples per step, with ranks or exact mode, divided among the ranks as evenly as possible. 0:
  /// the product of the other sizes.
  std::int64_t batch = 0;
  std::int64_t exact = 0;  ///< samples of a chunk; 0: the ordinary mode
  int zero = 0;            ///< ZeRO stage: the state that ranks shard
  std::string device = "cpu";
  std::string log;                    ///< JSON lines; empty: none
  std::int64_t log_every = 0;         ///< applied steps; 0: only epochs
  std::string profile;                ///< file for a trace; empty: none
  std::string save, load;             ///< safetensors files; empty: none
  std::string checkpoint;             ///< folder; empty: none
  std::int64_t checkpoint_every = 0;  ///< applied steps; 0: only at the end of an epoch
  bool resume = false;                ///< continue from the newest checkpoint, if there is one
  bool hash = false;                  ///< print the SHA-256 of the weights
  bool show_graph = false;
  std::size_t memory = 0;             ///< bytes; 0: no limit
  std::string recompute = "nothing";  ///< part of the model's blocks that is recomputed
  bool plan = false;                  ///< print the memory that training needs, and exit

  /// Returns the micro-batches per step in an epoch (counted from 0).
  std::int64_t accumulate_in(std::int64_t epoch) const;
  /// Returns true if ranks have parts of the model.
  bool sharded() const { return tensor_parallel > 1 || pipeline > 1; }
  /// Returns true if whole batches are cut (run_batch()) instead of adding up micro-batches.
  bool by_batches() const { return ranks > 1 || exact > 0; }
  /// Returns the number of copies of the model; each has its own samples.
  int copies() const { return ranks / (tensor_parallel * pipeline); }
  /// Returns the samples per step in an epoch, over all ranks.
  std::int64_t effective_batch(std::int64_t epoch) const {
    return batch > 0 ? batch : micro_batch * accumulate_in(epoch) * copies();
  }
  /// Returns the steps of the whole run on a set of `samples` samples; an epoch's last step may
  /// have fewer.
  std::int64_t total_steps(std::int64_t samples) const;
};

/// Returns the options, with those of the sample. Returns nullopt if the program should exit with
/// `exit_code` (after --help, or after a reported mistake). All options are checked, so that
/// mistakes are reported before anything is loaded.
std::optional<Options> parse_options(Sample& sample, int argc, char** argv, int& exit_code);

/// Returns the number of processes that mpirun has started; 1 without it, and if the samples have
/// no MPI.
int job_size();

/// Refuses an option, for parse_options() to report.
[[noreturn]] void refuse(const std::string& option, const std::string& why);
/// Refuses two options that exclude each other if `found`; the error names both.
void check_contradiction(bool found, const std::string& a, const std::string& b,
                         const std::string& why);

}  // namespace sample
