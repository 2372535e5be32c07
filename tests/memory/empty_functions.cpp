// An empty std::function is refused where it is given, by an error that names the call.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "firn/memory/reserve.h"
#include "firn/runtime/graph.h"
#include "firn/runtime/kernel_support.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

/// Returns the text of the exception that the call throws.
std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("not an Error: ") + e.what();
  }
  return "nothing was thrown";
}

struct Run {
  nn::Linear net{2, 2};
  optim::SGD opt{net.parameters(), {}};
  data::Loader loader{data::TensorDataset({ones({4, 2}), zeros({4, 2})}), {.batch = 2}};
};

using Calls = std::vector<std::pair<const char*, std::function<void(Run&)>>>;

void check_all(const Calls& calls) {
  for (const auto& [name, made] : calls) {
    const auto& call = made;  // Clang 14 captures no structured binding
    Run run;
    const std::string text = text_of([&] { call(run); });
    INFO(text);
    CHECK(text.starts_with("[" + std::string(name) + "]"));
    CHECK(text.find(" empty; hint: ") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("an empty function is refused at once: tensors, memory, modules", "[host]") {
  const Tensor x = ones({2, 2}).set_requires_grad();
  const std::function<void()> nothing;
  check_all({
      {"MemoryReserve", [&](Run&) { MemoryReserve(nothing, Device::cpu(), Owner::data); }},
      {"plan_memory", [&](Run&) { plan_memory(nothing); }},
      {"at_dry_end", [&](Run&) { runtime::at_dry_end(&x, nothing); }},
      {"on_replay", [&](Run&) { runtime::on_replay(Device::cpu(), nothing); }},
      {"on_abandon", [&](Run&) { runtime::on_abandon(Device::cpu(), nothing); }},
      {"WaitCheck", [&](Run&) { const runtime::WaitCheck check(Device::cpu(), nothing); }},
      {"before_change", [&](Run&) { runtime::before_change(Rollback::data, &x, nullptr); }},
      {"before_change",
       [&](Run&) {
         const RollbackPoint point({Rollback::data});
         runtime::before_change(Rollback::data, &x, [&] { return runtime::PutBack(nothing); });
       }},
      {"graph", [&](Run&) { graph::Step(Device::cpu(), nothing); }},
      {"add_hook", [&](Run&) { add_hook(x, GradHook()); }},
      {"checkpoint", [&](Run&) { checkpoint(nothing); }},
      {"checkpoint", [&](Run&) { checkpoint(std::function<Tensor(const Tensor&)>(), x); }},
      {"checkpoint",
       [&](Run&) {
         const NoGrad guard;
         checkpoint(static_cast<Tensor (*)(const Tensor&)>(nullptr), x);
       }},
      {"Module::apply", [](Run& r) { r.net.apply(nullptr); }},
      {"Module::add_forward_hook", [](Run& r) { r.net.add_forward_hook(nullptr); }},
      {"Module::add_forward_pre_hook", [](Run& r) { r.net.add_forward_pre_hook(nullptr); }},
      {"Lambda", [](Run&) { nn::Lambda(nullptr); }},
      {"checkpoint_within", [](Run& r) { nn::checkpoint_within(r.net, 1, nullptr); }},
      {"RecomputedStatistics",
       [&](Run& r) { const nn::RecomputedStatistics made(r.net, nothing); }},
  });
}

TEST_CASE("an empty function is refused at once: optimizers, data, files, trainings", "[host]") {
  const test::TempFolder folder;
  const std::function<Loss(std::int64_t)> no_loss;
  const std::function<Loss(std::int64_t, std::int64_t)> no_part;
  const std::function<data::Sample(std::int64_t)> no_sample;
  const std::function<std::int64_t(std::int64_t)> no_length;
  const std::function<std::string(const std::string&)> no_name;
  const std::function<data::Sample(data::Sample)> no_map;
  check_all({
      {"Accumulate", [&](Run&) { const optim::Accumulate made(no_length); }},
      {"lambda_schedule", [](Run&) { optim::lambda_schedule(nullptr, 4); }},
      {"Custom", [](Run& r) { optim::Custom(nn::clone(r.net).parameters(), {}); }},
      {"SGD", [&](Run& r) { r.opt.run_cycle(2, no_loss); }},
      {"SGD", [&](Run& r) { r.opt.run_batch(4, 2, no_part); }},
      {"Dataset", [&](Run&) { data::Dataset(4, no_sample); }},
      {"Map", [&](Run&) { data::Map(data::TensorDataset({ones({2})}), no_map); }},
      {"read_csv_pieces", [](Run&) { data::read_csv_pieces("none.csv", 4, nullptr); }},
      {"Rename", [&](Run&) { const io::Rename made(no_name); }},
      {"export_onnx",
       [&](Run&) {
         const std::function<std::vector<Tensor>(const std::vector<Tensor>&)> none;
         io::export_onnx(folder.file("m.onnx"), none, {ones({2})});
       }},
      {"fit", [](Run& r) { train::fit(r.net, r.opt, r.loader, train::LossFunction()); }},
      {"fit",
       [](Run& r) {
         const std::function<void(const data::LoaderBatch&)> none;
         train::fit({.modules = {{"", r.net}}, .optimizers = {{"", r.opt}}}, r.loader, none);
       }},
      {"run_local", [](Run&) { dist::run_local(2, nullptr); }},
  });
}

}  // namespace firn::testing
