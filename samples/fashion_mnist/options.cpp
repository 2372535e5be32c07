// The parser checks all options, so that mistakes are reported before anything is loaded.
#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string>

#include "firn/device.h"
#include "firn/environment.h"
#include "firn/error.h"
#include "firn/memory.h"
#include "job.h"
#include "models.h"
#include "output/hash.h"

namespace sample {
namespace {

/// What --augment does without a value.
const std::string kDefaultAugment = "crop=2,flip=0.5,erase=0.25";

/// Two options that exclude each other; a conflict names both.
void check_contradiction(bool found, const std::string& a, const std::string& b,
                         const std::string& why) {
  if (found) throw CLI::ValidationError(a, "contradicts " + b + ": " + why);
}

/// "0:8,4:2"
std::vector<std::pair<std::int64_t, std::int64_t>> parse_by_epoch(const std::string& text) {
  const std::string name = "--accumulate-schedule";
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    const auto colon = part.find(':');
    std::int64_t epoch = -1, steps = -1;
    if (colon == std::string::npos || !CLI::detail::lexical_cast(part.substr(0, colon), epoch) ||
        !CLI::detail::lexical_cast(part.substr(colon + 1), steps))
      throw CLI::ValidationError(name, "'" + part + "' is not EPOCH:NUMBER, as in 0:8,4:2");
    if (epoch != 0 && out.empty())
      throw CLI::ValidationError(name, "begins at epoch " + std::to_string(epoch) + ", not at 0");
    if (!out.empty() && epoch <= out.back().first)
      throw CLI::ValidationError(name, "epochs must increase: " + text);
    if (steps < 1) throw CLI::ValidationError(name, part + ": fewer than 1 micro-batch per step");
    out.emplace_back(epoch, steps);
  }
  return out;
}

/// "crop=2,flip=0.5,erase=0.25"; parts that are left out are off.
firn::data::Augmentation parse_augment(const std::string& text) {
  const std::string name = "--augment";
  firn::data::Augmentation a;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    const auto equals = part.find('=');
    const std::string what = part.substr(0, equals);
    double value = 0;
    if (equals == std::string::npos || !CLI::detail::lexical_cast(part.substr(equals + 1), value) ||
        (what != "crop" && what != "flip" && what != "erase"))
      throw CLI::ValidationError(
          name, "'" + part + "' is not crop=PIXELS, flip=P or erase=P, as in " + kDefaultAugment);
    if (what == "crop") {
      if (!(value >= 0 && value < 28) || value != std::floor(value))
        throw CLI::ValidationError(name, part + ": pixels are a whole number from 0 to 27");
      a.crop_padding = static_cast<std::int64_t>(value);
    } else {
      if (!(value >= 0 && value <= 1))
        throw CLI::ValidationError(name, part + ": a probability is a number from 0 to 1");
      (what == "flip" ? a.flip : a.erase) = value;
    }
  }
  return a;
}

/// FILE:INDEX
std::string check_picture(const std::string& text) {
  const auto colon = text.rfind(':');
  const auto digits = colon == std::string::npos ? std::string() : text.substr(colon + 1);
  if (colon == 0 || digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return "'" + text + "' is not FILE:INDEX, as in t10k-images-idx3-ubyte.gz:7";
  return {};
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
  throw CLI::ValidationError("--memory", "'" + text + "' is no size, as in 512MiB");
}

/// Computes the micro-batch and the micro-batches per step from --batch, --micro-batch,
/// --accumulate and --accumulate-schedule, any of which may be given.
struct BatchOptions {
  CLI::Option *batch, *micro, *accumulate, *schedule;
  std::int64_t images = 64, steps = 1;
  std::string by_epoch;

  void resolve(Options& o) const {
    const auto n = [](std::int64_t v) { return std::to_string(v); };
    const bool has_micro = micro->count() > 0;
    if ((o.ranks > 1 || o.exact > 0) && schedule->count() == 0 && accumulate->count() == 0) {
      o.batch = images;
      // Stages have as many micro-batches as keep all of them at work.
      const std::int64_t parts = std::int64_t{o.copies()} * o.pipeline;
      const std::int64_t part = (images + parts - 1) / parts,
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
                          "with it the images per step change; give --micro-batch");
      o.accumulate = parse_by_epoch(by_epoch);
      return;
    }
    std::int64_t per_step = steps;
    if (batch->count() > 0 && has_micro) {
      check_contradiction(accumulate->count() > 0 && images != o.micro_batch * steps, "--batch",
                          "--micro-batch and --accumulate",
                          n(images) + " is not " + n(o.micro_batch) + " x " + n(steps));
      check_contradiction(images % o.micro_batch != 0, "--batch", "--micro-batch",
                          n(images) + " is no multiple of " + n(o.micro_batch));
      per_step = images / o.micro_batch;
    } else if (batch->count() > 0) {
      check_contradiction(images % steps != 0, "--batch", "--accumulate",
                          n(images) + " is no multiple of " + n(steps));
      o.micro_batch = images / steps;
    }
    o.accumulate = {{0, per_step}};
  }
};

