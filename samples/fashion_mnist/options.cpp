// Options are checked by the parser, so that a mistake is told before anything is loaded.
#include "options.h"

#include <CLI/CLI.hpp>
#include <string>

#include "firn/device.h"
#include "revision.h"

namespace sample {

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options o;
  CLI::App app{"Trains a model on FashionMNIST."};
  app.set_version_flag("--version", std::string(kVersion) + " (" + kRevision + ")");
  app.add_option("--model", o.model, "mlp: 784-512-512-10 with ReLU")
      ->check(CLI::IsMember({"mlp"}))
      ->capture_default_str();
  app.add_option("--epochs", o.epochs, "passes over the training images")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--batch", o.batch, "images per step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{60'000}))
      ->capture_default_str();
  auto* lr = app.add_option("--lr", o.lr, "learning rate [0.001 for adam and adamw, 0.1 for sgd]")
                 ->check(CLI::PositiveNumber);
  app.add_option("--optimizer", o.optimizer, "sgd, adam or adamw")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of the initial weights and the order of the images")
      ->capture_default_str();
  auto* threads = app.add_option("--threads", o.threads, "CPU threads [all]; results are the same")
                      ->check(CLI::Range(1, 4096));
  app.add_option("--device", o.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--data", o.data,
                 "folder with the four IDX files [$FIRN_DATA, data/fashion-mnist, "
                 "/usr/share/datasets/fashion-mnist]");
  app.add_option("--log", o.log, "write one JSON object per epoch to this file");
  app.add_option("--save", o.save, "write the trained weights to this safetensors file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    exit_code = app.exit(e);
    return std::nullopt;
  }
  if (lr->count() == 0) o.lr = o.optimizer == "sgd" ? 0.1 : 0.001;
  if (threads->count() == 0) o.threads = firn::num_threads();
  return o;
}

}  // namespace sample
