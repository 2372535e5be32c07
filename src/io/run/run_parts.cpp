#include "io/run/run_parts.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "autograd/cycle.h"
#include "base/check.h"
#include "firn/dist/group.h"
#include "firn/nn/layers/batch_norm.h"
#include "firn/optim/optimizer.h"
#include "firn/random.h"
#include "firn/warning.h"
#include "nn/shown_weights.h"
#include "nn/tree.h"
#include "optim/inside.h"
#include "optim/report/describe.h"
#include "tensor/impl.h"

namespace firn::io {
namespace {

constexpr const char* kRng = "rng";

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

template <class T>
Tensor numbers(std::initializer_list<T> values) {
  const Tensor t = empty({static_cast<std::int64_t>(values.size())}, dtype_of<T>, Device::cpu());
  std::memcpy(t.mutable_view().data, values.begin(), values.size() * sizeof(T));
  return t;
}

Tensor numbers_of(const RandomKey& key) {
  return numbers({std::bit_cast<std::int64_t>(key.seed), std::bit_cast<std::int64_t>(key.offset)});
}

RunSlot slot_of(std::string name, Generator& g) {
  RunSlot slot{std::move(name), numbers_of(g.get())};
  slot.is_stream = true;
  slot.prepare = [&g](const Tensor& read) {
    const auto* const words = read.view().as<std::int64_t>();
    RandomKey restored = g.get();
    restored.seed = std::bit_cast<std::uint64_t>(words[0]);
    restored.offset = std::bit_cast<std::uint64_t>(words[1]);
    return [&g, restored] { g.set(restored); };
  };
  return slot;
}

template <class T>
RunSlot slot_of(std::string name, T& number) {
  RunSlot slot{std::move(name), numbers<T>({number}).reshape({})};
  slot.prepare = [&number](const Tensor& read) {
    return [&number, value = *read.view().as<T>()] { number = value; };
  };
  return slot;
}

/// Makes the slot of a description, as bytes.
RunSlot slot_of_text(std::string name, const std::string& words, RunSlot::Text kind) {
  RunSlot slot{std::move(name),
               empty({static_cast<std::int64_t>(words.size())}, u8, Device::cpu())};
  if (!words.empty()) std::memcpy(slot.tensor.mutable_view().data, words.data(), words.size());
  slot.text = kind;
  return slot;
}

std::vector<RunSlot> module_slots(const std::string& prefix, nn::Module& module) {
  FIRN_CHECK(!nn::detail::was_moved_from(module), "RunPart", "name the module that it was moved to",
             "the module {}was moved from and holds nothing",
             prefix.empty() ? "" : fmt::format("\"{}\" ", prefix));
  nn::detail::show_training_weights(module);
  std::vector<RunSlot> out;
  const auto tree = nn::detail::tree_of(module);
  nn::detail::for_each_tensor(tree, [&](const nn::detail::TreeTensor& t) {
    RunSlot slot{join(prefix, t.path), t.tensor.detach()};
    slot.of_module = true;
    out.push_back(std::move(slot));
  });
  for (const auto& m : tree)
    for (const auto& [path, stream] : m.streams)
      out.push_back(slot_of(join(prefix, path), *stream));
  return out;
}

std::vector<RunSlot> optimizer_slots(const std::string& prefix, optim::Optimizer& optimizer,
                                     SlotsOf whose) {
  std::vector<RunSlot> out;
  optim::SavedState saved =
      optim::state_to_save(optimizer, whose == SlotsOf::all_ranks, "RunPart", prefix);
  const auto& state = saved.entries;
  const std::string touched_name = join(prefix, "touched");
  std::vector<std::uint8_t> touched;
  for (const auto& e : state)
    if (e.name == "touched") touched = e.tensor.to_vector<std::uint8_t>();
  std::int64_t parameter = -1;
  for (const optim::StateEntry& e : state) {
    RunSlot slot{join(prefix, e.name), e.tensor, e.prepare};
    slot.begin = e.begin;
    slot.any_rows = e.any_rows;
    slot.codes_of = e.codes_of;
    slot.parts = e.parts;
    if (e.name.ends_with(".weight")) {
      ++parameter;
      slot.is_weight = true;
    }
    if (e.name.ends_with(".gradient")) {
      slot.needed_by = touched_name;
      slot.index = parameter;
      slot.left_out = !touched[static_cast<std::size_t>(parameter)];
    }
    if (e.name == "kind") slot.text = RunSlot::Text::must_agree;
    out.push_back(std::move(slot));
  }
  out.push_back(slot_of_text(join(prefix, "settings"), optim::describe_settings(optimizer),
                             RunSlot::Text::may_differ_if_allowed));
  out.back().not_saved = saved.not_saved;
  out.back().in_batch = saved.in_batch;
  out.back().random_in_batch = saved.random_in_batch;
  if (!saved.place.empty())
    out.push_back(slot_of_text(join(prefix, "place"), saved.place, RunSlot::Text::must_agree));
  return out;
}

/// Makes the slots of a source of batches: its position, and a text that describes its order.
std::vector<RunSlot> batch_slots(const std::string& name, const Resumable& batches) {
  const BatchPosition at = batches.position();
  const BatchPosition before = RunAccess::before_batch(batches);
  RunSlot slot{name, numbers({at.epoch, at.sample})};
  slot.before_batch = numbers({before.epoch, before.sample});
  slot.prepare = [name, &batches](const Tensor& read) -> std::function<void()> {
    const auto* const words = read.view().as<std::int64_t>();
    const BatchPosition to{words[0], words[1]};
    const std::int64_t samples = RunAccess::set_size(batches);
    FIRN_CHECK(to.epoch >= 0 && to.sample >= 0 && to.sample <= samples, "load_run",
               "the file was not written by save_run()",
               "\"{}\" is at sample {} of epoch {}, and the set has {} samples", name, to.sample,
               to.epoch, samples);
    return RunAccess::prepare_seek(batches, to);
  };
  return {std::move(slot),
          slot_of_text(name + ".order", batches.order_description(), RunSlot::Text::must_agree)};
}

template <class Fn>
std::shared_ptr<const RunPart::Source> source_of(const void* object, Fn&& slots) {
  return std::make_shared<const RunPart::Source>(RunPart::Source{object, std::forward<Fn>(slots)});
}

/// Makes the source of a part that is one value.
template <class T>
std::shared_ptr<const RunPart::Source> source_of_one(std::string name, T& value) {
  return source_of(&value, [name = std::move(name), &value](SlotsOf) {
    return std::vector<RunSlot>{slot_of(name, value)};
  });
}

std::shared_ptr<const RunPart::Source> source_of_module(std::string name, nn::Module& module) {
  RunPart::Source out{
      &module, [name = std::move(name), &module](SlotsOf) { return module_slots(name, module); }};
  out.own_statistics = [&module]() -> std::string {
    for (const auto& m : nn::detail::tree_of(module)) {
      const auto* const norm = dynamic_cast<const nn::BatchNorm*>(m.module);
      if (norm && norm->running_mean.defined() && norm->training() &&
          norm->accumulation() == nn::BatchNormMode::per_micro_batch)
        return m.path.empty() ? norm->type_name() : m.path;
    }
    return {};
  };
  return std::make_shared<const RunPart::Source>(std::move(out));
}

void check_name(const std::string& name) {
  FIRN_CHECK(!name.empty(), "RunPart", "it is its name in the file", "a part's name is empty");
}

}  // namespace

RunPart::RunPart(nn::Module& module) : source_(source_of_module("", module)) {}
RunPart::RunPart(std::string name, nn::Module& module) {
  check_name(name);
  source_ = source_of_module(std::move(name), module);
}
RunPart::RunPart(optim::Optimizer& optimizer) : RunPart("optim", optimizer) {}
RunPart::RunPart(std::string name, optim::Optimizer& optimizer) {
  check_name(name);
  source_ = std::make_shared<const RunPart::Source>(
      RunPart::Source{&optimizer,
                      [name = std::move(name), &optimizer](SlotsOf whose) {
                        return optimizer_slots(name, optimizer, whose);
                      },
                      [&optimizer] { return optim::ranks_of(optimizer); },
                      [&optimizer] { optim::gather_state(optimizer); },
                      [&optimizer] { optim::adopt_gradients(optimizer); }});
}
RunPart::RunPart(Resumable& batches) : RunPart("loader", batches) {}
RunPart::RunPart(std::string name, Resumable& batches) {
  check_name(name);
  source_ = source_of(
      &batches, [name = std::move(name), &batches](SlotsOf) { return batch_slots(name, batches); });
}
RunPart::RunPart(std::string name, Generator& generator) {
  check_name(name);
  source_ = source_of_one(std::move(name), generator);
}
RunPart::RunPart(std::string name, const Tensor& tensor) {
  check_name(name);
  FIRN_CHECK(tensor.defined(), "RunPart", "give a tensor that was made",
             "tensor \"{}\" is undefined", name);
  source_ = source_of(tensor.view().data, [name = std::move(name), t = tensor.detach()](SlotsOf) {
    return std::vector<RunSlot>{RunSlot{name, t}};
  });
}
RunPart::RunPart(std::string name, std::int64_t& number) {
  check_name(name);
  source_ = source_of_one(std::move(name), number);
}
RunPart::RunPart(std::string name, double& number) {
  check_name(name);
  source_ = source_of_one(std::move(name), number);
}

RunPart optional_part(RunPart part) {
  RunPart::Source source = RunAccess::source(part);
  source.optional = true;
  RunAccess::set_source(part, std::make_shared<const RunPart::Source>(std::move(source)));
  return part;
}

autograd::StepRanks ranks_of(std::span<const RunPart> parts) {
  for (const RunPart& part : parts)
    if (const auto& ranks = RunAccess::source(part).ranks) {
      const autograd::StepRanks found = ranks();
      if (found.copies || found.model) return found;
    }
  return {};
}

void on_first_copy(const char* op, const autograd::StepRanks& ranks,
                   const std::function<void()>& function) {
  autograd::on_every_rank(op, ranks, [&] {
    if (!ranks.copies || ranks.copies->rank() == 0) function();
  });
}

void load_on_every_rank(const char* op, const autograd::StepRanks& ranks,
                        const std::function<void()>& function) {
  bool done = false;
  try {
    autograd::on_every_rank(op, ranks, [&] {
      function();
      done = true;
    });
  } catch (const dist::RankError& e) {
    if (!done || e.op() == op) throw;  // another rank has failed; else the group is broken
  }
}

void warn_of_own_statistics(const char* op, std::span<const RunPart> parts,
                            const autograd::StepRanks& ranks) {
  if (!ranks.copies || ranks.copies->size() == 1 || ranks.copies->rank() > 0) return;
  for (const RunPart& part : parts) {
    const auto& own_statistics = RunAccess::source(part).own_statistics;
    const std::string layer = own_statistics ? own_statistics() : "";
    if (layer.empty()) continue;
    return warn(op,
                fmt::format("all {} ranks go on with the running statistics of {} in the file, "
                            "which are those of one rank's samples",
                            ranks.copies->size(), layer),
                "nn::convert_batch_norm(net, nn::BatchNormMode::per_step) keeps them equal on all "
                "ranks");
  }
}

void require_own_path(const char* op, const std::string& path, const autograd::StepRanks& ranks) {
  if (!ranks.model || runtime::dry_run()) return;
  const std::int64_t n = ranks.model->size();
  const Tensor mine = empty({1}, i64, Device::cpu()), all = empty({n}, i64, Device::cpu());
  *mine.mutable_view().as<std::int64_t>() =
      static_cast<std::int64_t>(std::hash<std::string>()(path));
  ranks.model->all_gather(mine, all);
  const auto* const of = all.view().as<std::int64_t>();
  autograd::on_every_rank(op, ranks.copies, [&] {
    for (std::int64_t r = 1; r < n; ++r) {
      const std::int64_t same = std::find(of, of + r, of[r]) - of;
      FIRN_CHECK(same == r, op, "give each rank of mesh.copy() a path of its own, by its number",
                 "ranks {} and {} have different parts of the model, and both would write to {}",
                 same, r, path);
    }
  });
}

std::vector<RunSlot> slots_of(const char* op, std::span<const RunPart> parts, SlotsOf whose) {
  std::vector<RunSlot> all;
  std::map<const void*, std::string> objects;
  std::int64_t optional_parts = 0;
  for (const RunPart& part : parts) {
    const RunPart::Source& source = RunAccess::source(part);
    std::vector<RunSlot> slots = source.slots(whose);
    const std::string first = slots.empty() ? "" : slots.front().name;
    const auto [at, is_new] = objects.emplace(source.object, first);
    // A tensor without elements has no address of its own.
    const bool twice = !is_new && source.object != nullptr;
    FIRN_CHECK(!twice || first != at->second, op, "name each object once", "{} is given twice",
               first.empty() ? "a part" : fmt::format("the part with \"{}\"", first));
    FIRN_CHECK(!twice, op, "name each object once", "\"{}\" is the same object as \"{}\"", first,
               at->second);
    const std::int64_t optional_part = source.optional ? ++optional_parts : 0;
    for (RunSlot& slot : slots) {
      slot.optional_part = optional_part;
      all.push_back(std::move(slot));
    }
  }
  // Asking for the address of a sharded weight would gather it.
  const auto place_of = [](const RunSlot& s) {
    const auto& storage = s.tensor.storage();
    const void* const address = storage->is_provided() ? &*storage : s.tensor.view().data;
    return std::pair<const void*, std::int64_t>(address, s.tensor.numel());
  };
  std::map<std::pair<const void*, std::int64_t>, RunSlot*> of_modules;
  for (RunSlot& slot : all)
    if (slot.of_module) of_modules.emplace(place_of(slot), &slot);
  std::set<std::string> left_out;
  for (RunSlot& slot : all) {
    if (!slot.is_weight) continue;
    const auto of_module = of_modules.find(place_of(slot));
    if (of_module == of_modules.end()) continue;
    of_module->second->parts = slot.parts;
    of_module->second->prepare = slot.prepare;
    left_out.insert(slot.name);
  }
  std::erase_if(
      all, [&](const RunSlot& slot) { return slot.is_weight && left_out.contains(slot.name); });

  std::set<std::string_view> names;
  for (const RunSlot& slot : all) {
    FIRN_CHECK(!slot.name.starts_with("firn."), op, "give the part another name",
               "the name \"{}\" begins with \"firn.\", which is reserved", slot.name);
    FIRN_CHECK(names.insert(slot.name).second, op, "give each a name of its own: {\"name\", part}",
               "two parts of the run have a \"{}\"", slot.name);
  }
  if (names.contains(kRng)) return all;
  RunSlot rng = slot_of(kRng, default_generator());
  for (const RunSlot& slot : all)
    if (slot.random_in_batch) rng.before_batch = numbers_of(*slot.random_in_batch);
  all.push_back(std::move(rng));
  return all;
}

}  // namespace firn::io
