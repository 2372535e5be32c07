// Parses and checks the options.
#include "program/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "firn/device.h"
#include "firn/environment.h"
#include "firn/error.h"
#include "firn/memory.h"
#include "program/report.h"
#include "program/training.h"

namespace sample {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;

/// Parses "0:8,4:2".
std::vector<std::pair<std::int64_t, std::int64_t>> parse_by_epoch(const std::string& text) {
  const std::string name = "--accumulate-schedule";
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    const auto colon = part.find(':');
    std::int64_t epoch = -1, steps = -1;
    if (colon == std::string::npos || !CLI::detail::lexical_cast(part.substr(0, colon), epoch) ||
        !CLI::detail::lexical_cast(part.substr(colon + 1), steps))
      refuse(name, "'" + part + "' is not EPOCH:NUMBER, as in 0:8,4:2");
    if (epoch != 0 && out.empty())
      refuse(name, "begins at epoch " + std::to_string(epoch) + ", not at 0");
    if (!out.empty() && epoch <= out.back().first) refuse(name, "epochs must increase: " + text);
    if (steps < 1) refuse(name, part + ": fewer than 1 micro-batch per step");
    out.emplace_back(epoch, steps);
  }
  return out;
}

std::string check_loss_scale(const std::string& text) {
  if (text == "dynamic" || text == "none") return {};
  double scale = 0;
  int exponent = 0;
  if (!CLI::detail::lexical_cast(text, scale) || !(scale >= std::ldexp(1, -24)) ||
      !(scale <= std::ldexp(1, 24)) || std::frexp(scale, &exponent) != 0.5)
    return text + " is neither dynamic, none, nor a power of two in [2^-24, 2^24]";
  return {};
}

std::size_t parse_memory(const std::string& text) {
  try {
    if (const std::size_t bytes = firn::parse_bytes(text); bytes > 0) return bytes;
  } catch (const firn::Error&) {
  }
  refuse("--memory", "'" + text + "' is no size, as in 512MiB");
}

/// Computes the micro-batch and the micro-batches per step from --batch, --micro-batch,
/// --accumulate and --accumulate-schedule, each of which is optional.
struct BatchOptions {
  CLI::Option *batch, *micro, *accumulate, *schedule;
  std::int64_t samples = 64, steps = 1;
  std::string by_epoch;

  void resolve(Options& o) const {
    const auto n = [](std::int64_t v) { return std::to_string(v); };
    const bool has_micro = micro->count() > 0;
    if (o.by_batches() && schedule->count() == 0 && accumulate->count() == 0) {
      o.batch = samples;
      // There are enough micro-batches to keep all stages busy.
      const std::int64_t parts = std::int64_t{o.copies()} * o.pipeline;
      const std::int64_t part = (samples + parts - 1) / parts,
                         q = std::max<std::int64_t>(o.exact, 1);
      if (!has_micro) o.micro_batch = (part + q - 1) / q * q;
      return;
    }
    check_contradiction(o.ranks > 1 && batch->count() > 0 && accumulate->count() > 0,
                        "--accumulate", "--batch",
                        "with --ranks, --batch says by itself what a step takes");
    if (schedule->count() > 0) {
      check_contradiction(accumulate->count() > 0, "--accumulate-schedule", "--accumulate",
                          "both say how many micro-batches make a step");
      check_contradiction(batch->count() > 0, "--accumulate-schedule", "--batch",
                          "with it the " + many + " per step change; give --micro-batch");
      o.accumulate = parse_by_epoch(by_epoch);
      return;
    }
    std::int64_t per_step = steps;
    if (batch->count() > 0 && has_micro) {
      check_contradiction(accumulate->count() > 0 && samples != o.micro_batch * steps, "--batch",
                          "--micro-batch and --accumulate",
                          n(samples) + " is not " + n(o.micro_batch) + " x " + n(steps));
      check_contradiction(samples % o.micro_batch != 0, "--batch", "--micro-batch",
                          n(samples) + " is no multiple of " + n(o.micro_batch));
      per_step = samples / o.micro_batch;
    } else if (batch->count() > 0) {
      check_contradiction(samples % steps != 0, "--batch", "--accumulate",
                          n(samples) + " is no multiple of " + n(steps));
      o.micro_batch = samples / steps;
    }
    o.accumulate = {{0, per_step}};
  }

  std::string many;  ///< plural of the name of a sample
};