/// What a model that ranks divide is refused with. Before the rest, for which the ranks make whole
/// copies.
void check_division(const Options& o) {
  if (!o.divided()) return;
  const auto n = [](int v) { return std::to_string(v); };
  const int parts = o.tensor_parallel * o.pipeline;
  const std::string name = o.tensor_parallel > 1 ? "--tensor-parallel" : "--pipeline";
  check_contradiction(o.model != "mlp", name, "--model " + o.model,
                      "only the mlp has layers that ranks divide");
  const auto units = static_cast<int>(kMlpSizes[1]);
  if (units % o.tensor_parallel != 0)
    throw CLI::ValidationError("--tensor-parallel",
                               n(units) + " hidden units cannot be divided by " +
                                   n(o.tensor_parallel) + "; give a power of two");
  if (o.pipeline >= static_cast<int>(kMlpSizes.size()))
    throw CLI::ValidationError("--pipeline", n(o.pipeline) + " stages, and the mlp has " +
                                                 n(static_cast<int>(kMlpSizes.size()) - 1) +
                                                 " layers");
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
  check_contradiction(o.show_graph, name, "--show-graph", "ranks are on the CPU");
  check_contradiction(o.device != "cpu", name, "--device " + o.device, "ranks are on the CPU");
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
  const auto below_one = [](double value, const char* name) {
    if (value >= 1) throw CLI::ValidationError(name, "must be less than 1");
  };
  below_one(o.ema, "--ema");
  below_one(o.label_smoothing, "--label-smoothing");
  const bool by_batches = o.ranks > 1 || o.exact > 0;
  const char* const divides = o.ranks > 1 ? "--ranks" : "--exact";
  check_contradiction(by_batches && (o.plan || o.memory > 0), divides,
                      o.plan ? "--plan" : "--memory", "memory is planned for one rank");
  check_contradiction(by_batches && o.device != "cpu", divides, "--device", "ranks are on the CPU");
  check_contradiction(o.zero > 0 && o.ranks == 1, "--zero", "--ranks 1",
                      "there is nobody to divide the state with");
  check_contradiction(
      o.exact > 0 && o.micro_batch % o.exact != 0, "--exact", "--micro-batch",
      std::to_string(o.micro_batch) + " is no multiple of " + std::to_string(o.exact));
  check_contradiction(o.exact > 0 && o.zero >= 2 && o.model == "resnet",
                      "--exact with --model resnet", "--zero " + std::to_string(o.zero),
                      "its BatchNorm needs the gradients of all quanta at a time");
  check_contradiction(o.plan && o.show_graph, "--plan", "--show-graph",
                      "both print something else than a training");
  check_contradiction(o.recompute != "nothing" && o.model != "resnet", "--recompute",
                      "--model " + o.model, "it has no blocks");
  if (o.recompute == "auto" && !o.plan && o.memory == 0)
    throw CLI::ValidationError("--recompute auto", "needs --memory, or --plan");
  check_contradiction(o.epochs == 0 && (o.plan || o.memory > 0), o.plan ? "--plan" : "--memory",
                      "--epochs 0", "there is no training");
  const auto needs_checkpoint = [&](bool given, const char* name) {
    if (given && o.checkpoint.empty())
      throw CLI::ValidationError(name, "needs --checkpoint, which names the folder");
  };
  if (o.log_every > 0 && o.log.empty())
    throw CLI::ValidationError("--log-every", "needs --log, which names the file");
  needs_checkpoint(o.resume, "--resume");
  needs_checkpoint(o.checkpoint_every > 0, "--checkpoint-every");
  check_contradiction(!o.checkpoint.empty() && o.show_graph, "--checkpoint", "--show-graph",
                      "there is no training to save");
  if (o.hash && !can_hash())
    throw CLI::ValidationError("--hash", "this program was built without OpenSSL (libssl-dev)");
  if (o.epochs == 0 && !o.checkpoint.empty())
    throw CLI::ValidationError("--checkpoint", "there is no training to save; give --epochs");
  if (o.epochs == 0 && o.load.empty())
    throw CLI::ValidationError("--epochs",
                               "0 evaluates the weights of --load, and there is no --load");
}

}  // namespace

