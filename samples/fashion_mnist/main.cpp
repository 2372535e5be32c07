// Trains a model on FashionMNIST, or evaluates a trained one; `fashion_mnist --help` lists the
// options.
#include <unistd.h>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "firn/firn.h"
#include "firn/io/safetensors.h"
#include "job.h"
#include "mesh.h"
#include "models.h"
#include "options.h"
#include "output/hash.h"
#include "output/predict.h"
#include "output/report.h"
#include "plan.h"
#include "training.h"

namespace sample {
namespace {

constexpr int kInterruptedExit = 130;  // 128 + SIGINT, as shells count

struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Reports an unwritable --save path before hours of training, not after.
void check_save_path(const std::string& path) {
  if (path.empty()) return;
  const auto slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw firn::IoError("save", path, "its folder is missing or cannot be written", "see --save");
}

/// With --ema: while the result lives, the model has the averaged weights.
std::unique_ptr<firn::optim::AveragedWeights> average_of(const Options& o,
                                                         firn::optim::Optimizer& optimizer) {
  if (o.ema == 0) return nullptr;
  return std::make_unique<firn::optim::AveragedWeights>(optimizer);
}

firn::data::ResidentBatches test_batches(const Options& o, const firn::data::FashionMnist& set,
                                         firn::Device device) {
  return firn::data::ResidentBatches(
      firn::data::ImageDataset(set.test, {.flatten = true, .dtype = model_dtype(o.precision)}),
      {.batch = test_batch(o.model), .device = device});
}

/// The end of a run, with training or without.
void conclude(const Options& o, firn::nn::Module& model, const Evaluation* last,
              const std::optional<Picture>& picture, firn::Device device) {
  if (!o.save.empty()) {
    firn::io::save_safetensors(o.save, firn::io::state_of(model));
    std::printf("\nweights saved to %s\n", o.save.c_str());
  }
  if (o.hash && last == nullptr) std::printf("weights %s\n", hash_of(model).c_str());
  if (picture) predict(model, *picture, o, device);
  if (last != nullptr) print_end(*last, o.hash ? hash_of(model) : "");
}

/// The options, with micro-batches that fit into --memory.
Options fitted(const Options& o, firn::nn::Module& model, const firn::data::ImageDataset& images,
               firn::data::ResidentBatches& test, firn::Device device) {
  if (o.memory == 0) return o;
  const auto cuts = plan_cuts(o, model, images, test, device, o.memory);
  const Cut& last = cuts.back();
  if (last.peak() > o.memory)
    throw firn::Error("fashion_mnist",
                      "micro-batches of one image need " + firn::bytes_to_string(last.peak()) +
                          ", and --memory is " + firn::bytes_to_string(o.memory),
                      "see --plan");
  const std::string recompute =
      o.recompute == "auto" ? ", --recompute " + last.recompute : std::string();
  std::printf("micro-batches of %lld%s: %s at the peak of a step, within %s\n",
              static_cast<long long>(last.micro_batch), recompute.c_str(),
              firn::bytes_to_string(last.peak()).c_str(), firn::bytes_to_string(o.memory).c_str());
  firn::set_memory_limit(o.memory, device);
  return cut(o, last);
}

/// `model` is the whole one, or this rank's stage of `divided`.
void train(const Options& asked, firn::nn::Module& model, DividedMlp* divided,
           const std::optional<Picture>& picture, firn::Device device,
           const firn::dist::Group& group) {
  const bool leads = group.rank() == 0;  // what is printed or written is so by one rank
  const auto set = firn::data::load_fashion_mnist(asked.data);
  const firn::data::ImageDataset images(
      set.train,
      {.flatten = true, .augment = asked.augment, .dtype = model_dtype(asked.precision)});
  firn::data::ResidentBatches test = test_batches(asked, set, device);
  if (asked.plan) {
    print_cuts(asked, plan_cuts(asked, model, images, test, device));
    return;
  }
  const Options o = fitted(asked, model, images, test, device);
  firn::data::ResidentBatches batches(
      images, {.batch = o.micro_batch, .shuffle = true, .seed = o.seed, .device = device});
  const auto optimizer = make_optimizer(o, model, batches.samples());
  firn::dist::Pipeline* const pipeline = divided != nullptr ? &divided->pipeline() : nullptr;
  Trainer trainer(model, *optimizer, batches, o, pipeline);
  if (o.show_graph) {
    print_graph(trainer.nodes());
    return;
  }
  if (divided != nullptr)
    firn::dist::distribute(*optimizer, divided->mesh(), {.zero = o.zero});
  else
    firn::dist::distribute(*optimizer, group, {.zero = o.zero});
  const std::int64_t parameters =
      divided != nullptr ? divided->num_parameters() : model.num_parameters();
  if (leads) print_start(o, set, parameters, *optimizer);

  Evaluation tested;
  firn::train::FitOptions options{.epochs = o.epochs, .group = group};
  options.evaluate = [&] {
    tested = evaluate(model, test, o.precision, pipeline);
    return std::vector<firn::metrics::Value>{{"loss", tested.loss}, {"accuracy", tested.accuracy}};
  };
  options.callbacks.on_epoch_end = [&](firn::train::Loop&, firn::train::EpochReport& r) {
    describe(tested, o, r);
    if (!std::isfinite(r.train_loss) || !std::isfinite(r.validation_loss))
      throw firn::Error("fashion_mnist",
                        "the loss is not finite after epoch " + std::to_string(r.epoch),
                        "use a smaller --lr");
  };
  if (!o.checkpoint.empty() && !o.resume && !firn::io::Checkpoints(o.checkpoint).list().empty())
    throw firn::IoError("checkpoint", o.checkpoint, "has checkpoints of an earlier run",
                        "give --resume to go on with it, or another folder");
  options.checkpoint = {.folder = o.checkpoint, .every = o.checkpoint_every, .resume = o.resume};
  if (!o.log.empty())
    options.log = {
        .path = o.log, .every = o.log_every, .settings = settings_of(o, set, parameters)};
  const auto done = firn::train::fit(
      {.modules = {{"", model}}, .optimizers = {{"", *optimizer}}}, batches,
      [&] { trainer.step(); }, options);
  if (done.ended == firn::train::Ended::interrupted)
    throw Interrupted(o.checkpoint.empty()
                          ? "interrupted"
                          : "interrupted: the run is saved in " + o.checkpoint + " after step " +
                                std::to_string(done.applied_steps) +
                                "; the same command with --resume goes on");
  const auto averaged = average_of(o, *optimizer);
  if (tested.confusion.empty())  // resumed after the last epoch
    tested = evaluate(model, test, o.precision, pipeline);
  const auto whole = divided != nullptr ? divided->whole() : nullptr;
  const firn::optim::WholeWeights here(*optimizer);
  if (leads) conclude(o, whole ? *whole : model, &tested, picture, device);
}

void train_rank(const Options& o, const std::optional<Picture>& picture, firn::Device device,
                const firn::dist::Group& group) {
  firn::manual_seed(o.seed);
  if (o.divided()) {
    DividedMlp mlp(o, group);
    return train(o, mlp.stage(), &mlp, picture, device, group);
  }
  const auto model = make_model(o, device);
  train(o, *model, nullptr, picture, device, group);
}

void run(const Options& o);

/// Also if the run is interrupted or fails.
void run_profiled(const Options& o) {
  firn::Profile profile({.trace = o.profile});
  const auto finish = [&] {
    profile.stop();
    std::printf("\n%s\n%s\ntrace written to %s\n", profile.table().c_str(),
                profile.table(firn::ProfileBy::phase).c_str(), o.profile.c_str());
  };
  try {
    run(o);
  } catch (...) {
    finish();
    throw;
  }
  finish();
}

void run(const Options& o) {
  const firn::dist::Group job = job_group();
  const firn::Device device = firn::Device::parse(o.device);
  firn::require_device("fashion_mnist", device);
  firn::set_num_threads(o.threads);
  firn::manual_seed(o.seed);
  check_save_path(o.save);
  std::optional<Picture> picture;
  if (!o.predict.empty()) picture = read_picture(o.predict);
  if (o.epochs > 0 && o.ranks > 1 && job.size() == 1)
    return firn::dist::run_local(o.ranks,
                                 [&](const auto& group) { train_rank(o, picture, device, group); });
  if (o.epochs > 0) return train_rank(o, picture, device, job);

  // Use the loaded weights as they are: --predict needs no data set.
  const auto model = make_model(o, device);
  if (picture) return conclude(o, *model, nullptr, picture, device);
  const auto set = firn::data::load_fashion_mnist(o.data);
  firn::data::ResidentBatches test = test_batches(o, set, device);
  const Evaluation tested = evaluate(*model, test, o.precision);
  conclude(o, *model, &tested, picture, device);
}

/// Prints the message on one line, without control bytes.
void print_error(std::string message) {
  for (char& c : message)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  std::fprintf(stderr, "error: %s\n", message.c_str());
}

}  // namespace
}  // namespace sample

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = sample::parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  try {
    options->profile.empty() ? sample::run(*options) : sample::run_profiled(*options);
    return 0;
  } catch (const sample::Interrupted& e) {
    sample::print_error(e.what());
    return sample::kInterruptedExit;
  } catch (const std::exception& e) {
    sample::print_error(e.what());
    return 1;
  }
}