/// Refuses the options that a sharded model does not support. It runs before the other checks,
/// which assume that ranks have whole copies.
void check_division(const Options& o) {
  if (!o.sharded()) return;
  const auto n = [](int v) { return std::to_string(v); };
  const int parts = o.tensor_parallel * o.pipeline;
  const std::string name = o.tensor_parallel > 1 ? "--tensor-parallel" : "--pipeline";
  check_contradiction(o.ranks % parts != 0, name, "--ranks " + n(o.ranks),
                      "a copy of the model takes " + n(o.tensor_parallel) + " x " + n(o.pipeline) +
                          " ranks; give --ranks a multiple of " + n(parts));
  check_contradiction(o.epochs == 0, name, "--epochs 0", "weights are tested on one rank");
  check_contradiction(o.exact > 0, name, "--exact",
                      "sums over the parts of a model are those of one rank to rounding only");
  check_contradiction(!o.checkpoint.empty(), name, "--checkpoint",
                      "ranks would have to save their parts in files of their own; --save writes "
                      "the weights of the whole model");
  check_contradiction(o.plan || o.memory > 0, name, o.plan ? "--plan" : "--memory",
                      "memory is planned for a whole model on one rank");
  check_contradiction(o.show_graph, name, "--show-graph", "each rank has a graph of its own");
  check_contradiction(o.zero > 0 && o.copies() == 1, "--zero", name,
                      "there is one copy of the model, and nobody to divide its state with");
  check_contradiction(o.zero > 1 && o.pipeline > 1, "--zero", "--pipeline",
                      "stages make other micro-steps on other copies");
}

void check(const Options& o, bool has_loss_scale) {
  check_contradiction(has_loss_scale && o.loss_scale != "none" && o.precision == "fp32",
                      "--loss-scale", "--precision fp32", "FP32 gradients need no scaling");
  check_contradiction(o.schedule == "one-cycle" && o.warmup > 0, "--warmup", "--schedule one-cycle",
                      "one-cycle has its own warm-up");
  if (o.ema >= 1) refuse("--ema", "must be less than 1");
  const char* const divides = o.ranks > 1 ? "--ranks" : "--exact";
  check_contradiction(o.by_batches() && (o.plan || o.memory > 0), divides,
                      o.plan ? "--plan" : "--memory", "memory is planned for one rank");
  const bool on_device = o.device != "cpu";
  check_contradiction(o.ranks > 1 && on_device && o.device != "cuda", "--ranks",
                      "--device " + o.device,
                      "each rank has a device of its own; give --device cuda");
  check_contradiction(o.zero > 0 && o.ranks == 1, "--zero", "--ranks 1",
                      "there is nobody to divide the state with");
  check_contradiction(
      o.exact > 0 && o.micro_batch % o.exact != 0, "--exact", "--micro-batch",
      std::to_string(o.micro_batch) + " is no multiple of " + std::to_string(o.exact));
  check_contradiction(o.plan && o.show_graph, "--plan", "--show-graph",
                      "both print something else than a training");
  if (o.recompute == "auto" && !o.plan && o.memory == 0)
    refuse("--recompute auto", "needs --memory, or --plan");
  check_contradiction(o.epochs == 0 && (o.plan || o.memory > 0), o.plan ? "--plan" : "--memory",
                      "--epochs 0", "there is no training");
  const auto needs_checkpoint = [&](bool given, const char* name) {
    if (given && o.checkpoint.empty()) refuse(name, "needs --checkpoint, which names the folder");
  };
  if (o.log_every > 0 && o.log.empty()) refuse("--log-every", "needs --log, which names the file");
  needs_checkpoint(o.resume, "--resume");
  needs_checkpoint(o.checkpoint_every > 0, "--checkpoint-every");
  check_contradiction(!o.checkpoint.empty() && o.show_graph, "--checkpoint", "--show-graph",
                      "there is no training to save");
  if (o.hash && !can_hash())
    refuse("--hash", "this program was built without OpenSSL (libssl-dev)");
  if (o.epochs == 0 && !o.checkpoint.empty())
    refuse("--checkpoint", "there is no training to save; give --epochs");
  if (o.epochs == 0 && o.load.empty())
    refuse("--epochs", "0 evaluates the weights of --load, and there is no --load");
}

