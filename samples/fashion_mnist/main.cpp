// Trains a model on FashionMNIST, or evaluates a trained one; `fashion_mnist --help` lists the
// options.
#include <unistd.h>
#include <chrono>
#include <cmath>
#include <csignal>
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
#include "output/progress.h"
#include "output/report.h"
#include "plan.h"
#include "saver.h"
#include "training.h"

namespace sample {
namespace {

constexpr int kInterruptedExit = 130;  // 128 + SIGINT, as shells count
volatile std::sig_atomic_t interrupted = 0;

struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The first Ctrl-C ends the run cleanly after the current batch, the second at once.
void handle_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

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

/// Tests the model as it would be saved.
void test_into(EpochReport& r, const Options& o, firn::nn::Module& model,
               firn::data::ResidentBatches& test, firn::dist::Pipeline* pipeline = nullptr) {
  const auto start = std::chrono::steady_clock::now();
  const Evaluation e = evaluate(model, test, o.precision, pipeline);
  r.test_seconds = seconds_since(start);
  r.test_loss = e.loss;
  r.accuracy = e.accuracy;
  r.class_accuracy = e.class_accuracy;
  r.confusion = e.confusion;
}

/// Whether a rank was asked to end. All ranks get the same answer.
bool asked_to_end(const firn::dist::Group& group) {
  if (group.size() == 1) return interrupted != 0;
  const firn::Tensor asked = firn::full({1}, interrupted, firn::i32);
  group.all_reduce(asked, firn::dist::Reduce::max);
  return asked.item() != 0;
}

EpochReport run_epoch(int number, const Options& o, Trainer& trainer,
                      firn::optim::Optimizer& optimizer, firn::nn::Module& model,
                      firn::data::ResidentBatches& test, Saver& saver, firn::Device device,
                      const firn::dist::Group& group, firn::dist::Pipeline* pipeline) {
  EpochReport r;
  r.epoch = number;
  firn::reset_peak_memory(device);
  {
    std::optional<Progress> progress;
    if (group.rank() == 0)
      progress.emplace("epoch " + std::to_string(number) + "/" + std::to_string(o.epochs),
                       trainer.images());
    const auto start = std::chrono::steady_clock::now();
    const Trained trained = trainer.epoch(number - 1, [&](std::int64_t done) {
      if (asked_to_end(group)) {
        const auto saved = saver.interrupted();
        throw Interrupted(saved ? "interrupted: " + *saved : "interrupted");
      }
      saver.after_batch();
      if (progress) progress->update(done);
    });
    r.seconds = seconds_since(start);
    r.samples_per_s = static_cast<double>(trained.images) / r.seconds;
    r.train_loss = trained.loss;
    r.lr = trained.lr;
    r.loss_scale = trained.loss_scale;
    r.applied_steps = trained.applied_steps;
    r.skipped_steps = trained.skipped_steps;
    if (progress) progress->finish();
  }
  r.effective_batch = o.effective_batch(number - 1);
  r.training_memory = firn::memory_stats(device);

  {
    const auto averaged = average_of(o, optimizer);
    test_into(r, o, model, test, pipeline);
  }
  r.peak_bytes = firn::memory_stats(device).total.peak;
  r.peak_rss_bytes = peak_rss_bytes();
  return r;
}

firn::data::ResidentBatches test_batches(const Options& o, const firn::data::FashionMnist& set,
                                         firn::Device device) {
  return firn::data::ResidentBatches(
      firn::data::ImageDataset(set.test, {.flatten = true, .dtype = model_dtype(o.precision)}),
      {.batch = test_batch(o.model), .device = device});
}

/// The end of a run, with training or without.
void conclude(const Options& o, firn::nn::Module& model, const EpochReport* last,
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
  RunLog log(leads ? o.log : "");
  firn::data::ResidentBatches batches(
      images, {.batch = o.micro_batch, .shuffle = true, .seed = o.seed, .device = device});
  const auto optimizer = make_optimizer(o, model, batches.samples());
  firn::dist::Pipeline* const pipeline = divided != nullptr ? &divided->pipeline() : nullptr;
  Trainer trainer(model, *optimizer, batches, o, pipeline);
  if (o.show_graph) {
    print_graph(trainer.nodes());
    return;
  }
  Saver saver(o, trainer, *optimizer, log, leads);
  if (divided != nullptr)
    firn::dist::distribute(*optimizer, divided->mesh(), {.zero = o.zero});
  else
    firn::dist::distribute(*optimizer, group, {.zero = o.zero});
  const bool resumed = saver.resume();
  const std::int64_t parameters =
      divided != nullptr ? divided->num_parameters() : model.num_parameters();
  if (leads) print_start(o, set, parameters, *optimizer);
  log.open(saver.log_bytes());
  if (!resumed) log.start(o, set, parameters);

  EpochReport last;
  for (int epoch = saver.epochs_done() + 1; epoch <= o.epochs; ++epoch) {
    last = run_epoch(epoch, o, trainer, *optimizer, model, test, saver, device, group, pipeline);
    if (leads) print_epoch(last);
    log.epoch(last);
    if (!std::isfinite(last.train_loss) || !std::isfinite(last.test_loss))
      throw firn::Error("fashion_mnist",
                        "the loss is not finite after epoch " + std::to_string(epoch),
                        "use a smaller --lr");
    saver.after_epoch(last.test_loss);
  }
  const auto averaged = average_of(o, *optimizer);
  if (last.epoch == 0) test_into(last, o, model, test);  // resumed after the last epoch
  const auto whole = divided != nullptr ? divided->whole() : nullptr;
  const firn::optim::WholeWeights here(*optimizer);
  if (leads) conclude(o, whole ? *whole : model, &last, picture, device);
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
  EpochReport tested;
  test_into(tested, o, *model, test);
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
  sample::handle_interrupts();
  try {
    sample::run(*options);
    return 0;
  } catch (const sample::Interrupted& e) {
    sample::print_error(e.what());
    return sample::kInterruptedExit;
  } catch (const std::exception& e) {
    sample::print_error(e.what());
    return 1;
  }
}
