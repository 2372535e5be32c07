// A module that was moved from: every call on it throws Error and names itself.
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "message_of.h"
#include "support/catch.h"

using namespace firn;
using firn::testing::message_of;

TEST_CASE("every call on a module that was moved from says so, and names itself", "[host]") {
  using nn::Module;
  nn::Sequential net{nn::Linear(2, 2), nn::BatchNorm1d(2)};
  const auto id = net.add_forward_hook([](Module&, const auto&, const auto&) {});
  nn::Sequential taken = std::move(net);
  const std::vector<std::pair<const char*, std::function<void(nn::Sequential&)>>> calls = {
      {"[Module::parameters]", [](auto& m) { m.parameters(); }},
      {"[Module::named_parameters]", [](auto& m) { m.named_parameters(); }},
      {"[Module::named_buffers]", [](auto& m) { m.named_buffers(); }},
      {"[Module::named_modules]", [](auto& m) { m.named_modules(); }},
      {"[Module::num_parameters]", [](auto& m) { m.num_parameters(); }},
      {"[Module::copy_from]", [&](auto& m) { m.copy_from(taken); }},
      {"[Module::copy_from]", [&](auto& m) { nn::clone(taken).copy_from(m); }},
      {"[Module::train]", [](auto& m) { m.train(); }},
      {"[Module::train]", [](auto& m) { m.eval(); }},
      {"[Module::to]", [](auto& m) { m.to(f64); }},
      {"[Module::to]", [](auto& m) { m.to(Device::cpu()); }},
      {"[Module::apply]", [](auto& m) { m.apply([](Module&) {}); }},
      {"[Module::zero_grad]", [](auto& m) { m.zero_grad(); }},
      {"[Module::set_requires_grad]", [](auto& m) { m.set_requires_grad(false); }},
      {"[Module::set_autocast]", [](auto& m) { m.set_autocast(bf16); }},
      {"[Module::set_checkpoint]", [](auto& m) { m.set_checkpoint(CheckpointOptions{}); }},
      {"[Module::set_checkpoint]", [](auto& m) { m.set_checkpoint(std::nullopt); }},
      {"[Module::add_forward_pre_hook]",
       [](auto& m) { m.add_forward_pre_hook([](Module&, const auto&) {}); }},
      {"[Module::add_forward_hook]",
       [](auto& m) { m.add_forward_hook([](Module&, const auto&, const auto&) {}); }},
      {"[Module::remove_hook]", [id](auto& m) { m.remove_hook(id); }},
      {"[Module::summary]", [](auto& m) { m.summary(); }},
      {"[Module::summary]",
       [](auto& m) {
         m.summary(Shape{1, 2});
       }},
      {"[Module::summary]",
       [](auto& m) {
         m.summary(ones({1, 2}));
       }},
      {"[nn::clone]", [](auto& m) { nn::clone(m); }},
      {"[nn::clone]", [](auto& m) { nn::clone(static_cast<const Module&>(m)); }},
      {"[Sequential]", [](auto& m) { m.push_back(nn::ReLU()); }},
      {"[Sequential]",
       [](auto& m) {
         m(ones({1, 2}));
       }},
      {"[checkpoint_blocks]", [](auto& m) { nn::checkpoint_blocks(m); }},
      {"[checkpoint_modules]", [](auto& m) { nn::checkpoint_modules(m, {"0"}); }},
      {"[checkpoint_nothing]", [](auto& m) { nn::checkpoint_nothing(m); }},
      {"[checkpoint_within]", [](auto& m) { nn::checkpoint_within(m, 1, [] {}); }},
      {"[convert_batch_norm]",
       [](auto& m) { nn::convert_batch_norm(m, nn::BatchNormMode::per_step); }},
      {"[convert_to_group_norm]", [](auto& m) { nn::convert_to_group_norm(m, 1); }},
      {"[RecomputedStatistics]", [](auto& m) { const nn::RecomputedStatistics made(m, [] {}); }},
      {"[state_of]", [](auto& m) { io::state_of(m); }},
      {"[load_safetensors]", [](auto& m) {
         const test::TempFolder folder;
         io::save_safetensors(folder.file("t"), {{"0.weight", ones({2, 2})}});
         io::load_safetensors(folder.file("t"), m);
       }}};
  for (const auto& [name, made] : calls) {
    const auto& call = made;  // Clang 14 captures no structured binding
    const std::string text = message_of([&] { call(net); });
    INFO(name << ": " << text);
    CHECK(text.starts_with(name));
    CHECK(text.find("was moved from") != std::string::npos);
  }
}