/// Adds the options of steps: all except files, ranks and the division of a batch.
void add_step_options(CLI::App& app, Options& o, const std::string& many) {
  app.add_option("--precision", o.precision,
                 "fp32; fp16 and bf16: the model is held in 16 bits, with FP32 masters; amp-fp16 "
                 "and amp-bf16: an FP32 model under autocast")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16", "amp-fp16", "amp-bf16"}))
      ->capture_default_str();
  app.add_option("--loss-scale", o.loss_scale,
                 "dynamic, none or a power of two [dynamic for fp16 and amp-fp16]")
      ->check(check_loss_scale);
  app.add_option("--clip", o.clip, "largest norm of the gradient [none]")
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--ema", o.ema,
         "decay of a moving average of the weights, e.g. 0.999; tests use the average [none]")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option_function<double>(
         "--weight-decay", [&o](const double& value) { o.weight_decay = value; },
         "weight decay of all parameters but biases and scales [adamw: 0.01 of all parameters; "
         "else 0]")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--lr", o.lr, "learning rate [0.001 for adam and adamw, 0.1 for sgd]")
      ->check(CLI::PositiveNumber);
  app.add_option("--schedule", o.schedule,
                 "learning-rate schedule over the run: constant, cosine, step, one-cycle or linear")
      ->check(CLI::IsMember({"constant", "cosine", "step", "one-cycle", "linear"}))
      ->capture_default_str();
  app.add_option("--warmup", o.warmup, "steps of linear warm-up of the learning rate")
      ->check(CLI::Range(std::int64_t{0}, kMany))
      ->capture_default_str();
  app.add_option("--optimizer", o.optimizer, "sgd, adam or adamw")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "seed of the initial weights and the order of the " + many)
      ->capture_default_str();
}

void add_rank_options(CLI::App& app, Options& o, const About& about, const CLI::Range& samples) {
  app.add_option("--threads", o.threads, "CPU threads [all]; results do not depend on it")
      ->check(CLI::Range(1, 4096));
  const auto ranks = [&](const char* name, int& value, const std::string& what) {
    app.add_option(name, value, what)->check(CLI::Range(1, 1024))->capture_default_str();
  };
  ranks("--ranks", o.ranks,
        "train with so many ranks, as threads; each computes its part of every batch. "
        "Under mpirun the ranks are its processes. With --device cuda each has a GPU of its own");
  if (!about.sharded.empty()) {
    ranks("--tensor-parallel", o.tensor_parallel,
          "so many of --ranks divide " + about.sharded + "'s hidden layers among them");
    ranks("--pipeline", o.pipeline,
          "stages into which " + about.sharded +
              "'s layers are cut, each on ranks of its own: --ranks is "
              "a multiple of --tensor-parallel times --pipeline, and makes as many copies of "
              "the model");
  }
  app.add_option(
         "--exact", o.exact,
         "the same bits for any --micro-batch, --threads and --ranks: chunks of this many " +
             about.one + "s are computed by themselves and added in a fixed order [off]")
      ->check(samples);
  app.add_option("--zero", o.zero,
                 "ZeRO: ranks divide the optimizer's state (1), gradients (2) and weights (3)")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("--device", o.device, "cpu, cuda or cuda:N")->capture_default_str();
}

void add_file_options(CLI::App& app, Options& o) {
  app.add_option(
      "--log", o.log,
      "write the log of the run to this file, one JSON object per epoch (docs/records.md)");
  app.add_option("--log-every", o.log_every,
                 "also one for each skipped step, and for every so many applied ones [none]")
      ->check(CLI::Range(std::int64_t{1}, kMany));
  app.add_option(
      "--profile", o.profile,
      "write a trace of the run to this file, for ui.perfetto.dev (compressed if it ends "
      "in .gz), and print what took the time (docs/profiling.md)");
  app.add_option("--save", o.save, "write the trained weights to this safetensors file");
  app.add_option("--load", o.load, "start from the weights of this safetensors file");
  app.add_option("--checkpoint", o.checkpoint,
                 "save the run to this folder after each epoch and at Ctrl-C: the newest 3 "
                 "checkpoints and that of the lowest test loss stay");
  app.add_option("--checkpoint-every", o.checkpoint_every,
                 "save after this many applied steps, too")
      ->check(CLI::Range(std::int64_t{1}, kMany));
  app.add_flag("--resume", o.resume,
               "go on from the newest checkpoint in the folder of --checkpoint, to the same bits; "
               "start afresh if there is none");
  app.add_flag("--hash", o.hash, "print the SHA-256 of the weights before the last line");
}

