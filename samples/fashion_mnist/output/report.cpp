#include "output/report.h"

#include <cstdio>

#include "firn/train/progress.h"
#include "output/drawing.h"

namespace sample {

using firn::train::grouped;

namespace {

/// One line with the optimizer's description of a step and its changes in later epochs.
std::string step_summary(const Options& o, const firn::optim::Optimizer& optimizer) {
  std::string text = firn::optim::describe(optimizer, o.batch > 0 ? o.batch : o.micro_batch);
  if (o.ranks > 1) text += ", " + std::to_string(o.ranks) + " ranks";
  if (o.tensor_parallel > 1) text += ", " + std::to_string(o.tensor_parallel) + " divide a layer";
  if (o.pipeline > 1) text += ", " + std::to_string(o.pipeline) + " stages";
  constexpr const char* kDivided[] = {"", "state", "state and gradients",
                                      "state, gradients and weights"};
  if (o.zero > 0) text += std::string(", ") + kDivided[o.zero] + " divided among them";
  for (std::size_t i = 1; i < o.accumulate.size(); ++i) {
    const auto& [epoch, steps] = o.accumulate[i];
    text += "; from epoch " + std::to_string(epoch + 1) + " on " + std::to_string(o.micro_batch) +
            " x " + std::to_string(steps) + " = " + std::to_string(o.micro_batch * steps);
  }
  return text;
}

}  // namespace

void print_start(const Options& o, const firn::data::FashionMnist& set, std::int64_t parameters,
                 const firn::optim::Optimizer& optimizer) {
  std::printf("data   %s: %s training and %s test images\n", set.folder.c_str(),
              grouped(set.train.size()).c_str(), grouped(set.test.size()).c_str());
  std::printf("model  %s, %s parameters\n", o.model.c_str(), grouped(parameters).c_str());
  std::printf("run    %s, %s schedule, seed %llu, %s, %d threads\n", o.precision.c_str(),
              o.schedule.c_str(), static_cast<unsigned long long>(o.seed), o.device.c_str(),
              o.threads);
  std::printf("step   %s\n\n", step_summary(o, optimizer).c_str());
  std::fflush(stdout);
}

void print_end(const Evaluation& last, const std::string& hash) {
  std::printf("\ntest images by true class (rows) and predicted class (columns)\n%s",
              confusion_table(last.confusion, firn::data::FashionMnist::kClassNames).c_str());
  if (!hash.empty()) std::printf("\nweights %s", hash.c_str());
  std::printf("\ntest accuracy %.4f\n", last.accuracy);
  std::fflush(stdout);
}

void print_graph(const std::vector<std::string>& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) std::printf("%3zu  %s\n", i + 1, nodes[i].c_str());
  std::printf("%zu nodes in the graph of a step\n", nodes.size());
  std::fflush(stdout);
}

firn::train::Record settings_of(const Options& o, const firn::data::FashionMnist& set,
                                std::int64_t parameters) {
  using firn::train::Record;
  std::vector<Record> accumulate;
  for (const auto& [epoch, steps] : o.accumulate)
    accumulate.push_back(Record().add("epoch", epoch).add("steps", steps));
  Record r;
  r.add("program", "fashion_mnist")
      .add("model", o.model)
      .add("precision", o.precision)
      .add("micro_batch", o.micro_batch)
      .add("ranks", o.ranks)
      .add("tensor_parallel", o.tensor_parallel)
      .add("pipeline", o.pipeline)
      .add("exact", o.exact)
      .add("zero", o.zero)
      .add("accumulate", std::span<const Record>(accumulate))
      .add("batch", o.effective_batch(0))
      .add("loss_scale", o.loss_scale)
      .add("clip", o.clip)
      .add("ema", o.ema)
      .add("label_smoothing", o.label_smoothing);
  if (o.weight_decay)
    r.add("weight_decay", *o.weight_decay);
  else
    r.add("weight_decay", std::nullopt);
  return r
      .add("augment", Record()
                          .add("crop_padding", o.augment.crop_padding)
                          .add("flip", o.augment.flip)
                          .add("erase", o.augment.erase))
      .add("schedule", o.schedule)
      .add("warmup", o.warmup)
      .add("lr", o.lr)
      .add("optimizer", o.optimizer)
      .add("seed", o.seed)
      .add("threads", o.threads)
      .add("device", o.device)
      .add("data", set.folder)
      .add("save", o.save)
      .add("load", o.load)
      .add("parameters", parameters)
      .add("train_samples", set.train.size())
      .add("test_samples", set.test.size());
}

void describe(const Evaluation& tested, const Options& o, firn::train::EpochReport& report) {
  const auto& names = firn::data::FashionMnist::kClassNames;
  const std::vector<std::string> classes(names.begin(), names.end());
  report.details.add("effective_batch", o.effective_batch(report.epoch - 1))
      .add("classes", std::span<const std::string>(classes))
      .add("class_accuracy", std::span<const double>(tested.class_accuracy))
      .add("confusion", std::span<const std::vector<std::int64_t>>(tested.confusion));
  tested.mistakes.add_details(report.details);
}

}  // namespace sample