std::int64_t Options::accumulate_in(std::int64_t epoch) const {
  std::int64_t steps = 1;
  for (const auto& [from, n] : accumulate)
    if (epoch >= from) steps = n;
  return steps;
}

std::int64_t Options::total_steps(std::int64_t images) const {
  std::int64_t total = 0;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const std::int64_t step = effective_batch(epoch);
    total += (images + step - 1) / step;
  }
  return total;
}

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options o;
  double weight_decay = 0;
  std::string augmentation, memory;
  const int job = o.ranks = job_size();
  CLI::App app{"Trains a model on FashionMNIST, or evaluates a trained one."};
  app.set_version_flag("--version", std::string(firn::version()) + " (" + firn::revision() + ")");
  app.add_option("--model", o.model,
                 "mlp: 784-512-512-10 with ReLU; cnn: convolutions of 32 and 64 channels, 128-10; "
                 "resnet: six residual blocks of 16, 32 and 64 channels")
      ->check(CLI::IsMember({"mlp", "cnn", "resnet"}))
      ->capture_default_str();
  auto* epochs = app.add_option("--epochs", o.epochs,
                                "passes over the training images; with --load the default is 0, "
                                "which evaluates the loaded weights [5]")
                     ->check(CLI::Range(0, 1'000'000));

  BatchOptions b{};
  const CLI::Range images(std::int64_t{1}, std::int64_t{60'000});
  b.batch =
      app.add_option("--batch", b.images, "images per step, of all ranks [64]")->check(images);
  b.micro =
      app.add_option("--micro-batch", o.micro_batch,
                     "images per forward and backward pass of a rank [a copy's part of --batch; "
                     "with --pipeline as many of them as stages]")
          ->check(images);
  b.accumulate = app.add_option("--accumulate", b.steps,
                                "micro-batches per step of a rank [1, or as --batch says]")
                     ->check(images);
  b.schedule = app.add_option("--accumulate-schedule", b.by_epoch,
                              "micro-batches per step by epoch: 0:8,4:2 is 8 from epoch 0 on, 2 "
                              "from epoch 4 on");

  app.add_option("--precision", o.precision,
                 "fp32; fp16 and bf16: the model is held in 16 bits, with FP32 masters; amp-fp16 "
                 "and amp-bf16: an FP32 model under autocast")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16", "amp-fp16", "amp-bf16"}))
      ->capture_default_str();
  auto* loss_scale =
      app.add_option("--loss-scale", o.loss_scale,
                     "dynamic, none or a power of two [dynamic for fp16 and amp-fp16]")
          ->check(check_loss_scale);
  app.add_option("--clip", o.clip, "largest norm of the gradient [none]")
      ->check(CLI::PositiveNumber);

  app.add_option(
         "--ema", o.ema,
         "decay of a moving average of the weights, e.g. 0.999; tests use the average [none]")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--label-smoothing", o.label_smoothing,
                 "share of the target that is spread over all classes, in [0, 1) [0]")
      ->check(CLI::Range(0.0, 1.0));
  auto* decay =
      app.add_option(
             "--weight-decay", weight_decay,
             "weight decay of all parameters but biases and scales [adamw: 0.01 of all parameters; "
             "else 0]")
          ->check(CLI::NonNegativeNumber);
  auto* augment =
      app.add_option("--augment", augmentation,
                     "augment training images at random: crop after padding by this many pixels, "
                     "mirror, erase a rectangle [" +
                         kDefaultAugment + "]")
          ->expected(0, 1);

  auto* lr = app.add_option("--lr", o.lr, "learning rate [0.001 for adam and adamw, 0.1 for sgd]")
                 ->check(CLI::PositiveNumber);
  app.add_option("--schedule", o.schedule,
                 "learning-rate schedule over the run: constant, cosine, step, one-cycle or linear")
      ->check(CLI::IsMember({"constant", "cosine", "step", "one-cycle", "linear"}))
      ->capture_default_str();
  app.add_option("--warmup", o.warmup, "steps of linear warm-up of the learning rate")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}))
      ->capture_default_str();
  app.add_option("--optimizer", o.optimizer, "sgd, adam or adamw")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "seed of the initial weights and the order of the images")
      ->capture_default_str();
  auto* threads =
      app.add_option("--threads", o.threads, "CPU threads [all]; results do not depend on it")
          ->check(CLI::Range(1, 4096));
  app.add_option("--ranks", o.ranks,
                 "train with so many ranks, as threads; each computes its part of every batch. "
                 "Under mpirun the ranks are its processes")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--tensor-parallel", o.tensor_parallel,
                 "so many of --ranks divide the mlp's hidden layers among them")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--pipeline", o.pipeline,
                 "stages into which the mlp's layers are cut, each on ranks of its own: --ranks is "
                 "a multiple of --tensor-parallel times --pipeline, and makes as many copies of "
                 "the model")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--exact", o.exact,
                 "the same bits for any --micro-batch, --threads and --ranks: quanta of this many "
                 "images are computed by themselves and added in a fixed order [off]")
      ->check(images);
  app.add_option("--zero", o.zero,
                 "ZeRO: ranks divide the optimizer's state (1), gradients (2) and weights (3)")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("--device", o.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--data", o.data,
                 "folder with the four IDX files [$FIRN_DATA, data/fashion-mnist, "
                 "/usr/share/datasets/fashion-mnist]");
  app.add_option(
      "--log", o.log,
      "write the log of the run to this file, one JSON object per epoch (docs/records.md)");
  app.add_option("--log-every", o.log_every,
                 "also one for each skipped step, and for every so many applied ones [none]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}));
  app.add_option("--profile", o.profile,
                 "write a trace of the run to this file, for ui.perfetto.dev (compressed if it ends "
                 "in .gz), and print what took the time (docs/profiling.md)");
  app.add_option("--save", o.save, "write the trained weights to this safetensors file");
  app.add_option("--load", o.load, "start from the weights of this safetensors file");
  app.add_option("--checkpoint", o.checkpoint,
                 "save the run to this folder after each epoch and at Ctrl-C: the newest 3 "
                 "checkpoints and that of the lowest test loss stay");
  app.add_option("--checkpoint-every", o.checkpoint_every,
                 "save after this many applied steps, too")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}));
  app.add_flag("--resume", o.resume,
               "go on from the newest checkpoint in the folder of --checkpoint, to the same bits; "
               "start afresh if there is none");
  app.add_flag("--hash", o.hash, "print the SHA-256 of the weights before the last line");
  app.add_option(
         "--predict", o.predict,
         "at the end, show an image and its predicted class: FILE:INDEX, where FILE is an IDX "
         "file of images")
      ->check(check_picture);
  app.add_flag("--show-graph", o.show_graph,
               "on a GPU: list the nodes of a step's CUDA graph and exit");
  app.add_option("--memory", memory,
                 "train within this much memory, e.g. 512MiB: micro-batches are cut until a step "
                 "fits; the images per step stay [no limit]");
  app.add_option(
         "--recompute", o.recompute,
         "the ResNet's blocks compute again in the backward pass what they would otherwise "
         "keep: all but their inputs, or all but these and convolutions; auto: as little as "
         "fits into --memory, before micro-batches are cut")
      ->check(CLI::IsMember({"nothing", "all", "cheap", "auto"}))
      ->capture_default_str();
  app.add_flag("--plan", o.plan, "print what each size of micro-batch costs in memory, and end");
  try {
    app.parse(argc, argv);
    if (!memory.empty()) o.memory = parse_memory(memory);
    check_contradiction(job > 1 && o.ranks != job, "--ranks", "mpirun",
                        "the job has " + std::to_string(job) + " ranks");
    if (!o.load.empty() && epochs->count() == 0) o.epochs = 0;
    check_division(o);
    b.resolve(o);
    if (decay->count() > 0) o.weight_decay = weight_decay;
    if (augment->count() > 0)
      o.augment = parse_augment(augmentation.empty() ? kDefaultAugment : augmentation);
    check(o, loss_scale->count() > 0);
  } catch (const CLI::ParseError& e) {
    exit_code = app.exit(e);
    return std::nullopt;
  }
  if (lr->count() == 0) o.lr = o.optimizer == "sgd" ? 0.1 : 0.001;
  if (threads->count() == 0) o.threads = firn::num_threads();
  if (loss_scale->count() == 0)
    o.loss_scale = o.precision == "fp16" || o.precision == "amp-fp16" ? "dynamic" : "none";
  return o;
}

}  // namespace sample
