#include "memory/planned_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "firn/runtime/kernel_support.h"
#include "support/values.h"

namespace firn::testing {
namespace {

std::string shown(const Tensor& t) {
  if (!t.defined()) return "undefined";
  std::string out =
      fmt::format("{} version {} grad {}:", describe(t), t.storage()->version(), t.requires_grad());
  for (const double v : values_of(t)) out += fmt::format(" {:a}", v);
  return out;
}

std::string shown(const std::vector<metrics::Value>& values) {
  std::string out;
  for (const auto& [name, value] : values) out += fmt::format("{} {:a} ", name, value);
  return out;
}

void add(std::vector<std::string>& out, const std::string& what, const optim::Optimizer& opt) {
  out.push_back(fmt::format("{}: {}, lr {}, position {} of {}, scale {}, {}", what,
                            optim::describe(opt), opt.lr(), opt.cycle_position(),
                            opt.cycle_length(), opt.loss_scale(), to_string(opt.last_report())));
  for (const auto& [name, t] : opt.state())
    out.push_back(fmt::format("{} {}: {}", what, name, shown(t)));
}

void add(std::vector<std::string>& out, nn::Module& m) {
  for (const auto& [name, module] : m.named_modules())
    out.push_back(fmt::format("module {}: training {}, autocast {}, checkpoint {}", name,
                              module->training(), module->autocast().has_value(),
                              module->checkpoint_options().has_value()));
  for (const auto& list : {m.named_parameters(), m.named_buffers()})
    for (const auto& [name, t] : list) {
      out.push_back(fmt::format("{}: {}", name, shown(t)));
      if (t.requires_grad())
        out.push_back(fmt::format("gradient of {}: {}", name, shown(t.grad())));
    }
}

}  // namespace

PlannedWorld::PlannedWorld() {
  nn::init::normal_(blocks.blocks[0].a.weight);
  x = randn({8, 4});
  y = tensor<std::int64_t>({0, 1, 2, 0, 1, 2, 0, 1}, {8});
  number = full({3}, 0.5);
  mask = tensor<float>({0, 1, 0}, {3}).to(boolean);
  integers = tensor<std::int64_t>({1, 2, 3}, {3});
  leaf = full({3}, 0.5).set_requires_grad();
  other_leaf = full({3}, 0.5);
  backward(sum(leaf * 2.0));
  leaf_hook = add_hook(leaf, [this](const Tensor&) {
    if (!runtime::planning()) ++hooked;  // what a hook counts is the program's
    return Tensor();
  });
  activation = blocks(x);  // a graph that goes on after the plan
  backward(sum(blocks(x)));
  module_hook =
      blocks.add_forward_hook([this](nn::Module&, const nn::CallTensors&, const nn::CallTensors&) {
        if (!runtime::planning()) ++module_hooked;
      });
  net.to(f16);
  opt = std::make_unique<optim::AdamW>(
      net.parameters(), optim::AdamWOptions{.lr = 0.01},
      optim::StepOptions{.accumulate = {{0, 2}, {3, 4}},
                         .loss_scale = optim::LossScale::dynamic({.init = 1024}),
                         .max_skips = 2,
                         .ema = 0.9});
  scaler.emplace(optim::LossScale::dynamic({.init = 256}));
  const Tensor w = full({3}, 0.5).set_requires_grad();
  shared = std::make_unique<optim::AdamW>(std::vector<Tensor>{w}, optim::AdamWOptions{},
                                          optim::StepOptions{.scaler = *scaler});
  const data::LabelledImages images{(abs(randn({12, 2, 2})) * 50.0).to(u8), y.slice(0, 0, 4)};
  const data::LabelledImages set{images.images, cat({images.labels, y}, 0)};
  loader = std::make_unique<data::Loader>(data::ImageDataset(set),
                                          data::LoaderOptions{.batch = 4, .shuffle = true});
  batches = std::make_unique<data::ResidentBatches>(
      data::ImageDataset(set), data::LoaderOptions{.batch = 4, .shuffle = true});
  records.emplace(folder.file("records"));
  records->write({x});
  checkpoints.emplace(folder.file("checkpoints"));
  log.emplace(folder.file("log"));
  for (int i = 0; i < 2; ++i) train();
  start.emplace();
  train();
  loader->seek({0, 4});
  batches->next();
  const Tensor logits = randn({8, 3});
  accuracy.update(logits, y);
  auroc.update(logits.select(1, 0), minimum(y, 1));
  confusion.update(logits, y);
  mistakes.update_from(x, logits, y);
  mean.add(cross_entropy(logits, y));
  plateau.observe(1);
  const NoGrad guard;
  fill_(net.in.weight, 0.25);  // to be taken over by the next step
}

Loss PlannedWorld::loss(std::int64_t first, std::int64_t last) {
  return cross_entropy(net(x.slice(0, first, last).to(f16)), y.slice(0, first, last));
}

void PlannedWorld::train() {
  opt->backward(loss());
  opt->step();
}

std::vector<std::string> PlannedWorld::seen() {
  std::vector<std::string> out;
  const auto key = [&](const char* what, const Generator& g) {
    out.push_back(fmt::format("{}: {} {}", what, g.get().seed, g.get().offset));
  };
  const auto position = [&](const char* what, data::LoaderPosition p) {
    out.push_back(fmt::format("{}: sample {} of epoch {}", what, p.sample, p.epoch));
  };
  add(out, "optimizer", *opt);
  add(out, "shared", *shared);
  out.push_back(fmt::format("shared scale {}", scaler->scale()));
  for (const Tensor& t : optim::ema(*opt)) out.push_back("average: " + shown(t));
  add(out, net);
  add(out, blocks);
  for (const Tensor& t : {x, y, number, mask, leaf, other_leaf, integers, activation})
    out.push_back(shown(t));
  out.push_back("gradient of the leaf: " + shown(leaf.grad()));
  out.push_back(fmt::format("hooks {} {}", hooked, module_hooked));
  position("loader", loader->position());
  position("batches", batches->position());
  const data::LoaderStats s = loader->stats();
  out.push_back(fmt::format("loader: {} {} {} {}", s.samples, s.batches, s.bytes, s.skipped));
  out.push_back(shown(accuracy.values()) + shown(auroc.values()) + shown(confusion.values()));
  out.push_back(fmt::format("mean loss {:a}, plateau {}", mean.value(), plateau.lr()));
  for (const metrics::Mistake& m : mistakes.list())
    out.push_back(fmt::format("mistake {} {} {:a}", m.target, m.predicted, m.probability));
  key("this thread's stream", default_generator());
  key("own stream", generator);
  out.push_back(fmt::format("{} records, {} bytes of log", records->size(), log->bytes()));
  for (const std::string& file : files()) out.push_back(file);
  const MemoryStats m = memory_stats();  // the last line
  out.push_back(fmt::format("threads {}, tf32 {}, bf16x3 {}, invariant {}, limit {}, peak {}",
                            num_threads(), tf32_allowed(), bf16x3_allowed(),
                            batch_invariance_required(), m.limit, m.total.peak) +
                (nondeterministic_allowed() ? " nondeterministic" : ""));
  return out;
}

std::vector<std::string> PlannedWorld::later() {
  backward(sum(activation));
  backward(sum(leaf * leaf));
  blocks(x);
  for (int i = 0; i < 5; ++i) train();
  for (auto& batch : loader->epoch(0)) mean.add(mse_loss(batch.x(), batch.x() * 0.5));
  while (batches->remaining() > 0) batches->next();
  randn({3}, {.generator = &generator});
  records->write({y});
  records->finish();
  checkpoints->save(7, {*opt});
  log->write(train::Record("note"));
  std::vector<std::string> out = seen();
  out.pop_back();  // peaks of memory are those of all tests so far
  start->roll_back();
  for (std::string& line : seen()) out.push_back(std::move(line));
  out.pop_back();
  return out;
}

std::vector<std::string> PlannedWorld::files() const {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    std::string name = entry.path().lexically_relative(folder.path()).string();
    // A file that is being written has a random end of its name.
    if (const auto temporary = name.find(".tmp"); temporary != std::string::npos)
      name.resize(temporary);
    out.push_back(
        fmt::format("file {}: {} bytes", name, entry.is_regular_file() ? entry.file_size() : 0));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace firn::testing
