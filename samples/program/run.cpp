// The program of a sample: trains or tests, and reports the results.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "firn/firn.h"
#include "firn/io/safetensors.h"
#include "program/plan.h"
#include "program/report.h"
#include "program/trainer.h"
#ifdef SAMPLE_HAS_MPI
#include "firn/dist/mpi.h"
#endif
#ifdef SAMPLE_HAS_NCCL
#include "firn/dist/nccl.h"
#endif

namespace sample {
namespace {

constexpr int kInterruptedExit = 130;  // 128 + SIGINT, as shells count

struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns the group of the processes that mpirun has started; a group of one rank without mpirun.
firn::dist::Group job_group() {
#ifdef SAMPLE_HAS_MPI
  if (job_size() > 1) return firn::dist::mpi_group();
#endif
  return {};
}

/// Returns the group in which `hosts` train. With --device cuda, each rank has its own device, and
/// processes of several machines take their machine's devices in turn. Otherwise it is `hosts`.
firn::dist::Group training_group(const firn::dist::Group& hosts, firn::Device device) {
  if (hosts.size() == 1 || device.is_cpu()) return hosts;
#ifdef SAMPLE_HAS_NCCL
  const int devices = firn::cuda_device_count();
  if (hosts.kind() == "local" && hosts.size() > devices)
    throw firn::Error("ranks",
                      std::to_string(hosts.size()) + " ranks need as many GPUs, and there are " +
                          std::to_string(devices),
                      "give fewer --ranks");
  return firn::dist::nccl_group(hosts, firn::Device::cuda(hosts.rank() % devices));
#else
  throw firn::Error("ranks", "this firn was built without NCCL, which ranks on devices need",
                    "install NCCL's header and build anew, or leave out --device");
#endif
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

/// Ends a run. `model` is the whole model; with a test, its results are the last lines.
void conclude(const Options& o, Training& training, firn::nn::Module& model, bool tested) {
  if (!o.save.empty()) {
    firn::io::save_safetensors(o.save, firn::io::state_of(model));
    std::printf("\nweights saved to %s\n", o.save.c_str());
  }
  if (o.hash && !tested) std::printf("weights %s\n", hash_of(model).c_str());
  training.show(model);
  if (!tested) return;
  if (const std::string details = training.details(); !details.empty())
    std::printf("\n%s", details.c_str());
  if (o.hash) std::printf("\nweights %s", hash_of(model).c_str());
  std::printf("\n%s\n", training.result().c_str());
  std::fflush(stdout);
}

/// Returns the options of fit(), whose evaluations set `tested`.
firn::train::FitOptions fit_options(const Options& o, const About& about, Training& training,
                                    const firn::dist::Group& group, bool& tested) {
  firn::train::FitOptions options{.epochs = o.epochs, .group = group};
  options.evaluate = [&o, &training, &tested] {
    tested = true;
    return evaluate(training, o.precision);
  };
  options.callbacks.on_epoch_end = [&](firn::train::Loop&, firn::train::EpochReport& r) {
    r.details.add("effective_batch", o.effective_batch(r.epoch - 1));
    training.describe_epoch(r.details);
    if (!std::isfinite(r.train_loss) || !std::isfinite(r.validation_loss))
      throw firn::Error(about.program,
                        "the loss is not finite after epoch " + std::to_string(r.epoch),
                        "use a smaller --lr");
  };
  if (!o.checkpoint.empty() && !o.resume && !firn::io::Checkpoints(o.checkpoint).list().empty())
    throw firn::IoError("checkpoint", o.checkpoint, "has checkpoints of an earlier run",
                        "give --resume to go on with it, or another folder");
  options.checkpoint = {.folder = o.checkpoint, .every = o.checkpoint_every, .resume = o.resume};
  return options;
}

void train(const About& about, const Options& asked, Training& training, firn::Device device,
           const firn::dist::Group& group) {
  const bool leads = group.rank() == 0;  // only one rank prints and writes
  if (asked.plan) {
    print_cuts(asked, plan_cuts(asked, training, about, device));
    return;
  }
  const Options o = fitted(asked, training, about, device);
  Batches batches = training.batches(o);
  const std::int64_t samples = std::visit([](const auto& b) { return b.samples(); }, batches);
  const auto optimizer = make_optimizer(o, training.model(), samples, about.program);
  Trainer trainer(training, *optimizer, batches, o);
  if (o.show_graph) {
    print_graph(trainer.nodes(about.program));
    return;
  }
  Sharded* const sharded = training.sharded();
  if (sharded != nullptr)
    firn::dist::distribute(*optimizer, sharded->mesh(), {.zero = o.zero});
  else
    firn::dist::distribute(*optimizer, group, {.zero = o.zero});
  const std::int64_t parameters =
      sharded != nullptr ? sharded->num_parameters() : training.model().num_parameters();
  if (leads) print_start(o, training, parameters, *optimizer);

  bool tested = false;
  firn::train::FitOptions options = fit_options(o, about, training, group, tested);
  if (!o.log.empty())
    options.log = {.path = o.log,
                   .every = o.log_every,
                   .settings = settings_of(o, about, training, parameters, samples)};
  const auto done = trainer.fit(options);
  if (done.ended == firn::train::Ended::interrupted)
    throw Interrupted(o.checkpoint.empty()
                          ? "interrupted"
                          : "interrupted: the run is saved in " + o.checkpoint + " after step " +
                                std::to_string(done.applied_steps) +
                                "; the same command with --resume goes on");
  std::optional<firn::optim::AveragedWeights> averaged;
  if (o.ema > 0) averaged.emplace(*optimizer);
  if (!tested) evaluate(training, o.precision);  // the run was resumed after the last epoch
  const auto whole = sharded != nullptr ? sharded->whole() : nullptr;
  const firn::optim::GatheredWeights here(*optimizer);
  if (leads) conclude(o, training, whole ? *whole : training.model(), true);
}

void train_or_test(Sample& sample, const Options& o) {
  const About about = sample.about();
  const firn::dist::Group job = job_group();
  const firn::Device device = firn::Device::parse(o.device);
  firn::require_device(about.program.c_str(), device);
  firn::set_num_threads(o.threads);
  check_save_path(o.save);
  sample.prepare(o);
  const auto train_rank = [&](const firn::dist::Group& hosts) {
    const firn::dist::Group group = training_group(hosts, device);
    const firn::Device own = group.size() > 1 ? group.device() : device;
    firn::manual_seed(o.seed);
    const auto training = sample.training(o, own, group);
    train(about, o, *training, own, group);
  };
  if (o.epochs > 0 && o.ranks > 1 && job.size() == 1)
    return firn::dist::run_local(o.ranks, train_rank);
  if (o.epochs > 0) return train_rank(job);

  // Without epochs, the loaded weights are used unchanged.
  firn::manual_seed(o.seed);
  const auto training = sample.training(o, device, job);
  const bool tests = sample.tests_loaded();
  if (tests) evaluate(*training, o.precision);
  conclude(o, *training, training->model(), tests);
}

/// Runs with a profile, and prints it even if the run is interrupted or fails.
void run_profiled(Sample& sample, const Options& o) {
  firn::Profile profile({.trace = o.profile});
  const auto finish = [&] {
    profile.stop();
    std::printf("\n%s\n%s\ntrace written to %s\n", profile.table().c_str(),
                profile.table(firn::ProfileBy::phase).c_str(), o.profile.c_str());
  };
  try {
    train_or_test(sample, o);
  } catch (...) {
    finish();
    throw;
  }
  finish();
}

}  // namespace

int run(Sample& sample, int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse_options(sample, argc, argv, exit_code);
  if (!options) return exit_code;
  try {
    options->profile.empty() ? train_or_test(sample, *options) : run_profiled(sample, *options);
    return 0;
  } catch (const Interrupted& e) {
    print_error(e.what());
    return kInterruptedExit;
  } catch (const std::exception& e) {
    print_error(e.what());
    return 1;
  }
}

}  // namespace sample