void add_memory_options(CLI::App& app, Options& o, const About& about, std::string& memory) {
  if (about.graph)
    app.add_flag("--show-graph", o.show_graph,
                 "on a GPU: list the nodes of a step's CUDA graph and exit");
  app.add_option("--memory", memory,
                 "train within this much memory, e.g. 512MiB: micro-batches are cut until a step "
                 "fits; the " +
                     about.one + "s per step stay [no limit]");
  if (!about.blocks.empty())
    app.add_option(
           "--recompute", o.recompute,
           about.blocks +
               " compute again in the backward pass what they would otherwise "
               "keep: all but their inputs, or all but these and products; auto: as little as "
               "fits into --memory, before micro-batches are cut")
        ->check(CLI::IsMember({"nothing", "all", "cheap", "auto"}))
        ->capture_default_str();
  app.add_flag("--plan", o.plan, "print what each size of micro-batch costs in memory, and end");
}

}  // namespace

int job_size() {
#ifdef SAMPLE_HAS_MPI
  // The first variable is Open MPI's, the second that of MPICH and its derivatives.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(name)) return std::atoi(size) > 1 ? std::atoi(size) : 1;
#endif
  return 1;
}

void refuse(const std::string& option, const std::string& why) {
  throw CLI::ValidationError(option, why);
}

void check_contradiction(bool found, const std::string& a, const std::string& b,
                         const std::string& why) {
  if (found) refuse(a, "contradicts " + b + ": " + why);
}

std::int64_t Options::accumulate_in(std::int64_t epoch) const {
  std::int64_t steps = 1;
  for (const auto& [from, n] : accumulate)
    if (epoch >= from) steps = n;
  return steps;
}

std::int64_t Options::total_steps(std::int64_t samples) const {
  std::int64_t total = 0;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const std::int64_t step = effective_batch(epoch);
    total += (samples + step - 1) / step;
  }
  return total;
}

std::optional<Options> parse_options(Sample& sample, int argc, char** argv, int& exit_code) {
  Options o;
  const About about = sample.about();
  const std::string many = about.one + "s";
  std::string memory;
  const int job = o.ranks = job_size();
  CLI::App app{about.purpose};
  app.set_version_flag("--version", std::string(firn::version()) + " (" + firn::revision() + ")");
  sample.add_options(app);
  auto* epochs = app.add_option("--epochs", o.epochs,
                                "passes over the training " + many +
                                    "; with --load the default is 0, "
                                    "which evaluates the loaded weights [5]")
                     ->check(CLI::Range(0, 1'000'000));
  BatchOptions b{};
  b.many = many;
  const CLI::Range samples(std::int64_t{1}, about.most);
  b.batch =
      app.add_option("--batch", b.samples, many + " per step, of all ranks [64]")->check(samples);
  b.micro = app.add_option("--micro-batch", o.micro_batch,
                           many + " per forward and backward pass of a rank [a copy's part of " +
                               (about.sharded.empty()
                                    ? "--batch]"
                                    : "--batch; with --pipeline as many of them as stages]"))
                ->check(samples);
  b.accumulate = app.add_option("--accumulate", b.steps,
                                "micro-batches per step of a rank [1, or as --batch says]")
                     ->check(samples);
  b.schedule = app.add_option("--accumulate-schedule", b.by_epoch,
                              "micro-batches per step by epoch: 0:8,4:2 is 8 from epoch 0 on, 2 "
                              "from epoch 4 on");
  add_step_options(app, o, many);
  add_rank_options(app, o, about, samples);
  add_file_options(app, o);
  add_memory_options(app, o, about, memory);
  try {
    app.parse(argc, argv);
    if (!memory.empty()) o.memory = parse_memory(memory);
    check_contradiction(job > 1 && o.ranks != job, "--ranks", "mpirun",
                        "the job has " + std::to_string(job) + " ranks");
    if (!o.load.empty() && epochs->count() == 0) o.epochs = 0;
    check_division(o);
    b.resolve(o);
    sample.check(o);
    check(o, app.count("--loss-scale") > 0);
  } catch (const CLI::ParseError& e) {
    exit_code = app.exit(e);
    return std::nullopt;
  }
  if (app.count("--lr") == 0) o.lr = o.optimizer == "sgd" ? 0.1 : 0.001;
  if (app.count("--threads") == 0) o.threads = firn::num_threads();
  if (app.count("--loss-scale") == 0)
    o.loss_scale = o.precision == "fp16" || o.precision == "amp-fp16" ? "dynamic" : "none";
  return o;
}

}  // namespace sample
